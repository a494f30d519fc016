# cython: nonecheck=False
"""The stream backend: a lane is a driver's stream."""

from __future__ import annotations

import time

import cython

from stf._backends.callers import StreamCallers
from stf._backends.captures import StreamCaptures
from stf._backends.kernels import Kernels, printing
from stf._backends.readback import StreamReadback
from stf._drivers.base import Registered
from stf.errors import CaptureError

HOST_LANES: cython.int = 64  # queues of the host's, which cost nothing; see devices/lanes
prints: list = printing
COPY_LANES = 8  # a way and device: a copy that waits for a body must not hold up those behind it


class StreamBackend(LanePort):
    """Slots on the streams of a driver.

    Parameters
    ----------
    driver : Driver
        Whose streams.
    width : int
        Compute lanes on a device; the host has `HOST_LANES`, if that is more.
    owns_driver : bool
        Close the driver at the end; otherwise only the streams go back.
    """

    def __init__(self, driver, width, owns_driver=True):
        self.set_up(driver.device_count + 1, width, COPY_LANES)
        self.widths[0] = max(width, HOST_LANES)
        self.driver = driver
        self.devices = [number - 1 for number in range(self.driver.device_count + 1)]  # the driver's, by place
        self.links = Links(driver, self.devices)
        self.foreign_handles = {}
        self.owns_driver = owns_driver
        self.values = driver.values
        self.loops = driver.loops
        self.records_late = driver.records_late
        self.waits_cheaply = driver.waits_cheaply
        self.staged = DIRECT
        self.capturable = 1 << 30
        if driver.graphs is not None:
            self.captures = StreamCaptures(self, driver, self.devices, port_of_capture)
        if driver.has_callers:
            self.callers = StreamCallers(self, driver)
        if driver.reads_back:
            self.readback = StreamReadback(self.lanes, driver)
        if driver.kernels is not None:
            self.kernels = Kernels(driver.kernels, self.devices, self.foreign_handles)

    def lend(self, captured, staged):
        self.is_lent = True
        self.readback = None
        self.records_late = False
        self.captured = captured
        self.staged = staged
        return 0

    def make_lane(self, lane):
        if self.captured and lane.place == 0 and lane.kind == HOST:
            raise CaptureError("it runs on the host")
        if lane.place >= self.capturable:
            raise CaptureError("it runs on a stream, or in a context, of yours")
        lane.stream = self.make_stream(lane.place, lane.priority)
        if self.is_lent:
            self.driver.bind_to_caller(lane.stream, self.captured, self.staged)
        return 0

    def priorities(self, place):
        if self.is_lent or place in self.foreign_handles:  # whose streams are the user's
            return 0, 0
        return self.driver.priorities(self.devices[place])

    def make_stream(self, place, priority=0):
        """Return a new stream of the driver's, or the caller's own."""
        if self.captured and place == 0:  # for nodes of the graph; the device is that of its first stream
            first: Lane = self.lanes[self.start_event >> LANE_SHIFT]
            return self.driver.stream_create(self.device_at(first.place))
        if place not in self.foreign_handles:
            return self.driver.stream_create(self.device_at(place) if place else -1, priority)
        device: cython.int = self.devices[place]
        kind, pointer, _ = self.foreign_handles[place]
        if kind == "stream":
            return self.driver.stream_adopt(device, pointer)
        return self.driver.stream_create_in(device, pointer)

    def device_at(self, place):
        """Return the driver's number of the device that streams for a place are of."""
        device: cython.int = self.devices[place]
        return self.driver.home if device < 0 else device

    def add_place(self, device, foreign_handle):
        place = self.add_pools(1 if foreign_handle is not None and foreign_handle[0] == "stream" else self.width)
        self.devices.append(device)
        if foreign_handle is not None:
            self.foreign_handles[place] = foreign_handle
        return place

    def make_wait(self, lane, other, sequence):
        return self.driver.wait_event(lane.stream, other.stream, sequence)

    def make_record(self, lane):
        return self.driver.record(lane.stream, lane.issued)

    def make_late_record(self, lane):
        return self.driver.record_lazy(lane.stream, lane.issued)

    def commit(self, lane):
        return self.driver.commit(lane.stream, lane.issued)

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

    def disown(self, replica):
        if not replica.pinned:
            return replica.owner if replica.place else None
        replica.pinned = False
        return Registered(self.driver, *span_of(replica), replica.owner)

    def keep_alive(self, slot, what):
        lane: Lane = self.lanes[slot]
        return self.driver.keep_alive(lane.stream, what)

    def enter(self, slot):
        lane = cython.cast(Lane, self.lanes[slot])
        return self.driver.stream_enter(lane.stream)

    def try_enter(self, slot):
        lane = cython.cast(Lane, self.lanes[slot])
        return self.driver.try_enter(lane.stream)

    def launch(self, slot, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        lane = cython.cast(Lane, self.lanes[slot])
        return self.driver.launch(lane.stream, function, gx, gy, gz, bx, by, bz, shared, block, nbytes)

    @property
    def parcels(self):
        """The keeper of recordings in other processes; None where there are none."""
        return self.driver.parcels

    def play_parcel(self, slot, run):
        lane: Lane = self.lanes[slot]
        lane.issued += 1
        self.make_record(lane)  # which it comes after
        self.driver.play_parcel(lane.stream, run)

    def defers(self, slot, captured):
        lane = cython.cast(Lane, self.lanes[slot])
        return self.driver.defers(lane.stream, captured)

    def call(self, slot, body):
        lane: Lane = self.lanes[slot]
        if self.captured and lane.place == 0:
            self.driver.call_in_graph(lane.stream, body)
        else:
            self.driver.call(lane.stream, body)
        return 0

    def tell_compiled(self):
        return self.driver.tell_compiled()

    def let_go_compiled(self, all_of_them):
        return self.driver.let_go_compiled(all_of_them)

    def ask_first(self):
        return self.driver.ask_first()

    def call_in_turn(self, slot, body):
        lane: Lane = self.lanes[slot]
        if not self.spreads:
            return self.call(slot, body)
        return self.driver.call_in_turn(lane.stream, body)

    def keep_pace(self, place):
        return self.driver.keep_pace(self.devices[place])

    def stream(self, slot):
        lane: Lane = self.lanes[slot]
        return self.driver.handle(lane.stream)

    def stream_number(self, slot):
        lane: Lane = self.lanes[slot]
        return lane.stream

    def deliver(self):
        self.driver.deliver()
        return 0

    def max_workers(self):
        return self.driver.max_workers

    def share(self, job, count):
        return self.driver.share(job, count)

    def owns_thread(self, ident):
        return self.driver.owns_thread(ident)

    def copy(self, slot, target, source, unless=None, number=0):
        lane: Lane = self.lanes[slot]
        if source.home or target.home:
            self.pin(source)
            self.pin(target)
        return self.driver.copy(
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

    def copy_and_wait(self, slot, target, source, nbytes):
        lane: Lane = self.lanes[slot]
        self.driver.copy_and_wait(lane.stream, target, source, nbytes)
        return 0

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

    def reserve(self, places, page, runs):
        devices = [self.devices[place] for place in places]
        return None if self.captured or min(devices) < 0 else self.driver.reserve(devices, page, runs)

    def alloc(self, slot, replica):
        lane: Lane = self.lanes[slot]
        device: cython.int = self.devices[replica.place]
        if replica.owner is not None:
            replica.address = self.driver.map(replica.owner.mapping, replica.owner.number, device)
            return 0
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
            sequence: cython.longlong = event & SEQUENCE
            if sequence > lane.done:
                left = max(deadline - time.monotonic(), 0.0) if timeout_s >= 0 else -1.0
                if not self.driver.synchronize(lane.stream, sequence, left):
                    return False
                self.progress(lane)
        if prints[0] and self.kernels is not None:
            self.kernels.show_printed()
        if self.waits_cheaply:
            self.driver.let_go_compiled(True)
        return True

    def commit_all(self, events):
        """Have all events recorded before the first is waited for."""
        i: cython.int
        for i in range(events.count):
            event = events.items[i]
            lane: Lane = self.lanes[event >> LANE_SHIFT]
            sequence: cython.longlong = event & SEQUENCE
            if sequence > lane.done:
                self.driver.commit(lane.stream, sequence)
        return 0

    def fault(self):
        return self.driver.fault()

    def look(self):
        return self.driver.look()

    def drain(self, slot):
        lane: Lane = self.lanes[slot]
        return self.driver.drain(lane.stream)

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
            sequence: cython.longlong = event & SEQUENCE
            if sequence > other.done:
                found.update(self.driver.runners(other.stream, sequence))
        return found

    def shutdown(self):
        try:
            self.give_lanes_back()
        finally:
            if self.owns_driver:
                self.retire_driver()
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

    def retire_driver(self):
        """Let the driver rest, or close it; where that lacked memory, again."""
        try:
            self.driver.retire()
        except (MemoryError, RecursionError):
            try:
                self.driver.close()
            except MemoryError:
                self.driver.close()
        return 0


def port_of_capture(driver, width, devices):
    """Return a backend for what is captured, with the places of another one; the user's own capture nothing."""
    port: StreamBackend = StreamBackend(driver, width, False)
    port.capturable = len(port.devices)
    for device in devices[port.capturable :]:
        port.add_place(device, None)
    return port
