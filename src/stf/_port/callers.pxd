from libc.stdint cimport int64_t
from stf._port.captures cimport STAGED

cdef class Callers:
    cpdef int64_t arrive(self, int place, int64_t pointer) except -1
    cpdef int wait_on(self, int slot, int64_t pointer) except -1
    cpdef int signal(self, int slot, int64_t pointer) except -1
    cpdef int start_after(self, int place, int64_t pointer, bint captured, int staged=*) except -1
