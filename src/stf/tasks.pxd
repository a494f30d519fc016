from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data, DataHandle, make_access
from stf._engine.instances cimport Replica
from stf._engine.submit cimport ENDED, NEW, OPEN, Engine, TaskCore

cdef class ContextCore:
    cdef readonly Engine engine
    cdef public int default_code
    cdef public str arrays
    cdef public bint blocking
    cdef readonly bint runs_inline
    cdef object __weakref__
    cpdef Task make_task(self, object args, object symbol)

cdef class Task(TaskCore):
    cdef readonly ContextCore context
    cdef list groups
    cdef bint bare
    cdef object restore
    cdef int open(self) except -1

cdef class TaskFunction:
    cdef readonly object fn
    cdef public object symbol
    cdef object arrays_of
    cdef object where
    cdef list parameters
    cdef object signature
    cdef bint closes

cdef class Parameter:
    cdef readonly str name
    cdef readonly int mode
    cdef readonly str kind
    cdef readonly object op
    cdef readonly object library

cdef class EngineEntry:
    cdef Engine engine

cdef class HostLaunch:
    cdef Task task
    cdef tuple extra
