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

cpdef int drain(EngineState engine) except -1
cpdef int release_now(EngineState engine, Data data) except -1
cdef bint is_plain(Data data) noexcept
cdef int forget_plain(EngineState engine, Data data) except -1
cpdef int fold(EngineState engine, Data data) except -1
cpdef bint is_dirty(Data data) except -1
cpdef int retire(EngineState engine, Data data) except -1
cpdef int forget(EngineState engine, Data data) except -1
