cimport cython
from stf._engine.access cimport READ, Access
from stf._port.replicas cimport Replica
from stf._engine.engine cimport Engine
from stf._engine.task cimport ENDED, TaskCore

cdef object TOKEN
cdef list tensors_made

cdef object stream_of(dict streams, object place, object handle)
cdef object pointer_of_stream(TaskCore task)
cpdef object stream_on_host(TaskCore task)
cpdef list views_to_fill(TaskCore task)
cpdef object library_of(TaskCore task, object lib)
cdef object view_of(TaskCore task, int index, object lib)
cdef list views_between(TaskCore task, int first, int count, object lib, object token)
cdef object view_at(TaskCore task, Replica replica, bint writeable, object lib)
cdef object remote_view(TaskCore task, Replica replica, bint writeable, object lib)
cdef int reach_all(TaskCore task) except -1
cdef int must_reach(TaskCore task, Replica replica) except -1
cdef int position_of(TaskCore task, int index) except -1
cdef object address_of(TaskCore task, int index)
cpdef object no_address(TaskCore task, int index)
cdef object memory_of(TaskCore task, int position, bint on_stream=*)
cpdef list values_of(TaskCore task, object lib)
cpdef list views_of(TaskCore task, object lib)
cdef tuple without_tokens(list views)
cdef list group(list groups, list views)
cdef list sources_in(TaskCore task, object lib)
cdef list sources_of(TaskCore task, int first, int count, list libs, int position)
cdef tuple source_of(TaskCore task, int index, object lib, int position, int part=*)
