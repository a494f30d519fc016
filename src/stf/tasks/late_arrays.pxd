cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from stf._engine.access cimport AFFINE, READ, Access, Data, DataHandle
from stf._engine.adoption cimport adopt
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf._port.replicas cimport Layout, Replica
from stf._support.sync cimport Gate
from stf.interop.known_arrays cimport Memory, numpy_memory

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object value) noexcept

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
cdef object NDARRAY
cdef list tensors_made
cdef Py_ssize_t IN_A_LIST

@cython.no_gc
cdef class LateView:
    cdef Replica replica
    cdef bint writeable

@cython.no_gc
cdef class ResultSlot:
    cdef Replica replica
    cdef Gate gate
    cdef int store(self, object value, bint is_alone, str name, int position) except -1

cdef Layout layout_like(object value)
cdef object new_handle(Data core)
cdef tuple first_of(list values, int count)
cdef int store_new(list items, list written, str name) except -1
cdef Py_ssize_t references(object value) except -1
cdef bint has_open(TaskCore task) except -1
cdef Access access_when_known(DataHandle handle, int mode)
cdef int must_bind_late(Engine engine, TaskCore task, object name) except -1
cdef object late_array(TaskCore task, int index, bint is_result)
cdef bint is_of_numpy(Engine engine, TaskCore task) except -1
