"""Graphs of stf as handles of CUDA's, for programs that launch them themselves."""

from __future__ import annotations

from typing import Any

import stf


class DriverGraphs:
    """A recorded graph, and its handles of CUDA's: those of `stf.TaskGraph`, as `cuda.stf` has them."""

    def __init__(self, context: Any, graph: Any) -> None:
        self._context = context
        self._graph = graph

    def launch(self) -> None:
        """Launch the graph, in order with all tasks."""
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
        return int(self._graph.exec_handle)

    @property
    def stream(self) -> int:
        """A stream that comes after all work so far; the same each time."""
        self._must_be_on_cuda("stream")
        return int(self._graph.stream)

    def _must_be_on_cuda(self, what: str) -> None:
        if not self._context.on_cuda:
            raise stf.PlaceError(f"{what} is a handle of CUDA's, and this context runs on a CPU; use launch()")


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
