from libc.stdint cimport int64_t
from stf._drivers.base cimport address_of, extent
from stf._drivers.loops cimport Loop
from stf._drivers.pools cimport Pool
from stf._drivers.queues cimport COPY, FREE, QueueDriver, Stream, is_called_off, make_op
from stf._port.host_calls cimport HostCall
from stf._support.sync cimport PyThread_get_thread_ident

cdef class CpuDriver(QueueDriver):
    cdef readonly dict memory
    cdef object copy_watcher
    cdef int64_t put_since  # calls were let go
    cdef bint take_compiled(self, Stream lane, HostCall call) except -1
    cdef int see_to_helpers(self, int count) except -1
