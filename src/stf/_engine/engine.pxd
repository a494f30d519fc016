from libc.stdint cimport int64_t
from stf._support.sync cimport BEGINS, ENDS, LAUNCHES, PyThread_get_thread_ident, must_have_room
from stf._engine cimport adoption, outcomes, parts, prefetching, retiring, host_waits, windows
from stf._engine.access cimport ACCUMULATE, AFFINE, NEVER, READ, WRITE, Access, Data
from stf._engine.coherency cimport Pool
from stf._port.events cimport EventSet
from stf._engine.scope cimport Gathering
from stf._engine.state cimport EngineState
from stf._port.replicas cimport INVALID, Replica
from stf._port.port cimport COMPUTE, HOST, IN_ORDER
from stf._engine.versions cimport Outcome, Version, is_open
from stf._engine.task cimport ENDED, GATHERED, NEW, OPEN, RECORDED, TaskCore, note_reader

cdef int SPARED

cdef class Engine(EngineState):
    cpdef bint is_done(self, int64_t event) except -1
    cpdef bint is_ready(self, Data data) except -1
    cpdef EventSet tails(self, TaskCore fence=*)
    cpdef int call_after(self, object task, EventSet events, object fn) except -1
    cpdef bint is_quiet(self) except -1
    cdef Gathering to_ask(self, TaskCore task)
    cdef int end(self, TaskCore task) except -1
    cdef int begin_queued(self, TaskCore task) except -1
    cdef int make_queued(self, TaskCore task) except -1
    cdef int queue(self, TaskCore task, object call) except -1
    cdef int tell_end(self, TaskCore task, Outcome outcome) except -1
    cdef int let_go(self, TaskCore task) except -1
    cdef int hold_back(self) except -1
    cpdef int hold_back_if_due(self, bint ahead=*) except -1
    cdef Version admit(self, TaskCore task)
    cdef Version claim(self, TaskCore task, Access use)
    cdef int look_at_content(self, TaskCore task, Access use, Version version) except -1
    cdef int unclaim(self, TaskCore task, int count) except -1
    cdef bint collect(self, TaskCore task) except -1
    cdef int provide_all(self, TaskCore task) except -1

cdef bint is_missing(TaskCore task, Access use, Replica replica) except -1
cdef int note_write(Engine engine, TaskCore task, Access use, Replica replica, int64_t event, Outcome outcome) except -1
