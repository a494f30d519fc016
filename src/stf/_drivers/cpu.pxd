from libc.stdint cimport int64_t
from stf._drivers.base cimport address_of, extent
from stf._drivers.queues cimport COPY, FREE, QueueDriver, is_called_off, make_op
from stf._support.sync cimport PyThread_get_thread_ident

cdef class CpuDriver(QueueDriver):
    cdef readonly dict memory
    cdef object copy_watcher
