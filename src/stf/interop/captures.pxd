cdef dict modules
cdef dict spare_pools

cpdef bint are_needed() except -1

cdef class PrivatePools:
    cdef list _kept
    cdef tuple _torch  # the device and torch's pool
    cdef object _torch_manager
    cdef list _blocks
    cdef readonly bint is_open
    cdef int _keep(self) except -1
