from libc.stdint cimport int64_t
from stf._engine.access cimport Data
from stf._engine.state cimport EngineState
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID
from stf._port.port cimport COMPUTE

cpdef int64_t wait_on_producer(EngineState engine, Data data, int place, object producer) except -1
cpdef int64_t wait_on_user(EngineState engine, Data data, object producer) except -1
cpdef int take_homes(EngineState engine, list found, dict producers) except -1
cdef bint take_home(Data data) except -1
cpdef bint is_of_user(Data data) except -1
