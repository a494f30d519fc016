from stf._engine.access cimport Access, DataHandle
from stf._engine.task cimport TaskCore

cpdef object snapshot(object fn, TaskCore task)
cdef int refuse_params(object fn) except -1
