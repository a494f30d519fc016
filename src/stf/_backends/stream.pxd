from libc.stdint cimport int64_t
from stf._backends.lanes cimport Lane, LanePort
from stf._drivers.base cimport Driver
from stf._port.events cimport EventSet, LANE_SHIFT
from stf._port.links cimport Links
from stf._port.replicas cimport Replica, span_of
from stf._port.captures cimport DIRECT
from stf._port.port cimport COMPUTE, HOST

cdef class StreamBackend(LanePort):
    cdef readonly Driver driver
    cdef bint owns_driver
    cdef list devices
    cdef dict foreign_handles
    cdef int capturable  # places from here on are streams and contexts of the user's, where nothing is captured
    cdef int staged
    cdef int lend(self, bint captured, int staged) except -1
    cdef int make_lane(self, Lane lane) except -1
    cdef int make_stream(self, int place, int priority=*) except -1
    cdef int device_at(self, int place) except -1
    cdef int make_wait(self, Lane lane, Lane other, int64_t sequence) except -1
    cdef int make_record(self, Lane lane) except -1
    cdef int make_late_record(self, Lane lane) except -1
    cdef int commit(self, Lane lane) except -1
    cdef int commit_all(self, EventSet events) except -1
    cdef int64_t progress(self, Lane lane) except -1
    cdef bint is_done(self, Lane lane, int64_t sequence) except -1
    cdef int tails_at(self, int place, EventSet into) except -1
    cdef bint enqueues(self, int place) noexcept
    cpdef int keep_alive(self, int slot, object what) except -1
    cdef object disown(self, Replica replica)
    cpdef int pin(self, Replica replica) except -1
    cdef int enter(self, int slot) except -1
    cdef bint try_enter(self, int slot) except -1
    cpdef bint may_use(self, int place, Replica replica) except -1
    cpdef int add_place(self, int device, object foreign_handle) except -1
    cpdef int copy_and_wait(self, int slot, int64_t target, int64_t source, int64_t nbytes) except -1
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cdef int launch(self, int slot, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cdef bint defers(self, int slot, object captured) except -1
    cdef int call(self, int slot, object body) except -1
    cdef object stream(self, int slot)
    cpdef int stream_number(self, int slot) except -1
    cpdef int deliver(self) except -1
    cpdef int max_workers(self) except -1
    cpdef int share(self, object job, int count) except -1
    cpdef bint owns_thread(self, object ident) except -1
    cdef int alloc(self, int slot, Replica replica) except -1
    cdef int64_t free(self, Replica replica, EventSet waits, bint want_event) except -1
    cdef bint wait(self, EventSet events, double timeout_s) except -1
    cpdef tuple priorities(self, int place)
    cpdef object fault(self)
    cpdef object look(self)
    cpdef int drain(self, int slot) except -1
    cdef bint park(self, object baton, double timeout_s) except -1
    cdef object runners(self, EventSet events, int slot)
    cpdef int shutdown(self) except -1
