"""Task functions; compiled."""

# mypy: disable-error-code="overload-overlap"
# The types of results overlap on purpose: an overload stands before those that it is to be taken before.

from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, overload

from stf.data.logical_data import LogicalData
from stf.tasks.new_data import Arrays, Result
from stf.tasks.task import Task

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")  # what the function returns
_Owner = TypeVar("_Owner")

class _OnlyAny:
    """What no function returns: only functions that return Any suit it."""

# What a body returns into data that it writes. In an overload by `self`, mypy takes `_R` for covariant, and so an array
# for a `Result`: so these come before that.
_Stored: TypeAlias = Arrays | complex | tuple[Arrays | complex, ...]

class _Calls(Generic[_P, _R]):
    """What task functions and their methods of objects share."""

    __name__: str
    fn: Callable[..., Any]
    symbol: str
    def on(self, place: Any) -> Self: ...
    def named(self, symbol: str) -> Self: ...
    def with_priority(self, priority: int) -> Self: ...
    @overload
    def __call__(self: _Calls[_P, _OnlyAny], *args: _P.args, **kwargs: _P.kwargs) -> Task: ...
    @overload
    def __call__(self: _Calls[_P, _Stored], *args: _P.args, **kwargs: _P.kwargs) -> Task: ...
    @overload
    def __call__(self: _Calls[_P, Result], *args: _P.args, **kwargs: _P.kwargs) -> LogicalData: ...
    @overload
    def __call__(
        self: _Calls[_P, tuple[Result, Result]], *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[LogicalData, LogicalData]: ...
    @overload
    def __call__(
        self: _Calls[_P, tuple[Result, Result, Result]], *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[LogicalData, LogicalData, LogicalData]: ...
    @overload
    def __call__(
        self: _Calls[_P, tuple[Result, Result, Result, Result]], *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[LogicalData, LogicalData, LogicalData, LogicalData]: ...
    @overload
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Task: ...

class TaskFunction(_Calls[_P, _R]):
    """A function whose calls are tasks; made by ``@stf.task``."""

    def __init__(
        self,
        fn: Callable[_P, _R],
        symbol: str | None = None,
        arrays: str | None = None,
        where: Any = None,
        in_graphs: bool = False,
        pure: bool = False,
    ) -> None: ...
    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: TaskFunction[Concatenate[_Owner, _Q], _R], instance: _Owner, owner: Any = None
    ) -> BoundTaskFunction[_Q, _R]: ...
    def call(self, context: Any, task: Any, values: list[Any], kwargs: dict[str, Any]) -> Any: ...

class BoundTaskFunction(_Calls[_P, _R]):
    """A task function as the method of an object."""

    function: Any
    instance: Any
