from stf._engine cimport host_waits
from stf._engine.access cimport READ, Data
from stf._engine.coherency cimport Pool
from stf._port.replicas cimport INVALID, Replica
from stf._port.port cimport COMPUTE
from stf._engine.versions cimport Version
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore

cdef enum:
    LARGEST = 64  # bytes that ports read back

cdef object read_back(Engine engine, TaskCore task, Data data)
cpdef bint is_on_host(Engine engine, Data data) except -1
cdef bint is_plain(Engine engine, Data data) except -1
cdef bint is_free(Data data, Version version) except -1
cdef Replica only_replica(Version version)
cdef int put(Engine engine, TaskCore task, Data data, Version version, Replica replica) except -2
cpdef int await_array(Engine engine, Data core) except -1
