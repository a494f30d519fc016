from stf._engine.access cimport READ, Data
from stf._port.replicas cimport INVALID, Replica
from stf._engine.state cimport EngineState

cpdef int join(EngineState engine, Data tile) except -1
cpdef Data whole(Data data)
cpdef bint is_within(Data data, Data parent) except -1
cpdef int unprotect(EngineState engine, Data data) except -1
