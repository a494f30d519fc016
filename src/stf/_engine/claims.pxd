from stf._engine cimport thread_turns
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, WRITE, Access, Data
from stf._port.events cimport EventSet
from stf._engine.versions cimport Outcome, Version
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore
from stf._support.sync cimport PyThread_get_thread_ident
from stf._engine.task cimport make_access_like, references

cpdef object inside(EngineState engine, object thread, bint waits_for_one=*)
cpdef bint runs_body(EngineState engine, object thread) except -1
cdef bint runs_inline(EngineState engine, object thread) except -1
