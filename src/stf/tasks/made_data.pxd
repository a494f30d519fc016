from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from stf._engine.access cimport Data, DataHandle
from stf._port.replicas cimport Layout

cdef extern from *:
    """
    /* What __new__ of a type makes, without looking for it. */
    static PyObject *stf_new(PyObject *type, PyObject *nothing) {
        return ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, nothing, NULL);
    }
    """
    object stf_new(object kind, tuple nothing)

cdef list HANDLE_TYPE
cdef tuple NO_ARGUMENTS

cdef Layout layout_like(object value)
cdef object new_handle(Data core)
cdef tuple first_of(list values, int count)
