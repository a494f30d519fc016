"""The recorder: a backend that answers with integers.

The engine's decisions become counters and, with ``log=True``, a list that tests compare. Nothing ever runs.
"""

from __future__ import annotations

import cython


class Recorder(LanePort):
    """Counts records, waits, allocations, copies and calls.

    Parameters
    ----------
    places : int
        Execution places, the host included.
    width : int
        Compute lanes per place.
    log : bool
        Keep every decision in `log`.
    """

    def __init__(self, places, width=16, log=False):
        self.set_up(places, width)
        self.links = Links()  # all alike
        self.log = []
        self.logging = log
        self.next_address = 4096

    def make_wait(self, lane, other, sequence):
        self.waits += 1
        if self.logging:
            self.log.append(("wait", lane.index, other.index, sequence))
        return 0

    def make_record(self, lane):
        self.records += 1
        if self.logging:
            self.log.append(("record", lane.index, lane.issued))
        return 0

    def call(self, slot, body):
        self.calls += 1
        if self.logging:
            self.log.append(("call", slot))
        return 0

    def launch(self, slot, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        self.calls += 1
        if self.logging:
            self.log.append(("launch", slot))
        return 0

    def fill(self, slot, replica, pattern):
        self.calls += 1
        if self.logging:
            self.log.append(("fill", slot, replica.place, replica.layout.nbytes))
        return True

    def copy(self, slot, target, source, unless=None, number=0):
        self.copies += 1
        if self.logging:
            self.log.append(("copy", slot, source.place, target.place, target.layout.nbytes))
        return 0

    def alloc(self, slot, replica):
        self.allocs += 1
        replica.address = self.next_address
        self.next_address += (replica.layout.nbytes + 4095) // 4096 * 4096
        if self.logging:
            self.log.append(("alloc", slot, replica.place, replica.layout.nbytes))
        return 0

    def free(self, replica, waits, want_event):
        self.frees += 1
        if self.logging:
            self.log.append(("free", replica.place, replica.layout.nbytes))
        if not want_event:
            return 0
        slot = self.begin(replica.place, waits, 0)
        return self.end(slot)

    def wait(self, events, timeout_s):
        i: cython.int
        for i in range(events.count):
            event = events.items[i]
            lane: Lane = self.lanes[event >> LANE_SHIFT]
            sequence: cython.longlong = event & SEQUENCE
            if sequence > lane.done:
                lane.done = sequence
        return True
