"""Devices that are not there: a driver with a clock, below an engine that does not know.

Streams are queues of operations, as on a machine. Nothing is computed and nothing is copied: an operation takes a time
that a model tells, on something that it has for itself meanwhile. The clock jumps from one event to the next one::

    push ──▶ head of an idle stream ──▶ waits for another stream ──▶ blocked, until that gets there
                                    ──▶ takes time ──▶ runs, or is in the queue of its `Server`, first come first served

    server                      what it serves, one at a time
    a device                    bodies and fills there; copies within its memory
    the way into a device       copies from the host and from other devices
    the way out of a device     copies to the host
    the workers of the host     bodies on the host, and all work of emulated devices; `workers` at a time

The host has a clock of its own, `now`. It advances by `submit_s` with each end of a slot, and jumps ahead where the
host waits. What happens up to `now` has happened whenever the host looks. So the engine meets the same answers as on a
machine: lanes that are still busy, memory that is not free yet, back-pressure.

Memory is a number: a device may have a capacity, and addresses count up; they bear the device, and nobody reads there.
`values` says so to those above: views of such memory have a shape and a dtype, and values only where users gave some.
A body is counted and not run; it still ends its outcome (`QueuedBody.skip`).

A first form kept one time for each stream and each device, and moved both at submission. It was half as long, and
wrong where two streams share a device: what was submitted first ran first, and not what was ready first.
"""

from __future__ import annotations

import _thread
import logging
import time

import cython

from stf._drivers.base import Driver
from stf._port.links import SAME_PLACE
from stf._support.sync import Gate, make_baton

log = logging.getLogger("stf")

FAKE: cython.longlong = 1 << 62  # in every address of ours
ALIGNMENT: cython.int = 256


@cython.cclass
class Server:
    """What serves one operation at a time, or `width` of them, first come first served."""

    def __init__(self, width):
        self.width = width
        self.queue = []

    def take(self):
        """Take the stream that waits longest out of the queue; None if none waits."""
        if self.next == len(self.queue):
            return None
        found = self.queue[self.next]
        self.queue[self.next] = None
        self.next += 1
        if self.next == len(self.queue):
            self.queue.clear()
            self.next = 0
        return found


@cython.no_gc
@cython.cclass
class Op:
    """An operation of a stream; one that takes time says later when it ran, and what it had waited for.

    `cause` is the index of the operation whose end let it start. A negative one is the host, which submitted it late:
    -1, or -2 less the index of the operation that the host had waited for.
    """


@cython.cclass
class Stream:
    """A queue of operations, done one after the other."""

    def __init__(self, device):
        self.device = device
        self.cause = HOST_FIRST
        self.end_s = -1.0


def ends_before(lane, other):
    """Return whether what runs on a stream ends before that of another one; at a tie, what started first."""
    return lane.end_s < other.end_s or (lane.end_s == other.end_s and lane.turn < other.turn)


def make_op(kind):
    op: Op = Op.__new__(Op)
    op.kind = kind
    op.end_s = -1.0
    op.cause = HOST_FIRST
    op.device = op.source = -1
    return op


class Stamps:
    """When streams got somewhere; see `Driver.stamps`. A stamp before work is when that starts."""

    def __init__(self, driver):
        self.driver = driver
        self.times_s = []

    def put(self, stream):
        """Return the number of the time at which the stream gets here."""
        self.times_s.append(-1.0)
        self.driver.stamp(stream, len(self.times_s) - 1)
        return len(self.times_s) - 1

    def collect(self):
        """Let all be known that has happened."""
        self.driver.catch_up()

    def time_ns(self, stamp):
        """Return a stamp on the clock of `time.perf_counter_ns`; -1 where it is not known yet."""
        time_s = self.times_s[stamp]
        return -1 if time_s < 0.0 else self.driver.origin_ns + round(time_s * 1e9)


