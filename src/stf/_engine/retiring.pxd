from stf._support.sync cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t
from stf._engine cimport adoption, thread_turns
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data
from stf._engine.coherency cimport Coherency, Pool
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, Replica
from stf._port.port cimport COMPUTE, HOST
from stf._engine.state cimport EngineState
from stf._engine.task cimport OPEN, TaskCore

cpdef int abandon_open_tasks(EngineState engine) except -1
cdef int retire_everything(EngineState engine) except -1
cpdef int open_outcomes(EngineState engine, EventSet pending) except -1
cpdef int pause_for(EngineState engine, EventSet pending) except -1
cdef int wait_for_all(EngineState engine) except -1
cpdef list in_order_of_end(EngineState engine)
cpdef int drain(EngineState engine) except -1
cpdef int release_now(EngineState engine, Data data) except -1
cdef bint is_plain(Data data) noexcept
cdef int forget_plain(EngineState engine, Data data) except -1
cpdef int fold(EngineState engine, Data data) except -1
cpdef bint is_dirty(Data data) except -1
cdef bint take_home(Data data) except -1
cpdef bint is_of_user(Data data) except -1
cpdef int take_homes(EngineState engine, list found, dict producers) except -1
cpdef int retire(EngineState engine, Data data) except -1
cpdef int forget(EngineState engine, Data data) except -1
cpdef int64_t wait_on_producer(EngineState engine, Data data, int place, object producer) except -1
cpdef int64_t wait_on_user(EngineState engine, Data data, object producer) except -1
