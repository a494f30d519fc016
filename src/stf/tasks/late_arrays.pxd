cimport cython
from libc.stdint cimport int64_t
from stf._engine.access cimport AFFINE, READ, Access, Data, DataHandle
from stf._engine.adoption cimport adopt
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Version
from stf._port.replicas cimport Layout, Replica
from stf._support.sync cimport Gate
from stf.interop.known_arrays cimport Memory, numpy_memory

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object value) noexcept

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

cdef int store_new(list items, list written, str name) except -1
cdef Py_ssize_t references(object value) except -1
cdef bint has_open(TaskCore task) except -1
cdef Access access_when_known(DataHandle handle, int mode)
cdef int must_bind_late(Engine engine, TaskCore task, object name) except -1
cdef object late_array(TaskCore task, int index, bint is_result)
cdef bint is_of_numpy(Engine engine, TaskCore task) except -1
