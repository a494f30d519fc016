from stf._support.sync cimport is_alive, this_thread
from stf.interop.current cimport has_cuda, torch_calls

cdef dict modules
cdef dict spare_pools
cdef list cupy_calls
cdef list pool_calls
cdef list owed

cpdef bint are_needed() except -1

cdef class TorchPool:
    cdef object device
    cdef object pool

cdef class PrivatePools:
    cdef list _kept
    cdef TorchPool _torch
    cdef object _manager
    cdef list _blocks
    cdef bint _took_over  # CuPy allocates from these, and before
    cdef object _before  # from this
    cdef unsigned long long _thread
    cdef PrivatePools _below
    cdef int open(self) except -1
    cdef int close(self) except -1
    cdef int renew(self) except -1
    cdef bint leave_chain(self) except -1
    cdef int open_torch(self, object torch) except -1
    cdef int close_torch(self) except -1
    cdef int _keep(self) except -1
    cdef object allocate_cupy(self, object size)

cdef PrivatePools innermost

cpdef PrivatePools pools_of(list kept)
cdef PrivatePools of_thread(unsigned long long thread)
cdef object take_over(object cupy)
cdef int hand_back(object before) except -1
cdef tuple what_is_owed()
