"""Task functions; compiled."""

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from stf.tasks.task import Task

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_Owner = TypeVar("_Owner")

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
        pure: bool = False,
    ) -> None: ...
    def on(self, place: Any) -> TaskFunction[_P]: ...
    def named(self, symbol: str) -> TaskFunction[_P]: ...
    def with_priority(self, priority: int) -> TaskFunction[_P]: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: TaskFunction[Concatenate[_Owner, _Q]], instance: _Owner, owner: Any = None
    ) -> BoundTaskFunction[_Q]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Task: ...
    def call(self, context: Any, task: Any, values: list[Any], kwargs: dict[str, Any]) -> Any: ...

class BoundTaskFunction(Generic[_P]):
    """A task function as the method of an object."""

    __name__: str
    fn: Callable[..., Any]
    symbol: str
    function: Any
    instance: Any
    def on(self, place: Any) -> BoundTaskFunction[_P]: ...
    def named(self, symbol: str) -> BoundTaskFunction[_P]: ...
    def with_priority(self, priority: int) -> BoundTaskFunction[_P]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Task: ...
