from libc.stdint cimport int64_t
from stf._engine.access cimport READ, WRITE, Access, Data
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Version
from stf._port.replicas cimport Replica, make_replica
from stf._support.sync cimport Gate

cdef bint may_wait(TaskCore task, Access use, Replica replica) noexcept
cdef bint may_come_later(TaskCore task, Data data, Replica replica, int mode) except -1
cdef Replica result_replica(TaskCore task, Access use, Version version, int place)
cdef bint adopt(Gate gate, Replica replica, object array, int64_t address) except -1
cdef int forget_result(Version version) except -1
