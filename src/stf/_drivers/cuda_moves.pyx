"""Nodes of a graph that work on memory, and have an executable do so elsewhere from its next launch on."""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda_devices cimport check
from stf._drivers.cuda_gil cimport call, host_nodes
from stf.errors import CaptureError


cdef size_t count_nodes(cu.CUgraph graph, str where) except? 0:
    """How many nodes a graph has."""
    cdef size_t count = 0
    check(call(host_nodes, cu.cuGraphGetNodes, graph, NULL, &count), "cuGraphGetNodes", where)
    return count


cdef list chain_before(cu.CUgraphNode last, size_t count, str where):
    """The addresses of nodes of which each comes after the one before it alone, and the last of which is `last`."""
    cdef cu.CUgraphNode node = last
    cdef cu.CUgraphNode before = NULL
    cdef size_t found = 1
    nodes = [<uintptr_t>last] if count else []
    while <size_t>len(nodes) < count:
        found = 1
        code = call(host_nodes, cu.cuGraphNodeGetDependencies, node, &before, NULL, &found)
        check(code, "cuGraphNodeGetDependencies", where)
        if found != 1:
            raise CaptureError("what was put on a stream is no chain of nodes")
        nodes.append(<uintptr_t>before)
        node = before
    return nodes[::-1]


cdef int move_memory(cu.CUgraphExec executable, cu.CUgraphNode node, cu.CUcontext context, int64_t target, int64_t source, str where) except -1:
    """Let a copy or a fill work so many bytes further on than it was captured."""
    cdef cu.CUgraphNodeType kind
    cdef cu.CUDA_MEMCPY3D copied
    cdef cu.CUDA_MEMSET_NODE_PARAMS filled
    check(call(host_nodes, cu.cuGraphNodeGetType, node, &kind), "cuGraphNodeGetType", where)
    if kind == cu.CU_GRAPH_NODE_TYPE_MEMSET:
        check(call(host_nodes, cu.cuGraphMemsetNodeGetParams, node, &filled), "cuGraphMemsetNodeGetParams", where)
        filled.dst += target
        code = call(host_nodes, cu.cuGraphExecMemsetNodeSetParams, executable, node, &filled, context)
        return check(code, "cuGraphExecMemsetNodeSetParams", where)
    check(call(host_nodes, cu.cuGraphMemcpyNodeGetParams, node, &copied), "cuGraphMemcpyNodeGetParams", where)
    if copied.dstMemoryType == cu.CU_MEMORYTYPE_HOST or copied.srcMemoryType == cu.CU_MEMORYTYPE_HOST:
        raise CaptureError("a copy from or to memory of the host is captured anew")
    copied.dstDevice += target
    copied.srcDevice += source
    code = call(host_nodes, cu.cuGraphExecMemcpyNodeSetParams, executable, node, &copied, context)
    return check(code, "cuGraphExecMemcpyNodeSetParams", where)
