from cuda.bindings cimport cydriver as cu

cdef class Device:
    cdef cu.CUdevice device
    cdef cu.CUcontext context
    cdef cu.CUmemoryPool pool
    cdef cu.CUstream utility
    cdef public int ordinal
    cdef public list spare

cdef int check(cu.CUresult code, str call, str place) except -1
cdef object error_of(cu.CUresult code, str call, str place)
cdef bint is_sticky(cu.CUresult code)
cdef Device open_device(int ordinal)
cdef int close_device(Device device) except -1
cdef int tune_pool(cu.CUmemoryPool pool, bint host) except -1
cdef int allow(cu.CUmemoryPool pool, Device device) except -1
cdef str place_of(Device device)
cdef cu.CUcontext push(cu.CUcontext context) noexcept
cdef int pop(cu.CUcontext before) except -1
