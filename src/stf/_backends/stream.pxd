from libc.stdint cimport int64_t
from stf._backends.lanes cimport Lane, LanePort
from stf._drivers.base cimport Driver
from stf._port.events cimport EventSet, LANE_SHIFT
from stf._port.links cimport Links
from stf._port.replicas cimport Replica, span_of
from stf._port.port cimport COMPUTE, DIRECT, HOST, STAGED

cdef int LEGACY_STREAM

cdef class StreamBackend(LanePort):
    cdef readonly Driver driver
    cdef bint owns_driver
    cdef list devices
    cdef dict foreign_handles
    cdef readonly bint is_lent
    cdef public int capturable  # places from here on are streams and contexts of the user's, where nothing is captured
    cdef int staged
    cdef EventSet decided
    cpdef int start_after(self, int place, int64_t pointer, bint captured, int staged=*) except -1
    cdef int make_lane(self, Lane lane) except -1
    cdef int make_stream(self, int place) except -1
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
    cpdef int64_t arrive(self, int place, int64_t pointer) except -1
    cpdef int wait_on_external(self, int slot, int64_t pointer) except -1
    cpdef int signal_external(self, int slot, int64_t pointer) except -1
    cpdef int keep_alive(self, int slot, object what) except -1
    cdef object disown(self, Replica replica)
    cpdef int pin(self, Replica replica) except -1
    cdef int enter(self, int slot) except -1
    cpdef bint may_use(self, int place, Replica replica) except -1
    cpdef int add_place(self, int device, object foreign_handle) except -1
    cdef int begin_readback(self, int slot, Replica replica) except -2
    cdef object end_readback(self, int landing, int64_t nbytes)
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cdef int launch(self, int slot, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
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
    cdef bint wait(self, EventSet events, double timeout_s) except -1
    cpdef object fault(self)
    cpdef int drain(self, int slot) except -1
    cdef bint park(self, object baton, double timeout_s) except -1
    cdef object runners(self, EventSet events, int slot)
    cpdef int shutdown(self) except -1
