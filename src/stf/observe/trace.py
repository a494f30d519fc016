"""When and where every body and copy ran, in the format that Perfetto and chrome://tracing read."""

from __future__ import annotations

from typing import Any

from .observer import Observer

_Span = tuple[int, str, int, int, int, int, str]  # the arguments of `ran`, in order
_MAX_INDEX = 1 << 16


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
        indices are numbered as they appear. Times are in microseconds since the first event.

        Returns
        -------
        dict
            To be written with `json.dump` and opened at https://ui.perfetto.dev.
        """
        spans = _with_worker_indices(sorted(self._spans, key=lambda span: span[4]))
        origin_ns = spans[0][4] if spans else 0
        events = _metadata({(device, worker) for _, _, device, worker, *_ in spans})
        events.extend(_complete_event(span, origin_ns) for span in spans)
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _with_worker_indices(spans: list[_Span]) -> list[_Span]:
    numbers: dict[int, dict[int, int]] = {}
    renamed: list[_Span] = []
    for task_id, name, device, worker, start_ns, end_ns, category in spans:
        if worker >= _MAX_INDEX:
            known = numbers.setdefault(device, {})
            worker = known.setdefault(worker, len(known))
        renamed.append((task_id, name, device, worker, start_ns, end_ns, category))
    return renamed


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


def _metadata(tracks: set[tuple[int, int]]) -> list[dict[str, Any]]:
    events = []
    for device in sorted({device for device, _ in tracks}):
        name = "host" if device < 0 else f"device {device}"
        events.append(_metadata_event("process_name", device, 0, name=name))
        events.append(_metadata_event("process_sort_index", device, 0, sort_index=device + 1))
    for device, worker in sorted(tracks):
        events.append(_metadata_event("thread_name", device, worker, name=f"worker {worker}"))
    return events


def _metadata_event(name: str, device: int, worker: int, /, **args: Any) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": device + 1, "tid": worker, "args": args}