class SimulatedDriver(Driver):
    """Devices with a clock, whose work takes the time that a model tells.

    Parameters
    ----------
    kinds : sequence of str
        The kind of each device.
    model : object
        ``duration_s(name, nbytes, kind)`` is what a body takes; ``link(kind, other)`` is the `Link` by its class, by
        which the engine chooses, between a place of one kind and another place ("host" is a kind);
        ``timed_link(kind, other)`` is what a copy takes there, and ``memory_link(kind)`` within a device;
        ``uses_workers(kind)`` says that bodies there run on the host's workers; ``submit_s`` is what a slot costs.
    workers : int
        Bodies that run on the host at a time.
    capacity : sequence of int, optional
        Bytes of memory per device; 0 for no bound.
    """

    def __init__(self, kinds, model, workers=1, capacity=None):
        self.name = "simulated"
        self.device_count = len(kinds)
        self.shares_host = False
        self.runs_inline = True
        self.kinds = ["host", *kinds]
        self.model = model
        self.values = {}
        self.max_workers = max(workers, 1)
        self.capacity = [0, *(capacity or [0] * len(kinds))]
        self.gate = Gate()
        self.pool = Server(self.max_workers)
        shared = [model.uses_workers(kind) for kind in kinds]
        self.compute, self.inward, self.outward = [
            [self.pool, *[self.pool if pooled else Server(1) for pooled in shared]] for _ in range(3)
        ]
        self.streams, self.spare = [], []
        self.heap, self.ready, self.sleepers = [], [], []
        self.ops = []
        self.durations = {}
        self.links = {}
        self.copies = {}
        self.used = [0] * (len(kinds) + 1)
        self.peak = [0] * (len(kinds) + 1)
        self.next_address = [ALIGNMENT] * (len(kinds) + 1)
        self.submit_s = model.submit_s
        self.host_cause = HOST_FIRST
        self.origin_ns = time.perf_counter_ns()
        self.stamps = Stamps(self)

    # -- what the model says -----------------------------------------------------------------------------------

    def kind(self, device):
        return self.kinds[device + 1]

    def times(self):
        return self.model

    def link(self, source, target):
        return SAME_PLACE if source == target else self.model.link(self.kinds[source + 1], self.kinds[target + 1])

    def set_workers(self, workers):
        """Let so many bodies run on the host at a time from now on."""
        self.max_workers = self.pool.width = max(workers, 1)

    def clock_ns(self):
        return self.origin_ns + round(self.now * 1e9)

    def duration_s(self, name, nbytes, device):
        """Return what a body of a device takes."""
        key = (name, nbytes, device)
        known = self.durations.get(key)
        if known is None:
            known = self.durations[key] = self.model.duration_s(name, nbytes, self.kinds[device + 1])
        return known

    # -- streams and events ------------------------------------------------------------------------------------

    def stream_create(self, device, priority=0):
        with self.gate:
            index = self.spare.pop() if self.spare else len(self.streams)
            if index == len(self.streams):
                self.streams.append(None)
            self.streams[index] = Stream(device)
            return index

    def stream_destroy(self, stream):
        with self.gate:
            self.spare.append(stream)
        return 0

    def record(self, stream, sequence):
        lane = cython.cast(Stream, self.streams[stream])
        self.gate.enter()
        try:
            self.now += self.submit_s
            if lane.held:
                self.leave_block(lane)
            op = make_op(RECORD)
            op.sequence = sequence
            self.push(lane, op)
        finally:
            self.gate.leave()
        return 0

    def wait_event(self, stream, other, sequence):
        op = make_op(WAIT)
        op.other = cython.cast(Stream, self.streams[other])
        op.sequence = sequence
        return self.enqueue(stream, op)

    def completed(self, stream):
        lane = cython.cast(Stream, self.streams[stream])
        if len(self.heap):
            self.catch_up()
        return lane.completed

    def catch_up(self):
        """Let everything happen up to the host's clock."""
        with self.gate:
            self.run_until(self.now)
        return 0

    def synchronize(self, stream, sequence, timeout_s):
        lane: Stream = self.streams[stream]
        deadline: cython.double = self.now + timeout_s if timeout_s >= 0 else -1.0
        while True:
            with self.gate:
                self.run_until(self.now)
                while lane.completed < sequence and self.heap:
                    if deadline >= 0 and cython.cast(Stream, self.heap[0]).end_s > deadline:
                        self.now = max(self.now, deadline)
                        return False
                    self.step()
                if lane.completed >= sequence:
                    return True
                baton = self.fall_asleep()
            baton.acquire(True, timeout_s if timeout_s >= 0 else -1)  # another thread has to do something first
            if deadline >= 0 and lane.completed < sequence and not self.heap:
                return False

    def stream_enter(self, stream):
        lane: Stream = self.streams[stream]
        while True:
            with self.gate:
                self.run_until(self.now)
                while (lane.head is not None or lane.busy or lane.held) and self.heap:
                    self.step()
                if lane.head is None and not lane.busy and not lane.held:
                    lane.held = True
                    return 0
                baton = self.fall_asleep()
            baton.acquire()

    def drain(self, stream):
        lane: Stream = self.streams[stream]
        with self.gate:
            self.run_until(self.now)
            while (lane.head is not None or lane.busy) and self.heap:
                self.step()
        return 0

    def fall_asleep(self):
        """Return a lock that is released when another thread has submitted something."""
        baton = make_baton()
        self.sleepers.append(baton)
        return baton

    def expect_block(self, stream, name, nbytes):
        """Let the with-block that is about to be entered on a stream take its time."""
        lane: Stream = self.streams[stream]
        lane.block_name, lane.block_nbytes = name, nbytes
        lane.block_s = self.duration_s(name, nbytes, lane.device)

    def leave_block(self, lane):
        """End what held a stream: the body of a with-block took the time of the thread that ran it."""
        lane.held = False
        if lane.block_name is not None:
            op = make_op(WORK)
            op.name, op.device, op.source, op.nbytes = lane.block_name, lane.device, lane.device, lane.block_nbytes
            op.start_s, op.cause = self.now, lane.cause
            self.now += lane.block_s
            op.end_s = self.now
            self.give_stamps(lane, op.start_s)
            self.ops.append(op)
            lane.cause = len(self.ops) - 1
            self.host_cause = -2 - lane.cause
            lane.block_name, lane.block_s = None, 0.0
        return 0

    # -- work --------------------------------------------------------------------------------------------------

    def call(self, stream, body):
        skip = getattr(body, "skip", None)
        if skip is None:
            _thread.start_new_thread(call_outside, (body,))
            return 0
        told = skip()
        if told is None:
            return 0
        lane = cython.cast(Stream, self.streams[stream])
        name, nbytes = told
        op = make_op(WORK)
        op.name, op.device, op.source, op.nbytes = name, lane.device, lane.device, nbytes
        op.cost_s = self.duration_s(name, nbytes, lane.device)
        op.server = self.compute[lane.device + 1]
        self.put_work(lane, op)
        return 0

    def copy(self, stream, target, target_strides, source, source_strides, shape, itemsize, keep, number=0):
        if len(keep) > 2 and keep[2]() is not None:
            return 0
        lane = cython.cast(Stream, self.streams[stream])
        nbytes: cython.longlong = itemsize
        for extent in shape:
            nbytes *= extent
        op = make_op(WORK)
        op.device, op.source = device_of(target), device_of(source)
        op.nbytes = nbytes
        op.name = "copy"
        if op.device == op.source:
            latency_s, bytes_per_s = self.model.memory_link(self.kinds[op.device + 1])
            op.server = self.compute[op.device + 1]
        else:
            latency_s, bytes_per_s = self.link_of(op.source, op.device)
            op.server = self.inward[op.device + 1] if op.device >= 0 else self.outward[op.source + 1]
        op.cost_s = latency_s + nbytes / bytes_per_s
        self.put_work(lane, op)
        return 0

    def link_of(self, source, target):
        """Return the link between two devices as it was measured, from what was asked before."""
        found = self.links.get((source, target))
        if found is None:
            found = self.model.timed_link(self.kinds[source + 1], self.kinds[target + 1])
            self.links[(source, target)] = found
            self.copies[(source, target)] = [0, 0]
        return found

    def fill(self, stream, target, strides, shape, pattern):
        lane = cython.cast(Stream, self.streams[stream])
        nbytes: cython.longlong = len(pattern)
        for extent in shape:
            nbytes *= extent
        op = make_op(WORK)
        op.name, op.device, op.source, op.nbytes = "fill", lane.device, lane.device, nbytes
        op.server = self.compute[lane.device + 1]
        op.cost_s = self.duration_s("fill", nbytes, lane.device)
        self.put_work(lane, op)
        return True

    def put_work(self, lane, op):
        """Put what takes time on a stream, and count it."""
        self.gate.enter()
        try:
            if op.source != op.device:
                count = self.copies[(op.source, op.device)]
                count[0] += 1
                count[1] += op.nbytes
            self.push(lane, op)
        finally:
            self.gate.leave()
        return 0

    def stamp(self, stream, number):
        """Let a stamp have the time at which the stream gets here."""
        op = make_op(STAMP)
        op.sequence = number
        return self.enqueue(stream, op)

    def keep_alive(self, stream, what):
        return 0

    def handle(self, stream):
        return None

    # -- memory ------------------------------------------------------------------------------------------------

    def alloc(self, device, nbytes, stream):
        place: cython.int = device + 1
        with self.gate:
            self.run_until(self.now)
            used: cython.longlong = self.used[place] + nbytes
            if self.capacity[place] and used > self.capacity[place]:
                raise MemoryError(f"{nbytes} bytes asked, {self.capacity[place] - self.used[place]} free")
            self.used[place] = used
            if used > self.peak[place]:
                self.peak[place] = used
            self.live_allocations += 1
            offset: cython.longlong = self.next_address[place]
            size: cython.longlong = (max(nbytes, 1) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
            self.next_address[place] = offset + size
            return FAKE | cython.cast(cython.longlong, place) << DEVICE_SHIFT | offset

    def free(self, device, address, nbytes, stream):
        op = make_op(FREE)
        op.device, op.nbytes = device, nbytes
        return self.enqueue(stream, op)

    def statistics(self):
        spare = len(self.spare)
        return len(self.streams) - spare, spare, self.max_workers, self.live_allocations, list(self.used)

    # -- the clock (all under the gate) ------------------------------------------------------------------------

    def enqueue(self, stream, op):
        """Put an operation at the end of a stream, from outside of the gate."""
        with self.gate:
            self.push(self.streams[stream], op)
        return 0

    def push(self, lane, op):
        """Put an operation at the end of a stream; it starts now where nothing is before it."""
        if self.heap:
            self.run_until(self.now)
        if lane.head is None:
            lane.head = op
        else:
            lane.tail.next = op
        lane.tail = op
        if not lane.busy and not lane.blocked and not lane.held:
            if lane.head is op and op.kind == WORK:
                lane.cause = self.host_cause  # nothing else kept it: the host came late
            self.advance(lane, self.now)
            self.settle(self.now)
        if self.sleepers:
            self.wake_sleepers()
        return 0

    def wake_sleepers(self):
        """Let threads look again that wait for what others submit."""
        sleepers, self.sleepers = self.sleepers, []
        for baton in sleepers:
            baton.release()
        return 0

    def run_until(self, time_s):
        """Let everything happen up to a time."""
        while self.heap:
            if cython.cast(Stream, self.heap[0]).end_s > time_s:
                return 0
            lane = self.pop_first()
            self.finish(lane, lane.end_s)
        return 0

    def step(self):
        """Let the next thing happen; the host has waited for it."""
        lane = self.pop_first()
        if lane.end_s > self.now:
            self.now = lane.end_s
            self.host_cause = -2 - lane.head.sequence
        self.finish(lane, lane.end_s)
        return 0

    def push_running(self, lane):
        """Put a stream, whose head runs, where its end is in the order of all: `heapq` would compare tuples."""
        heap: list = self.heap
        heap.append(lane)
        k: cython.Py_ssize_t = len(heap) - 1
        while k > 0:
            parent = cython.cast(Stream, heap[(k - 1) >> 1])
            if not ends_before(lane, parent):
                break
            heap[k] = parent
            k = (k - 1) >> 1
        heap[k] = lane
        return 0

    def pop_first(self):
        """Take out the stream whose head ends first."""
        heap: list = self.heap
        first = cython.cast(Stream, heap[0])
        last = cython.cast(Stream, heap.pop())
        count: cython.Py_ssize_t = len(heap)
        if count == 0:
            return first
        k: cython.Py_ssize_t = 0
        while 2 * k + 1 < count:
            child: cython.Py_ssize_t = 2 * k + 1
            if child + 1 < count and ends_before(
                cython.cast(Stream, heap[child + 1]), cython.cast(Stream, heap[child])
            ):
                child += 1
            if not ends_before(cython.cast(Stream, heap[child]), last):
                break
            heap[k] = heap[child]
            k = child
        heap[k] = last
        return first

    def finish(self, lane, at):
        """End the operation that runs on a stream."""
        op = lane.head
        lane.head = op.next
        op.next = None
        lane.busy = False
        lane.cause = op.sequence
        server = op.server
        server.busy -= 1
        waiting = server.take()
        if waiting is not None:
            self.start(waiting, at, op.sequence)
        self.advance(lane, at)
        self.settle(at)
        return 0

    def start(self, lane, at, cause):
        """Start the operation at the head of a stream, since `cause` has ended."""
        op = lane.head
        op.server.busy += 1
        op.start_s = at
        op.end_s = at + op.cost_s
        op.cause = cause
        op.sequence = len(self.ops)
        self.ops.append(op)
        if lane.stamps is not None:
            self.give_stamps(lane, at)
        self.turns += 1
        lane.end_s, lane.turn = op.end_s, self.turns
        self.push_running(lane)
        return 0

    def give_stamps(self, lane, at):
        """Tell the time to the stamps that a stream has passed."""
        if lane.stamps is not None:
            for number in lane.stamps:
                self.stamps.times_s[number] = at
            lane.stamps = None
        return 0

    def advance(self, lane, at):
        """Do what takes no time at the head of a stream, up to something that does."""
        while lane.head is not None:
            op = lane.head
            if op.kind == WORK:
                lane.busy = True
                if op.server.busy < op.server.width:
                    return self.start(lane, at, lane.cause)
                op.server.queue.append(lane)
                return 0
            if op.kind == WAIT:
                if op.other.completed < op.sequence:
                    lane.blocked = True
                    if op.other.waiters is None:
                        op.other.waiters = []
                    op.other.waiters.append(lane)
                    return 0
            elif op.kind == STAMP:
                if lane.stamps is None:
                    lane.stamps = []
                lane.stamps.append(op.sequence)
                if (op.next is None or op.next.kind != WORK) and lane.cause >= 0 and len(lane.stamps) == 1:
                    cause = cython.cast(Op, self.ops[lane.cause])
                    if cause.end_s == at:  # a stamp behind work has the time of its end, others that of what follows
                        self.give_stamps(lane, at)
            elif op.kind == RECORD:
                if lane.stamps is not None:
                    self.give_stamps(lane, at)
                lane.completed = op.sequence
                if lane.waiters is not None:
                    self.wake(lane)
            else:
                self.used[op.device + 1] -= op.nbytes
                self.live_allocations -= 1
            lane.head = op.next
            op.next = None
        return 0

    def wake(self, lane):
        """Let those go on that waited for what a stream has passed."""
        waiters = lane.waiters
        lane.waiters = None
        for item in waiters:
            other = cython.cast(Stream, item)
            op = other.head
            if op.sequence > lane.completed:
                if lane.waiters is None:
                    lane.waiters = []
                lane.waiters.append(other)
            else:
                other.blocked = False
                other.cause = lane.cause
                other.head = op.next
                op.next = None
                self.ready.append(other)
        return 0

    def settle(self, at):
        """Advance the streams that were let go, and those that they let go."""
        i: cython.Py_ssize_t = 0
        while i < len(self.ready):
            lane = cython.cast(Stream, self.ready[i])
            i += 1
            if not lane.busy and not lane.blocked and not lane.held:
                self.advance(lane, at)
        if i:
            self.ready.clear()
        return 0

    # -- what ran ----------------------------------------------------------------------------------------------

    def spans(self):
        """Return all work that has run: (name, device, source, bytes, start, end, cause) each; times in seconds.

        The source is the device that a copy reads from; that of a body is its own device.
        """
        found = []
        for item in self.ops:
            op: Op = item
            found.append((op.name, op.device, op.source, op.nbytes, op.start_s, op.end_s, op.cause))
        return found

    def body_counts(self):
        """Return how many bodies and fills ran, by name, bytes and kind of device.

        With a tuple for each of a million operations, Python's collector took a third of the time of a plan.
        """
        counts: dict = {}
        for item in self.ops:
            op: Op = item
            if op.source == op.device:
                key = (op.name, op.nbytes, self.kinds[op.device + 1])
                counts[key] = counts.get(key, 0) + 1
        return counts

    def copy_counts(self):
        """Return (number, bytes) of the copies by (source, target)."""
        return {pair: tuple(count) for pair, count in self.copies.items() if count[0]}

    def close(self):
        self.heap, self.ready = [], []
        self.wake_sleepers()
        return 0


def device_of(address):
    """Return the device whose memory an address is of; the user's is the host's."""
    if address < FAKE:
        return -1
    device: cython.int = (address >> DEVICE_SHIFT) & DEVICE_MASK
    return device - 1


def call_outside(body):
    """Call what is no body of a task, such as a callback, on a thread of its own."""
    try:
        body()
    except BaseException:
        log.exception("a callback raised")
