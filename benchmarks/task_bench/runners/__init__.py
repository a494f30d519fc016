"""Who runs the graphs: one class per way to run tasks, all with the same interface.

``Runner(graph, devices)`` prepares for one graph, or raises `Missing`. ``run(steps, iterations)`` is what is timed: it
submits the tasks of so many steps, and returns when all have run. ``rows()`` then returns the outputs of the last two
steps, the last one first.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Missing", "Runner"]


class Missing(Exception):
    """A runner can't run here; the message says why."""


class Runner:
    """One way to run a graph."""

    name = ""
    kind = "peer"  # or "stf"
    most = 100_000  # tasks of a run
    is_here = True  # tasks run in this process

    def __init__(self, graph: Any, devices: str) -> None:
        if devices != "cpu":
            raise Missing("it runs on the cores of a CPU")
        self.graph = graph

    def run(self, steps: int, iterations: int) -> None:
        """Run the graph once."""
        raise NotImplementedError

    def rows(self) -> list[list[Any]]:
        """Return the outputs of the last two steps, the last one first; of the last one alone, where no other is kept."""
        raise NotImplementedError

    def note(self) -> str:
        """Return what is to be said of the runs, if anything."""
        return ""

    def close(self) -> None:
        """Give up what the runner holds."""
