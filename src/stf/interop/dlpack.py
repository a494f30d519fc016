"""DLPack in and out: the memory that a capsule describes, and capsules for memory of devices.

A capsule that is never renamed stays its maker's: it gives the memory back when it is collected. So whoever holds the
capsule holds the memory, and nothing here has to call a deleter.

See https://dmlc.github.io/dlpack/latest/python_spec.html and dlpack.h.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from stf.interop.dtypes import dlpack_code, dtype_of_dlpack

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
LEGACY_STREAM = 1
PER_THREAD_STREAM = 2
DEFAULT_STREAMS = (0, LEGACY_STREAM, PER_THREAD_STREAM)  # 0 is one of the two
READ_ONLY = 1
VERSION = (1, 0)


class Device(ctypes.Structure):
    """``DLDevice``."""

    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DataType(ctypes.Structure):
    """``DLDataType``."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    """``DLTensor``; the first member of ``DLManagedTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


class Described(NamedTuple):
    """What a capsule says; strides in bytes. `readonly` is None where it cannot say."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    readonly: bool | None
    device: tuple[int, int]
    capsule: Any


name_in = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
address_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def open_capsule(capsule: Any) -> tuple[Tensor, int | None]:
    """Return the tensor in a capsule that nobody took yet, and its flags; None from before version 1.0."""
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"__dlpack__ returns a capsule, got {capsule!r} of {type(capsule).__name__}")
    name = name_in(capsule)
    if name == b"dltensor_versioned":
        whole = Versioned.from_address(address_in(capsule, name))
        if whole.major > VERSION[0]:
            raise BufferError(f"DLPack {whole.major}.{whole.minor} is newer than what stf reads (1.x)")
        return whole.tensor, whole.flags
    if name == b"dltensor":
        return Tensor.from_address(address_in(capsule, name)), None
    raise BufferError(f"a capsule of DLPack is named dltensor or dltensor_versioned, got {name!r}; it was used already")


def described(capsule: Any) -> Described:
    """Read a capsule; the memory is there as long as the capsule."""
    tensor, flags = open_capsule(capsule)
    dtype = dtype_of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim))
    else:
        strides = tuple(dtype.itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    readonly = None if flags is None else bool(flags & READ_ONLY)
    device = (int(tensor.device.type), int(tensor.device.id))
    return Described((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, readonly, device, capsule)


def export(obj: Any, **options: Any) -> Any:
    """Return the capsule of an object, of version 1 where it has that."""
    try:
        return obj.__dlpack__(max_version=VERSION, **options)
    except TypeError:
        return obj.__dlpack__(**options)


def capsule_of(memory: np.ndarray[Any, Any], dtype: np.dtype[Any], device: tuple[int, int], max_version: Any) -> Any:
    """Return a capsule for memory of a device, that holds `memory`: an array over its addresses, never looked at.

    NumPy makes the capsule, since its deleter may run in any thread and at exit; its device and, where NumPy does not
    know it, its element type are put right before anyone sees it.
    """
    code, bits = dlpack_code(dtype)
    versioned = {"max_version": max_version} if max_version is not None and max_version >= VERSION else {}
    try:
        capsule = memory.__dlpack__(**versioned)
    except TypeError:  # NumPy before 2.1
        capsule = memory.__dlpack__()
    tensor, _ = open_capsule(capsule)
    tensor.device.type, tensor.device.id = device
    tensor.dtype.code, tensor.dtype.bits = code, bits
    if not memory.size:
        tensor.data = None
    return capsule
