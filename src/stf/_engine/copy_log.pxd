cimport cython
from libc.stdint cimport int64_t
from stf._engine.task cimport TaskCore

@cython.no_gc
cdef class LoggedCopy:
    cdef int source
    cdef int target
    cdef int64_t number  # of the task; 0 for none
    cdef object symbol
    cdef object code
    cdef int lasti

cdef LoggedCopy logged(int source, int target, TaskCore asked)
