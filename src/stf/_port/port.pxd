from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._port.links cimport Links
from stf._port.replicas cimport Replica

cdef enum:
    COMPUTE = 0
    COPY_IN = 1
    COPY_OUT = 2
    HOST = 3
    OUTSIDE = 4  # of events that others complete
    WAITING = 5  # of what waits for these, so that nothing else waits behind it

cdef enum:  # how copies of memory that is not pinned are captured: as such, or by way of pinned memory,
    DIRECT = 0
    STAGED_HERE = 1  # for a graph that is launched here, and kept by who has it
    STAGED = 2  # for one that others launch

cdef class Port:
    cdef readonly str name
    cdef readonly bint captured  # all is recorded in a caller's graph: nothing runs yet, and nothing can be waited for
    cdef readonly Links links  # what copies cost between data places
    cdef readonly object values  # None where memory holds values; else those that were given, by name of data
    cdef readonly bint reads_back  # `begin_readback` may be asked
    cdef int writes  # of the slot that ends next: how many data it wrote, if it read none; else 0
    cdef int rewrites  # of the slot that begins next: how many data it writes that `rewritten` wrote last, unread since
    cdef int64_t rewritten
    cdef int begin(self, int place, EventSet waits, int kind) except -1
    cdef int join(self, int slot, EventSet waits) except -1
    cdef int64_t end(self, int slot) except -1
    cdef int64_t abort(self, int slot) except -1
    cdef bint enqueues(self, int place) noexcept
    cpdef int64_t arrive(self, int place, int64_t pointer) except -1
    cpdef int wait_on_external(self, int slot, int64_t pointer) except -1
    cpdef int signal_external(self, int slot, int64_t pointer) except -1
    cpdef int keep_alive(self, int slot, object what) except -1
    cdef object disown(self, Replica replica)
    cdef int enter(self, int slot) except -1
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cdef int begin_readback(self, int slot, Replica replica) except -2
    cdef object end_readback(self, int landing, int64_t nbytes)
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cpdef bint may_use(self, int place, Replica replica) except -1
    cpdef int add_place(self, int device, object foreign_handle) except -1
    cdef int launch(self, int slot, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cdef int64_t open_event(self) except -1
    cdef int complete_event(self, int64_t event) except -1
    cdef int put_pointer(self, int slot, int offset, Replica replica) except -1
    cdef object begin_capture(self, int place, object owner)
    cdef int play_captured(self, int slot, object captured) except -1
    cdef bint defers(self, int slot, object captured) except -1
    cdef int queue_captured(self, int slot, object captured, list changes) except -1
    cpdef bint takes_graph(self, int slot, int place) except -1
    cdef int call(self, int slot, object body) except -1
    cdef int call_here(self, int slot, object body, list targets) except -1
    cdef object stream(self, int slot)
    cdef int alloc(self, int slot, Replica replica) except -1
    cdef int64_t free(self, Replica replica, EventSet waits, bint want_event) except -1
    cdef int tails(self, EventSet into) except -1
    cdef int tails_at(self, int place, EventSet into) except -1
    cdef bint wait(self, EventSet events, double timeout_s) except -1
    cdef bint done(self, int64_t event) noexcept
    cpdef object fault(self)
    cpdef int drain(self, int slot) except -1
    cdef bint park(self, object baton, double timeout_s) except -1
    cdef object runners(self, EventSet events, int slot)
    cdef int flush(self) except -1
    cpdef int shutdown(self) except -1
