from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef class Captured:
    cdef cu.CUgraph graph
    cdef cu.CUgraphExec executable
    cdef cu.CUcontext context
    cdef str where
    cdef readonly int64_t node_count
    cdef bint proven  # CUDA launched it, and will not refuse it
    cdef int add_to(self, cu.CUstream stream) except -1
    cdef int renew(self, int64_t node, object what) except -1
    cdef int renew_launch(self, cu.CUgraphNode node, tuple what) except -1
