from libc.stdint cimport int64_t
from libc.stdlib cimport realloc, free
from libc.string cimport memset
from stf._port.events cimport EventSet, LANE_SHIFT, SEQUENCE
from stf._port.port cimport Port, COMPUTE, COPY_IN, COPY_OUT, HOST, IN_ORDER, OUTSIDE, WAITING

cdef enum:
    KINDS = 7

cdef class Lane:
    cdef readonly int index  # among the lanes of its port; its slot, while one is open
    cdef readonly int place  # where its work runs
    cdef readonly int kind  # COMPUTE, COPY_IN, COPY_OUT or HOST
    cdef readonly int stream  # the driver's
    cdef readonly int priority  # as the driver has it
    cdef readonly int64_t issued  # the sequence number of its last event
    cdef readonly int64_t done  # the last one that is known to be complete
    cdef readonly bint open  # a slot is
    cdef bint trailing  # there is work behind its last event
    cdef bint uncommitted  # its last event is not recorded yet
    cdef int writes  # of the slot that ended last: how many data it wrote, if it read none; else 0
    cdef int64_t* clock  # of each lane, the last sequence number that its work comes after
    cdef int clock_size  # how many lanes the clock knows
    cdef int64_t seen(self, int lane) noexcept
    cdef int saw(self, int lane, int64_t sequence) except -1

cdef class LanePool:
    cdef list lanes
    cdef int next
    cdef int width

cdef class LanePort(Port):
    cdef readonly list lanes
    cdef int open_events  # that others complete
    cdef list widths
    cdef list pools
    cdef dict prioritized  # pools of lanes that have a priority, by (place and kind, priority)
    cdef int width
    cdef readonly bint is_lent  # the work is between that of a caller's stream, which nobody waits for
    cdef readonly int64_t start_event  # the event that every lane starts after; 0 for none
    cdef int start_at_origin(self, Lane lane) except -1
    cdef int copy_width
    cdef int lend(self, bint captured, int staged) except -1
    cdef int set_up(self, int places, int width, int copy_width=*) except -1
    cdef int add_pools(self, int width) except -1
    cdef LanePool add_pool(self, int place, int kind)
    cdef LanePool pool_of(self, int place, int kind, int priority)
    cdef Lane pick(self, int place, int kind, EventSet waits, int priority=*)
    cdef int clipped(self, int place, int priority) except? -1
    cdef bint waits_outside(self, EventSet waits) except -1
    cdef Lane next_lane(self, int place, int kind, int priority=*)
    cdef Lane add_lane(self, LanePool pool, int place, int kind, int priority)
    cdef int tail(self, Lane lane, EventSet into) except -1
    cdef int need(self, Lane lane, EventSet waits) except -1
    cdef int make_lane(self, Lane lane) except -1
    cdef int make_wait(self, Lane lane, Lane other, int64_t sequence) except -1
    cdef int make_record(self, Lane lane) except -1
    cdef bint records_late
    cdef bint waits_cheaply  # a wait for what is over costs less than to find that out
    cdef int make_late_record(self, Lane lane) except -1
    cdef int commit(self, Lane lane) except -1
    cdef int64_t progress(self, Lane lane) except -1
    cdef bint is_done(self, Lane lane, int64_t sequence) except -1
    cpdef list lanes_at(self, int place)
