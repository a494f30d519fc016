from stf._engine cimport parts
from stf._engine.access cimport READ, WRITE, Access, Data
from stf._engine.versions cimport Outcome, Version, is_open
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore
from stf._support.untracked cimport untrack

cdef int inherit(TaskCore task, Version version) except -1
cdef int refuse_poison(EngineState engine, TaskCore task) except -1
cdef int poison(EngineState engine, TaskCore task, tuple accesses) except -1
cdef object poison_of(TaskCore task)
