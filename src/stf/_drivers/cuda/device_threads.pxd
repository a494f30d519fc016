from libc.stdint cimport int64_t

from stf._drivers.cuda.workers cimport WorkerDriver
from stf._drivers.queues cimport Op, Stream, Waiter

cdef enum:
    AHEAD = 64  # bodies of a device that may wait before who submits them waits a while, too

cdef class DeviceThread:
    cdef int device
    cdef Op first  # the bodies that nobody has begun, in the order of their submission
    cdef Op last
    cdef int64_t submitted  # how many bodies,
    cdef int64_t begun
    cdef int64_t called  # and how many of these have ended, or wait for other work inside
    cdef Server server  # the thread that is in charge; None before the first body
    cdef Waiter waiters  # threads that wait until so many were called

cdef class Server:
    cdef DeviceThread thread
    cdef object baton
    cdef bint idle
    cdef bint is_counted  # the body that it runs is one of those that were called

cdef class DeviceThreadsDriver(WorkerDriver):
    cdef list threads  # one for each device, or None
    cdef dict servers  # by the identifier of the thread
    cpdef int call(self, int stream, object body) except -1
    cpdef int call_in_turn(self, int stream, object body) except -1
    cpdef int keep_pace(self, int device) except -1
    cpdef int stream_enter(self, int stream) except -1
    cpdef int close(self) except -1
    cdef int offer(self, Stream stream) except -1
    cdef DeviceThread thread_of(self, int device)
    cdef int take_charge(self, DeviceThread thread) except -1
    cdef int ring(self, DeviceThread thread) except -1
    cdef int count(self, DeviceThread thread) except -1
    cdef int await_called(self, DeviceThread thread, int64_t wanted, double timeout_s) except -1
    cdef Op turn_after(self, Op done, Server me, bint* goes)
    cdef int call_body(self, Op op, Server me) except -1
