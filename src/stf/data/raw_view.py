"""Raw memory as an array that can be registered: `stf.view`."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from stf.errors import PlaceError
from stf.interop.arrays import RawMemory
from stf.interop.dlpack import LEGACY_STREAM
from stf.interop.dtypes import dtype_of
from stf.interop.known_arrays import Memory
from stf.interop.memory import c_strides, view_at
from stf.interop.streams import pointer_of
from stf.places.places import must_be_data_place

__all__ = ["view"]


def view(
    ptr: int,
    shape: Any,
    dtype: Any,
    strides: Any = None,
    *,
    data_place: Any = None,
    owner: Any = None,
    stream: Any = None,
) -> Any:
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
        Where the memory is: ``data_place.device(i)``, or host memory by default.
    owner : object, optional
        Kept alive as long as the view.
    stream : stream, optional
        The CUDA stream on which the content of a device's memory is being made (``__cuda_stream__``, or its address).
        Without one the content must be there.

    Returns
    -------
    numpy.ndarray or RawMemory
        An array over that memory; of a device's, a description that `logical_data` takes.

    Raises
    ------
    TypeError
        `ptr` is not an integer.

    Examples
    --------
    >>> X = np.arange(6.0)
    >>> same = stf.view(X.ctypes.data, (2, 3), np.float64, owner=X)
    >>> with stf.context(devices="cpu") as ctx:
    ...     print(ctx.logical_data(same).numpy())
    [[0. 1. 2.]
     [3. 4. 5.]]
    """
    if isinstance(ptr, (bool, np.ndarray)) or not hasattr(ptr, "__index__"):
        raise TypeError(f"an address is an integer, got {type(ptr).__name__}; pass the pointer as int")
    if not 0 <= int(ptr) < 1 << 64:
        raise ValueError(f"an address is a number from 0 on, of 64 bits, got {ptr}")
    if data_place is not None:
        must_be_data_place(data_place)
    where = "host" if data_place is None else data_place.kind
    on_device = where not in ("host", "managed")
    if on_device and where != "device":
        raise PlaceError(f"raw memory is the host's or one device's, got {data_place!r}; give data_place.device(i)")
    if stream is not None and not on_device:
        raise TypeError(
            "stream= says where a device's memory is being written; give data_place=stf.data_place.device(i)"
        )
    try:
        extents = (index(shape),) if hasattr(shape, "__index__") else tuple(map(index, shape))
        steps = None if strides is None else tuple(map(index, strides))
    except TypeError:
        raise TypeError(f"a shape is an int or a tuple, strides are a tuple, got {shape!r} and {strides!r}") from None
    if any(n < 0 for n in extents):
        raise ValueError(f"extents are not negative, got {extents}")
    if int(ptr) == 0 and 0 not in extents:
        raise ValueError(f"address 0 holds no array of shape {extents}; pass the pointer to its first element")
    kind = dtype_of(dtype)
    if kind.hasobject:
        raise TypeError(f"raw memory has plain elements, got dtype {kind}, which holds Python objects")
    steps = c_strides(extents, kind) if steps is None else steps
    if len(steps) != len(extents):
        raise ValueError(f"{len(extents)} extents need as many strides, got {steps}")
    if on_device:
        pointer = None if stream is None else pointer_of(stream) or LEGACY_STREAM
        return RawMemory(Memory(int(ptr), extents, steps, kind, False, owner, True, pointer), data_place, stream)
    return view_at(int(ptr), extents, steps, kind, owner, True)
