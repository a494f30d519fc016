from stf._engine.access cimport AFFINE, RW, WRITE, Access, Data
from stf._engine.coherency cimport Pool
from stf._port.events cimport EventSet
from stf._port.replicas cimport Replica, make_replica
from stf._engine.versions cimport Outcome, Version
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore

cdef class Partial:
    cdef readonly Replica replica
    cdef readonly EventSet events
    cdef public bint open
    cdef public bint needs_fill
