"""The two kinds of streams of the CUDA driver: a device's, with its ring of events, and the host's."""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport end_body, pop, push, restore
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.queues cimport QueueDriver, Stream

import time

END_S = 2.0


cdef class DeviceStream(Stream):
    """A CUDA stream. `completed` is what was given to CUDA, `done` what CUDA is known to have done.

    The event of a sequence number is at that number modulo `RING`: by the time its place is needed again, CUDA has
    done it. One that is `uncommitted` is recorded when somebody asks for it: what stands on the stream by then is more than
    it stands for, never less. `keeps` are (sequence number, what a copy needs until then). A `lent` stream
    works between a caller's work; a `captured` one is part of the capture: nothing is ever done there. A `foreign` one
    is in a context of the user's; one that is `adopted` is the user's, and what stands on it stays in the user's order, so that
    its work goes to CUDA directly.
    """

    def __init__(self, index, device):
        Stream.__init__(self, index, device)
        self.keeps = []

    def __dealloc__(self):
        end_body(&self.body)  # of a body that nobody ended


cdef class HostStream(Stream):
    """A queue of the host. At its next work it waits for a device's stream, `until` a sequence number, and `further` ones."""

    def __init__(self, index, device):
        Stream.__init__(self, index, device)
        self.further = []

    cdef int wait_for(self, DeviceStream source, int64_t sequence) except -1:
        """Let the next work wait for a device's stream, once for each."""
        cdef Py_ssize_t i
        if self.awaited is None or (self.awaited is source and self.uses_then == source.uses):
            self.awaited, self.until, self.uses_then = source, max(sequence, self.until), source.uses
            return 0
        for i in range(len(self.further)):
            known, until, uses = <tuple>self.further[i]
            if known is source and uses == source.uses:
                self.further[i] = (source, max(sequence, <int64_t>until), uses)
                return 0
        self.further.append((source, sequence, source.uses))
        return 0

    cdef DeviceStream next_awaited(self):
        """What is to be waited for; None if nothing is. A stream that went back since was done with that."""
        while self.awaited is not None and self.awaited.uses != self.uses_then:
            self.await_next()
        return self.awaited

    cdef int await_next(self) except -1:
        """Wait no longer for `awaited`: one of the `further` takes its place."""
        self.awaited, self.until = None, 0
        if self.further:
            self.awaited, self.until, self.uses_then = self.further.pop()
        return 0


cdef bint put_off(DeviceStream lane, int64_t sequence) noexcept:
    """Leave an event of a stream of ours to who asks for it; not all of them, since they say how far the stream is."""
    if sequence % COMMITTED == 0 or lane.keeps or (lane.lent and not lane.captured) or lane.foreign or lane.adopted:
        return False  # what is kept goes when the event behind it is known to be done
    lane.uncommitted[sequence % RING] = True
    return True


cdef int64_t committed_at(int64_t sequence) noexcept:
    """The last sequence number up to this one whose event was surely recorded."""
    return sequence - sequence % COMMITTED


cdef bint is_in_capture(DeviceStream lane) noexcept:
    """Whether a body that has a stream captures it: an event that is recorded then would be the capture's."""
    cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
    if lane.body.thread:
        call(host_nodes, cu.cuStreamIsCapturing, lane.handle, &status)
    return status != cu.CU_STREAM_CAPTURE_STATUS_NONE


cdef bint reuse_event(DeviceStream lane, int slot) noexcept:
    """Give one place of a stream's ring an event of work that is done, which nobody waits for any more."""
    cdef int other
    while lane.oldest <= lane.done:
        other = lane.oldest % RING
        lane.oldest += 1
        if lane.ring[other] != NULL:
            lane.ring[slot] = lane.ring[other]
            lane.ring[other] = NULL
            return True
    return False


cdef cu.CUresult make_event(DeviceStream lane, int slot, bint* is_new) noexcept:
    """Make the event of one place of a stream's ring; another thread may have been faster."""
    cdef cu.CUcontext before = push(lane.context)
    cdef cu.CUevent event = NULL
    code = call(host_nodes, cu.cuEventCreate, &event, cu.CU_EVENT_DISABLE_TIMING)
    is_new[0] = code == cu.CUDA_SUCCESS and lane.ring[slot] == NULL
    if is_new[0]:
        lane.ring[slot] = event
    elif code == cu.CUDA_SUCCESS:
        call(host_nodes, cu.cuEventDestroy, event)
    restore(before)
    return code


