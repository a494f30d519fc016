from libc.stdint cimport int64_t
from stf._engine.adoption cimport adopt
from stf._port.replicas cimport Layout, Replica
from stf._support.sync cimport Gate
from stf.interop.known_arrays cimport numpy_memory

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object value) noexcept

cdef object NDARRAY
cdef Py_ssize_t IN_A_LIST

cdef class LateView:
    cdef Replica replica
    cdef bint writeable

cdef class ResultSlot:
    cdef Replica replica
    cdef Gate gate
    cdef int store(self, object value, bint is_alone, str name, int position) except -1

cdef LateView late_view(Replica replica, bint writeable)
cdef ResultSlot result_slot(Replica replica, Gate gate)
cdef int store_new(list items, list written, str name) except -1
cdef Py_ssize_t references(object value) except -1
