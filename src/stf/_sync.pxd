cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef class Gate:
    cdef bint busy
    cdef unsigned long owner
    cdef int waiters
    cdef object baton
    cdef object mutex
    cdef int enter(self) except -1
    cdef int enter_slow(self) except -1
    cdef int leave(self) except -1

cdef class NestingGate(Gate):
    cdef int depth
    cdef int enter(self) except -1
    cdef int leave(self) except -1
