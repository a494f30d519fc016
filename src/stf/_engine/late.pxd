from stf._engine.scopes cimport Outcome
from stf._engine.submit cimport Engine, TaskCore
from stf._sync cimport PyThread_get_thread_ident

cdef class LateCall:
    cdef Engine engine
    cdef object body
    cdef Outcome outcome
    cdef list inputs
    cdef TaskCore task
    cdef bint watched
    cdef object run(self)
