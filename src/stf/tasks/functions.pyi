"""Task functions; compiled."""

from collections.abc import Callable
from typing import Any

class TaskFunction:
    """A function whose calls are tasks; made by ``@stf.task``."""

    fn: Callable[..., Any]
    symbol: str
    def __init__(
        self,
        fn: Any,
        symbol: str | None = None,
        arrays: str | None = None,
        where: Any = None,
        in_graphs: bool = False,
    ) -> None: ...
    def on(self, place: Any) -> TaskFunction: ...
    def named(self, symbol: str) -> TaskFunction: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def call(self, context: Any, task: Any, values: list[Any], kwargs: dict[str, Any]) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
