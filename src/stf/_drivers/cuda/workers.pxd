from stf._drivers.cuda.driver cimport CudaDriver
from stf._drivers.cuda.streams cimport HostStream
from stf._drivers.queues cimport Op, Stream

cdef class WorkerDriver(CudaDriver):
    cdef int copy_now(self, what) except -1
    cdef int settle_pending(self, HostStream stream) except -1
