from stf._engine cimport host_waits
from stf._engine.access cimport Access, Data
from stf._port.events cimport EventSet
from stf._port.replicas cimport Replica
from stf._port.port cimport Port
from stf._engine.scope cimport Scope
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Version
from stf._support.sync cimport PyThread_get_thread_ident

cdef bint waits_for_loan(EngineState engine, TaskCore task, Data data, Version version, int mode) except -1
cpdef int begin_ending(EngineState engine) except -1
cpdef int await_others(EngineState engine) except -1
cpdef int forget_left(EngineState engine) except -1
cpdef int check_thread(EngineState engine, TaskCore task) except -1
cpdef int check_elsewhere(EngineState engine, TaskCore task) except -1
cpdef bint gathers(Scope scope) except -1
cpdef bint is_repeated(EngineState engine) except -1
cpdef int yield_to_recorders(EngineState engine, TaskCore task) except -1
cdef bint has_to_wait(EngineState engine, TaskCore task) except -1
cdef bint is_pending(Port port, EventSet events) except -1
