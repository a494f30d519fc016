from collections.abc import Callable, Mapping
from typing import Any

from stf.data.logical_data import LogicalData
from stf.tasks.task import Task
from stf.values.params import Param

def submit_routine(
    context: Any, routine: Any, name: str, values: dict[str, Any] | None = ..., rebinding: Any = ...
) -> Task: ...

class GraphCore:
    name: str
    launches: int
    _context_ref: Callable[[], Any]
    _recording: Any
    _params: dict[str, Param]
    _in_kernels: list[Param]
    _draws: list[Any]
    def __init__(self, name: str, context_ref: Callable[[], Any]) -> None: ...
    def launch(self, data: Mapping[LogicalData, LogicalData] | None = None, /, **values: Any) -> Task: ...
    def launch_rebound(self, context: Any, values: dict[str, Any], rebinding: Any) -> Task: ...
