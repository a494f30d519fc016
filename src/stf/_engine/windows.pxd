from stf._engine.access cimport READ, Access, Data
from stf._engine.parts cimport WINDOW, Relation, relation_of
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore, make_access_like

cdef bint needs_parts(TaskCore task, Access use) except -1
cdef int use_parts(EngineState engine, TaskCore task) except -1
cdef Access use_of(TaskCore task, Data data)
