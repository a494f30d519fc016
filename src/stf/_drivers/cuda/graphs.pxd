from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

from stf._drivers.cuda.devices cimport Body
from stf._port.captures cimport OpenCapture

cdef struct Tail:
    cu.CUgraph graph
    const cu.CUgraphNode* needs
    size_t count

cdef class Executable:
    cdef cu.CUgraphExec handle
    cdef tuple shape
    cdef int64_t nodes

cdef class GraphStore:
    cdef readonly int64_t limit
    cdef readonly int64_t budget
    cdef readonly int64_t nodes
    cdef readonly int64_t made
    cdef readonly int64_t updated
    cdef dict streams  # those that nobody has, by context
    cdef dict lent  # the context of each one that a `CaptureStream` has
    cdef int captures
    cdef dict late
    cdef dict host_parts
    cdef dict early
    cdef object executables
    cdef cu.CUstream take_stream(self, int64_t context, str where) except *
    cdef int give_stream(self, cu.CUstream stream, bint destroy) except -1
    cdef Executable take(self, tuple shape)
    cdef int give(self, Executable executable) except -1
    cdef cu.CUresult add_call(self, cu.CUstream stream, object body) except *
    cdef int forget_given_up(self) except -1

cdef class CaptureStream:
    cdef GraphStore store
    cdef cu.CUstream handle
    cdef object pointer  # the stream's address
    cdef int64_t context
    cdef bint busy  # it is being captured
    cdef Capture spare  # which has ended, for the next body
    cdef cu.CUstream ready(self, str where) except *
    cdef int spoil(self) except -1

cdef class Capture(OpenCapture):
    cdef cu.CUstream stream
    cdef cu.CUgraph part
    cdef cu.CUcontext context
    cdef Body body
    cdef GraphStore store
    cdef str where
    cdef Captured ended(self, cu.CUstream stream)

cdef class Captured:
    cdef GraphStore store
    cdef cu.CUgraph graph
    cdef Executable executable
    cdef cu.CUcontext context
    cdef str where
    cdef tuple shape  # once it is complete
    cdef readonly int64_t node_count
    cdef cu.CUgraphNode only  # its node, if it was captured with one alone
    cdef readonly bint is_own
    cdef public object memory  # of what was captured: lives as long as this
    cdef public object owner  # of the stream that a body was captured on, which is its own as long as this lives
    cdef bint proven  # CUDA launched it, and will not refuse it
    cdef int queued  # launches that CUDA was not given yet
    cdef list host_parts  # and pinned memory that it has on the host, where it is launched here; None for none
    cdef list early  # (first, end) of memory of the host, not pinned, that CUDA reads in the launch; None for none
    cdef list late  # (first, end) of memory of the host, not pinned, that it writes; None for none
    cpdef int complete(self, bint is_own) except -1
    cdef int launch(self, cu.CUstream stream, bint may_be_captured, bint fixed) except -1
    cdef int prepare(self) except -1
    cdef cu.CUgraphNode add_to(self, Tail tail, bint fixed) except *
    cdef bint is_chain_of_kernels(self, cu.CUgraphNode* nodes) except -1
    cdef cu.CUgraphNode add_kernel(self, cu.CUgraph graph, const cu.CUgraphNode* needs, size_t count, cu.CUgraphNode kernel) except *
    cdef size_t edge_count(self) except? 0
    cdef int renew(self, list changes) except -1
    cdef int renew_launch(self, cu.CUgraphNode node, tuple shape, bytes arguments) except -1

cdef bint add_all(cu.CUstream stream, list captured) except -1
cdef Capture open_capture(GraphStore store, cu.CUcontext context, str where, cu.CUgraph part, CaptureStream owner)
cdef int64_t graph_of(cu.CUstream stream) except -1
cdef int refuse_wait() except -1
