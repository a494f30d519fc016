"""CUDA graphs: what is put on a stream while it is captured, kept to be launched again.

A capture is relaxed: allocations and the like go on beside it. A call that cannot be part of a graph, such as one that
waits for the device, ends the capture; that is told when it is over.
"""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda_devices cimport check, pop, push
from stf.errors import CaptureError

SPOILT = "a call in it waits for the device, or uses a stream that is no part of the graph"


cdef class Capture:
    """A stream that is being captured; `pointer` is its address."""

    cdef readonly int64_t pointer
    cdef cu.CUstream stream
    cdef cu.CUcontext context
    cdef cu.CUcontext before
    cdef str where

    def __cinit__(self, int64_t context, str where):
        self.context = <cu.CUcontext><uintptr_t>context
        self.where = where
        self.before = push(self.context)
        try:
            check(cu.cuStreamCreate(&self.stream, cu.CU_STREAM_NON_BLOCKING), "cuStreamCreate", where)
            code = cu.cuStreamBeginCapture(self.stream, cu.CU_STREAM_CAPTURE_MODE_RELAXED)
            check(code, "cuStreamBeginCapture", where)
        except BaseException:
            pop(self.before)
            raise
        self.pointer = <int64_t><uintptr_t>self.stream

    def end(self):
        """Return what was captured; None for nothing.

        Raises
        ------
        CaptureError
            The capture was spoilt.
        """
        cdef cu.CUgraph graph = NULL
        cdef cu.CUgraphExec executable = NULL
        cdef size_t count = 0
        if self.stream == NULL:
            return None
        try:
            code = cu.cuStreamEndCapture(self.stream, &graph)
            if code != cu.CUDA_SUCCESS or graph == NULL:
                raise CaptureError(SPOILT)
            if cu.cuGraphGetNodes(graph, NULL, &count) == cu.CUDA_SUCCESS and count == 0:
                cu.cuGraphDestroy(graph)
                return None
            code = cu.cuGraphInstantiate(&executable, graph, 0)
            if code != cu.CUDA_SUCCESS:
                cu.cuGraphDestroy(graph)
                check(code, "cuGraphInstantiate", self.where)
            return captured_of(graph, executable, self.context, self.where, count)
        finally:
            cu.cuStreamDestroy(self.stream)
            self.stream = NULL
            pop(self.before)


cdef Captured captured_of(cu.CUgraph graph, cu.CUgraphExec executable, cu.CUcontext context, str where, size_t count):
    cdef Captured captured = Captured()
    captured.graph, captured.executable, captured.context = graph, executable, context
    captured.where, captured.node_count = where, count
    return captured


cdef class Captured:
    """A graph, ready to be launched."""

    @property
    def handle(self):
        """The address of the CUgraph."""
        return <uintptr_t>self.graph

    def launch(self, int64_t pointer):
        """Put it on a stream; on one that is being captured, as a part of that graph."""
        cdef cu.CUstream stream = <cu.CUstream><uintptr_t>pointer
        cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
        cdef cu.CUcontext before = push(self.context)
        try:
            if cu.cuStreamIsCapturing(stream, &status) == cu.CUDA_SUCCESS and status != cu.CU_STREAM_CAPTURE_STATUS_NONE:
                self.add_to(stream)
            else:
                check(cu.cuGraphLaunch(self.executable, stream), "cuGraphLaunch", self.where)
        finally:
            pop(before)

    cdef int add_to(self, cu.CUstream stream) except -1:
        """Become a child of the graph that a stream captures."""
        cdef cu.CUstreamCaptureStatus status
        cdef cu.CUgraph graph = NULL
        cdef const cu.CUgraphNode* needs = NULL
        cdef size_t count = 0
        cdef cu.CUgraphNode node = NULL
        code = cu.cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &needs, NULL, &count)
        check(code, "cuStreamGetCaptureInfo", self.where)
        check(cu.cuGraphAddChildGraphNode(&node, graph, needs, count, self.graph), "cuGraphAddChildGraphNode", self.where)
        code = cu.cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1, cu.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        check(code, "cuStreamUpdateCaptureDependencies", self.where)
        return 0

    def __dealloc__(self):
        if self.executable != NULL:
            cu.cuGraphExecDestroy(self.executable)
        if self.graph != NULL:
            cu.cuGraphDestroy(self.graph)
