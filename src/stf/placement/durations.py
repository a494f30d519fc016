"""How long bodies take: means of what was measured, by name of the task, size of its data and kind of device.

The first eight bodies of each are measured, and then one of 64. A mean needs two measurements, and is of the last 16.
What took more than four times the median does not count: one slow measurement must not send all tasks elsewhere.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

KEPT = 16
FIRST: cython.int = 8  # tasks that are all measured,
EVERY: cython.int = 64  # and then one of so many
FEWEST = 2
OUTLIER = 4.0  # medians


@cython.final
@cython.cclass
class Timing:
    """What was measured of tasks that should take the same time."""

    if not cython.compiled:
        asked = 0

    def __init__(self):
        self.mean = -1.0
        self.count = 0
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


@cython.final
@cython.cclass
class Durations:
    """The timings of a context."""

    def __init__(self):
        self.timings = {}
        self.last_name = self.last = None

    def timing(self, name, size_class, kind):
        """Return what is known of tasks of a name, whose data have that size, on a kind of device."""
        if name is not self.last_name:
            last = self.timings.get(name)
            if last is None:
                self.timings[name] = last = {}
            self.last_name, self.last = name, last
        key: cython.int = size_class << 8 | kind
        found: Timing = self.last.get(key)
        if found is None:
            self.last[key] = found = Timing()
        return found

    def note(self, name, size_class, kind, seconds):
        """Take a duration that somebody else has measured."""
        self.timing(name, size_class, kind).add(seconds)

    def table(self):
        """Return (name, size class, kind of device, number, mean in seconds) of all that was measured."""
        found = []
        for name, of_name in list(self.timings.items()):
            for key, item in list(of_name.items()):
                timing: Timing = item
                if timing.count:
                    found.append((name, key >> 8, key & 255, timing.count, timing.mean))
        return found
