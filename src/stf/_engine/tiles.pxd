from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Data
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Replica
from stf._engine.engine cimport Engine

cpdef int join(Engine engine, Data tile) except -1
cpdef Data whole(Data data)
cpdef bint is_within(Data data, Data parent) except -1
cpdef int unprotect(Engine engine, Data data) except -1
