"""Recordings of replayed functions that are planned again.

With `stf.placement.planned`, a recording is planned as a whole when it closes, by the times that are known then. These
may be few: a GPU has told none after one call, and estimates stand in for them. Where tasks turn out to take more than
`FACTOR` times longer, or less, the next call gives the recording up and records the function again. That happens at
most `MOST` times to the calls with one signature. A function is looked at for `WATCHED` replays. Then a replay costs as
little as without a plan, and no longer asks.

Graphs that the user records (`Context.task_graph`) keep their plan, since nobody can run their with-block again.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PlanTimes", "plans_again"]

FACTOR = 2.0
MOST = 3
WATCHED = 32
FEWEST = 2  # measurements, as of a mean


class PlanTimes:
    """The times that a recording was planned with: of each `Timing`, its mean, or the estimate of it."""

    def __init__(self, planned_s: dict[Any, float]) -> None:
        self.planned_s, self.looks = planned_s, 0

    def are_wrong(self) -> bool:
        """Return whether tasks take much longer, or less, than was planned."""
        self.looks += 1
        return any(
            timing.count >= FEWEST and not seconds / FACTOR <= timing.mean <= seconds * FACTOR
            for timing, seconds in self.planned_s.items()
        )


def plans_again(replayed: Any, entry: Any, graph: Any) -> bool:
    """Give up a recording of a replayed function whose tasks take other times than planned; return whether it was."""
    times, key = graph._plan_times, entry.key
    if times is None:
        return False
    are_wrong = times.are_wrong()
    if times.looks >= WATCHED:
        graph._plan_times = None
    if not are_wrong or replayed._planned_again[key] >= MOST:
        return False
    with replayed._lock:
        if entry.graph is not graph:
            return False
        replayed._planned_again[key] += 1
        entry.graph = entry.result = None
        replayed._forget_patterns()
    graph.close()
    return True
