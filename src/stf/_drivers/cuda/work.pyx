"""Work as CUDA takes it: copies and fills as they are planned, launches, the order of two streams."""

from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport pop, push
from stf._drivers.cuda.gil cimport call, host_nodes, point_to_block


cdef cu.CUresult copy_planned(object plan, int64_t target, int64_t source, cu.CUstream stream, bint may_block):
    """Copy as planned."""
    if plan.rows.extent == 1:
        return copy_runs(plan, target, source, stream, may_block)
    return copy_blocks(plan, target, source, stream)


cdef cu.CUresult copy_runs(object plan, int64_t target, int64_t source, cu.CUstream stream, bint may_block):
    """Copy runs of ``plan.width`` bytes; pageable memory may block, so that others may run meanwhile."""
    cdef int64_t width = plan.width
    cdef cu.CUresult code = cu.CUDA_SUCCESS
    for ahead, behind in plan.offsets:
        code = copy_run(target + <int64_t>ahead, source + <int64_t>behind, width, stream, may_block)
        if code != cu.CUDA_SUCCESS:
            break
    return code


cdef cu.CUresult copy_run(int64_t target, int64_t source, int64_t width, cu.CUstream stream, bint may_block) noexcept:
    """Copy one run of bytes."""
    cdef cu.CUdeviceptr there = <cu.CUdeviceptr>target
    cdef cu.CUdeviceptr here = <cu.CUdeviceptr>source
    cdef cu.CUresult code
    if width == 0:
        return cu.CUDA_SUCCESS
    if not may_block:
        return call(host_nodes, cu.cuMemcpyAsync, there, here, width, stream)
    with nogil:
        code = cu.cuMemcpyAsync(there, here, width, stream)
    return code


cdef cu.CUresult copy_bytes_and_settle(int64_t target, int64_t source, int64_t nbytes, cu.CUstream stream) noexcept:
    """Copy bytes on a stream of the current context, and wait until it has done all that it was given."""
    cdef cu.CUresult code
    with nogil:
        code = cu.cuMemcpyAsync(<cu.CUdeviceptr>target, <cu.CUdeviceptr>source, nbytes, stream)
        if code == cu.CUDA_SUCCESS:
            code = cu.cuStreamSynchronize(stream)
    return code


cdef cu.CUresult copy_blocks(object plan, int64_t target, int64_t source, cu.CUstream stream):
    """Copy blocks of rows and slices."""
    cdef cu.CUDA_MEMCPY3D_PEER block
    cdef cu.CUresult code = cu.CUDA_SUCCESS
    memset(&block, 0, sizeof(block))
    block.dstContext = context_of(target)
    block.srcContext = context_of(source)
    block.dstMemoryType = cu.CU_MEMORYTYPE_HOST if block.dstContext == NULL else cu.CU_MEMORYTYPE_DEVICE
    block.srcMemoryType = cu.CU_MEMORYTYPE_HOST if block.srcContext == NULL else cu.CU_MEMORYTYPE_DEVICE
    block.WidthInBytes = plan.width
    block.Height = plan.rows.extent
    block.Depth = plan.slices.extent
    block.dstPitch = plan.rows.target
    block.srcPitch = plan.rows.source
    block.dstHeight = plan.rows.extent if plan.slices.extent == 1 else plan.slices.target // plan.rows.target
    block.srcHeight = plan.rows.extent if plan.slices.extent == 1 else plan.slices.source // plan.rows.source
    for ahead, behind in plan.offsets:
        aim(&block, target + <int64_t>ahead, source + <int64_t>behind)
        with nogil:
            code = cu.cuMemcpy3DPeerAsync(&block, stream)
        if code != cu.CUDA_SUCCESS:
            break
    return code


cdef void aim(cu.CUDA_MEMCPY3D_PEER* block, int64_t target, int64_t source) noexcept:
    if block.dstMemoryType == cu.CU_MEMORYTYPE_DEVICE:
        block.dstDevice = <cu.CUdeviceptr>target
    else:
        block.dstHost = <void*><uintptr_t>target
    if block.srcMemoryType == cu.CU_MEMORYTYPE_DEVICE:
        block.srcDevice = <cu.CUdeviceptr>source
    else:
        block.srcHost = <const void*><uintptr_t>source


cdef cu.CUresult fill_planned(object plan, int64_t target, cu.CUstream stream) except *:
    """Set the rectangles of a plan."""
    cdef cu.CUresult code = cu.CUDA_SUCCESS
    for offset, pitch, unit, value, width, height in plan:
        if height == 1:
            code = set_row(<cu.CUdeviceptr>(target + <int64_t>offset), unit, value, width, stream)
        else:
            code = set_rows(<cu.CUdeviceptr>(target + <int64_t>offset), pitch, unit, value, width, height, stream)
        if code != cu.CUDA_SUCCESS:
            break
    return code


cdef cu.CUresult set_row(cu.CUdeviceptr to, int unit, unsigned int value, size_t width, cu.CUstream stream) noexcept:
    if unit == 1:
        return call(host_nodes, cu.cuMemsetD8Async, to, <unsigned char>value, width, stream)
    if unit == 2:
        return call(host_nodes, cu.cuMemsetD16Async, to, <unsigned short>value, width, stream)
    return call(host_nodes, cu.cuMemsetD32Async, to, value, width, stream)


