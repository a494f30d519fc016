from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef enum:
    STAGE_BYTES = 4096

cdef struct Store:
    void* pinned
    void* user
    size_t nbytes
    int busy

cdef class Stage:
    cdef Store* store
    cdef int64_t size

cdef cu.CUresult copy_out(Store* store, int64_t source, cu.CUstream stream) noexcept
cdef cu.CUresult copy_in(Store* store, int64_t target, cu.CUstream stream) noexcept
