"""Memory and streams of places outside of any context.

stf gives memory by ``DataPlace.allocate``. Where this version lacks it, memory of the host and of emulated devices is
NumPy's, and that of CUDA devices is `cuda.core`'s.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from stf.compat.cuda_stf.errors import NotHereError
from stf.compat.cuda_stf.machine import extents, is_on_cuda
from stf.compat.cuda_stf.streams import get_stream_pointer

STREAMS_OF_A_PLACE = 4

_owners: dict[int, Any] = {}  # by address: what holds the memory
_lock = threading.Lock()


def new_memory(dplace: Any, dims: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
    """Return what holds new memory of a place for an array.

    Raises
    ------
    MemoryError
        There is not so much, or the place cannot be allocated at.
    """
    place = dplace._place
    if place is None or place.kind == "current_device" or dplace._kind == "replicated":
        raise MemoryError(f"{dplace!r} is no memory of its own; allocate at data_place.device(i) or data_place.host()")
    allocate = getattr(place, "allocate", None)
    if allocate is not None:
        return allocate(dims, dtype, stream=stream)
    if place.kind == "host" or not is_on_cuda():
        return np.empty(dims, dtype)
    if place.kind != "device":
        raise NotHereError(f"memory of {dplace!r} is not in this version of stf; use an array of CuPy or torch")
    from cuda.core import Device

    device = Device(place.index)
    device.set_current()
    return device.memory_resource.allocate(math.prod(dims) * dtype.itemsize, stream=core_stream(device, stream))


def core_stream(device: Any, stream: Any) -> Any:
    """Return a stream as cuda.core wants it; of None its default stream."""
    from cuda.core import Stream

    pointer = get_stream_pointer(stream)
    return Stream.from_handle(pointer) if pointer else device.default_stream


def address_of(owner: Any) -> int:
    """Return the address of memory."""
    if isinstance(owner, np.ndarray):
        return int(owner.ctypes.data)
    interface = getattr(owner, "__cuda_array_interface__", None) or getattr(owner, "__array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    handle = getattr(owner, "handle", None)  # a Buffer of cuda.core
    return int(np.asarray(owner).ctypes.data) if handle is None else int(handle)


def allocate(dplace: Any, size_or_dims: Any, stream: Any, elemsize: int) -> int:
    """Return the address of new memory that `deallocate` gives back."""
    get_stream_pointer(stream)  # or it is none
    if isinstance(size_or_dims, (tuple, list)):
        dims = extents(size_or_dims, "extents")
        dtype = np.dtype(f"V{int(elemsize)}") if elemsize != 1 else np.dtype(np.uint8)
    else:
        if elemsize != 1:
            raise ValueError("elemsize is the size of an element of extents; give a tuple of extents with it")
        if size_or_dims < 0:
            raise ValueError(f"a number of bytes must be non-negative, got {size_or_dims}")
        if dplace._kind == "composite" and dplace._grid.size > 1:
            raise MemoryError("memory of several places is divided by extents; give a tuple of extents")
        dims, dtype = (int(size_or_dims),), np.dtype(np.uint8)
    try:
        owner = new_memory(dplace, dims, dtype, stream)
    except (ValueError, OverflowError) as error:  # larger than any memory
        raise MemoryError(f"allocate of {math.prod(dims) * dtype.itemsize} bytes at {dplace!r}: {error}") from error
    address = address_of(owner)
    with _lock:
        _owners[address] = owner
    return address


def deallocate(ptr: int, nbytes: int, stream: Any) -> None:
    """Give memory of `allocate` back.

    Raises
    ------
    ValueError
        Nothing was allocated there.
    """
    with _lock:
        owner = _owners.pop(ptr, None)
    if owner is None and nbytes:
        raise ValueError(f"nothing was allocated at {ptr:#x}, or it was given back already")
    if hasattr(owner, "close"):
        pointer = get_stream_pointer(stream)
        if pointer:
            from cuda.core import Stream

            owner.close(Stream.from_handle(pointer))
        else:
            owner.close()


def stream_address(stream: Any) -> int:
    """Return the address of a stream of cuda.core."""
    return int(stream.__cuda_stream__()[1])
