"""How long tasks take: kept by function, by size of their data, and by kind of device. Compiled.

What a task costs follows from three things that are known before it runs: its function, how many bytes its data have
(as a power of two: its size class), and the kind of device. So the times of one program predict another one, and the
first tasks of a program say where the next ones should run.

Of each key the last 16 times are kept. Of these, times beyond four medians are dropped: a page fault, a signal, a first
call that compiles. One slow run must not move a thousand tasks. The *mean* of what is left counts, since a makespan is
a sum. Measured on a busy machine, means of bodies predicted a run to 14 % where medians were off by up to 74 %.

Work of several streams of a GPU runs at the same time, so that each takes longer. Of tasks that overlap there each is
given its share of the time: an nth of it while n of them run. So the times of a device that is never idle add up to the
time that has passed, as they do where the tasks run one after the other.

`Timings` is the one table. Two feed it: `Durations`, an observer, where a user asked for times, and the placement of a
context, which times the first eight tasks of a key and then one of 64. Times of a calibration stand in for what was
not measured here yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cython

from .observer import ObservedTask, Observer

if not cython.compiled:

    def stf_size_class(nbytes: float) -> int:
        """Return the size class of a number of bytes."""
        return math.frexp(nbytes)[1] - 1 if nbytes > 1 else 0


KEPT = 16  # times of each key
OUTLIER = 4.0  # medians: what took longer is dropped
FIRST: cython.int = 8  # tasks of a key that placement times,
EVERY: cython.int = 64  # and then one of so many
FEWEST = 2  # times that make a mean, by which places are chosen
EACH = 16  # of a function with as many as are kept, one task in so many is timed
MOST_PENDING = 1 << 16  # tasks that were submitted and have not run
TIMED = frozenset({"task", "host_launch", "fill", "copy", "part"})  # kinds of tasks; the others wait, or only order

Key = tuple[str, int, str]
Known = Callable[[str, int, str], float | None]


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


@cython.final
@cython.cclass
class Timing:
    """What was measured of tasks that should take the same time."""

    def __init__(self, known_s=None):
        self.mean = -1.0 if known_s is None else known_s
        self.asked = self.count = 0
        self.recent = []

    def is_due(self):
        """Count a task; return whether it is to be measured."""
        self.asked += 1
        return self.asked <= FIRST or self.asked % EVERY == 0

    def ran(self, start_ns, end_ns):
        """Take the times of a body that has run."""
        self.add((end_ns - start_ns) * 1e-9)

    def add(self, seconds):
        """Take a measurement, from any thread."""
        recent = [*self.recent, seconds]
        if len(recent) > KEPT:
            del recent[0]
        self.recent = recent
        self.count += 1
        if self.count >= FEWEST:
            most = OUTLIER * sorted(recent)[(len(recent) - 1) // 2]
            counted = [one for one in recent if one <= most]
            self.mean = sum(counted) / len(counted)
        return 0

    def duration(self):
        """Return what is known of them."""
        return duration_of(self.count, self.recent)


@cython.final
@cython.cclass
class Timings:
    """The times of a context's tasks.

    Parameters
    ----------
    kinds : sequence of str
        The kinds of devices, by which tasks take different times.
    known : callable, optional
        ``known(name, size_class, kind)`` is the time of a task of which nothing was measured here, in seconds; or None.
    """

    def __init__(self, kinds, known=None):
        self.kinds = list(dict.fromkeys(kinds))
        self.known = known
        self.timings = {}
        self.last_name = self.last = None

    def timing(self, name, size_class, kind):
        """Return what is known of tasks of a name, whose data have that size, on a kind of device, by number."""
        if name is not self.last_name:
            last = self.timings.get(name)
            if last is None:
                self.timings[name] = last = {}
            self.last_name, self.last = name, last
        key: cython.int = size_class << 8 | kind
        found: Timing = self.last.get(key)
        if found is None:
            known_s = None if self.known is None else self.known(name, size_class, self.kinds[kind])
            self.last[key] = found = Timing(known_s)
        return found

    def note(self, name, size_class, kind, seconds):
        """Take a duration that somebody has measured, on a kind of device, by its name; return how many there are."""
        if kind not in self.kinds:
            self.kinds.append(kind)
        timing: Timing = self.timing(name, size_class, self.kinds.index(kind))
        timing.add(seconds)
        return timing.count

    def table(self):
        """Return the durations of all that was measured, by (function, size class, kind of device)."""
        found = {}
        for name, of_name in list(self.timings.items()):
            for key, item in list(of_name.items()):
                timing: Timing = item
                if timing.count:
                    found[(name, key >> 8, self.kinds[key & 255])] = timing.duration()
        return found


def shares_of(spans: Sequence[tuple[int, int]]) -> list[float]:
    """Return for each (start, end) its share of the time: while n overlap, each has an nth.

    >>> shares_of([(0, 4), (2, 4), (6, 7)])
    [3.0, 1.0, 1.0]
    """
    marks = sorted({time for span in spans for time in span})
    change = dict.fromkeys(marks, 0)
    for start, end in spans:
        change[start] += 1
        change[end] -= 1
    passed, at, active, last = 0.0, {}, 0, 0
    for time in marks:
        passed += (time - last) / active if active else 0.0
        at[time] = passed
        active, last = active + change[time], time
    return [at[end] - at[start] for start, end in spans]


class Durations(Observer):
    """Keep how long the tasks of a context take.

    Parameters
    ----------
    kinds : sequence of str
        The kind of each place; the host comes first.
    overlap : bool
        Whether tasks of a device run at the same time and share it, as those of a GPU do; else each has a worker.
    """

    def __init__(self, kinds: Sequence[str], overlap: bool = False) -> None:
        self._kinds = kinds
        self._spans: dict[int, list[tuple[int, int, str, int | None]]] | None = {} if overlap else None
        self.timings = Timings(kinds)
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
        if category != "task":
            return
        large = self._classes.get(task_id)
        if self._spans is not None and device >= 0:
            spans = self._spans.setdefault(device, [])
            spans.append((start_ns, end_ns, name, large))
            if len(spans) >= MOST_PENDING:
                self._share_out(device)
        elif large is not None:
            self._note(name, large, device, end_ns - start_ns)

    def _share_out(self, device: int) -> None:
        """Keep the times of tasks that may have overlapped."""
        spans = (self._spans or {}).pop(device, [])
        shares = shares_of([(start, end) for start, end, _, _ in spans])
        for (_, _, name, large), share_ns in zip(spans, shares, strict=True):
            if large is not None:
                self._note(name, large, device, share_ns)

    def _note(self, name: str, large: int, device: int, nanoseconds: float) -> None:
        kind = self._kinds[device + 1] if device + 1 < len(self._kinds) else ""
        if self.timings.note(name, large, kind, nanoseconds * 1e-9) == KEPT:
            self._settled.add(name)

    def withdrawn(self, task_id: int) -> None:
        """Forget a task that did not begin."""
        self._classes.pop(task_id, None)

    def table(self) -> dict[Key, Duration]:
        """Return the durations by (function, size class, kind of device)."""
        for device in list(self._spans or ()):
            self._share_out(device)
        return self.timings.table()


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
