"""When the work of tasks was on devices where bodies only enqueue: found out late, then told to observers."""

from __future__ import annotations

from typing import Any

from .observer import ObservedTask, Observer

COMPUTE, COPY_IN, COPY_OUT = -1, -2, -3  # in place of a worker: which of a device's rows
STREAMS = -16  # less a stream's number: the row of what CUPTI says of that stream
_ROWS = (COMPUTE, COPY_IN, COPY_OUT, COMPUTE, COMPUTE, COMPUTE)  # by the port's kind of lane


class DeviceTimes(Observer):
    """Marks where tasks begin on their streams.

    Parameters
    ----------
    port
        A backend with ``mark(slot, what)``, ``unmark(task_id)`` and ``take()``.
    """

    def __init__(self, port: Any) -> None:
        self._port = port

    def task(self, task: ObservedTask) -> None:
        """Mark where a task begins: its stream has all the waits that it needs."""
        slot = getattr(task, "slot", -1)
        engine = getattr(task, "engine", None)
        if slot >= 0 and (engine is None or not engine.scope.records):  # what is recorded does not run now
            self._port.mark(slot, (task.id, task.symbol or task.kind, 0))

    def withdrawn(self, task_id: int) -> None:
        """Take the mark away."""
        self._port.unmark(task_id)

    def tell(self, observer: Observer) -> None:
        """Tell an observer what has run since the last time."""
        for (task_id, name, operation), device, kind, start_ns, end_ns in self._port.take():
            category = "task" if task_id else "copy"
            observer.ran(task_id, name, device, _ROWS[kind], start_ns, end_ns, category, operation)
