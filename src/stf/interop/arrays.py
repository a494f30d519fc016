"""Arrays: the libraries of arrays, what an object says about its memory, and raw memory as an array."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from stf.interop.core_arrays import Core
from stf.interop.cuda_arrays import describe_device_array
from stf.interop.cupy_arrays import CuPy
from stf.interop.dlpack_arrays import Exported, describe_dlpack
from stf.interop.jax_arrays import Jax
from stf.interop.known_arrays import Memory, describe_numpy, must_have_cuda
from stf.interop.libraries import Describer, Library
from stf.interop.numba_arrays import Numba
from stf.interop.numpy_arrays import NumPy
from stf.interop.tensors import Torch

log = logging.getLogger("stf")
LIBRARIES: dict[str, Library] = {library.name: library for library in (NumPy(), CuPy(), Torch(), Numba(), Jax())}
PACKAGES = {"numba_cuda": "numba", "jaxlib": "jax"}  # further ones of a library
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
    """Return where the content of an array is being made now, as `Memory.stream` says it; None if nobody knows.

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
    """Return what describes the objects of a type; looked for once per type."""
    if len(describers) >= DESCRIBERS_LIMIT:
        describers.clear()
        describers[np.ndarray] = describe_numpy
    if hasattr(kind, "_describe_memory"):  # memory of ours
        return kind._describe_memory
    if issubclass(kind, np.ma.MaskedArray):
        return refuse_mask
    if issubclass(kind, np.ndarray):
        return describe_by_protocol if hasattr(kind, "__cuda_array_interface__") else describe_numpy
    if issubclass(kind, (list, tuple)):
        return refuse_sequence
    if issubclass(kind, (bool, int, float, complex, np.generic)):
        return describe_scalar
    return library_of(kind)[1] or describe_by_protocol


def library_of(kind: type) -> tuple[Library, Describer | None]:
    """Return the library of a class of arrays, and what describes these; one that does as NumPy does if none is known.

    It may be that of a class from which it is derived.
    """
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        library = CORE if package == "cuda" else LIBRARIES.get(PACKAGES.get(package, package))
        describer = None if library is None else library.describer_of(base)
        if library is not None and describer is not None:
            return library, describer
    return OTHER, None


def library_named(name: Any) -> Library:
    """Return the library whose arrays a body may get; ValueError if `name` is that of none."""
    if not isinstance(name, str) or name not in LIBRARIES:
        raise ValueError(f"arrays= is 'numpy', 'cupy', 'torch', 'numba' or 'jax', got {name!r}")
    return LIBRARIES[name]


def describe_scalar(obj: Any, on_cuda: bool) -> Memory:
    return describe_numpy(np.array(obj), on_cuda)


def describe_by_protocol(obj: Any, on_cuda: bool) -> Memory:
    """Return the memory of an object of a type that we do not know, by what it speaks."""
    if hasattr(obj, "__cuda_array_interface__"):
        must_have_cuda(obj, on_cuda)
        return describe_device_array(obj)
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
    """Return what to do with an object that is no array and has one, or several, or can be made one."""
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


class RawMemory:
    """Memory of a device at an address of the user's, which a `stream` of theirs writes; made by `view`."""

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

    def _describe_memory(self, on_cuda: bool) -> Memory:
        must_have_cuda(self, on_cuda)
        return self.memory.replaced(owner=self)


CORE, OTHER = Core(describe), Library()
