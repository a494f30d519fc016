cimport cython
from cpython.object cimport PyObject
from stf._engine.access cimport READ, WRITE, Access
from stf._engine.task cimport TaskCore
from stf._support.constants cimport is_constant

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object around, object name) except? NULL

cdef dict names

cdef class Names:
    cdef object reference
    cdef readonly object stored
    cdef readonly tuple read
    cdef readonly frozenset called
    cdef readonly tuple assigned
    cdef readonly dict rebound
    cdef readonly frozenset untouched
    cdef readonly tuple dropped
    cdef bint returns
    cdef bint augmented
    cdef dict telling
    cdef readonly frozenset looked_into
    cdef readonly tuple looked_at
    cdef readonly dict keys
    cdef bint imports
    cdef bint is_simple

cdef object OTHER

cdef class Taken:
    cdef object around
    cdef list names
    cdef list values
    cdef readonly object variables
    cdef public object copy
    cdef dict find_members(self, object fn, Names known)
    cdef dict constants(self)
    cdef bint is_same(self) except -1

cpdef object snapshot(object fn, TaskCore task)
cpdef bint refuse_lost(object fn, object label, object modes, Py_ssize_t first=*, bint warns=*) except -1
cpdef object with_last_values(object fn, object modes)
cdef bint reaches(object fn, object value) except -1
cdef int refuse_params(object fn) except -1
cpdef object with_globals(object fn)
cpdef object with_cells(object fn, object cells, object variables=*, object code=*)
cdef dict constants_of(object fn)
cdef object assigned_by_others(Names known, object around)
cdef Names names_in(object code)
