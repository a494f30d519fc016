from stf._engine.access cimport Data
from stf._engine.state cimport EngineState

cpdef int end(EngineState engine) except -1
