from stf._engine cimport host_waits
from stf._engine.task cimport TaskCore
from stf._support.sync cimport PyThread_get_thread_ident

cdef class Region:
    cdef public unsigned long thread
    cdef readonly bint once
    cdef bint takes_mine(self) except -1

cdef class Gathering:
    cdef public Region scope
    cdef readonly unsigned long thread
    cdef readonly bint implicit
    cdef public unsigned long launcher
    cdef public bint is_left
    cdef public Py_ssize_t dropped
    cdef public object last_dropped
    cdef bint takes(self, TaskCore task, object scope, list dropped, list deferred) except -1