cdef cu.CUresult set_rows(cu.CUdeviceptr to, size_t pitch, int unit, unsigned int value, size_t width, size_t height, cu.CUstream stream) noexcept:
    if unit == 1:
        return call(host_nodes, cu.cuMemsetD2D8Async, to, pitch, <unsigned char>value, width, height, stream)
    if unit == 2:
        return call(host_nodes, cu.cuMemsetD2D16Async, to, pitch, <unsigned short>value, width, height, stream)
    return call(host_nodes, cu.cuMemsetD2D32Async, to, pitch, value, width, height, stream)


cdef cu.CUcontext context_of(int64_t address) noexcept:
    """The primary context of the device whose memory this is; NULL for the host's."""
    cdef unsigned int kind = 0
    cdef int ordinal = 0
    cdef cu.CUdevice device
    cdef cu.CUcontext context = NULL
    cdef cu.CUdeviceptr pointer = <cu.CUdeviceptr>address
    if call(host_nodes, cu.cuPointerGetAttribute, &kind, cu.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != cu.CUDA_SUCCESS:
        return NULL
    if kind != cu.CU_MEMORYTYPE_DEVICE:
        return NULL
    call(host_nodes, cu.cuPointerGetAttribute, &ordinal, cu.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer)
    if cu.cuDeviceGet(&device, ordinal) == cu.CUDA_SUCCESS:
        if cu.cuDevicePrimaryCtxRetain(&context, device) == cu.CUDA_SUCCESS:
            cu.cuDevicePrimaryCtxRelease(device)  # whoever gave the memory holds it
    return context


cdef cu.CUresult launch_function(int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes, cu.CUstream stream) noexcept:
    """Launch a function whose arguments lie in one block, as its parameters say."""
    cdef size_t size = nbytes
    cdef void* extra[5]
    point_to_block(extra, <void*><uintptr_t>block, &size)
    return call(host_nodes, cu.cuLaunchKernel, <cu.CUfunction><uintptr_t>function, gx, gy, gz, bx, by, bz, shared, stream, NULL, extra)


cdef cu.CUresult check_launch(int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared) noexcept:
    """What CUDA would say of a launch that it gets later, when nobody could be told any more."""
    cdef int threads = 1024
    cdef int most_shared = shared
    cdef cu.CUfunction known = <cu.CUfunction><uintptr_t>function
    call(host_nodes, cu.cuFuncGetAttribute, &threads, cu.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, known)
    call(host_nodes, cu.cuFuncGetAttribute, &most_shared, cu.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, known)
    if min(gx, gy, gz, bx, by, bz) < 1 or max(gy, gz) > 65535 or max(bx, by) > 1024 or bz > 64:
        return cu.CUDA_ERROR_INVALID_VALUE
    if <int64_t>bx * by * bz > threads or shared > most_shared:
        return cu.CUDA_ERROR_INVALID_VALUE
    return cu.CUDA_SUCCESS


cdef cu.CUresult order_streams(cu.CUstream first, cu.CUstream second, cu.CUevent passing) noexcept:
    """Make what comes on one stream start after what is on another now; default streams are of the current context.

    An event must be of the context of its stream: a caller's stream may be another device's. `passing` is one of the
    current context, which the legacy default stream uses.
    """
    cdef cu.CUevent event = NULL
    cdef cu.CUcontext before = NULL
    cdef cu.CUcontext context = NULL
    cdef cu.CUresult code
    if passing != NULL and not host_nodes and first == <cu.CUstream><uintptr_t>1:  # else others may use it meanwhile
        code = call(host_nodes, cu.cuEventRecord, passing, first)
        return call(host_nodes, cu.cuStreamWaitEvent, second, passing, 0) if code == cu.CUDA_SUCCESS else code
    cu.cuCtxGetCurrent(&before)
    if <uintptr_t>first > <uintptr_t>cu.CU_STREAM_PER_THREAD:
        code = call(host_nodes, cu.cuStreamGetCtx, first, &context)
        if code != cu.CUDA_SUCCESS:
            return code
        if context != before:
            cu.cuCtxSetCurrent(context)
    code = call(host_nodes, cu.cuEventCreate, &event, cu.CU_EVENT_DISABLE_TIMING)
    if code == cu.CUDA_SUCCESS:
        code = call(host_nodes, cu.cuEventRecord, event, first)
    if context != NULL and context != before:
        cu.cuCtxSetCurrent(before)
    if event == NULL:
        return code
    if code == cu.CUDA_SUCCESS:
        code = call(host_nodes, cu.cuStreamWaitEvent, second, event, 0)
    call(host_nodes, cu.cuEventDestroy, event)  # which CUDA does when it is done
    return code


cdef tuple packed_strides(tuple shape, int64_t itemsize):
    """Strides in bytes of an array without gaps, in C order."""
    strides = []
    for n in reversed(shape):
        strides.append(itemsize)
        itemsize *= n
    return tuple(reversed(strides))
