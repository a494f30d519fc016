from stf._engine.engine cimport Engine
from stf._engine.queued_bodies cimport QueuedBody
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Outcome
from stf._port.replicas cimport Replica

cdef class Launch:
    cdef readonly Engine engine  # whose it is
    cdef readonly TaskCore task  # whose launch it is
    cdef object variables  # the context variables of who launches it
    cdef public object rebinding  # to other data than those that were recorded; or None
    cdef dict others  # replicas that it has in place of recorded ones, by the identity of these; or None
    cdef public Outcome outcome  # of its bodies that are queued; None if they all run in the call
    cdef public list inputs  # outcomes that must be good; or None
    cdef public object failure  # the first of its bodies'
    cdef public int remaining  # those that have bodies of it to call: graphs, and who submits it
    cdef public bint called  # bodies were put on the host's queue
    cdef bint is_ended  # the last of them says how it went
    cdef public bint expected  # graphs call bodies
    cpdef object failed(self)
    cpdef object attempt(self, QueuedBody body)
    cpdef object note(self, object failure)
    cpdef object fail(self, object error, TaskCore task=*)
    cpdef int one_done(self) except -1
    cdef Replica now(self, Replica replica)

cdef Launch make_launch(Engine engine, TaskCore task, object variables)
