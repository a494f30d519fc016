"""Graphs of stf as handles of CUDA's, for programs that launch them themselves."""

from __future__ import annotations

from typing import Any

import stf


class Launchable:
    """What has the handles of a recorded graph; subclasses say which graph that is."""

    def _launched(self) -> Any:
        """Return the graph of stf's; raise if there is none."""
        raise NotImplementedError

    def _on_cuda(self, what: str) -> Any:
        graph = self._launched()
        if not graph._context.on_cuda:
            raise stf.PlaceError(f"{what} is a handle of CUDA's, and this context runs on a CPU; use launch()")
        return graph

    def launch(self) -> None:
        """Launch the graph once, in order with all other tasks."""
        self._launched().launch()

    @property
    def graph(self) -> int:
        """The address of the CUDA graph."""
        return int(self._on_cuda("graph").handle)

    @property
    def exec_graph(self) -> int:
        """The address of the executable CUDA graph."""
        return int(self._on_cuda("exec_graph").exec_handle)

    @property
    def stream(self) -> int:
        """A stream to launch it on, which comes after all work so far; the same each time."""
        return int(self._on_cuda("stream").stream)


def checked(answer: Any) -> Any:
    """Return what a call of the driver gives; RuntimeError if it failed."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA refused it: {status!r}")
    return values[0] if values else None
