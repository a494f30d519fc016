from libc.stdint cimport int64_t

from stf._drivers.cuda.driver cimport CudaDriver
from stf._drivers.queues cimport Op, Stream

cdef enum:
    AHEAD = 64  # bodies of a device that may wait before who submits them waits a while, too

cdef class DeviceThread(Stream):
    cdef Op first  # the bodies that nobody has begun, in the order of their submission
    cdef Op last
    cdef int64_t submitted  # how many bodies,
    cdef int64_t begun
    cdef Server server  # the thread that is in charge; None before the first body

cdef class Server:
    cdef DeviceThread thread
    cdef object baton
    cdef bint idle
    cdef bint is_counted  # the body that it runs is one of those that were called

cdef class DeviceThreadsDriver(CudaDriver):
    cdef list threads  # one for each device, or None
    cdef dict servers  # by the identifier of the thread
    cdef DeviceThread thread_of(self, int device)
    cdef int take_charge(self, DeviceThread thread) except -1
    cdef int ring(self, DeviceThread thread) except -1
    cdef int count(self, DeviceThread thread) except -1
    cdef Op turn_after(self, Op done, Server me, bint* goes)
    cdef int call_body(self, Op op, Server me) except -1
