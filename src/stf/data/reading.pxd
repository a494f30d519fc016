from stf._engine.access cimport READ, Data, DataHandle, make_access
from stf._port.replicas cimport Layout, Replica
from stf._engine.readback cimport await_array, is_on_host, read_back
from stf._engine.engine cimport Engine
from stf.tasks.placing cimport place_on_host
from stf.tasks.task cimport ContextCore, Task

cdef tuple NO_ARGUMENTS
cdef object NOT_QUIET
cdef object LOGICAL_DATA
cdef object ITEM

cpdef object read_if_there(ContextCore context, object data)
cpdef object read_if_quiet(ContextCore context, object data)
cpdef object read_on_host(ContextCore context, DataHandle data)
cdef object content_of(Replica replica)
cdef object content_in(Layout layout, bytes content)
cdef dict LENT
cdef dict scalars
