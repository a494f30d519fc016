cimport cython
from libc.stdint cimport int64_t
from stf._drivers.base cimport Driver
from stf._support.sync cimport Gate

cdef enum:
    WAIT = 0
    RECORD = 1
    WORK = 2
    FREE = 3
    STAMP = 4

cdef enum:
    HOST_FIRST = -1
    DEVICE_SHIFT = 48
    DEVICE_MASK = 0x3FFF

cdef int64_t FAKE
cdef int ALIGNMENT

cdef class Server:
    cdef int width
    cdef int busy
    cdef list queue  # streams, from `next` on
    cdef Py_ssize_t next
    cdef Stream take(self)

@cython.no_gc
cdef class Op:
    cdef int kind
    cdef int device  # where it works; the target of a copy
    cdef int source  # of a copy
    cdef int64_t sequence  # of an event, a stamp; of work its index, once it has started
    cdef int64_t nbytes  # of a copy, of memory
    cdef int64_t cause
    cdef double cost_s
    cdef double start_s
    cdef double end_s
    cdef Stream other
    cdef Server server
    cdef str name
    cdef Op next

cdef class Stream:
    cdef int device
    cdef int64_t completed
    cdef bint busy  # its head runs, or is in the queue of its server
    cdef bint blocked  # its head waits for another stream
    cdef bint held  # by the thread that runs the body of a with-block
    cdef int64_t cause  # what let it get here; see `Op`
    cdef double end_s  # of its head, which runs,
    cdef int64_t turn  # and when that started, among all
    cdef str block_name  # of the with-block that is about to hold it, what its data have
    cdef int64_t block_nbytes
    cdef double block_s  # and what it takes
    cdef Op head
    cdef Op tail
    cdef list waiters
    cdef list stamps  # that it has passed, of what starts next

cdef class SimulatedDriver(Driver):
    cdef readonly list kinds
    cdef readonly object model
    cdef readonly int max_workers
    cdef list capacity
    cdef Gate gate
    cdef Server pool
    cdef list compute
    cdef list inward
    cdef list outward
    cdef list streams
    cdef list spare
    cdef list heap  # the streams whose heads run: a binary heap, what ends first on top
    cdef list ready  # streams that were let go
    cdef list sleepers  # locks of threads that wait for others
    cdef list ops  # all work that has started
    cdef dict durations
    cdef dict links
    cdef dict copies
    cdef list used
    cdef readonly list peak  # most bytes, by place
    cdef list next_address
    cdef int64_t live_allocations
    cdef double submit_s
    cdef readonly double now  # the host's clock
    cdef int64_t host_cause  # the cause of what the host submits now; see `Op`
    cdef int64_t turns
    cdef readonly int64_t origin_ns
    cpdef int catch_up(self) except -1
    cpdef int stamp(self, int stream, int64_t number) except -1
    cdef double duration_s(self, str name, int64_t nbytes, int device) except? -1
    cdef object link_of(self, int source, int target)
    cdef object fall_asleep(self)
    cdef int leave_block(self, Stream lane) except -1
    cdef int put_work(self, Stream lane, Op op) except -1
    cdef int enqueue(self, int stream, Op op) except -1
    cdef int push(self, Stream lane, Op op) except -1
    cdef int wake_sleepers(self) except -1
    cdef int run_until(self, double time_s) except -1
    cdef int step(self) except -1
    cdef int push_running(self, Stream lane) except -1
    cdef Stream pop_first(self)
    cdef int finish(self, Stream lane, double at) except -1
    cdef int start(self, Stream lane, double at, int64_t cause) except -1
    cdef int give_stamps(self, Stream lane, double at) except -1
    cdef int advance(self, Stream lane, double at) except -1
    cdef int wake(self, Stream lane) except -1
    cdef int settle(self, double at) except -1

cdef bint ends_before(Stream lane, Stream other) noexcept
cdef Op make_op(int kind)
cdef int device_of(int64_t address) except -2
