"""Types of the compiled module."""

from typing import Any

from stf.tasks.group import Tasks
from stf.tasks.task import ContextCore, Task

class KernelBuilder:
    construct: Any
    over: Any
    arguments: tuple[Any, ...]
    extra: tuple[Any, ...]
    partition: Any
    grid: Any
    task: Any

    def on(self, place: Any) -> KernelBuilder: ...
    def set_symbol(self, symbol: str) -> KernelBuilder: ...
    def __call__(self, body: Any) -> Task | Tasks: ...

def make_builder(
    context: ContextCore, construct: Any, over: Any, arguments: tuple[Any, ...], extra: Any, name: str | None
) -> KernelBuilder: ...
def refuse_access(what: str, item: Any) -> None: ...
