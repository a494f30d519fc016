"""Copies of pageable memory on callers' streams, and in graphs that call bodies on the host.

CUDA reads such memory when it is asked to copy it, or to launch the graph, and waits until it has written there; we want
neither. So the copies go by way of pinned memory, and functions on CUDA's own thread do the rest, when the stream or the
graph gets there.
"""

cimport cython
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.memory cimport free_pinned

cdef extern from *:
    """
    #include <cstdint>
    #include <cstring>

    /* Copy an array of so many axes (extent, stride of the user's, stride of ours), and of runs of bytes. */
    static void stf_copy_axes(const int64_t *axes, int rank, size_t bytes, char *user, char *ours, int to_user) {
        if (!rank) {
            std::memcpy(to_user ? user : ours, to_user ? ours : user, bytes);
            return;
        }
        for (int64_t i = 0; i < axes[0]; ++i)
            stf_copy_axes(axes + 3, rank - 1, bytes, user + i * axes[1], ours + i * axes[2], to_user);
    }
    """
    void copy_axes "stf_copy_axes"(const int64_t* axes, int rank, size_t bytes, char* user, char* ours, int to_user) noexcept nogil


cdef class Stage:
    """Pinned memory for one copy at a time."""

    def __cinit__(self, size):
        self.size = size
        self.store = <Store*>calloc(1, sizeof(Store))
        if self.store == NULL:
            raise MemoryError

    cdef int give_back(self) except -1:
        """Free the pinned memory, which nobody uses; a context is current."""
        if self.pooled:
            call(host_nodes, cu.cuMemFreeAsync, <cu.CUdeviceptr><uintptr_t>self.store.pinned, <cu.CUstream>NULL)
            return 0
        return free_pinned(self.store.pinned)

    def __dealloc__(self):
        if self.store != NULL:
            free(self.store.axes)
        free(self.store)


@cython.no_gc  # it is needed at the end, and leads nowhere
cdef class StageHold:
    """Pinned memory for the copies of one node of a graph, as long as there is the graph."""

    def __cinit__(self, Stage stage):
        self.stage = stage
        stage.store.busy = stage.store.held = 1

    def __dealloc__(self):
        self.stage.store.held = self.stage.store.busy = 0

    cdef int describe(self, int64_t nbytes, int64_t itemsize, tuple shape, tuple user, tuple here) except -1:
        """Say what array it is for: its shape, and the strides of the user's memory and of its image here."""
        cdef Store* store = self.stage.store
        cdef Py_ssize_t i
        store.nbytes = store.bytes = nbytes
        store.rank = 0
        if user == here:
            return 0
        free(store.axes)
        store.axes = <int64_t*>calloc(3 * len(shape), sizeof(int64_t))
        if store.axes == NULL:
            raise MemoryError
        store.bytes, store.rank = itemsize, len(shape)
        for i in range(len(shape)):
            store.axes[3 * i], store.axes[3 * i + 1], store.axes[3 * i + 2] = shape[i], user[i], here[i]
        return 0


cdef void move(Store* store, int to_user) noexcept nogil:
    copy_axes(store.axes, store.rank, store.bytes, <char*>store.user, <char*>store.pinned, to_user)


cdef void read_user(void* what) noexcept nogil:
    move(<Store*>what, 0)


cdef void write_user(void* what) noexcept nogil:
    move(<Store*>what, 1)
    if not (<Store*>what).held:
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
    if code == cu.CUDA_SUCCESS and not store.held:
        code = call(host_nodes, cu.cuLaunchHostFunc, stream, end_store, store)
    return code
