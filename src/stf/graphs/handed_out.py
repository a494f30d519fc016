"""Handles of a recorded graph that users launch themselves: the executable graph, and a stream for it.

stf does not see launches of the user's. So before it launches the graph, and before the graph is closed, it waits for
the stream that was handed out for them.
"""

from __future__ import annotations

from typing import Any

from stf.errors import DriverError
from stf.interop.cuda_arrays import make_wait

__all__ = ["HandedOut"]


class HandedOut:
    """The executable of a graph, and the stream for its launches, as far as somebody asked for them."""

    def __init__(self) -> None:
        self.executable = 0
        self.stream: int | None = None

    def executable_of(self, handle: int) -> int:
        """Return the address of the executable of a CUDA graph: the same each time."""
        if not self.executable:
            from cuda.bindings import driver

            self.executable = int(checked(driver.cuGraphInstantiate(driver.CUgraph(handle), 0), "cuGraphInstantiate"))
        return self.executable

    def stream_after(self, fence: int) -> int:
        """Return the stream for launches, the same each time, which comes after a fence from now on."""
        if self.stream is None:
            self.stream = fence
        make_wait(fence, self.stream)
        return self.stream

    def wait(self) -> None:
        """Wait for what the user launched on the stream."""
        if self.stream is not None:
            from cuda.bindings import driver

            checked(driver.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def close(self) -> None:
        """Give the executable up, after what the user launched."""
        try:
            self.wait()
        finally:
            self.stream = None
            self.drop()

    def drop(self) -> None:
        """Give the executable up, whatever runs."""
        executable, self.executable = self.executable, 0
        if executable:
            from cuda.bindings import driver

            driver.cuGraphExecDestroy(executable)

    def __del__(self) -> None:
        self.drop()


def checked(answer: Any, call: str) -> Any:
    """Return what a call of the driver gives; DriverError if it failed."""
    code, *values = answer
    if code.value:
        raise DriverError(code.name, code.value, call, "a graph that was handed out")
    return values[0] if values else None
