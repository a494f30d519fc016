from stf._engine.access cimport Data
from stf._engine.engine cimport Engine
from stf._engine.task cimport ENDED, TaskCore
from stf._engine.versions cimport Outcome
from stf._port.events cimport EventSet

cdef int WRITE

cpdef int await_open(Engine engine) except -1
