from cuda.bindings cimport cydriver as cu
from stf._drivers.cuda.devices cimport Device
from stf._drivers.queues cimport QueueDriver

cdef class HardwareDriver(QueueDriver):
    cdef list devices
    cdef Device home_device
    cdef object opening
    cdef cu.CUmemoryPool host_pool
    cdef bint has_host_pool
    cdef public object lost
    cdef int start(self, ordinals, host_pool) except -1
    cdef Device gpu(self, int device)
    cdef int open(self, Device gpu) except -1
    cdef int close_devices(self) except -1
    cdef int demand(self, cu.CUresult code, str call, int device) except -1
    cdef int note(self, cu.CUresult code, str call, int device) except -1
