"""Nodes of a graph that work on memory, and have an executable do so elsewhere from its next launch on.

CUDA (13.0, driver 580) takes the context of the memory's device for that. It refuses some copies of memory of pools between
two devices, one by one and with the whole graph (CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE).
"""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport check
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.memory cimport is_cudas
from stf._drivers.cuda.work cimport context_of
from stf.errors import CaptureError


cdef size_t count_nodes(cu.CUgraph graph, str where) except? 0:
    """How many nodes a graph has."""
    cdef size_t count = 0
    check(call(host_nodes, cu.cuGraphGetNodes, graph, NULL, &count), "cuGraphGetNodes", where)
    return count


cdef object memory_chain(cu.CUgraphNode last, size_t count, str where):
    """The addresses of nodes of which each comes after the one before it alone, and the last of which is `last`.

    None if one of them is something else, a copy between two devices, or of memory of the host that is not pinned.
    """
    cdef cu.CUgraphNode node = last
    cdef cu.CUgraphNode before = NULL
    cdef size_t found = 1
    nodes = []
    while True:
        if not may_move(node, where):
            return None
        nodes.append(<uintptr_t>node)
        if <size_t>len(nodes) == count:
            return nodes[::-1]
        found = 1
        if call(host_nodes, cu.cuGraphNodeGetDependencies, node, &before, NULL, &found) != cu.CUDA_SUCCESS or found != 1:
            return None
        node = before


cdef bint may_move(cu.CUgraphNode node, str where) except -1:
    """Whether a node is a fill, or a copy of memory that CUDA knows, and that is not of two devices."""
    cdef cu.CUgraphNodeType kind
    cdef cu.CUDA_MEMCPY3D copied
    cdef cu.CUcontext target, source
    check(call(host_nodes, cu.cuGraphNodeGetType, node, &kind), "cuGraphNodeGetType", where)
    if kind != cu.CU_GRAPH_NODE_TYPE_MEMCPY:
        return kind == cu.CU_GRAPH_NODE_TYPE_MEMSET
    check(call(host_nodes, cu.cuGraphMemcpyNodeGetParams, node, &copied), "cuGraphMemcpyNodeGetParams", where)
    target, source = context_of(target_of(&copied)), context_of(source_of(&copied))
    if target != NULL and source != NULL and target != source:
        return False
    return is_cudas(target_of(&copied)) and is_cudas(source_of(&copied))


cdef int64_t target_of(cu.CUDA_MEMCPY3D* copied) noexcept:
    return <int64_t><uintptr_t>copied.dstHost if copied.dstMemoryType == cu.CU_MEMORYTYPE_HOST else <int64_t>copied.dstDevice


cdef int64_t source_of(cu.CUDA_MEMCPY3D* copied) noexcept:
    return <int64_t><uintptr_t>copied.srcHost if copied.srcMemoryType == cu.CU_MEMORYTYPE_HOST else <int64_t>copied.srcDevice


cdef int move_memory(cu.CUgraphExec executable, cu.CUgraphNode node, int64_t target, int64_t source, str where) except -1:
    """Let a copy or a fill work so many bytes further on than it was captured; CaptureError if CUDA will not."""
    cdef cu.CUgraphNodeType kind
    cdef cu.CUDA_MEMCPY3D copied
    cdef cu.CUDA_MEMSET_NODE_PARAMS filled
    cdef cu.CUcontext context
    check(call(host_nodes, cu.cuGraphNodeGetType, node, &kind), "cuGraphNodeGetType", where)
    if kind == cu.CU_GRAPH_NODE_TYPE_MEMSET:
        check(call(host_nodes, cu.cuGraphMemsetNodeGetParams, node, &filled), "cuGraphMemsetNodeGetParams", where)
        filled.dst += target
        context = context_of(<int64_t>filled.dst)
        code = call(host_nodes, cu.cuGraphExecMemsetNodeSetParams, executable, node, &filled, context)
        return check(code, "cuGraphExecMemsetNodeSetParams", where)
    check(call(host_nodes, cu.cuGraphMemcpyNodeGetParams, node, &copied), "cuGraphMemcpyNodeGetParams", where)
    target += target_of(&copied)
    source += source_of(&copied)
    if not (is_cudas(target) and is_cudas(source)):
        raise CaptureError("a copy of memory of the host that is not pinned is captured anew")
    if copied.dstMemoryType == cu.CU_MEMORYTYPE_HOST:
        copied.dstHost = <void*><uintptr_t>target
    else:
        copied.dstDevice = <cu.CUdeviceptr>target
    if copied.srcMemoryType == cu.CU_MEMORYTYPE_HOST:
        copied.srcHost = <const void*><uintptr_t>source
    else:
        copied.srcDevice = <cu.CUdeviceptr>source
    context = context_of(target)
    if context == NULL:
        context = context_of(source)
    code = call(host_nodes, cu.cuGraphExecMemcpyNodeSetParams, executable, node, &copied, context)
    return check(code, "cuGraphExecMemcpyNodeSetParams", where)
