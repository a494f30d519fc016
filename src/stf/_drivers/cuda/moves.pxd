from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef size_t count_nodes(cu.CUgraph graph, str where) except? 0
cdef object memory_chain(cu.CUgraphNode last, size_t count, str where)
cdef int move_memory(cu.CUgraphExec executable, cu.CUgraphNode node, int64_t target, int64_t source, str where) except -1
