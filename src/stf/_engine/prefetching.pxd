from stf._engine.access cimport Data
from stf._engine.coherency cimport AHEAD, Coherency, Pool
from stf._engine.state cimport EngineState
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, Replica, make_replica

cdef int bring(EngineState engine, object numbers, object places, int following) except -1
cdef bint may_come(EngineState engine, Data data, int place) except -1
cdef bint fetch(Coherency coherency, Data data, int place) except -1
