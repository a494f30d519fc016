from libc.stdint cimport int64_t
from stf._port.replicas cimport Replica

cdef class Readback:
    cdef int begin(self, int slot, Replica replica) except -2
    cdef object end(self, int landing, int64_t nbytes)
