from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t, uintptr_t

cdef class Device:
    cdef bint is_open
    cdef cu.CUdevice device
    cdef cu.CUcontext context
    cdef cu.CUmemoryPool pool
    cdef cu.CUstream utility
    cdef cu.CUevent passing  # recorded and waited for at once, while no other thread of Python's can
    cdef public int ordinal
    cdef readonly str name
    cdef public list spare

cdef class Relaxed:
    cdef cu.CUstreamCaptureMode mode

cdef struct Body:  # what was current in the thread that made the context of a body current
    unsigned long thread  # 0: none did
    cu.CUcontext context
    cu.CUcontext saved
    Body* below  # whose body was begun before

cdef cu.CUresult begin_body(Body* body, cu.CUcontext context) noexcept
cdef int end_body(Body* body) noexcept
cdef int check(cu.CUresult code, str call, str place) except -1
cdef object error_of(cu.CUresult code, str call, str place)
cdef object report_loss(object watchers, object error, int device)
cdef bint is_sticky(cu.CUresult code)
cdef int64_t function_in(uintptr_t kernel, cu.CUcontext context, str where) except -1
cdef int64_t load_function(bytes source, bytes name, cu.CUcontext context, str where) except -1
cdef cu.CUstreamCaptureMode relax() noexcept
cdef int give_back(cu.CUstreamCaptureMode mode) noexcept
cpdef bint is_capturing(int64_t pointer) except -1
cdef int refuse_capture(int64_t pointer) except -1
cdef int open_device(Device device) except -1
cdef int trim(cu.CUmemoryPool pool, size_t nbytes) except -1
cdef int close_device(Device device) except -1
cdef int attribute(cu.CUdevice device, cu.CUdevice_attribute which, str where) except? -1
cdef int allow(cu.CUmemoryPool pool, Device device) except -1
cdef bint open_host_pool(cu.CUmemoryPool* pool) except -1
cdef object link_between(Device one, Device other)
cdef int open_peer(Device one, Device other) except -1
cdef cu.CUcontext push(cu.CUcontext context) noexcept
cdef int pop(cu.CUcontext before) except -1
cdef int restore(cu.CUcontext before) except -1
