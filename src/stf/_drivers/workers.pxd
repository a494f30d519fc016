from stf._drivers.pools cimport Sleeper
from stf._support.sync cimport Gate

cdef class Worker:
    cdef Sleeper sleeper
    cdef unsigned long ident
    cdef object driver  # that it works for; None: in the reserve, or it goes when it is called
    cdef bint is_kept  # in the reserve
    cdef bint in_pool  # it rests where it is called for compiled tasks
    cdef bint is_new  # as a new thread is: no body has left anything on it
    cdef object kind  # what threads have that are started like it
    cdef object native  # the number that the system knows the thread by; None before it runs
    cdef int limit  # threads that libraries have on it; 0: it was never said
    cdef Py_ssize_t modules  # how many were loaded when it last limited the threads of libraries
    cdef Worker next_worker
    cdef Worker next_idle

cdef class Workers:
    cdef Worker first
    cdef int push(self, Worker worker) except -1
    cdef Worker pop(self)
    cdef bint remove(self, Worker worker) except -1

cdef class Reserve:
    cdef Gate gate
    cdef Workers workers
    cdef readonly int count
    cdef int most
    cdef Worker take(self, int limit, object kind)
    cdef bint keep(self, Worker worker) except -1
