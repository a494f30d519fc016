"""Host nodes: bodies in graphs, which CUDA calls on a thread of its own.

A node of a graph that others launch has a user object of the graph, which CUDA destroys when neither the graph nor
anything made of it is left. Its destructor, on a thread of CUDA's too, sets a flag; the body goes when somebody looks at
the flag (`GraphKeep`). A node of a graph that is launched here (`OwnNode`) is kept by who keeps the graph.
"""

from libc.stdlib cimport calloc, free
from libcpp.atomic cimport atomic
from posix.unistd cimport usleep

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.gil cimport call, host_nodes

import atexit
import gc
import os

cdef extern from *:
    """
    #include <atomic>
    static inline void stf_add(int *where, int n) { reinterpret_cast<std::atomic<int> *>(where)->fetch_add(n); }
    """
    void add "stf_add"(int* where, int n) noexcept nogil

cdef atomic[int] running, is_over, gone_nodes

cdef enum:
    PATIENCE_MS = 5000  # for bodies that run when the interpreter ends

living = []  # nodes that a graph may get to
unfinished = []  # what drivers that are closed have left, and where CUDA may yet write


# -- what a graph needs ---------------------------------------------------------------------------------------------


cdef class GraphKeep:
    """What a graph needs, or a body that it calls. The entry is what CUDA knows of it.

    CUDA says there, on a thread of its own, that nothing of the graph is left.
    """

    def __cinit__(self, what, bint is_body=False):
        self.entry = <Entry*>calloc(1, sizeof(Entry))
        self.what = what
        if self.entry == NULL:
            raise MemoryError
        if is_body:
            self.entry.body = <void*>what

    def __dealloc__(self):
        if self.entry != NULL and self.entry.gone:
            free(self.entry)  # else CUDA may write there yet


cdef void mark_gone(void* entry) noexcept nogil:
    """The destructor of a user object: no CUDA here, and no Python."""
    if (<Entry*>entry).body != NULL:
        add(&host_nodes, -1)
    add(&(<Entry*>entry).gone, 1)
    gone_nodes.fetch_add(1)


cdef cu.CUresult keep_in_graph(cu.CUgraph graph, GraphKeep keep) except *:
    """Let a graph keep something until neither it, nor anything that is made of it, is left."""
    cdef cu.CUuserObject thing = NULL
    code = cu.cuUserObjectCreate(&thing, keep.entry, mark_gone, 1, cu.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    if code != cu.CUDA_SUCCESS:
        return code
    if keep.entry.body != NULL:
        living.append(keep)
        add(&host_nodes, 1)
    code = call(host_nodes, cu.cuGraphRetainUserObject, graph, thing, 1, cu.CU_GRAPH_USER_OBJECT_MOVE)
    if code != cu.CUDA_SUCCESS:
        call(host_nodes, cu.cuUserObjectRelease, thing, 1)
    return code


cdef class HostMemory:
    """Memory of the host's that a graph works on, as long as somebody holds it."""

    is_freed_with_its_graph = True  # so it does not stay registered for who might register it anew

    def __cinit__(self, size_t nbytes):
        self.start = calloc(nbytes + 1, 1)
        if self.start == NULL:
            raise MemoryError(f"{nbytes} bytes asked on the host")

    def __dealloc__(self):
        free(self.start)


# -- bodies ---------------------------------------------------------------------------------------------------------


cdef void run_node(void* entry) noexcept nogil:
    """What CUDA calls; once the interpreter ends, nothing is done."""
    running.fetch_add(1)
    if not is_over.load():
        run_body((<Entry*>entry).body)
    running.fetch_sub(1)


cdef void run_body(void* body) noexcept with gil:
    """An exception goes to `sys.unraisablehook`."""
    (<object>body)()


cdef cu.CUresult add_host_node(cu.CUstream stream, object body) except *:
    """Let the graph that a stream is captured into call ``body()`` there; it lives as long as that, and what it makes."""
    cdef cu.CUgraph graph = NULL
    cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
    cdef GraphKeep node = GraphKeep(body, True)
    forget_gone()
    code = call(host_nodes, cu.cuStreamGetCaptureInfo, stream, &status, NULL, &graph, NULL, NULL, NULL)
    if code == cu.CUDA_SUCCESS and status != cu.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        code = cu.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    if code == cu.CUDA_SUCCESS:
        code = keep_in_graph(graph, node)
    if code == cu.CUDA_SUCCESS:
        code = call(host_nodes, cu.cuLaunchHostFunc, stream, run_node, node.entry)
    return code


cdef class OwnNode:
    """A body that a graph calls which is launched here: it lives as long as that, which outlasts its launches."""

    def __cinit__(self, body):
        self.body = body
        add(&host_nodes, 1)

    def __dealloc__(self):
        add(&host_nodes, -1)


cdef void run_own(void* body) noexcept nogil:
    """What CUDA calls; contexts wait for their graphs, also when the interpreter ends."""
    run_body(body)


cdef cu.CUresult put_own_node(cu.CUstream stream, OwnNode node) noexcept:
    """Let the graph that a stream is captured into call a body there."""
    return call(host_nodes, cu.cuLaunchHostFunc, stream, run_own, <void*>node.body)


cdef int forget_gone() except -1:
    """Let go the bodies of graphs that are gone, and what such graphs needed of drivers that are closed."""
    if gone_nodes.exchange(0):
        forget_in(living)
        forget_in(unfinished)
    return 0


cdef int forget_in(list keeps) except -1:
    """Let go what graphs needed that are gone."""
    kept = []
    gone = []
    for item in keeps:
        (gone if isinstance(item, GraphKeep) and (<GraphKeep>item).entry.gone else kept).append(item)
    keeps[:] = kept
    gone.clear()  # what they hold goes when the list is whole again
    return 0


def count():
    """How many host nodes there are, for tests."""
    return host_nodes


def on_collection(phase, info):
    """With a collection of garbage goes what graphs needed that are gone."""
    if phase == "stop":
        forget_gone()


def stop():
    """From now on bodies are not run: the interpreter ends. Wait for those that run, for some seconds."""
    is_over.store(1)
    with nogil:
        for _ in range(PATIENCE_MS):
            if not running.load():
                break
            usleep(1000)


def forked():
    """In the child of a fork: the bodies that were running run in the parent."""
    running.store(0)


gc.callbacks.append(on_collection)
os.register_at_fork(after_in_child=forked)
atexit.register(stop)
