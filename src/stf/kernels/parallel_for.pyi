"""Types of the compiled module."""

from typing import Any

from stf.kernels.builders import KernelBuilder
from stf.tasks.task import ContextCore

def parallel_for(
    context: ContextCore,
    *arguments: Any,
    args: Any = (),
    name: str | None = None,
    symbol: str | None = None,
    after: Any = None,
    priority: int = 0,
) -> KernelBuilder: ...
