"""Arrays of the host: what an object says about its memory, and NumPy views of replicas."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from stf.errors import PlaceError


class Memory(NamedTuple):
    """Where an array lies: address of its first element, shape, strides in bytes, dtype, and who keeps it alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    readonly: bool
    owner: Any
    address_of_device: bool = False
    stream: int | None = None


def describe(obj: Any, on_cuda: bool = False) -> Memory:
    """Find the memory of `obj`: NumPy, the buffer protocol, DLPack on the CPU, or a scalar; CUDA arrays if `on_cuda`.

    Raises
    ------
    TypeError
        `obj` is a list or tuple, has an object dtype, or is no array at all.
    PlaceError
        Its memory is on a device that a CPU context does not have.
    """
    if on_cuda and (is_torch_on_cuda(obj) or hasattr(obj, "__cuda_array_interface__")):
        from stf.interop.cuda_arrays import describe_device_array

        address, shape, strides, dtype, readonly, stream = describe_device_array(obj)
        return Memory(address, shape, strides, dtype, readonly, obj, True, stream)
    array = as_host_array(obj)
    if array.dtype.hasobject:
        raise TypeError(
            f"logical data needs plain elements, got dtype {array.dtype} which holds Python objects; use a numeric or "
            "structured dtype, or register a data interface (stf.register_data_interface)"
        )
    address = array.__array_interface__["data"][0]
    return Memory(address, array.shape, array.strides, array.dtype, not array.flags.writeable, array)


def is_torch_on_cuda(obj: Any) -> bool:
    """Whether `obj` is a tensor on a GPU (one that needs a gradient says so only when asked for its interface)."""
    return type(obj).__module__.partition(".")[0] == "torch" and bool(getattr(obj, "is_cuda", False))


def as_host_array(obj: Any) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of `obj`, never a copy of an array."""
    if isinstance(obj, np.ndarray):
        return obj
    if isinstance(obj, (list, tuple)):
        raise TypeError(
            f"logical_data takes an array, got a {type(obj).__name__}; use np.asarray(...), or "
            "logical_data_empty(shape)"
        )
    if isinstance(obj, (bool, int, float, complex, np.generic)):
        return np.array(obj)
    if hasattr(obj, "__cuda_array_interface__"):
        raise PlaceError(
            f"{type(obj).__name__} lies on a CUDA device and this context runs on the CPU; copy it to the host, or use "
            'stf.context(devices="cuda")'
        )
    if hasattr(obj, "__dlpack__"):
        return from_dlpack(obj)
    try:
        view = memoryview(obj)
    except TypeError:
        raise TypeError(
            f"logical_data takes an array (NumPy, buffer protocol, DLPack) or a registered type, got "
            f"{type(obj).__name__}; register it with stf.register_data_interface"
        ) from None
    return np.asarray(view)


def from_dlpack(obj: Any) -> np.ndarray[Any, Any]:
    kind, index = obj.__dlpack_device__()
    if kind not in (1, 3):  # kDLCPU, kDLCUDAHost
        raise PlaceError(
            f"{type(obj).__name__} lies on device {index} of DLPack kind {int(kind)} and this context runs on the CPU; "
            "copy it to the host first"
        )
    array = np.from_dlpack(obj)
    if array.flags.writeable or not is_unversioned(obj):
        return array
    # NumPy makes what older exporters give read-only, since they cannot say; CuPy and torch do not, nor do we
    return view_at(array.__array_interface__["data"][0], array.shape, array.strides, array.dtype, array, True)


def is_unversioned(obj: Any) -> bool:
    """Whether an object speaks DLPack from before 1.0, which has no flag for read-only."""
    try:
        return '"dltensor"' in repr(obj.__dlpack__(max_version=(1, 0)))
    except TypeError:
        return True


def view_at(address: int, shape: Any, strides: Any, dtype: Any, owner: Any, writeable: bool) -> np.ndarray[Any, Any]:
    """A NumPy array over raw memory that keeps `owner` alive."""
    low = high = 0
    for n, step in zip(shape, strides, strict=True):
        if n == 0:
            array = np.empty(shape, dtype)
            array.flags.writeable = writeable
            return array
        low += min((n - 1) * step, 0)
        high += max((n - 1) * step, 0)
    buffer = (ctypes.c_char * (high - low + dtype.itemsize)).from_address(address + low)
    buffer._stf_owner = owner
    array = np.ndarray(shape, dtype, buffer, -low, strides)
    array.flags.writeable = writeable
    return array


def numpy_view(replica: Any, writeable: bool) -> Any:
    """The NumPy view of a host-visible replica, made once per replica and mode."""
    views = replica.views
    if views is None:
        views = replica.views = {}
    view = views.get(writeable)
    if view is None:
        layout = replica.layout
        if layout.interface is not None:
            view = layout.interface.view(replica.instance)
        else:
            view = view_at(replica.address, layout.shape, layout.strides, layout.dtype, replica.owner, writeable)
        views[writeable] = view
    return view


def view(ptr: int, shape: Any, dtype: Any, strides: Any = None, *, data_place: Any = None, owner: Any = None) -> Any:
    """Describe raw memory as an array, for `logical_data`.

    Parameters
    ----------
    ptr : int
        Address of the first element.
    shape : int or tuple of int
        Extents.
    dtype : dtype
        Element type.
    strides : tuple of int, optional
        Steps in bytes; by default C order.
    data_place : DataPlace, optional
        Where the memory is; host memory by default.
    owner : object, optional
        Kept alive as long as the view.

    Returns
    -------
    numpy.ndarray
        An array over that memory.

    Raises
    ------
    TypeError
        `ptr` is not an integer.
    """
    if isinstance(ptr, (bool, np.ndarray)) or not hasattr(ptr, "__index__"):
        raise TypeError(f"an address is an integer, got {type(ptr).__name__}; pass the pointer as int")
    if data_place is not None and getattr(data_place, "kind", None) not in ("host", "managed"):
        raise PlaceError(f"stf.view of {data_place!r} needs a CUDA context; on a CPU use data_place.host()")
    extents = (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ValueError(f"extents are not negative, got {extents}")
    if int(ptr) == 0 and 0 not in extents:
        raise ValueError(f"address 0 holds no array of shape {extents}; pass the pointer to its first element")
    kind = np.dtype(dtype)
    if strides is None:
        step, packed = kind.itemsize, []
        for n in reversed(extents):
            packed.append(step)
            step *= max(n, 1)
        strides = tuple(reversed(packed))
    if len(tuple(strides)) != len(extents):
        raise ValueError(f"{len(extents)} extents need as many strides, got {tuple(strides)}")
    return view_at(int(ptr), extents, tuple(strides), kind, owner, True)
