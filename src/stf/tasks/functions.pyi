"""Task functions; compiled."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec

from stf.tasks.task import Task

_P = ParamSpec("_P")

class TaskFunction(Generic[_P]):
    """A function whose calls are tasks; made by ``@stf.task``."""

    __name__: str
    fn: Callable[..., Any]
    symbol: str
    def __init__(
        self,
        fn: Callable[_P, Any],
        symbol: str | None = None,
        arrays: str | None = None,
        where: Any = None,
        in_graphs: bool = False,
    ) -> None: ...
    def on(self, place: Any) -> TaskFunction[_P]: ...
    def named(self, symbol: str) -> TaskFunction[_P]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Task: ...
    def call(self, context: Any, task: Any, values: list[Any], kwargs: dict[str, Any]) -> None: ...
