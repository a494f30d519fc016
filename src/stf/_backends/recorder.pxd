from libc.stdint cimport int64_t
from stf._port.links cimport Links
from stf._backends.lanes cimport Lane, LanePort
from stf._port.events cimport EventSet, LANE_SHIFT
from stf._port.replicas cimport Replica

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
    cdef int note(self, tuple entry) except -1
    cdef int make_wait(self, Lane lane, Lane other, int64_t sequence) except -1
    cdef int make_record(self, Lane lane) except -1
    cdef int launch(self, int slot, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cdef int call(self, int slot, object body) except -1
    cdef int alloc(self, int slot, Replica replica) except -1
    cdef int64_t free(self, Replica replica, EventSet waits, bint want_event) except -1
    cdef bint wait(self, EventSet events, double timeout_s) except -1
