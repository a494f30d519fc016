"""Fills as CUDA takes them: memory set as `fillplan` plans it."""

from libc.stdint cimport int64_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.gil cimport call, host_nodes


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
