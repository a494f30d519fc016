# cython: nonecheck=False
"""The stream backend: a lane is a driver's stream."""

from __future__ import annotations

import time

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._backends.lanes import Lane, LanePort
from stf._drivers.base import Registered
from stf._port.events import EventSet
from stf._port.links import Links
from stf._port.replicas import span_of
from stf.errors import CaptureError

if not cython.compiled:
    LANE_SHIFT = 44
    COMPUTE, COPY_IN, COPY_OUT, HOST = 0, 1, 2, 3
    DIRECT, STAGED = 0, 2


NOTHING = EventSet()
LEGACY_STREAM: cython.int = 1  # CUDA's name for the default stream, of which there is one per device
COPY_LANES = 8  # a way and device: a copy that waits for a body must not hold up those behind it


class StreamBackend(LanePort):
    """Slots on the streams of a driver.

    Parameters
    ----------
    driver : Driver
        Whose streams.
    width : int
        Compute lanes per place.
    owns_driver : bool
        Close the driver at the end; otherwise only the streams go back.

    Attributes
    ----------
    is_lent : bool
        The work is between that of a caller's stream, which nobody waits for.
    captured : bool
        All is recorded in the graph that a caller captures: nothing runs yet, and nothing can be waited for.
    """

    def __init__(self, driver, width, owns_driver=True):
        LanePort.__init__(self, driver.device_count + 1, width, COPY_LANES)
        self.driver = driver
        self.devices = list(range(-1, driver.device_count))  # the driver's, by place
        self.links = Links(driver, self.devices)
        self.foreign_handles = {}
        self.owns_driver = owns_driver
        self.name = "stream"
        self.is_lent = self.captured = False
        self.reads_back = driver.reads_back
        self.values = driver.values
        self.records_late = driver.records_late
        self.staged = DIRECT
        self.capturable = 1 << 30
        self.decided = EventSet()  # the last part that a device decides about is over

    def start_after(self, place, pointer, captured, staged=STAGED):
        """Let all work start after what is on a caller's stream now, which may be captured with its copies `staged`."""
        self.is_lent = True
        self.reads_back = self.records_late = False
        self.captured = captured
        self.staged = staged
        slot = self.begin(place, EventSet(), COMPUTE)
        try:
            self.wait_on_external(slot, pointer)
        finally:
            self.start_event = self.end(slot)
        return 0

    def make_lane(self, lane):
        if self.captured and lane.place == 0 and lane.kind == HOST:
            raise CaptureError("it runs on the host")
        if lane.place >= self.capturable:
            raise CaptureError("it runs on a stream, or in a context, of yours")
        lane.stream = self.make_stream(lane.place)
        if self.is_lent:
            self.driver.bind_to_caller(lane.stream, self.captured, self.staged)
        return 0

    def make_stream(self, place):
        """A new stream of the driver's, or the caller's own."""
        if self.captured and place == 0:  # for nodes of the graph; the device is that of its first stream
            first: Lane = self.lanes[self.start_event >> LANE_SHIFT]
            return self.driver.stream_create(self.device_at(first.place))
        if place not in self.foreign_handles:
            return self.driver.stream_create(self.device_at(place) if place else -1)
        device: cython.int = self.devices[place]
        kind, pointer = self.foreign_handles[place]
        if kind == "stream":
            return self.driver.stream_adopt(device, pointer)
        return self.driver.stream_create_in(device, pointer)

    def device_at(self, place):
        """The driver's number of the device that streams for a place are of."""
        device: cython.int = self.devices[place]
        return self.driver.home if device < 0 else device

    def add_place(self, device, foreign_handle):
        place = self.add_pools(1 if foreign_handle is not None and foreign_handle[0] == "stream" else self.width)
        self.devices.append(device)
        if foreign_handle is not None:
            self.foreign_handles[place] = foreign_handle
        return place

    def make_wait(self, lane, other, sequence):
        self.driver.wait_event(lane.stream, other.stream, sequence)
        return 0

    def make_record(self, lane):
        self.driver.record(lane.stream, lane.issued)
        return 0

    def make_late_record(self, lane):
        self.driver.record_lazy(lane.stream, lane.issued)
        return 0

    def commit(self, lane):
        self.driver.commit(lane.stream, lane.issued)
        return 0

    def progress(self, lane):
        lane.done = self.driver.completed(lane.stream)
        return lane.done

    def is_done(self, lane, sequence):
        if not self.driver.query(lane.stream, sequence):
            return False
        lane.done = max(lane.done, sequence)
        return True

    def tails_at(self, place, into):
        if self.is_lent and place:  # users may have gone on on the stream of a fence
            for item in self.lanes_at(place):
                lane: Lane = item
                lane.trailing = True
        return LanePort.tails_at(self, place, into)

    def enqueues(self, place):
        return place > 0 and not self.driver.runs_inline

    def arrive(self, place, pointer):
        """A lane that does nothing else stands for the legacy default stream, whose device `place` is the memory of."""
        lane: Lane
        if pointer != LEGACY_STREAM or self.captured:
            slot = self.begin(place, NOTHING, COMPUTE)
            try:
                self.wait_on_external(slot, pointer)
            finally:
                event = self.end(slot)
            return event
        lane = self.next_lane(place, HOST)
        self.driver.record_on(lane.stream, lane.issued + 1, pointer)
        lane.issued += 1
        return (cython.cast(cython.longlong, lane.index) << LANE_SHIFT) | lane.issued

    def wait_on_external(self, slot, pointer):
        lane: Lane = self.lanes[slot]
        self.driver.wait_on_external(lane.stream, pointer)
        return 0

    def signal_external(self, slot, pointer):
        lane: Lane = self.lanes[slot]
        self.driver.signal_external(lane.stream, pointer)
        return 0

    def disown(self, replica):
        if not replica.pinned:
            return replica.owner if replica.place else None
        replica.pinned = False
        return Registered(self.driver, *span_of(replica), replica.owner)

    def keep_alive(self, slot, what):
        lane: Lane = self.lanes[slot]
        self.driver.keep_alive(lane.stream, what)
        return 0

    def enter(self, slot):
        lane = cython.cast(Lane, self.lanes[slot])
        self.driver.stream_enter(lane.stream)
        return 0

    def launch(self, slot, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        lane = cython.cast(Lane, self.lanes[slot])
        self.driver.launch(lane.stream, function, gx, gy, gz, bx, by, bz, shared, block, nbytes)
        return 0

    def begin_capture(self, place, owner):
        return self.driver.begin_capture(self.devices[place], owner)

    def play_captured(self, slot, captured):
        lane = cython.cast(Lane, self.lanes[slot])
        self.driver.play_captured(lane.stream, captured)
        return 0

    def defers(self, slot, captured):
        lane = cython.cast(Lane, self.lanes[slot])
        return self.driver.defers(lane.stream, captured)

    def queue_captured(self, slot, captured, changes):
        lane = cython.cast(Lane, self.lanes[slot])
        return self.driver.queue_captured(lane.stream, captured, changes)

    def capture(self, place, play, staged):
        """What ``play(port)`` puts on the lanes of a captured stream, as a graph; it returns the last slot."""
        return self.fill_capture(place, self.driver.begin_capture(self.devices[place]), play, staged)

    def fill_capture(self, place, capture, play, staged=DIRECT):
        try:
            inner = StreamBackend(self.driver, self.width, False)
            inner.capturable = len(inner.devices)
            for device in self.devices[inner.capturable :]:
                inner.add_place(device, None)
            try:
                inner.start_after(place, capture.pointer, True, staged)
                slot = play(inner)
                inner.signal_external(slot, capture.pointer)
                inner.end(slot)
            finally:
                inner.shutdown()
        except BaseException:
            try:
                capture.end()
            except CaptureError:
                pass  # there is a better reason
            raise
        return capture.end()

    def condition(self, slot, loops):
        """A condition of the graph that a slot is captured into; it does not hold until something decides."""
        lane: Lane = self.lanes[slot]
        return self.driver.condition(self.driver.handle(lane.stream), self.device_at(lane.place), loops)

    def decide(self, slot, condition, decision):
        """Let a condition hold by a flag, and as long as a counter, which counts then, is below a limit.

        The `decision` is (address of the flag, address of the counter, limit, whether the flag must be true); without a
        flag, or a counter, that does not count.
        """
        lane: Lane = self.lanes[slot]
        condition.decide(self.driver.handle(lane.stream), *decision)

    def play_if(self, slot, condition, play):
        """What ``play(port)`` puts on lanes of their own is done on the slot as often as a condition holds.

        One after the other: a GPU that decides about two parts of a graph at a time may stop for good.
        """
        lane: Lane = self.lanes[slot]
        self.join(slot, self.decided)
        self.fill_capture(lane.place, condition.open(self.driver.handle(lane.stream)), play)
        lane.issued += 1
        self.make_record(lane)
        self.decided = EventSet()
        self.decided.add((cython.cast(cython.longlong, slot) << LANE_SHIFT) | lane.issued)

    def last_node(self, slot):
        """What the graph that a slot is captured into has last there."""
        lane: Lane = self.lanes[slot]
        return self.driver.last_node(self.driver.handle(lane.stream))

    def node_count(self, slot):
        """How many nodes the graph has that a slot is captured into."""
        lane: Lane = self.lanes[slot]
        return self.driver.node_count(self.driver.handle(lane.stream))

    def memory_nodes_since(self, slot, count):
        """The copies and fills on a slot since its graph had `count` nodes; see `Driver.memory_nodes_since`."""
        lane: Lane = self.lanes[slot]
        return self.driver.memory_nodes_since(self.driver.handle(lane.stream), count)

    def takes_graph(self, slot, place):
        """Whether a graph for a place can be launched on a slot: it is there, and not captured by a caller."""
        lane = cython.cast(Lane, self.lanes[slot])
        return lane.place == place <= self.driver.device_count and not self.captured

    def prepare(self, graph):
        """Let a captured graph be ready to be launched."""
        self.driver.prepare(graph)

    def deliver(self):
        """Return when the driver has all that was submitted."""
        self.driver.deliver()

    def renew(self, graph, changes):
        """Let nodes of a graph do something else from the next launch on; see `Driver.renew`."""
        self.driver.renew(graph, changes)

    def call(self, slot, body):
        lane: Lane = self.lanes[slot]
        if self.captured and lane.place == 0:
            self.driver.call_in_graph(lane.stream, body)
        else:
            self.driver.call(lane.stream, body)
        return 0

    def call_here(self, slot, body, targets):
        lane: Lane = self.lanes[slot]
        written = []
        for item in targets:
            replica: Replica = item
            layout = replica.layout
            written.append((replica.address, layout.strides, layout.shape, layout.itemsize))
        self.driver.call_in_graph(lane.stream, body, written)
        return 0

    def stream(self, slot):
        lane: Lane = self.lanes[slot]
        return self.driver.handle(lane.stream)

    def copy(self, slot, target, source, unless=None, number=0):
        lane: Lane = self.lanes[slot]
        if source.home or target.home:
            self.pin(source)
            self.pin(target)
        self.driver.copy(
            lane.stream,
            target.address,
            target.layout.strides,
            source.address,
            source.layout.strides,
            target.layout.shape,
            target.layout.itemsize,
            (target.owner, source.owner) if unless is None else (target.owner, source.owner, unless),
            number,
        )
        return 0

    def begin_readback(self, slot, replica):
        lane: Lane = self.lanes[slot]
        return self.driver.begin_readback(lane.stream, replica.address, replica.layout.nbytes)

    def end_readback(self, landing, nbytes):
        return self.driver.end_readback(landing, nbytes)

    def fill(self, slot, replica, pattern):
        lane: Lane = self.lanes[slot]
        layout = replica.layout
        return self.driver.fill(lane.stream, replica.address, layout.strides, layout.shape, pattern)

    def may_use(self, place, replica):
        if replica.pinned:
            return True
        device: cython.int = self.devices[place]
        other: cython.int = self.devices[replica.place]
        start, extent = span_of(replica)
        able = self.driver.may_use(device, other, start, extent, replica.owner)
        if able == 2:
            replica.pinned = True
        return able > 0

    def pin(self, replica):
        """The user's memory on the host is pinned when the first copy touches it."""
        if replica.home and replica.place == 0 and not replica.pinned:
            start, extent = span_of(replica)
            replica.pinned = self.driver.pin(start, extent, replica.owner, self.is_lent) > 0
        return 0

    def alloc(self, slot, replica):
        lane: Lane = self.lanes[slot]
        device: cython.int = self.devices[replica.place]
        address: cython.longlong = self.driver.alloc(device, replica.layout.nbytes, lane.stream)
        try:
            replica.owner = self.driver.owner(address)
        except BaseException:
            self.driver.free(device, address, replica.layout.nbytes, lane.stream)
            raise
        replica.address = address
        return 0

    def free(self, replica, waits, want_event):
        slot = self.begin(replica.place, waits, COMPUTE)
        lane: Lane = self.lanes[slot]
        try:
            self.driver.free(self.devices[replica.place], replica.address, replica.layout.nbytes, lane.stream)
        except BaseException:
            self.end(slot)
            raise
        if want_event:
            return self.end(slot)
        lane.open = False
        lane.trailing = True
        return 0

    def wait(self, events, timeout_s):
        i: cython.int
        deadline = time.monotonic() + timeout_s if timeout_s >= 0 else 0.0
        if self.records_late:
            self.commit_all(events)
        for i in range(events.count):
            event = events.items[i]
            lane: Lane = self.lanes[event >> LANE_SHIFT]
            sequence: cython.longlong = event & ((cython.cast(cython.longlong, 1) << LANE_SHIFT) - 1)
            if sequence > lane.done:
                left = max(deadline - time.monotonic(), 0.0) if timeout_s >= 0 else -1.0
                if not self.driver.synchronize(lane.stream, sequence, left):
                    return False
                self.progress(lane)
        return True

    def commit_all(self, events):
        """Have all events recorded before the first is waited for."""
        i: cython.int
        for i in range(events.count):
            event = events.items[i]
            lane: Lane = self.lanes[event >> LANE_SHIFT]
            sequence: cython.longlong = event & ((cython.cast(cython.longlong, 1) << LANE_SHIFT) - 1)
            if sequence > lane.done:
                self.driver.commit(lane.stream, sequence)
        return 0

    def fault(self):
        return self.driver.fault()

    def drain(self, slot):
        lane: Lane = self.lanes[slot]
        self.driver.drain(lane.stream)
        return 0

    def expect_block(self, slot, name, nbytes):
        lane: Lane = self.lanes[slot]
        self.driver.expect_block(lane.stream, name, nbytes)
        return 0

    def park(self, baton, timeout_s):
        return self.driver.park(baton, timeout_s)

    def runners(self, events, slot):
        i: cython.int
        found = set()
        if slot >= 0:
            lane: Lane = self.lanes[slot]
            found.update(self.driver.runners(lane.stream, 0))
        for i in range(events.count):
            event = events.items[i]
            other: Lane = self.lanes[event >> LANE_SHIFT]
            sequence: cython.longlong = event & ((cython.cast(cython.longlong, 1) << LANE_SHIFT) - 1)
            if sequence > other.done:
                found.update(self.driver.runners(other.stream, sequence))
        return found

    def shutdown(self):
        try:
            self.give_lanes_back()
        finally:
            if self.owns_driver:
                self.close_driver()
        return 0

    def give_lanes_back(self):
        """Wait for all work, and give the streams back."""
        last = EventSet()
        if not self.is_lent:  # else the caller's stream comes after everything, and nobody waits
            self.tails(last)
            self.wait(last, -1.0)
        for item in self.lanes:
            lane: Lane = item
            try:
                self.driver.stream_destroy(lane.stream)
            except MemoryError:
                continue  # it goes with the driver
        if not self.is_lent:
            self.driver.unpin_unused()
        return 0

    def close_driver(self):
        """Close the driver; where that lacked memory, again."""
        try:
            self.driver.close()
        except MemoryError:
            self.driver.close()
        return 0
