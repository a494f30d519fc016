from libc.stdint cimport int64_t
from stf._port.callers cimport Callers
from stf._port.captures cimport Captures
from stf._port.events cimport EventSet
from stf._port.links cimport Links
from stf._port.readback cimport Readback
from stf._port.replicas cimport Replica

cdef enum:
    COMPUTE = 0
    COPY_IN = 1
    COPY_OUT = 2
    HOST = 3
    OUTSIDE = 4  # of events that others complete
    WAITING = 5  # of what waits for these, so that nothing else waits behind it
    IN_ORDER = 6  # of what was planned: one after the other, as it is submitted

cdef class Port:
    cdef readonly bint captured  # all is recorded in a caller's graph: nothing runs yet, and nothing can be waited for
    cdef readonly Links links  # what copies cost between data places
    cdef readonly object values  # None where memory holds values; else those that were given, by name of data
    cdef readonly Captures captures  # makes graphs of work, and launches them; or None
    cdef readonly Callers callers  # meets streams that are not the port's; or None
    cdef readonly Readback readback  # shows the host a few bytes of a device; or None
    cdef readonly object kernels  # finds functions of devices; or None
    cdef readonly object loops  # makes loops of compiled bodies, which workers run; or None
    cdef public bint spreads  # each device has a thread of its own that calls bodies
    cdef int writes  # of the slot that ends next: how many data it wrote, if it read none; else 0
    cdef int rewrites  # of the slot that begins next: how many data it writes that `rewritten` wrote last, unread since
    cdef int64_t rewritten
    cdef int priority  # of the slot that begins next, as the user gave it
    cdef int begin(self, int place, EventSet waits, int kind) except -1
    cdef int join(self, int slot, EventSet waits) except -1
    cdef int64_t end(self, int slot) except -1
    cdef int64_t abort(self, int slot) except -1
    cdef bint enqueues(self, int place) noexcept
    cpdef int keep_alive(self, int slot, object what) except -1
    cdef object disown(self, Replica replica)
    cdef int enter(self, int slot) except -1
    cdef bint try_enter(self, int slot) except -1
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cpdef int copy_and_wait(self, int slot, int64_t target, int64_t source, int64_t nbytes) except -1
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cpdef bint may_use(self, int place, Replica replica) except -1
    cpdef int pin(self, Replica replica) except -1
    cpdef int add_place(self, int device, object foreign_handle) except -1
    cdef int launch(self, int slot, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cdef int64_t open_event(self) except -1
    cdef int complete_event(self, int64_t event) except -1
    cdef bint defers(self, int slot, object captured) except -1
    cpdef int deliver(self) except -1
    cdef int call(self, int slot, object body) except -1
    cpdef int tell_compiled(self) except -1
    cpdef int let_go_compiled(self, bint all_of_them) except -1
    cpdef int ask_first(self) except -1
    cdef int call_in_turn(self, int slot, object body) except -1
    cdef int keep_pace(self, int place) except -1
    cdef object stream(self, int slot)
    cpdef int stream_number(self, int slot) except -1
    cpdef int max_workers(self) except -1
    cpdef int share(self, object job, int count) except -1
    cpdef bint owns_thread(self, object ident) except -1
    cdef int alloc(self, int slot, Replica replica) except -1
    cdef int64_t free(self, Replica replica, EventSet waits, bint want_event) except -1
    cdef int tails(self, EventSet into) except -1
    cdef int tails_at(self, int place, EventSet into) except -1
    cdef bint wait(self, EventSet events, double timeout_s) except -1
    cdef bint done(self, int64_t event) noexcept
    cpdef int place_in_flight(self, int64_t event) except -2
    cpdef tuple priorities(self, int place)
    cpdef object fault(self)
    cpdef object look(self)
    cpdef int drain(self, int slot) except -1
    cdef bint park(self, object baton, double timeout_s) except -1
    cdef object runners(self, EventSet events, int slot)
    cdef int flush(self) except -1
    cpdef int shutdown(self) except -1
