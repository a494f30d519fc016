"""Memory outside of any context: of a device in the order of a stream, pinned, managed, and copies to and from it.

A device's memory comes from its default pool, which other libraries share. Its primary context is kept from the first
use to the end of the process, as CUDA's runtime does.
"""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport check, pop, push
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.memory cimport alloc_unpooled
from stf._drivers.cuda.work cimport copy_bytes_and_settle, copy_planned

from stf._drivers.copyplan import plan_copy

cdef enum:
    DEVICE = 0
    PINNED = 1
    MANAGED = 2

cdef dict contexts = {}  # primary contexts, by ordinal


cdef cu.CUcontext context_of(int ordinal) except? NULL:
    cdef cu.CUcontext context = NULL
    cdef cu.CUdevice device = 0
    if ordinal not in contexts:
        check(cu.cuInit(0), "cuInit", "this machine")
        check(cu.cuDeviceGet(&device, ordinal), "cuDeviceGet", f"cuda:{ordinal}")
        check(call(host_nodes, cu.cuDevicePrimaryCtxRetain, &context, device), "cuDevicePrimaryCtxRetain", f"cuda:{ordinal}")
        contexts[ordinal] = <uintptr_t>context
    return <cu.CUcontext><uintptr_t>contexts[ordinal]


def allocate(int kind, int ordinal, int64_t nbytes, uintptr_t stream):
    """Return the address of new memory; MemoryError if there is none. A device's is there when `stream` gets there.

    With stream 0 it is there at once.
    """
    cdef cu.CUdeviceptr address = 0
    cdef cu.CUresult code
    cdef size_t size = max(nbytes, 1)
    cdef cu.CUcontext context = context_of(ordinal)
    if kind == DEVICE:
        before = push(context)
        with nogil:
            code = cu.cuMemAllocAsync(&address, size, <cu.CUstream>stream)
            if code == cu.CUDA_SUCCESS and not stream:
                code = cu.cuStreamSynchronize(NULL)
        pop(before)
    else:
        code = alloc_unpooled(context, kind == MANAGED, nbytes, &address)
    if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"{nbytes} bytes asked on cuda:{ordinal}")
    check(code, "cuMemAlloc", f"cuda:{ordinal}")
    return <int64_t>address


def free(int kind, int ordinal, int64_t address, uintptr_t stream):
    """Free memory: a device's when `stream` gets there. With stream 0, or if it is gone, when the device is idle."""
    cdef cu.CUresult code = cu.CUDA_ERROR_INVALID_HANDLE
    before = push(context_of(ordinal))
    with nogil:
        if kind == DEVICE and stream:
            code = cu.cuMemFreeAsync(<cu.CUdeviceptr>address, <cu.CUstream>stream)
        if code != cu.CUDA_SUCCESS:
            if stream:
                cu.cuStreamSynchronize(<cu.CUstream>stream)
            cu.cuCtxSynchronize()
            code = cu.cuMemFreeHost(<void*><uintptr_t>address) if kind == PINNED else cu.cuMemFree(<cu.CUdeviceptr>address)
    pop(before)


def copy(int ordinal, int64_t target, int64_t source, int64_t nbytes, uintptr_t stream):
    """Copy bytes behind what is on a stream, and wait for it."""
    before = push(context_of(ordinal))
    code = copy_bytes_and_settle(target, source, nbytes, <cu.CUstream>stream)
    pop(before)
    check(code, "cuMemcpyAsync", f"cuda:{ordinal}")


def copy_array(
    uintptr_t stream,
    int64_t target,
    tuple target_strides,
    int64_t source,
    tuple source_strides,
    tuple shape,
    int64_t itemsize,
):
    """Copy an array behind what is on a stream, whose context is current; strides in bytes. Nobody waits."""
    plan = plan_copy(shape, target_strides, source_strides, itemsize)
    check(copy_planned(plan, target, source, <cu.CUstream>stream, True), "cuMemcpyAsync", f"stream {stream:#x}")


def settle(int ordinal):
    """Wait until a device has done all that it was given."""
    before = push(context_of(ordinal))
    with nogil:
        cu.cuCtxSynchronize()
    pop(before)
