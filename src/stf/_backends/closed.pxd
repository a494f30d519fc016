from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._port.replicas cimport Replica
from stf._port.port cimport Port

cdef class ClosedPort(Port):
    cdef readonly str description
    cdef int64_t end(self, int slot) except -1
    cdef int64_t abort(self, int slot) except -1
    cdef object stream(self, int slot)
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cpdef bint may_use(self, int place, Replica replica) except -1
    cpdef int add_place(self, int device, object foreign_handle) except -1
    cdef bint wait(self, EventSet events, double timeout_s) except -1
    cpdef int drain(self, int slot) except -1
    cpdef int shutdown(self) except -1
