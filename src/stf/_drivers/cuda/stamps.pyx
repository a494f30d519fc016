"""When work on CUDA streams ran: events with timing, read out late, on the host's clock.

A stamp is a number; its event is recorded where it stands on the stream, and read when somebody asks, or when its
event is needed again: a device has `MOST_EVENTS` of them. Nothing here waits for work, but for the oldest stamp of a
device with that many in flight.

CUDA tells the time between two events, in milliseconds as a float. So each stamp is read against an *anchor*, an event
at most a second older, which keeps the error below 0.1 µs; and an anchor is recorded while the host looks at its own
clock just before and after, which says how the two clocks stand to each other. Between anchors they are taken to drift
evenly.

`Spans` tells how long work took, for who decides by that while a program runs: a pair of events around the work, which
is read when both have passed. It needs no clock and no anchor, and keeps nothing of what was read.
"""

from libc.math cimport isnan, NAN
from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport push, restore
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.streams cimport DeviceStream
from stf._drivers.cuda.submitter cimport RECORD_EVENT, Submitter
from stf._drivers.queues cimport STAMP, Op, QueueDriver, Stream, make_op

from bisect import bisect_left
from collections import deque
from time import perf_counter_ns

CALIBRATE_NS = 1_000_000_000
TRIES = 8  # of a calibration, the quickest of which counts


cdef class Anchor:
    """An event, and its time on the device's clock, which begins at the first anchor, and on the host's."""

    def __dealloc__(self):
        if self.event != NULL:
            call(host_nodes, cu.cuEventDestroy, self.event)


cdef class Clock:
    """The stamps and anchors of a device, or of a context of the user's there.

    `marks` are (stamp, event, anchor) of stamps that were recorded and not read, the oldest first; `anchors` the times
    of all anchors, (device, host).
    """

    cdef int open(self, DeviceStream lane) except -1:
        self.context = lane.context
        self.marks = deque()
        self.anchors = []
        before = push(self.context)
        code = call(host_nodes, cu.cuStreamCreateWithPriority, &self.stream, cu.CU_STREAM_NON_BLOCKING, 0)
        restore(before)
        if code == cu.CUDA_SUCCESS:
            self.calibrate()
        return code

    cdef int calibrate(self) except -1:
        """Make a new anchor; where CUDA fails, the last one stays."""
        cdef Anchor best = None
        cdef Anchor anchor
        cdef float elapsed_ms = 0
        cdef cu.CUresult code
        shortest_ns = 0
        for _ in range(TRIES):
            anchor = Anchor()
            anchor.event = timed_event(self.context)
            start_ns = perf_counter_ns()
            code = call(host_nodes, cu.cuEventRecord, anchor.event, self.stream)
            if code == cu.CUDA_SUCCESS:
                with nogil:
                    code = cu.cuEventSynchronize(anchor.event)
            end_ns = perf_counter_ns()
            if code == cu.CUDA_SUCCESS and (best is None or end_ns - start_ns < shortest_ns):
                best = anchor
                shortest_ns = end_ns - start_ns
                best.host_ns = (start_ns + end_ns) // 2
        self.due_ns = perf_counter_ns() + CALIBRATE_NS
        if best is None:
            return 0
        if self.anchor is not None:
            if call(host_nodes, cu.cuEventElapsedTime, &elapsed_ms, self.anchor.event, best.event) != cu.CUDA_SUCCESS:
                return 0
            best.gpu_ns = self.anchor.gpu_ns + elapsed_ms * 1e6
        self.anchor = best
        self.anchors.append((best.gpu_ns, best.host_ns))
        return 0

    cdef int close(self) except -1:
        for _, event, _ in self.marks:
            call(host_nodes, cu.cuEventDestroy, <cu.CUevent><uintptr_t>event)
        for handle in self.spare:
            call(host_nodes, cu.cuEventDestroy, handle)
        self.spare.clear()
        self.marks.clear()
        self.anchor = None
        if self.stream != NULL:
            call(host_nodes, cu.cuStreamDestroy, self.stream)
            self.stream = NULL
        return 0


cdef class Pair:
    """Two events with timing, around work on a stream."""


