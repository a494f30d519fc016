"""Types of the compiled module."""

from typing import Any

from stf.kernels.arguments import Kernel
from stf.tasks.task import ContextCore, Task

def launch_kernel(
    context: ContextCore,
    kernel: Any,
    config: Any,
    *args: Any,
    place: Any = None,
    name: str | None = None,
    symbol: str | None = None,
) -> Task: ...

class Config:
    def __init__(self, grid: Any, block: Any, shared: int, extras: Any = None) -> None: ...

def launch_alone(task: Any, mine: Kernel, shape: Config, args: tuple[Any, ...]) -> int: ...
def config_of(config: Any) -> Any: ...
def __getattr__(name: str) -> Any: ...
