"""A stream backend that knows when the work of each task, and each copy, was on a device.

For contexts that record a trace, on devices where bodies only enqueue: two stamps a task and two a copy, which are read
when the trace is asked for. Other contexts have the stream backend itself, which pays nothing for this.
"""

from __future__ import annotations

from stf._port.events import EventSet


class TimedBackend(StreamBackend):
    """Slots that are stamped. ``(what, device, kind of lane, first stamp, last stamp)`` is a span.

    `what` is the number of a task or 0, a name, and the number of an operation or 0.
    """

    def __init__(self, driver, width, owns_driver=True):
        StreamBackend.__init__(self, driver, width, owns_driver)
        self.stamps = driver.stamps
        self.begun = {}
        self.spans = []
        self.reported = []

    def mark(self, slot, what):
        """From here on the work on `slot`, of a device, is that of `what`: (task id, name, 0)."""
        lane: Lane = self.lanes[slot]
        if lane.place > 0 or self.values is not None:
            self.begun[slot] = (what, self.stamps.put(lane.stream))
        return 0

    def unmark(self, task_id):
        """That task did not begin after all."""
        for slot, (what, _) in list(self.begun.items()):
            if what[0] == task_id:
                del self.begun[slot]
        return 0

    def end(self, slot):
        if slot in self.begun:
            what, first = self.begun.pop(slot)
            lane: Lane = self.lanes[slot]
            device: cython.int = self.device_at(lane.place) if lane.place > 0 else -1
            self.spans.append((what, device, lane.kind, first, self.stamps.put(lane.stream)))
        return LanePort.end(self, slot)

    def copy(self, slot, target, source, unless=None, number=0):
        if slot in self.begun and number == 0:  # a task's own work
            return StreamBackend.copy(self, slot, target, source, unless)
        lane: Lane = self.lanes[slot]
        first = self.stamps.put(lane.stream)
        StreamBackend.copy(self, slot, target, source, unless, number)
        if first >= 0:
            what = (0, f"copy {source.data.name}" if source.data.name else "copy", number)
            kind = COPY_OUT if target.place == 0 else COPY_IN  # a short one may be on a lane for computing
            self.spans.append((what, self.device_at(lane.place), kind, first, self.stamps.put(lane.stream)))
        return 0

    def take(self):
        """Return what is known to have run since the last call: (what, device, kind of lane, start, end), in ns."""
        reported, self.reported = self.reported, []
        spans, self.spans = self.spans, []
        if spans:
            self.stamps.collect()
        for what, device, kind, first, last in spans:
            start_ns, end_ns = self.stamps.time_ns(first), self.stamps.time_ns(last)
            if start_ns >= 0 and end_ns >= 0:
                reported.append((what, device, kind, start_ns, end_ns))
            else:
                self.spans.append((what, device, kind, first, last))
        return reported

    def shutdown(self):
        """Return the driver goes, and with it the stamps: read them all."""
        last = EventSet()
        self.tails(last)
        self.wait(last, -1.0)
        self.reported = self.take()
        self.spans = []
        return StreamBackend.shutdown(self)
