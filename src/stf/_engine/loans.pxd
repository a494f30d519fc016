from stf._engine.access cimport Data
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Version
from stf._support.sync cimport PyThread_get_thread_ident

cdef bint waits_for_end(EngineState engine, TaskCore task, Data data, Version version, str mode) except -1
