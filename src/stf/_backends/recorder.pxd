from libc.stdint cimport int64_t
from stf._port.links cimport Links
from stf._backends.lanes cimport Lane, LanePort
from stf._port.events cimport LANE_SHIFT, SEQUENCE

cdef class Recorder(LanePort):
    cdef readonly list log
    cdef bint logging
    cdef int64_t next_address
    cdef readonly int64_t records
    cdef readonly int64_t waits
    cdef readonly int64_t allocs
    cdef readonly int64_t frees
    cdef readonly int64_t copies
    cdef readonly int64_t calls
    cdef readonly dict capacity
