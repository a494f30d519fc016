from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef cu.CUresult fill_planned(object plan, int64_t target, cu.CUstream stream) except *
