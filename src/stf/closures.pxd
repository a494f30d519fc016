cimport cython
from stf._engine.access cimport Access, DataHandle
from stf._engine.task cimport TaskCore

cdef dict names

cdef class Names:
    cdef object reference
    cdef readonly object stored
    cdef readonly tuple read
    cdef readonly tuple assigned
    cdef bint imports
    cdef bint is_simple

cpdef object snapshot(object fn, TaskCore task)
cdef int refuse_params(object fn) except -1
cpdef object with_globals(object fn)
cdef dict constants_of(object fn)
cdef bint is_constant(object value) except -1
cdef object assigned_by_others(Names known, dict around)
cdef Names names_in(object code)
