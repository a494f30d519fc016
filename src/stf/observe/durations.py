"""How long tasks take: kept by function, by size of their data, and by kind of device.

What a task costs follows from three things that are known before it runs: its function, how many bytes its data have
(as a power of two: its size class), and the kind of device. So the times of one program predict another one.

Of each key the last 16 times are kept. Of these, times beyond four medians are dropped: a page fault, a signal, a first
call that compiles. The *mean* of what is left predicts a makespan, which is a sum; the *median* decides between places,
since one slow run must not move a thousand tasks. Measured on a busy machine, means of bodies predicted a run to 14 %
where medians were off by up to 74 %.

Only some of the tasks of a function are timed, once 16 were: one in 16. So a task costs little more than without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .observer import ObservedTask, Observer

KEPT = 16  # times of each key
OUTLIER = 4.0  # medians: what took longer is dropped
EACH = 16  # of a function with as many as are kept, one task in so many is timed
MOST_PENDING = 1 << 16  # tasks that were submitted and have not run
TIMED = frozenset({"task", "host_launch", "fill", "copy", "part"})  # kinds of tasks; the others wait, or only order

Key = tuple[str, int, str]


class Duration(NamedTuple):
    """What tasks of one function, size class and kind of device took; times in seconds.

    `n` counts all that were timed. Mean, median and the 90th percentile are of the last ones.
    """

    n: int
    mean_s: float
    median_s: float
    p90_s: float


def size_class(nbytes: int) -> int:
    """Return the power of two of a number of bytes; 0 for none.

    >>> size_class(1_000_000), size_class(0)
    (19, 0)
    """
    return max(nbytes, 1).bit_length() - 1


def duration_of(n: int, times_s: Iterable[float]) -> Duration:
    """Return what the last times of `n` say, without outliers."""
    times = sorted(times_s)
    middle = median(times)
    times = [time for time in times if time <= OUTLIER * middle] or times
    last = len(times) - 1
    return Duration(n, sum(times) / len(times), median(times), times[min(round(0.9 * last), last)])


def median(times: Sequence[float]) -> float:
    """Return the median of sorted times; the module `statistics` takes 5 ms to be loaded."""
    half = len(times) // 2
    return times[half] if len(times) % 2 else (times[half - 1] + times[half]) / 2


def nbytes_of(task: Any) -> int:
    """Return how many bytes the data of a task have."""
    total = 0
    for access in task.accesses:
        layout = getattr(getattr(access, "core", None), "layout", None)  # a fill at first use has no handle
        if layout is not None:
            total += layout.nbytes
    return total


class Durations(Observer):
    """Keep how long the tasks of a context take.

    Parameters
    ----------
    kinds : sequence of str
        The kind of each place; the host comes first.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        self._times: dict[Key, tuple[list[int], deque[float]]] = {}  # how many, and the last ones
        self._settled: set[str | None] = set()  # functions of which many were timed
        self._classes: dict[int, int] = {}  # by task

    def task(self, task: ObservedTask) -> None:
        """Note how large the data of a task are, if it is to be timed."""
        number = task.id
        if (number % EACH and task.symbol in self._settled) or task.kind not in TIMED:
            return
        if len(self._classes) >= MOST_PENDING:
            for old in list(self._classes)[: MOST_PENDING // 2]:
                self._classes.pop(old, None)
        self._classes[number] = size_class(nbytes_of(task))

    def ran(
        self,
        task_id: int,
        name: str,
        device: int,
        worker: int,
        start_ns: int,
        end_ns: int,
        category: str,
        operation: int = 0,
    ) -> None:
        """Keep the time of a task."""
        if task_id not in self._classes or category != "task":
            return
        large = self._classes[task_id]
        key = (name, large, self._kinds[device + 1] if device + 1 < len(self._kinds) else "")
        known = self._times.get(key)
        if known is None:
            known = self._times.setdefault(key, ([0], deque(maxlen=KEPT)))
        known[0][0] += 1
        known[1].append((end_ns - start_ns) * 1e-9)
        if known[0][0] == KEPT:
            self._settled.add(name)

    def withdrawn(self, task_id: int) -> None:
        """Forget a task that did not begin."""
        self._classes.pop(task_id, None)

    def table(self) -> dict[Key, Duration]:
        """Return the durations by (function, size class, kind of device)."""
        return {key: duration_of(count[0], list(times)) for key, (count, times) in list(self._times.items())}


def to_records(table: Mapping[Key, Duration]) -> list[dict[str, Any]]:
    """Return durations as JSON takes them, in order."""
    return [
        {"function": function, "size_class": large, "kind": kind, **duration._asdict()}
        for (function, large, kind), duration in sorted(table.items())
    ]


def from_records(records: Iterable[Mapping[str, Any]]) -> dict[Key, Duration]:
    """Return durations that `to_records` made; KeyError, TypeError or ValueError for what is none."""
    return {
        (str(item["function"]), int(item["size_class"]), str(item["kind"])): Duration(
            int(item["n"]), float(item["mean_s"]), float(item["median_s"]), float(item["p90_s"])
        )
        for item in records
    }
