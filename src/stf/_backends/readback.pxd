from libc.stdint cimport int64_t
from stf._backends.lanes cimport Lane
from stf._drivers.base cimport Driver
from stf._port.readback cimport Readback
from stf._port.replicas cimport Replica

cdef class StreamReadback(Readback):
    cdef list lanes
    cdef Driver driver
    cdef int begin(self, int slot, Replica replica) except -2
    cdef object end(self, int landing, int64_t nbytes)
