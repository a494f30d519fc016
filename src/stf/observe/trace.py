"""When and where every body and copy ran, when tasks were submitted, and what memory they had."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, NamedTuple

from .devices import COMPUTE, COPY_IN, COPY_OUT, STREAMS
from .observer import ObservedTask, Observer, Operation

_MAX_INDEX = 1 << 16
MAIN_THREAD = "main thread"
_ROW_NAMES = {COMPUTE: "compute", COPY_IN: "copies in", COPY_OUT: "copies out"}


_Told = tuple[int, str, int, int, int, int, str, int]  # as a span, with the identity of a thread in place of a row


class TimeSpan(NamedTuple):
    """One body or copy that ran: the arguments of `Observer.ran`. Times are those of `time.perf_counter_ns`."""

    task_id: int
    name: str
    device: int
    worker: int
    start_ns: int
    end_ns: int
    category: str
    operation: int = 0


class TimedOperation(NamedTuple):
    """An internal operation, and when it was asked for."""

    time_ns: int
    asked: Operation


class TraceRecorder(Observer):
    """Record what really ran.

    Parameters
    ----------
    clock_ns : callable, optional
        Tells the time at which something was submitted; on the clock of the spans.

    Examples
    --------
    >>> recorder = TraceRecorder()
    >>> recorder.ran(1, "axpy", 0, 2, 5_000, 9_000, "task")
    >>> [event["dur"] for event in recorder.to_chrome()["traceEvents"] if event["ph"] == "X"]
    [4.0]
    """

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._spans: list[_Told] = []  # workers append: one operation, atomic
        self._submissions = array("q")  # task id, time, task id, time, …
        self.operations: list[TimedOperation] = []  # in the order in which they were asked for

    def task(self, task: ObservedTask) -> None:
        """Record when a task was submitted."""
        note = self._submissions.append
        note(task.id)
        note(self._clock_ns())

    def operation(self, operation: Operation) -> None:
        """Record when an internal operation was asked for."""
        self.operations.append(TimedOperation(self._clock_ns(), operation))

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
        """Record one body or copy; may be called from any thread."""
        self._spans.append((task_id, name, device, worker, start_ns, end_ns, category, operation))

    def bodies(self) -> list[tuple[int, int, int]]:
        """Return the task, the start and the end of each body of a task that has run."""
        return [(told[0], told[4], told[5]) for told in list(self._spans) if told[6] == "task"]

    def clear(self) -> None:
        """Forget everything recorded so far."""
        self._spans, self.operations, self._submissions = [], [], array("q")

    def submissions(self) -> dict[int, int]:
        """Return when each task was submitted, in nanoseconds, by its id."""
        times = self._submissions
        return dict(zip(times[::2], times[1::2], strict=False))

    def rows(self) -> tuple[list[TimeSpan], dict[tuple[int, int], str]]:
        """Return the spans by start, `worker` being a row of the device; and the rows' names by (device, row).

        Workers that are told by thread identities instead of indices are numbered as they appear, so that a thread has
        one number at all places. A CUDA device has rows of what computed at the same time, as few as can be, then
        copies in and copies out.
        """
        spans, names = _with_worker_indices(sorted(self._spans, key=itemgetter(4)))
        if any(span.worker < 0 for span in spans):
            spans, device_names = _with_device_rows(spans)
            names |= device_names
        return spans, names

    def to_chrome(self) -> dict[str, Any]:
        """Return the trace in Chrome's JSON object format.

        A process is a place: 0 is the host and k + 1 is device k, so numbers don't depend on what ran
        first. A thread is a row of that place; see `rows`. Times are in microseconds since the first event.

        Returns
        -------
        dict
            To be written with `json.dump` and opened at https://ui.perfetto.dev.
        """
        spans, row_names = self.rows()
        origin_ns = spans[0].start_ns if spans else 0
        events = _metadata({(span.device, span.worker) for span in spans}, row_names)
        copies = {asked.number: asked for _, asked in self.operations if asked.kind == "copy"}
        events.extend(_complete_event(span, origin_ns, copies.get(span.operation)) for span in spans)
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _with_worker_indices(told: Iterable[_Told]) -> tuple[list[TimeSpan], dict[tuple[int, int], str]]:
    numbers: dict[int, int] = {}
    names: dict[tuple[int, int], str] = {}
    main = threading.main_thread().ident
    spans: list[TimeSpan] = []
    for task_id, name, device, worker, start_ns, end_ns, category, operation in told:
        index = worker
        if worker >= _MAX_INDEX:  # the identity of a thread
            index = numbers.setdefault(worker, len(numbers))
            if worker == main:
                names[device, index] = MAIN_THREAD
        spans.append(TimeSpan(task_id, name, device, index, start_ns, end_ns, category, operation))
    return spans, names


def _with_device_rows(spans: list[TimeSpan]) -> tuple[list[TimeSpan], dict[tuple[int, int], str]]:
    """Give what ran on a device at the same time rows of its own; return the rows' names by (device, row) too."""
    busy_until: dict[tuple[int, int], list[int]] = {}
    lanes = [
        free_lane(busy_until.setdefault((s.device, s.worker), []), s.start_ns, s.end_ns) if s.worker < 0 else 0
        for s in spans
    ]
    first_row: dict[tuple[int, int], int] = {}
    names: dict[tuple[int, int], str] = {}
    for device, kind in sorted(busy_until, key=lambda key: (key[0], -key[1])):
        first = sum(len(busy_until[key]) for key in first_row if key[0] == device)
        first_row[device, kind] = first
        count = len(busy_until[device, kind])
        for lane in range(count):
            names[device, first + lane] = _row_name(kind, lane if count > 1 else None)
    placed = [
        _on_row(span, first_row[span.device, span.worker] + lane) if span.worker < 0 else span
        for span, lane in zip(spans, lanes, strict=True)
    ]
    return placed, names


