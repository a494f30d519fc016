from stf._port.events cimport EventSet
from stf._port.port cimport Port
from stf._engine.task cimport TaskCore
from stf._support.sync cimport PyThread_get_thread_ident

cdef dict ENGINES
cdef int enlist(object engine) except -1
cdef int delist(object engine) except -1
cdef long running_bodies
cdef long open_tasks
cdef long repeated_scopes
cdef int enter(Port port, TaskCore task, int slot, bint late) except -1
