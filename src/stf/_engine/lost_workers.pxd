from stf._engine.access cimport Data
from stf._engine.state cimport EngineState
from stf._engine.versions cimport Outcome, outermost
from stf._port.replicas cimport INVALID, Replica

cpdef int lose(EngineState engine, int place, object error) except -1
cpdef bint regain(EngineState engine, int place, object action) except -1
cdef int forget_replicas(EngineState engine, int place, object error) except -1
