"""Graphs of stf as handles of CUDA's, for programs that launch them themselves."""

from __future__ import annotations

from typing import Any

import stf


class DriverGraphs:
    """A recorded graph, and the handles of it that were asked for.

    stf does not see launches of the user's. So before it launches the graph itself, and before the graph is closed, it
    waits for the stream that was handed out for them.
    """

    def __init__(self, context: Any, graph: Any) -> None:
        self._context = context
        self._graph = graph
        self._executable: Any = None
        self._stream: int | None = None

    def launch(self) -> None:
        """Launch the graph, in order with all tasks."""
        self._await_stream()
        self._graph.launch()

    @property
    def graph(self) -> int:
        """The address of the CUDA graph."""
        self._must_be_on_cuda("graph")
        return int(self._graph.handle)

    @property
    def exec_graph(self) -> int:
        """The address of the executable CUDA graph."""
        self._must_be_on_cuda("exec_graph")
        if self._executable is None:
            from cuda.bindings import driver

            self._executable = checked(driver.cuGraphInstantiate(driver.CUgraph(self.graph), 0))
        return int(self._executable)

    @property
    def stream(self) -> int:
        """A stream that comes after all work so far; the same each time."""
        self._must_be_on_cuda("stream")
        fence = int(self._context.fence().ptr)
        if self._stream is None:
            self._stream = fence
        elif fence != self._stream:
            from cuda.bindings import driver

            event = checked(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
            checked(driver.cuEventRecord(event, fence))
            checked(driver.cuStreamWaitEvent(self._stream, event, 0))
            checked(driver.cuEventDestroy(event))
        return self._stream

    def _must_be_on_cuda(self, what: str) -> None:
        if not self._context.on_cuda:
            raise stf.PlaceError(f"{what} is a handle of CUDA's, and this context runs on a CPU; use launch()")

    def _await_stream(self) -> None:
        if self._stream is not None:
            from cuda.bindings import driver

            checked(driver.cuStreamSynchronize(self._stream))

    def close(self) -> None:
        """Give the handles up."""
        self._await_stream()
        self.drop()

    def drop(self) -> None:
        """Give the executable graph up, whatever runs."""
        executable, self._executable = self._executable, None
        if executable is not None:
            from cuda.bindings import driver

            driver.cuGraphExecDestroy(executable)


class Launchable:
    """What has the handles of a recorded graph; subclasses say which graph that is."""

    def _launched(self) -> Any:
        """Return what is launched: `DriverGraphs`, or another object like this one; raise if there is none."""
        raise NotImplementedError

    def launch(self) -> None:
        """Launch the graph once, in order with all other tasks."""
        self._launched().launch()

    @property
    def graph(self) -> int:
        """The address of the CUDA graph."""
        return int(self._launched().graph)

    @property
    def exec_graph(self) -> int:
        """The address of the executable CUDA graph."""
        return int(self._launched().exec_graph)

    @property
    def stream(self) -> int:
        """A stream to launch it on, which comes after all work so far."""
        return int(self._launched().stream)


def checked(answer: Any) -> Any:
    """Return what a call of the driver gives; RuntimeError if it failed."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA refused it: {status!r}")
    return values[0] if values else None