cdef class Spans:
    """How long work on a device's streams took. At most `MOST_PAIRS` are measured at a time; nothing here waits.

    Contexts that share the driver share the pairs. So each pair knows whom to tell.
    """

    def __init__(self, stamps):
        self.stamps = stamps
        self.pairs = []

    cpdef int begin(self, int stream) except -2:
        """Measure what is put on a stream from now on; return its number for `end`, or -1 where it is not measured."""
        cdef Stream lane = <Stream>self.stamps.driver.streams[stream]
        cdef DeviceStream mine
        cdef int number = -1
        if lane.device < 0:
            return -1
        mine = <DeviceStream>lane
        if mine.captured or mine.foreign or self.pair_for(mine, &number) is None:
            return -1
        self.stamps.put_on(mine, -1 - 2 * number)
        return number

    cpdef int end(self, int number, int stream, object who) except -1:
        """That was all; `take` gives `who` with the seconds that it took, when it is done."""
        cdef DeviceStream lane = <DeviceStream>self.stamps.driver.streams[stream]
        if lane.captured:
            return self.abandon(number)
        (<Pair>self.pairs[number]).who = who
        return self.stamps.put_on(lane, -2 - 2 * number)

    cpdef int abandon(self, int number) except -1:
        """It is not measured after all."""
        cdef Pair pair
        if number >= len(self.pairs):
            return 0  # the driver was closed before
        pair = self.pairs[number]
        pair.failed = True
        if pair.recorded == 1:
            pair.open = False  # else a queue has its end
        return 0

    cpdef list take(self):
        """Return (who, seconds) of what has ended since the last call."""
        cdef Pair pair
        cdef float elapsed_ms = 0
        found = []
        for item in self.pairs:
            pair = item
            if not pair.open or pair.recorded != 3 or not self.is_passed(pair):
                continue
            pair.open = False
            if not pair.failed and call(host_nodes, cu.cuEventElapsedTime, &elapsed_ms, pair.first, pair.last) == 0:
                found.append((pair.who, elapsed_ms * 1e-3))
            pair.who = None
        return found

    cdef Pair pair_for(self, DeviceStream lane, int* number):
        """A pair that nobody uses, for a stream's context; None if all are in use."""
        cdef Pair pair
        for i, item in enumerate(self.pairs):
            pair = item
            if not pair.open and pair.context == lane.context:
                pair.open, pair.failed, pair.recorded, pair.ticket = True, False, 0, 0
                number[0] = i
                return pair
        if len(self.pairs) >= MOST_PAIRS:
            return None
        pair = Pair()
        pair.context = lane.context
        pair.first = timed_event(lane.context)
        pair.last = timed_event(lane.context)
        if pair.first == NULL or pair.last == NULL:
            return None
        pair.open = True
        number[0] = len(self.pairs)
        self.pairs.append(pair)
        return pair

    cdef int record(self, DeviceStream lane, int code) except -1:
        """Record an event of a pair now: the first one of pair n is 2 n, the last one 2 n + 1."""
        cdef Pair pair = self.pairs[code >> 1]
        cdef cu.CUevent event = pair.last if code & 1 else pair.first
        cdef Submitter submitter = self.stamps.submitter
        pair.recorded |= 2 if code & 1 else 1
        if submitter.takes():
            pair.ticket = submitter.put(
                RECORD_EVENT, lane.context, lane.handle, <int64_t><uintptr_t>event, lane.device
            )
            return 0
        submitter.flush()
        if call(host_nodes, cu.cuEventRecord, event, lane.handle) != cu.CUDA_SUCCESS:
            pair.failed = True
        return 0

    cdef bint is_passed(self, Pair pair) except -1:
        """Whether the device has passed the last event, as far as CUDA has it already."""
        cdef Submitter submitter = self.stamps.submitter
        if submitter.pushed - submitter.pending() < pair.ticket:
            return False
        return pair.failed or call(host_nodes, cu.cuEventQuery, pair.last) != cu.CUDA_ERROR_NOT_READY

    cdef int close(self) except -1:
        cdef Pair pair
        for item in self.pairs:
            pair = item
            call(host_nodes, cu.cuEventDestroy, pair.first)
            call(host_nodes, cu.cuEventDestroy, pair.last)
        self.pairs.clear()
        return 0


