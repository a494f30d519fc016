"""Arrays: what an object says about its memory, NumPy views of replicas, and raw memory as an array."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from stf.errors import PlaceError
from stf.interop import core_arrays, cuda_arrays, dlpack, jax_arrays, tensors
from stf.interop.dlpack import LEGACY_STREAM
from stf.interop.dtypes import dtype_of
from stf.interop.known_arrays import describe_cupy, describe_numpy
from stf.interop.memory import Memory, c_strides, must_have_cuda, view_at
from stf.interop.streams import pointer_of

log = logging.getLogger("stf")
Describer = Callable[[Any, bool], Memory]
describers: dict[type, Describer] = {np.ndarray: describe_numpy}
DESCRIBERS_LIMIT = 1024
SPARSE = (("data", "indices", "indptr"), ("data", "row", "col"), ("data", "offsets"))  # SciPy's: CSR and CSC, COO, DIA


def describe(obj: Any, on_cuda: bool = False) -> Memory:
    """Find the memory of `obj`: an array of any library, the buffer protocol, or a scalar; CUDA arrays if `on_cuda`.

    Raises
    ------
    TypeError
        `obj` is a list or tuple, has an object dtype or a mask, or is no array at all.
    PlaceError
        Its memory is on a device that a CPU context does not have.
    """
    kind = type(obj)
    if kind is np.ndarray:
        return describe_numpy(obj, on_cuda)
    describer = describers.get(kind)
    if describer is None:
        describer = describers[kind] = describer_of(kind)
    return describer(obj, on_cuda)


def producer_of(owner: Any) -> Any:
    """Where the content of an array is being made now, as `Memory.stream` says it; None if nobody knows.

    A stream that was given by its address alone may be gone by now.
    """
    if isinstance(owner, Exported):
        return owner.order
    if isinstance(owner, RawMemory) and hasattr(owner.stream, "__index__"):
        return None
    try:
        return None if owner is None else describe(owner, True).stream
    except (TypeError, AttributeError):  # what holds the memory is no array
        return None
    except (ValueError, BufferError, RuntimeError) as error:
        warn_once(
            f"{type(owner).__name__} does not say any more on which stream it is made, so that launches do not wait "
            f"for that: {error}"
        )
        return None


@functools.lru_cache(maxsize=64)
def warn_once(message: str) -> None:
    """Log what would be said again at each launch."""
    log.warning("%s", message)


def describer_of(kind: type) -> Describer:
    """What describes the objects of a type; looked for once per type."""
    if len(describers) >= DESCRIBERS_LIMIT:
        describers.clear()
        describers[np.ndarray] = describe_numpy
    if issubclass(kind, np.ma.MaskedArray):
        return refuse_mask
    if issubclass(kind, np.ndarray) and not hasattr(kind, "__cuda_array_interface__"):
        return describe_numpy
    if issubclass(kind, (list, tuple)):
        return refuse_sequence
    if issubclass(kind, (bool, int, float, complex, np.generic)):
        return describe_scalar
    for base in kind.__mro__:
        found = describer_in_library(base)
        if found is not None:
            return found
    return describe_by_protocol


def describer_in_library(kind: type) -> Describer | None:
    """What describes the arrays of a library that we know."""
    library, name = kind.__module__.partition(".")[0], kind.__name__
    if library == "torch" and name == "Tensor":
        return tensors.describe_tensor
    if library == "cupy" and name == "ndarray":
        return describe_cupy
    if library in ("numba", "numba_cuda") and hasattr(kind, "__cuda_array_interface__"):
        return cuda_arrays.describe_numba
    if library in ("jax", "jaxlib") and hasattr(kind, "__dlpack__"):
        return jax_arrays.describe_jax
    if kind.__module__.startswith("cuda.core"):
        return {"Buffer": core_arrays.describe_buffer, "StridedMemoryView": core_arrays.describe_view}.get(name)
    return None


def describe_scalar(obj: Any, on_cuda: bool) -> Memory:
    return describe_numpy(np.array(obj), on_cuda)


def describe_by_protocol(obj: Any, on_cuda: bool) -> Memory:
    """The memory of an object of a type that we do not know, by what it speaks."""
    if hasattr(obj, "__cuda_array_interface__"):
        must_have_cuda(obj, on_cuda)
        return cuda_arrays.describe_device_array(obj)
    if hasattr(obj, "__dlpack__"):
        return describe_dlpack(obj, on_cuda)
    try:
        raw = memoryview(obj)
    except TypeError:
        raise TypeError(
            f"logical_data takes an array (NumPy, buffer protocol, DLPack) or a registered type, got "
            f"{type(obj).__name__}; {remedy_for(obj)}"
        ) from None
    return describe_numpy(np.asarray(raw), on_cuda)


def remedy_for(obj: Any) -> str:
    """What to do with an object that is no array and has one, or several, or can be made one."""
    kind = type(obj)
    if hasattr(kind, "to_numpy"):  # of pandas, xarray, awkward, polars and pyarrow
        return "register x.to_numpy(), which may be a copy: results are written there"
    parts = [names for names in SPARSE if all(hasattr(obj, name) for name in names)]
    if parts:
        listed = ", ".join(f"x.{name}" for name in parts[0])
        return f"register its arrays {listed}, or its type with stf.register_data_interface"
    if hasattr(kind, "__array__") or hasattr(obj, "__array_interface__"):
        return "register np.asarray(x), which may be a copy: results are written there"
    return "register it with stf.register_data_interface"


def refuse_mask(obj: Any, on_cuda: bool) -> Memory:
    raise TypeError(
        f"{type(obj).__name__} has a mask, which logical data cannot have; register x.filled(value), or x.data and "
        "x.mask as data of their own"
    )


def refuse_sequence(obj: Any, on_cuda: bool) -> Memory:
    raise TypeError(
        f"logical_data takes an array, got a {type(obj).__name__}; use np.asarray(...), or logical_data_empty(shape)"
    )


# -- DLPack ----------------------------------------------------------------------------------------------------------


def describe_dlpack(obj: Any, on_cuda: bool, no_stream: Any = -1) -> Memory:
    """The memory of an object that speaks DLPack; `no_stream` asks it to make no stream wait.

    The stream that is to wait for the content is known when the data has its place; then the object is asked again.
    """
    device = obj.__dlpack_device__()
    try:
        kind, number = map(int, device)
    except (TypeError, ValueError):
        raise TypeError(
            f"{type(obj).__name__}.__dlpack_device__() returns (kind, index) of its device, got {device!r}"
        ) from None
    if kind in (dlpack.CPU, dlpack.CUDA_HOST):
        found = dlpack.described(dlpack.export(obj))
        array = view_at(found.address, found.shape, found.strides, found.dtype, found.capsule, not found.readonly)
        return describe_numpy(array, on_cuda)
    if not on_cuda or kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        raise PlaceError(
            f"{type(obj).__name__} lies on device {number} of DLPack kind {int(kind)} and this context "
            f"{'has CUDA devices' if on_cuda else 'runs on the CPU'}; copy it to the host first"
        )
    found = dlpack.described(dlpack.export(obj, stream=no_stream))
    order = functools.partial(wait_for_content, obj)
    readonly = bool(found.readonly)
    owner = Exported(found.capsule, order)
    return Memory(found.address, found.shape, found.strides, found.dtype, readonly, owner, True, order)


class Exported:
    """What holds the memory of an object that speaks DLPack; `order` makes a stream wait for its content."""

    __slots__ = ("capsule", "order")

    def __init__(self, capsule: Any, order: Callable[[int], None]) -> None:
        self.capsule = capsule
        self.order = order


def wait_for_content(obj: Any, pointer: int) -> None:
    """Make the stream at `pointer` wait for the content of an object, by events: the object's library does it."""
    dlpack.export(obj, stream=pointer)


class RawMemory:
    """Memory of a device at an address of the user's, which a `stream` of his writes; made by `view`."""

    __slots__ = ("dtype", "memory", "owner", "place", "shape", "stream")

    def __init__(self, memory: Memory, place: Any, stream: Any) -> None:
        self.memory = memory
        self.stream = stream
        self.owner = memory.owner
        self.place = place
        self.shape = memory.shape
        self.dtype = memory.dtype

    def __repr__(self) -> str:
        return f"<memory at {self.memory.address:#x} on {self.place!r}, {self.dtype} {self.shape}>"


def describe_raw(obj: RawMemory, on_cuda: bool) -> Memory:
    must_have_cuda(obj, on_cuda)
    return obj.memory._replace(owner=obj)


describers[RawMemory] = describe_raw


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
    """
    if isinstance(ptr, (bool, np.ndarray)) or not hasattr(ptr, "__index__"):
        raise TypeError(f"an address is an integer, got {type(ptr).__name__}; pass the pointer as int")
    if not 0 <= int(ptr) < 1 << 64:
        raise ValueError(f"an address is a number from 0 on, of 64 bits, got {ptr}")
    from stf.places.places import must_be_data_place  # which needs this module

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
