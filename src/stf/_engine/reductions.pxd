from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data
from stf._engine.coherency cimport Coherency, Pool
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Layout, Replica
from stf._port.port cimport COMPUTE, COPY_IN, COPY_OUT, HOST, Port
from stf._engine.versions cimport Outcome, Version
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore

cdef class Partial:
    cdef readonly Replica replica
    cdef readonly EventSet events
    cdef public bint open
    cdef public bint needs_fill
