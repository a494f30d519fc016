from libc.stdint cimport int64_t
from stf._backends.stream cimport StreamBackend
from stf._engine.coherency cimport Pool
from stf._engine.engine cimport Engine
from stf._port.port cimport Port
from stf.tasks.task cimport ContextCore

cdef int64_t MOST_SPARE

cpdef int wire(ContextCore context, object driver, object arrays, object memory_limit, int max_pending, object observe, bint use_graph) except -1
