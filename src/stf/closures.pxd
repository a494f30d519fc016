cimport cython
from stf._engine.access cimport Access, DataHandle
from stf._engine.task cimport TaskCore

cdef dict names

cdef class Names:
    cdef object reference
    cdef readonly object stored
    cdef readonly tuple read
    cdef bint imports
    cdef object last
    cdef dict last_taken
    cdef object last_copy

cpdef object snapshot(object fn, TaskCore task)
cdef int refuse_params(object fn) except -1
cpdef object with_globals(object fn)
cdef bint are_those(dict taken, dict before) except -1
cdef Names names_in(object code)
