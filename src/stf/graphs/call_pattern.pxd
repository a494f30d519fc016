from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from stf._engine.access cimport DataHandle
from stf._port.late_values cimport is_same
from stf.graphs.launchable cimport GraphCore
from stf.tasks.task cimport ContextCore

cdef extern from "Python.h":
    PyObject* PyCell_GET(object cell)
    PyObject* PyDict_GetItemWithError(object around, object name) except? NULL

cdef dict settings

cpdef enum:  # by what a value is known again
    DATA = 0
    NUMBER = 1
    OBJECT = 2
    EQUAL = 3
    NESTED = 4
    WEAK = 5  # the same object, which may hold data, or be the context, and is let go when its user drops it
    METHOD = 6


cdef class Path:
    cdef object around  # global variables; or None
    cdef object base  # the name of one of them, or an object
    cdef readonly tuple attributes
    cpdef object read(self)

cdef class CallEntry:
    cdef public object key
    cdef readonly object context
    cdef public object kept
    cdef public int64_t calls
    cdef public GraphCore graph
    cdef public object result
    cdef public int64_t first_data  # the number of the last data that was there before it was recorded
    cdef public object reason
    cdef public bint is_plain  # it is never recorded
    cdef public int64_t launched  # recordings that are over

cdef class CallPattern:
    cdef readonly CallEntry entry
    cdef int place
    cdef list values
    cdef dict numbers
    cdef list cells
    cpdef dict numbers_of(self, tuple args)

cdef class ReplayCore:
    cdef public list _patterns
    cdef public CallPattern _latest

cdef object again(CallPattern like, dict values)
cpdef object replayed(ContextCore context, GraphCore graph, CallEntry entry, dict values)
cdef bint is_like(object value, int kind, object known) except -1
cdef bint is_like_content(object cell, int kind, object known) except -1
cdef bint is_like_container(object value, object kind, list names, list marks) except -1
