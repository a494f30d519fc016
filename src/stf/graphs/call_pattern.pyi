from collections.abc import Callable
from typing import Any

from stf.graphs.task_graph import TaskGraph

MISSING: object
OBJECT: int

class Path:
    attributes: tuple[str, ...]
    def __init__(self, around: dict[str, Any] | None, base: Any, attributes: tuple[str, ...]) -> None: ...
    def read(self) -> Any: ...
    @property
    def cell_contents(self) -> Any: ...

class CallEntry:
    key: Any
    context: Callable[[], Any]
    kept: list[Any] | None
    calls: int
    graph: TaskGraph | None
    result: Any
    first_data: int
    reason: str
    is_plain: bool
    launched: int
    def __init__(self, key: Any, context: Any, calls: int) -> None: ...
    def end(self) -> None: ...

class CallPattern:
    entry: CallEntry
    context: Callable[[], Any]
    def __init__(
        self, entry: CallEntry, context: Any, values: list[Any], numbers: dict[str, Any], cells: list[Any]
    ) -> None: ...
    def numbers_of(self, args: tuple[Any, ...]) -> dict[str, Any] | None: ...

class ReplayCore:
    _patterns: list[CallPattern]
    _latest: CallPattern | None
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def pattern_of(value: Any) -> tuple[int, Any] | None: ...
def marks_of(
    context: Any, parameters: Any, arguments: dict[str, Any], given: int, params: Any
) -> tuple[list[Any], dict[str, Any]] | None: ...
