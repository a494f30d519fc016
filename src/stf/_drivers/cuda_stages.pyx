"""Copies of pageable memory on callers' streams.

CUDA reads such memory when it is asked to copy it, and waits until it has written there; we want neither. So the
copies go by way of pinned memory, and functions on CUDA's own thread do the rest, when the stream gets there.
"""

from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda_gil cimport call, host_nodes


cdef class Stage:
    """Pinned memory for one copy at a time."""

    def __cinit__(self, size):
        self.size = size
        self.store = <Store*>calloc(1, sizeof(Store))
        if self.store == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.store)


cdef void read_user(void* what) noexcept nogil:
    memcpy((<Store*>what).pinned, (<Store*>what).user, (<Store*>what).nbytes)


cdef void write_user(void* what) noexcept nogil:
    memcpy((<Store*>what).user, (<Store*>what).pinned, (<Store*>what).nbytes)
    (<Store*>what).busy = 0


cdef void end_store(void* what) noexcept nogil:
    (<Store*>what).busy = 0


cdef cu.CUresult copy_out(Store* store, int64_t source, cu.CUstream stream) noexcept:
    code = call(host_nodes, cu.cuMemcpyAsync, <cu.CUdeviceptr><uintptr_t>store.pinned, <cu.CUdeviceptr>source, store.nbytes, stream)
    if code == cu.CUDA_SUCCESS:
        code = call(host_nodes, cu.cuLaunchHostFunc, stream, write_user, store)
    return code


cdef cu.CUresult copy_in(Store* store, int64_t target, cu.CUstream stream) noexcept:
    code = call(host_nodes, cu.cuLaunchHostFunc, stream, read_user, store)
    if code == cu.CUDA_SUCCESS:
        code = call(host_nodes, cu.cuMemcpyAsync, <cu.CUdeviceptr>target, <cu.CUdeviceptr><uintptr_t>store.pinned, store.nbytes, stream)
    if code == cu.CUDA_SUCCESS:
        code = call(host_nodes, cu.cuLaunchHostFunc, stream, end_store, store)
    return code
