"""Builders of tasks on the host; compiled."""

from collections.abc import Callable
from typing import Any, Self

from stf.tasks.task import ContextCore, Task

def host_launch(
    context: ContextCore,
    *args: Any,
    fn: Any = None,
    name: str | None = None,
    symbol: str | None = None,
    uses_cuda: bool = True,
    after: Any = None,
    **others: Any,
) -> Any: ...

class HostLaunch:
    """A builder of a host function's task."""

    def __init__(self, task: Task, extra: tuple[Any, ...]) -> None: ...
    def __call__(self, fn: Callable[..., Any] | Task) -> Task: ...
    def on(self, place: Any) -> Self: ...
    def set_symbol(self, symbol: str) -> Self: ...

def call_on_host(task: Task, fn: Callable[..., None], first: Any, library: str) -> None: ...
def must_be_host(task: Task, args: tuple[Any, ...]) -> None: ...
