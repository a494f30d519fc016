from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, realloc, free
from libc.string cimport memset
from stf._port.events cimport EventSet, LANE_SHIFT
from stf._port.replicas cimport Replica
from stf._port.port cimport Port, COMPUTE, COPY_IN, COPY_OUT, HOST

cdef enum:
    KINDS = 4

cdef class Lane:
    cdef readonly int index
    cdef readonly int place
    cdef readonly int kind
    cdef readonly int stream
    cdef readonly int64_t issued
    cdef readonly int64_t done
    cdef readonly bint open
    cdef bint trailing
    cdef bint uncommitted
    cdef int writes
    cdef int64_t* clock
    cdef int clock_size
    cdef int64_t seen(self, int lane) noexcept
    cdef int saw(self, int lane, int64_t sequence) except -1

cdef class LanePool:
    cdef list lanes
    cdef int next
    cdef int width

cdef class LanePort(Port):
    cdef readonly list lanes
    cdef list widths
    cdef list pools
    cdef int width
    cdef readonly int64_t start_event  # the event that every lane starts after; 0 for none
    cdef int start_at_origin(self, Lane lane) except -1
    cdef int copy_width
    cdef int add_pools(self, int width) except -1
    cdef LanePool add_pool(self, int place, int kind)
    cpdef int add_place(self, int device, object foreign_handle) except -1
    cdef Lane pick(self, int place, int kind, EventSet waits)
    cdef Lane next_lane(self, int place, int kind)
    cdef Lane add_lane(self, LanePool pool, int place, int kind)
    cdef int tail(self, Lane lane, EventSet into) except -1
    cdef int need(self, Lane lane, EventSet waits) except -1
    cdef int make_lane(self, Lane lane) except -1
    cdef int make_wait(self, Lane lane, Lane other, int64_t sequence) except -1
    cdef int make_record(self, Lane lane) except -1
    cdef bint records_late
    cdef int make_late_record(self, Lane lane) except -1
    cdef int commit(self, Lane lane) except -1
    cdef int64_t progress(self, Lane lane) except -1
    cdef bint is_done(self, Lane lane, int64_t sequence) except -1
    cdef int begin(self, int place, EventSet waits, int kind) except -1
    cdef int join(self, int slot, EventSet waits) except -1
    cdef int64_t end(self, int slot) except -1
    cdef int64_t abort(self, int slot) except -1
    cdef int tails(self, EventSet into) except -1
    cdef int tails_at(self, int place, EventSet into) except -1
    cpdef list lanes_at(self, int place)
    cdef bint done(self, int64_t event) noexcept
