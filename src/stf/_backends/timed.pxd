from libc.stdint cimport int64_t
from stf._backends.lanes cimport Lane, LanePort
from stf._backends.stream cimport StreamBackend
from stf._port.port cimport COPY_IN, COPY_OUT

cdef class TimedBackend(StreamBackend):
    cdef object stamps
    cdef dict begun
    cdef list spans
    cdef list reported
    cpdef int mark(self, int slot, object what) except -1
    cpdef int unmark(self, int64_t task_id) except -1
    cpdef list take(self)
