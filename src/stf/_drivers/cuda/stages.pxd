from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef enum:
    STAGE_BYTES = 4096

cdef struct Store:
    void* pinned
    void* user
    size_t nbytes
    size_t bytes  # of a run that has no gaps in the user's memory
    int rank  # axes of such runs
    int64_t* axes  # of each: its extent, the stride of the user's, the stride here
    int busy
    int held  # by a graph: it stays busy

cdef class Stage:
    cdef Store* store
    cdef int64_t size
    cdef bint pooled  # in the driver's pool of host memory
    cdef int give_back(self) except -1

cdef class StageHold:
    cdef Stage stage
    cdef int describe(self, int64_t nbytes, int64_t itemsize, tuple shape, tuple user, tuple here) except -1

cdef cu.CUresult copy_out(Store* store, int64_t source, cu.CUstream stream) noexcept
cdef cu.CUresult copy_in(Store* store, int64_t target, cu.CUstream stream) noexcept
