"""Memory of places outside of any context: that of ``stf.DataPlace.allocate``."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from stf.compat.cuda_stf.machine import extents
from stf.compat.cuda_stf.streams import get_stream_pointer

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
    return place.allocate(dims, dtype, stream=get_stream_pointer(stream) or None)


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
    address = int(owner.ptr)
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
    if owner is not None:
        owner.close(get_stream_pointer(stream) or None)
