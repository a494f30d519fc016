"""Callers of a stream backend: how its lanes meet the CUDA streams of who calls stf."""

from __future__ import annotations

import cython

NOTHING = EventSet()
LEGACY_STREAM: cython.int = 1  # CUDA's name for the default stream, of which there is one per device


class StreamCallers(Callers):
    """Callers' streams around the lanes of a backend.

    Parameters
    ----------
    port : LanePort
        Whose lanes.
    driver : Driver
        What orders streams.
    """

    def __init__(self, port: LanePort, driver):
        self.port = port
        self.driver = driver

    def arrive(self, place, pointer):
        """A lane that does nothing else stands for the legacy default stream, whose device `place` is the memory of."""
        port = self.port
        lane: Lane
        if pointer != LEGACY_STREAM or port.captured:
            slot = port.begin(place, NOTHING, COMPUTE)
            try:
                self.wait_on(slot, pointer)
            finally:
                event = port.end(slot)
            return event
        lane = port.next_lane(place, HOST)
        self.driver.record_on(lane.stream, lane.issued + 1, pointer)
        lane.issued += 1
        return (cython.cast(cython.longlong, lane.index) << LANE_SHIFT) | lane.issued

    def wait_on(self, slot, pointer):
        lane: Lane = self.port.lanes[slot]
        return self.driver.wait_on_external(lane.stream, pointer)

    def signal(self, slot, pointer):
        lane: Lane = self.port.lanes[slot]
        return self.driver.signal_external(lane.stream, pointer)

    def start_after(self, place, pointer, captured, staged=STAGED):
        port = self.port
        port.lend(captured, staged)
        slot = port.begin(place, EventSet(), COMPUTE)
        try:
            self.wait_on(slot, pointer)
        finally:
            port.start_event = port.end(slot)
        return 0
