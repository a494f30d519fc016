"""Types of the compiled module."""

from typing import Any

from stf.tasks import ContextCore

class Launching(ContextCore):
    def launch_kernel(
        self,
        kernel: Any,
        config: Any,
        *args: Any,
        place: Any = None,
        name: str | None = None,
        symbol: str | None = None,
    ) -> None: ...

class Kernel:
    name: str
    cooperative: bool
    def __init__(self, origin: Any, parameters: Any, functions: list[int], name: str) -> None: ...
    def describe_arrays(self, ndims: list[int]) -> None: ...
    def keep(self, key: int, function: int) -> None: ...

class Config:
    def __init__(self, grid: Any, block: Any, shared: int, extras: Any = None) -> None: ...

def launch_alone(task: Any, mine: Kernel, shape: Config, args: tuple[Any, ...]) -> int: ...
def config_of(config: Any) -> Any: ...
def __getattr__(name: str) -> Any: ...
