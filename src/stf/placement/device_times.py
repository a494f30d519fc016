"""How long bodies take on devices where they only enqueue work: events around a few of them, read when complete.

Placement measures the first eight tasks of a key, and then one of 64 (`stf.observe.durations`). On a CPU the body
itself tells how long it ran. On a GPU a pair of events with timing stands around its work, behind what the task waits
for. Nobody waits for them: they are read when a later task is to be measured, and only what is complete by then.
"""

from __future__ import annotations

from typing import Any

__all__ = ["BodyTime", "DeviceTimes"]


class DeviceTimes:
    """What is being measured on the devices of a context.

    Parameters
    ----------
    spans : object
        The driver's pairs of events: ``begin(stream)``, ``end(number, stream)``, ``abandon(number)`` and ``take()``.
    """

    def __init__(self, spans: Any) -> None:
        self.spans = spans
        self.waiting: dict[int, Any] = {}

    def measured(self, timing: Any) -> BodyTime:
        """Return what measures one task."""
        self.collect()
        return BodyTime(self, timing)

    def collect(self) -> None:
        """Note what has ended; wait for nothing."""
        if self.waiting:
            for number, seconds in self.spans.take():
                timing = self.waiting.pop(number, None)
                if timing is not None and seconds >= 0.0:
                    timing.add(seconds)


class BodyTime:
    """Measures one task on a device. One that does not come to its end is not measured."""

    __slots__ = ("number", "times", "timing")

    def __init__(self, times: DeviceTimes, timing: Any) -> None:
        self.times, self.timing, self.number = times, timing, -1

    def __del__(self) -> None:
        if self.number >= 0:
            self.times.spans.abandon(self.number)

    def begins(self, stream: int) -> None:
        """Begin where the stream is now."""
        self.number = self.times.spans.begin(stream)

    def ends(self, stream: int) -> None:
        """End where the stream is now."""
        if self.number >= 0:
            number, self.number = self.number, -1
            self.times.waiting[number] = self.timing
            self.times.spans.end(number, stream)

    def ran(self, start_ns: int, end_ns: int) -> None:
        """Leave out what the host took to enqueue the work."""
