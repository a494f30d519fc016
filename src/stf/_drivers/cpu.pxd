from libc.stdint cimport int64_t
from stf._drivers.base cimport address_of
from stf._drivers.queues cimport CALL, COPY, FREE, HOLD, RECORD, WAIT, Op, QueueDriver, Stream, is_called_off, make_op
from stf._support.sync cimport PyThread_get_thread_ident

cdef class CpuDriver(QueueDriver):
    cdef readonly dict memory
    cdef readonly list used
    cdef readonly list capacity
    cdef object copy_watcher
    cdef readonly int64_t live_allocations
    cpdef int64_t alloc(self, int device, int64_t nbytes, int stream) except -1
    cpdef int free(self, int device, int64_t address, int64_t nbytes, int stream) except -1
    cpdef object owner(self, int64_t address)
    cpdef int copy(self, int stream, int64_t target, tuple target_strides, int64_t source, tuple source_strides, tuple shape, int64_t itemsize, object keep, int64_t number=*) except -1
    cpdef object handle(self, int stream)
    cdef int perform(self, Stream stream, Op op) except -1
