"""The memory of NumPy's and CuPy's arrays. Compiled, since programs register arrays by the thousand."""

from __future__ import annotations

import sys

import cython

from stf.interop.memory import Memory, must_have_cuda

modules: dict = sys.modules
new_tuple = tuple.__new__
current_stream = None  # CuPy's function, from when an array of CuPy's is registered first
LEGACY_STREAM = 1  # CUDA's name for the default stream


def describe_numpy(obj, on_cuda):
    """Return the memory of a NumPy array, never a copy."""
    return new_tuple(Memory, numpy_memory(obj))


def numpy_memory(obj):
    """Return the items of what `describe_numpy` returns."""
    dtype = obj.dtype
    if dtype.hasobject:
        raise TypeError(
            f"logical data needs plain elements, got dtype {dtype} which holds Python objects; use a numeric or "
            "structured dtype, or register a data interface (stf.register_data_interface)"
        )
    address: cython.longlong = 0
    if cython.compiled:
        capsule = obj.__array_struct__
        interface = cython.cast("PyArrayInterface*", PyCapsule_GetPointer(capsule, cython.NULL))
        address = cython.cast(cython.longlong, interface.data)
    else:
        address = obj.__array_interface__["data"][0]
    return (address, obj.shape, obj.strides, dtype, not obj.flags.writeable, obj, False, None, -1)


def describe_cupy(obj, on_cuda):
    """Return the memory of a CuPy array; its content is being made on CuPy's current stream of its device."""
    return new_tuple(Memory, cupy_memory(obj, on_cuda))


def cupy_memory(obj, on_cuda):
    """Return the items of what `describe_cupy` returns."""
    global current_stream
    if current_stream is None:
        current_stream = modules["cupy"].cuda.get_current_stream
    if not on_cuda:
        must_have_cuda(obj, on_cuda)
    data = obj.data
    ordinal = data.device_id
    stream = current_stream(ordinal).ptr or LEGACY_STREAM
    address = data.ptr if obj.size else 0
    return (address, obj.shape, obj.strides, obj.dtype, False, obj, True, stream, ordinal)
