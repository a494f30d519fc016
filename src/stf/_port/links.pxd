from libc.stdint cimport int64_t

cdef class Links:
    cdef object source  # a driver, which knows the link between two devices; or None
    cdef list numbers  # the driver's, by place
    cdef dict known  # the link of each pair that was asked for
    cpdef object link(self, int source, int target)
    cpdef double cost_s(self, int source, int target, int64_t nbytes) except -1