cdef class Stamps:
    """The stamps of a driver. `times` are on the devices' clocks, NaN where they are not read yet."""

    def __init__(self, driver, submitter):
        self.driver = driver
        self.submitter = submitter
        self.clocks = []
        self.spans = Spans(self)

    cpdef int64_t put(self, int stream) except? -1:
        """Stamp this point of a device's stream; return the stamp, or -1 on the host's streams."""
        cdef Stream lane = <Stream>self.driver.streams[stream]
        cdef int64_t stamp = self.times.size()
        if lane.device < 0:
            return -1
        self.times.push_back(NAN)
        self.readers.push_back(self.clock_of(<DeviceStream>lane))
        self.put_on(<DeviceStream>lane, stamp)
        return stamp

    cdef int put_on(self, DeviceStream lane, int64_t stamp) except -1:
        """Record the event of a stamp, or the one of a span that the number stands for, where it stands on a stream."""
        cdef QueueDriver driver = self.driver
        cdef Op op
        if lane.head is None and not lane.busy:
            return self.record(lane, stamp)
        op = make_op(STAMP, None)
        op.sequence = stamp
        return driver.enqueue(lane.index, op)

    cpdef int collect(self) except -1:
        """Read the stamps that the devices have passed."""
        cdef Clock clock
        for item in self.clocks:
            clock = item
            clock.calibrate()
            self.collect_from(clock)
        return 0

    cpdef int64_t time_ns(self, int64_t stamp) except? -1:
        """The time of a stamp that was read, on `time.perf_counter_ns`; -1 where it was not."""
        cdef Clock clock
        cdef double gpu_ns
        if stamp < 0 or isnan(self.times[stamp]):
            return -1
        gpu_ns = self.times[stamp]
        clock = self.clocks[self.readers[stamp]]
        return <int64_t>on_host(clock.anchors, gpu_ns)

    cdef int clock_of(self, DeviceStream lane) except -1:
        """The number of the clock of a stream's context: an event is recorded on streams of its own context only."""
        cdef Clock clock
        for number, item in enumerate(self.clocks):
            clock = item
            if clock.context == lane.context:
                return number
        clock = Clock()
        clock.open(lane)
        self.clocks.append(clock)
        return len(self.clocks) - 1

    cdef int record(self, DeviceStream lane, int64_t stamp) except -1:
        """Record a stamp's event now; where CUDA fails, the stamp stays unread."""
        cdef Clock clock
        cdef cu.CUevent event
        if stamp < 0:
            return self.spans.record(lane, <int>(-1 - stamp))
        clock = self.clocks[self.readers[stamp]]
        if perf_counter_ns() > clock.due_ns:
            clock.calibrate()
        event = self.take_event(clock)
        self.submitter.flush()
        if event == NULL or clock.anchor is None:
            return 0
        if call(host_nodes, cu.cuEventRecord, event, lane.handle) == cu.CUDA_SUCCESS:
            clock.marks.append((stamp, <uintptr_t>event, clock.anchor))
        else:
            clock.spare.push_back(event)
        return 0

    cdef cu.CUevent take_event(self, Clock clock) except? NULL:
        """An event that nothing needs; where all are in flight, that of the oldest stamp, once it has passed."""
        cdef cu.CUevent event
        if clock.spare.empty() and clock.events < MOST_EVENTS:
            event = timed_event(clock.context)
            clock.events += event != NULL
            return event
        if clock.spare.empty():
            self.collect_from(clock)
        if clock.spare.empty() and clock.marks:
            stamp, handle, anchor = clock.marks.popleft()
            event = <cu.CUevent><uintptr_t>handle
            with nogil:
                cu.cuEventSynchronize(event)
            self.read(clock, stamp, event, anchor)
        if clock.spare.empty():
            return NULL
        event = clock.spare.back()
        clock.spare.pop_back()
        return event

    cdef int collect_from(self, Clock clock) except -1:
        """Read what a device has passed; keep the rest, in order."""
        cdef cu.CUevent event
        for _ in range(len(clock.marks)):
            if not clock.marks:
                break  # another thread reads them too
            mark = clock.marks.popleft()
            event = <cu.CUevent><uintptr_t>mark[1]
            if call(host_nodes, cu.cuEventQuery, event) == cu.CUDA_ERROR_NOT_READY:
                clock.marks.append(mark)
            else:
                self.read(clock, mark[0], event, mark[2])
        return 0

    cdef int read(self, Clock clock, int64_t stamp, cu.CUevent event, Anchor anchor) except -1:
        cdef float elapsed_ms = 0
        if call(host_nodes, cu.cuEventElapsedTime, &elapsed_ms, anchor.event, event) == cu.CUDA_SUCCESS:
            self.times[stamp] = anchor.gpu_ns + elapsed_ms * 1e6
        clock.spare.push_back(event)
        return 0

    cdef int close(self) except -1:
        """Give events and streams back; what was read can still be asked for."""
        cdef Clock clock
        self.spans.close()
        self.driver = None
        for item in self.clocks:
            clock = item
            clock.close()
        return 0


cdef cu.CUevent timed_event(cu.CUcontext context) noexcept:
    """Make an event that knows its time; NULL where CUDA fails."""
    cdef cu.CUevent event = NULL
    before = push(context)
    code = call(host_nodes, cu.cuEventCreate, &event, cu.CU_EVENT_DEFAULT)
    restore(before)
    return event if code == cu.CUDA_SUCCESS else NULL


def on_host(anchors, gpu_ns):
    """A device's time on the host's clock, by the anchors around it."""
    after = bisect_left(anchors, (gpu_ns,))
    if after == 0 or after == len(anchors):
        gpu, host = anchors[max(after - 1, 0)]
        return host + gpu_ns - gpu
    (gpu, host), (later_gpu, later_host) = anchors[after - 1], anchors[after]
    return host + (gpu_ns - gpu) * (later_host - host) / (later_gpu - gpu)
