"""Captures of a stream backend: graphs that its driver makes of what is put on captured streams.

What is captured as a whole is played on a backend of its own, whose first lane comes after the captured stream, and
which the captured stream comes after in the end. So the rules of lanes hold there as everywhere. That backend is closed
when the graph is there. It may have more lanes than a device has: nodes of a graph share no queues of the hardware, and
a lane too few would order nodes that are independent.
"""

from __future__ import annotations

import cython

from stf.errors import CaptureError

WIDTH = 128  # lanes of a device in a graph, about its multiprocessors


class StreamCaptures(Captures):
    """Graphs on the lanes of a backend.

    Parameters
    ----------
    port : LanePort
        Whose lanes.
    driver : Driver
        What makes graphs.
    devices : list of int
        The driver's devices, by place; the backend adds to it.
    make_port : callable
        ``make_port(driver, width, devices)`` is a backend for what is captured.
    """

    def __init__(self, port, driver, devices, make_port):
        self.port = port
        self.driver = driver
        self.graphs = driver.graphs
        self.devices = devices
        self.make_port = make_port
        self.decided = EventSet()

    def begin(self, place, owner):
        return self.graphs.begin_capture(self.devices[place], owner)

    def takes(self, slot, place):
        lane = cython.cast(Lane, self.port.lanes[slot])
        return lane.place == place <= self.driver.device_count and not self.port.captured

    def play(self, slot, captured, fixed):
        lane = cython.cast(Lane, self.port.lanes[slot])
        return self.driver.play_captured(lane.stream, captured, fixed)

    def play_all(self, slot, captured):
        lane = cython.cast(Lane, self.port.lanes[slot])
        return self.driver.play_all_captured(lane.stream, captured)

    def queue(self, slot, captured, changes):
        lane = cython.cast(Lane, self.port.lanes[slot])
        return self.driver.queue_captured(lane.stream, captured, changes)

    def capture(self, place, play, staged):
        return self.fill(place, self.graphs.begin_capture(self.devices[place], None), play, staged)

    def fill(self, place, capture, play, staged):
        """Give a captured stream what ``play(port)`` puts on lanes that come after it; return what it ends as."""
        try:
            inner: LanePort = self.make_port(self.driver, WIDTH, self.devices)
            try:
                inner.callers.start_after(place, capture.pointer, True, staged)
                inner.records_late = self.driver.records_late  # no body asks for an event while it has a stream
                slot = play(inner)
                inner.callers.signal(slot, capture.pointer)
                inner.end(slot)
            finally:
                inner.shutdown()
                inner.captures = inner.callers = None  # which know it: no circle is left
        except BaseException:
            try:
                capture.end()
            except CaptureError:
                pass  # there is a better reason
            raise
        return capture.end()

    def call(self, slot, body, targets):
        lane: Lane = self.port.lanes[slot]
        written = []
        for replica in targets:
            layout = replica.layout
            written.append((replica.address, layout.strides, layout.shape, layout.itemsize))
        self.driver.call_in_graph(lane.stream, body, written)
        return 0

    def launch(self, slot, function, shape, offsets, arguments, at_once):
        lane: Lane = self.port.lanes[slot]
        extras = (None, bool(at_once), False)
        name = f"cuda:{self.devices[lane.place]}"
        at = self.port.kernels.at(lane.place)
        at.launch(function, shape, extras, offsets, name, arguments, self.port.stream(slot))
        return 0

    def condition(self, slot, loops):
        lane: Lane = self.port.lanes[slot]
        device: cython.int = self.devices[lane.place]
        return self.graphs.condition(self.port.stream(slot), self.driver.home if device < 0 else device, loops)

    def decide(self, slot, condition, decision):
        condition.decide(self.port.stream(slot), *decision)
        return 0

    def play_if(self, slot, condition, play):
        lane: Lane = self.port.lanes[slot]
        self.port.join(slot, self.decided)
        self.fill(lane.place, condition.open(self.port.stream(slot)), play, DIRECT)
        lane.issued += 1
        self.port.make_record(lane)
        self.decided = EventSet()
        self.decided.add((cython.cast(cython.longlong, slot) << LANE_SHIFT) | lane.issued)
        return 0
