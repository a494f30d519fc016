from cuda.bindings cimport cydriver as cu

cdef cu.CUresult add_host_node(cu.CUstream stream, object body) except *
cdef cu.CUresult put_own_node(cu.CUstream stream, OwnNode node) noexcept
cdef int forget_gone() except -1
cdef int forget_in(list keeps) except -1

cdef class OwnNode:
    cdef object body

cdef cu.CUresult keep_in_graph(cu.CUgraph graph, GraphKeep keep) except *

cdef struct Entry:
    void* body  # of a host node, or NULL
    int gone

cdef class GraphKeep:
    cdef Entry* entry
    cdef object what

cdef class HostMemory:
    cdef void* start
    cdef object __weakref__
