"""A CPU driver that tells, in order, what its streams have reached.

Marks and notices need no worker thread. So other processes hear of an event at once, also while all workers run bodies.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._drivers.cpu import CpuDriver
from stf._support.sync import make_baton

if not cython.compiled:
    from stf._drivers.queues import QueueDriver

    CALL = 3


class Notice:
    """A call on a stream that runs nothing: it is told when the stream gets there."""

    def __init__(self, what):
        self.what = what


class WatchedDriver(CpuDriver):
    """The driver of a process that takes part in a remote context."""

    def __init__(self, device_count=1, shares_host=True, workers=1, capacity=None):
        CpuDriver.__init__(self, device_count, shares_host, workers, capacity)
        self.told = []
        self.bell = make_baton()  # is released when something is told for the first time since somebody listened

    def reach(self, stream, sequence):
        QueueDriver.reach(self, stream, sequence)
        self.put((stream.index, sequence))
        return True

    def issue(self, stream, op):
        if op.kind == CALL and type(op.body) is Notice:
            self.put(op.body.what)
            return True
        return False

    def put(self, what):
        """Add what is told; the gate is held."""
        self.told.append(what)
        if len(self.told) == 1:
            self.bell.release()
        return 0

    def tell(self, what):
        """Tell something, after all that was reached so far."""
        self.gate.enter()
        try:
            self.put(what)
        finally:
            self.gate.leave()

    def listen(self):
        """Wait for news; return all there are, in order."""
        self.bell.acquire()
        self.gate.enter()
        try:
            news, self.told = self.told, []
        finally:
            self.gate.leave()
        return news
