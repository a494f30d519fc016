"""When and where every body and copy ran, in the format that Perfetto and chrome://tracing read."""

from __future__ import annotations

from typing import Any

from .devices import COMPUTE, COPY_IN, COPY_OUT
from .observer import Observer

_Span = tuple[int, str, int, int, int, int, str]  # the arguments of `ran`, in order
_MAX_INDEX = 1 << 16
_ROW_NAMES = {COMPUTE: "compute", COPY_IN: "copies in", COPY_OUT: "copies out"}


class TraceRecorder(Observer):
    """Record what really ran.

    Examples
    --------
    >>> recorder = TraceRecorder()
    >>> recorder.ran(1, "axpy", 0, 2, 5_000, 9_000, "task")
    >>> [event["dur"] for event in recorder.to_perfetto()["traceEvents"] if event["ph"] == "X"]
    [4.0]
    """

    def __init__(self) -> None:
        self._spans: list[_Span] = []  # workers append: one operation, atomic

    def ran(self, task_id: int, name: str, device: int, worker: int, start_ns: int, end_ns: int, category: str) -> None:
        """Record one body or copy; may be called from any thread."""
        self._spans.append((task_id, name, device, worker, start_ns, end_ns, category))

    def clear(self) -> None:
        """Forget everything recorded so far."""
        self._spans = []

    def to_perfetto(self) -> dict[str, Any]:
        """Return the trace in Chrome's JSON object format.

        A process is a place: 0 is the host and k + 1 is device k, so numbers don't depend on what ran
        first. A thread is a worker of that place; workers that are told by thread identities instead of
        indices are numbered as they appear. A CUDA device has rows of what computed at the same time, as
        few as can be, then copies in and copies out. Times are in microseconds since the first event.

        Returns
        -------
        dict
            To be written with `json.dump` and opened at https://ui.perfetto.dev.
        """
        spans = _with_worker_indices(sorted(self._spans, key=lambda span: span[4]))
        spans, row_names = _with_device_rows(spans)
        origin_ns = spans[0][4] if spans else 0
        events = _metadata({(device, worker) for _, _, device, worker, *_ in spans}, row_names)
        events.extend(_complete_event(span, origin_ns) for span in spans)
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _with_worker_indices(spans: list[_Span]) -> list[_Span]:
    numbers: dict[int, dict[int, int]] = {}
    renamed: list[_Span] = []
    for task_id, name, device, worker, start_ns, end_ns, category in spans:
        if worker >= _MAX_INDEX:  # the identity of a thread
            known = numbers.setdefault(device, {})
            worker = known.setdefault(worker, len(known))
        renamed.append((task_id, name, device, worker, start_ns, end_ns, category))
    return renamed


def _with_device_rows(spans: list[_Span]) -> tuple[list[_Span], dict[tuple[int, int], str]]:
    """Give what ran on a device at the same time rows of its own; return the rows' names by (device, row) too."""
    busy_until: dict[tuple[int, int], list[int]] = {}
    lanes = [_free_lane(busy_until.setdefault((s[2], s[3]), []), s) if s[3] < 0 else 0 for s in spans]
    first_row: dict[tuple[int, int], int] = {}
    names: dict[tuple[int, int], str] = {}
    for device, kind in sorted(busy_until, key=lambda key: (key[0], -key[1])):
        first = sum(len(busy_until[key]) for key in first_row if key[0] == device)
        first_row[device, kind] = first
        count = len(busy_until[device, kind])
        for lane in range(count):
            names[device, first + lane] = _ROW_NAMES[kind] + (f" {lane}" if count > 1 else "")
    placed = [
        (*span[:3], first_row[span[2], span[3]] + lane, *span[4:]) if span[3] < 0 else span
        for span, lane in zip(spans, lanes, strict=True)
    ]
    return placed, names


def _free_lane(busy_until: list[int], span: _Span) -> int:
    for lane, until in enumerate(busy_until):
        if until <= span[4]:
            busy_until[lane] = span[5]
            return lane
    busy_until.append(span[5])
    return len(busy_until) - 1


def _complete_event(span: _Span, origin_ns: int) -> dict[str, Any]:
    task_id, name, device, worker, start_ns, end_ns, category = span
    return {
        "name": name or f"{category} {task_id}",
        "cat": category,
        "ph": "X",
        "ts": (start_ns - origin_ns) / 1000,
        "dur": max(end_ns - start_ns, 0) / 1000,
        "pid": device + 1,
        "tid": worker,
        "args": {"task": task_id},
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
