from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t
from stf._drivers.cuda.devices cimport Body
from stf._drivers.queues cimport Stream

cdef enum:
    RING = 512  # events of a stream; also how many tasks may be in flight on it
    KEEPS = 64
    COMMITTED = 64  # every so many events of a stream are recorded at once
    SHORT = 65536  # bytes of a copy that is soon done

cdef enum:  # what is known of the streams of a driver that is lost, unless it is 0
    QUIET = 1
    BUSY = 2

cdef class DeviceStream(Stream):
    cdef cu.CUstream handle
    cdef object pointer  # the handle as an integer, made once
    cdef cu.CUcontext context
    cdef Body body
    cdef cu.CUevent ring[RING]
    cdef char uncommitted[RING]  # whether it is not recorded yet
    cdef int64_t tickets[RING]  # of the submitter, by which CUDA is told to record them
    cdef int64_t done
    cdef int64_t oldest  # the first whose event, once it is done, may be another's; at least the last one's less RING
    cdef int64_t last_short_copy  # the last that is a short copy: who waits for it does so at once
    cdef int sleepers  # how many threads wait for its events, which must stay until then
    cdef list keeps
    cdef bint lent
    cdef bint captured
    cdef int staged  # under capture: whether copies of memory that is not pinned go by way of some that is
    cdef bint foreign  # of a context that is not ours
    cdef bint adopted  # the caller's own
    cdef bint behind_host  # what is queued may wait for work of the host, or a worker has to do some of it

cdef class HostStream(Stream):
    cdef DeviceStream awaited
    cdef int64_t until
    cdef int uses_then  # of the stream that is awaited, when it was so first
    cdef list further
    cdef int wait_for(self, DeviceStream source, int64_t sequence) except -1
    cdef DeviceStream next_awaited(self)
    cdef int await_next(self) except -1

cdef bint put_off(DeviceStream lane, int64_t sequence) noexcept
cdef bint is_in_capture(DeviceStream lane) noexcept
cdef int64_t committed_at(int64_t sequence) noexcept
cdef bint reuse_event(DeviceStream lane, int slot) noexcept
cdef cu.CUresult make_event(DeviceStream lane, int slot, bint* is_new) noexcept
cdef cu.CUresult record_event(DeviceStream lane, int slot)
cdef cu.CUresult block_on(DeviceStream lane, int64_t sequence)
cdef int leave(DeviceStream lane, cu.CUcontext before) except -1
cdef int destroy_stream(DeviceStream lane) except -1
cdef int destroy_events(DeviceStream lane) except -1
cdef int forget_keeps(DeviceStream lane) except -1
cdef bint is_quiet(list streams, int* known) except -1
cdef int refresh(DeviceStream lane) except -1