cdef cu.CUresult record_event(DeviceStream lane, int slot):
    """Record an event on its stream, outside of a capture that a body has begun there, and spoilt."""
    cdef cu.CUgraph graph = NULL
    code = call(host_nodes, cu.cuEventRecord, lane.ring[slot], lane.handle)
    if code != cu.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED or lane.captured or lane.adopted:
        return code
    call(host_nodes, cu.cuStreamEndCapture, lane.handle, &graph)
    if graph != NULL:
        call(host_nodes, cu.cuGraphDestroy, graph)
    return call(host_nodes, cu.cuEventRecord, lane.ring[slot], lane.handle)


cdef cu.CUresult block_on(DeviceStream lane, int64_t sequence):
    """Wait for the event of `sequence`, which stays meanwhile."""
    cdef cu.CUevent event = lane.ring[sequence % RING]
    cdef cu.CUresult code = cu.CUDA_ERROR_NOT_READY
    lane.sleepers += 1
    if sequence != lane.last_short_copy:
        code = call(host_nodes, cu.cuEventQuery, event)
    if code == cu.CUDA_ERROR_NOT_READY:
        with nogil:
            code = cu.cuEventSynchronize(event)
    lane.sleepers -= 1
    return code


cdef int leave(DeviceStream lane, cu.CUcontext before) except -1:
    """Make current what was before a call in the context of a stream; one that is the user's stays with nobody else."""
    if before == NULL and lane.foreign:
        cu.cuCtxSetCurrent(NULL)
    return pop(before)


cdef int destroy_stream(DeviceStream lane) except -1:
    """Give stream and events back to CUDA; return how many events there were."""
    count = destroy_events(lane)
    if not lane.adopted:
        call(host_nodes, cu.cuStreamDestroy, lane.handle)
    return count


cdef int destroy_events(DeviceStream lane) except -1:
    """Give the events of a stream back to CUDA; return how many there were."""
    count = 0
    for i in range(RING):
        if lane.ring[i] != NULL:
            call(host_nodes, cu.cuEventDestroy, lane.ring[i])
            lane.ring[i] = NULL
            count += 1
    return count


cdef int forget_keeps(DeviceStream lane) except -1:
    """Let go what copies needed that are done."""
    cdef list before
    if lane.keeps:
        before = lane.keeps  # what goes may let others run, who must find the new list
        lane.keeps = [item for item in before if item[0] > lane.done]
    return 0


cdef int refresh(DeviceStream lane) except -1:
    """Look how far a stream is; under capture nobody may ask."""
    cdef int64_t last = committed_at(lane.completed) if lane.uncommitted[lane.completed % RING] else lane.completed
    if last > lane.done and not lane.captured and call(host_nodes, cu.cuEventQuery, lane.ring[last % RING]) == cu.CUDA_SUCCESS:
        lane.done = last
    return forget_keeps(lane)


def pointer_of(QueueDriver driver, int stream):
    """The CUDA stream of a driver's stream, as an integer; 0 for the host's. Unlike `handle`, it changes nothing."""
    lane = driver.streams[stream]
    return <uintptr_t>(<DeviceStream>lane).handle if isinstance(lane, DeviceStream) else 0


cdef bint is_quiet(list streams, int* known) except -1:
    """Whether CUDA has done all that streams were given; asked of a driver that is lost, which waits for nothing.

    The first to ask waits for it a while. Streams that are captured are not asked.
    """
    cdef double deadline = time.monotonic() + END_S
    if known[0] == 0:
        known[0] = QUIET
        for item in streams:
            if isinstance(item, DeviceStream) and (<DeviceStream>item).handle != NULL and not (<DeviceStream>item).captured:
                while call(host_nodes, cu.cuStreamQuery, (<DeviceStream>item).handle) == cu.CUDA_ERROR_NOT_READY:
                    if time.monotonic() >= deadline:
                        known[0] = BUSY
                        return False
                    time.sleep(1e-3)
    return known[0] == QUIET
