from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef cu.CUresult copy_runs(object plan, int64_t target, int64_t source, cu.CUstream stream, bint may_block)
cdef cu.CUresult copy_blocks(object plan, int64_t target, int64_t source, cu.CUstream stream)