def _on_row(span: TimeSpan, row: int) -> TimeSpan:
    task_id, name, device, _, start_ns, end_ns, category, operation = span
    return TimeSpan(
        task_id, name, device, row, start_ns, end_ns, category, operation
    )  # in a third of the time of `_replace`


def _row_name(kind: int, lane: int | None) -> str:
    """Return the name of a row of a device, or of the lanes that it takes."""
    if kind <= STREAMS:
        return f"stream {STREAMS - kind}" + (f", {lane}" if lane is not None else "")
    return _ROW_NAMES[kind] + (f" {lane}" if lane is not None else "")


def free_lane(busy_until: list[Any], start: float, end: float) -> int:
    """Return the first lane that is free when a span starts, and is busy until that ends; a new one, if none is."""
    for lane, until in enumerate(busy_until):
        if until <= start:
            busy_until[lane] = end
            return lane
    busy_until.append(end)
    return len(busy_until) - 1


def _complete_event(span: TimeSpan, origin_ns: int, copy: Operation | None) -> dict[str, Any]:
    name, args = span.name, dict[str, Any](task=span.task_id)
    if copy is not None:
        name = f"copy {copy.data_name}"
        args = {
            "task": copy.task_id,
            "data": copy.data_name,
            "bytes": copy.nbytes,
            "from": copy.source,
            "to": copy.target,
        }
    return {
        "name": name or f"{span.category} {span.task_id}",
        "cat": span.category,
        "ph": "X",
        "ts": (span.start_ns - origin_ns) / 1000,
        "dur": max(span.end_ns - span.start_ns, 0) / 1000,
        "pid": span.device + 1,
        "tid": span.worker,
        "args": args,
    }


def _metadata(tracks: set[tuple[int, int]], row_names: dict[tuple[int, int], str]) -> list[dict[str, Any]]:
    events = []
    for device in sorted({device for device, _ in tracks}):
        name = "host" if device < 0 else f"device {device}"
        events.append(_metadata_event("process_name", device, 0, name=name))
        events.append(_metadata_event("process_sort_index", device, 0, sort_index=device + 1))
    for device, worker in sorted(tracks):
        name = row_names.get((device, worker), f"worker {worker}")
        events.append(_metadata_event("thread_name", device, worker, name=name))
        if (device, worker) in row_names:
            events.append(_metadata_event("thread_sort_index", device, worker, sort_index=worker))
    return events


def _metadata_event(name: str, device: int, worker: int, /, **args: Any) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": device + 1, "tid": worker, "args": args}
