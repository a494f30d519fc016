from stf._engine.access cimport DataHandle
from stf._engine.submit cimport Engine
from stf._engine.values cimport is_same

cdef class Likeness:
    cdef readonly object entry
    cdef readonly object context
    cdef int place
    cdef list values
    cdef dict numbers
    cdef list cells
    cpdef dict numbers_of(self, tuple args)

cdef bint is_like(object value, int kind, object known) except -1
