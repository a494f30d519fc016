from libc.stdint cimport int64_t
from stf._drivers.cpu cimport CpuDriver
from stf._drivers.queues cimport CALL, Op, QueueDriver, Stream

cdef class Notice:
    cdef readonly object what  # is told when its stream gets there

cdef class WatchedDriver(CpuDriver):
    cdef list told  # since somebody listened last
    cdef object bell
    cdef int put(self, object what) except -1
    cdef bint reach(self, Stream stream, int64_t sequence) except -1
    cdef bint issue(self, Stream stream, Op op) except -1
