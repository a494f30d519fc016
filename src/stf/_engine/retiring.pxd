from stf._engine cimport adoption
from stf._engine.access cimport Data
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, Replica, make_replica
from stf._port.port cimport HOST
from stf._engine.state cimport EngineState

cpdef int drain(EngineState engine) except -1
cpdef int release_now(EngineState engine, Data data) except -1
cdef bint is_plain(Data data) noexcept
cdef int forget_plain(EngineState engine, Data data) except -1
cpdef int fold(EngineState engine, Data data) except -1
cpdef bint is_dirty(Data data) except -1
cpdef int retire(EngineState engine, Data data) except -1
cpdef int forget(EngineState engine, Data data) except -1
