"""Arrays in the memory of a place, outside of any context: `DataPlace.allocate`.

The array and its memory are two objects. An `OwnedArray` is what the user holds; a `Block` (`stf.devices.blocks`) is
the memory, and frees itself when nothing holds it. Logical data, buffers and DLPack's capsules hold the block, so it
outlives `close` as long as they use it. Libraries that were told the address by an array interface hold the
`OwnedArray`, as that protocol asks; so it keeps the block from then on, even when it is closed. What asks a closed
array for its address is refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stf._support.arguments import is_integer
from stf._support.completion import Shown, public
from stf.devices.blocks import DEVICE, MANAGED, PINNED, Block, CudaBlock, HostBlock, MappedBlock
from stf.devices.make import cuda_current, cuda_devices
from stf.errors import AccessError, OutOfMemoryError, PlaceError
from stf.interop import dlpack
from stf.interop.cuda_arrays import make_wait
from stf.interop.dtypes import dtype_of
from stf.interop.known_arrays import Memory, must_have_cuda
from stf.interop.memory import c_strides, view_at
from stf.interop.results import check_value, must_have_no_mask
from stf.interop.streams import pointer_of
from stf.places.evaluation import PAGE, runs_of_pages
from stf.places.partition import as_dims, part_of, positions_of

__all__ = ["OwnedArray"]


class OwnedArray(Shown):
    """A packed array, in C order, in the memory of a place. Get one from ``data_place.device(0).allocate(...)``.

    It has ``__cuda_array_interface__`` on a CUDA device, NumPy's array interface and the buffer protocol in memory of
    the host, and DLPack in both. ``ctx.logical_data`` takes it without a copy. A with-block closes it at its end.

    Attributes
    ----------
    shape : tuple of int
        Extents.
    dtype : numpy.dtype
        Element type.
    data_place : DataPlace
        Where it lies.

    Examples
    --------
    >>> with stf.data_place.host().allocate(4, "int32") as array:
    ...     array.copy_to_device([1, 2, 3, 4])
    ...     print(array.nbytes, array.copy_to_host())
    16 [1 2 3 4]
    """

    __slots__ = ("__weakref__", "_block", "_lent", "data_place", "dtype", "shape")

    def __init__(self, block: Block, shape: tuple[int, ...], dtype: Any, place: Any) -> None:
        self._block: Block | None = block
        self._lent: Block | None = None  # by an array interface: its users hold this object, and not the block
        self.shape, self.dtype, self.data_place = shape, dtype, place

    @staticmethod
    def from_host(array: Any, place: Any, stream: Any = None) -> OwnedArray:
        """Return a copy of an array of the host at a data place.

        Parameters
        ----------
        array : array-like
            What NumPy makes an array of.
        place : DataPlace
            Where the copy lies.
        stream : int or object with ``__cuda_stream__``, optional
            As for `DataPlace.allocate`.

        Raises
        ------
        PlaceError, TypeError
            As of `DataPlace.allocate`; also for an array with a mask.

        Examples
        --------
        >>> stf.OwnedArray.from_host([[1, 2], [3, 4]], stf.data_place.host()).shape
        (2, 2)
        """
        must_have_no_mask(array, "the array for OwnedArray.from_host")
        source = np.ascontiguousarray(array).reshape(np.shape(array))
        made: OwnedArray = place.allocate(source.shape, source.dtype, stream)
        made.copy_to_device(source)
        return made

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes.

        Examples
        --------
        >>> stf.data_place.host().allocate((2, 3), float).ndim
        2
        """
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements.

        Examples
        --------
        >>> stf.data_place.host().allocate((2, 3), float).size
        6
        """
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes.

        Examples
        --------
        >>> stf.data_place.host().allocate((2, 3), float).nbytes
        48
        """
        return int(self.size * self.dtype.itemsize)

    @property
    def ptr(self) -> int:
        """The address of the first element.

        Raises
        ------
        AccessError
            The array was closed.

        Examples
        --------
        >>> stf.data_place.host().allocate(8).ptr > 0
        True
        """
        return self._live().address

    @property
    def is_closed(self) -> bool:
        """True after `close`.

        Examples
        --------
        >>> array = stf.data_place.host().allocate(8)
        >>> array.close()
        >>> array.is_closed
        True
        """
        return self._block is None

    def _live(self) -> Block:
        if self._block is None:
            raise AccessError(f"{self!r} was closed, and its memory is freed; allocate another one")
        return self._block

    # -- for other libraries -----------------------------------------------------------------------------------------

    def _describe_memory(self, on_cuda: bool) -> Memory:
        block = self._live()
        if block.is_device:
            must_have_cuda(self, on_cuda)
        strides = c_strides(self.shape, self.dtype)
        stream = block.stream or None
        return Memory(
            block.address, self.shape, strides, self.dtype, False, block, block.is_device, stream, block.ordinal
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        block = self._live()
        if not block.is_device:
            raise AttributeError("this memory is the host's, which has no CUDA array interface")
        return {**self._interface(), "stream": block.stream or None}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._live().is_device:
            raise AttributeError("this memory is a device's; use copy_to_host()")
        return self._interface()

    def _interface(self) -> dict[str, Any]:
        self._lent = self._live()
        found = {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._lent.address, False),
            "strides": None,
        }
        return found if self.dtype.fields is None else {**found, "descr": self.dtype.descr}

    def __buffer__(self, flags: int) -> memoryview:
        if self._live().is_device:
            raise BufferError("this memory is a device's; use copy_to_host()")
        return memoryview(self._view())  # type: ignore[arg-type]  # of NumPy's stubs for 3.11

    def _view(self) -> np.ndarray[Any, Any]:
        """Return the memory as a NumPy array that keeps it alive; of a device's, for its address alone."""
        block = self._live()
        return view_at(block.address, self.shape, c_strides(self.shape, self.dtype), self.dtype, block, True)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and the number of the device."""
        block = self._live()
        return (dlpack.CUDA, block.ordinal) if block.is_device else (dlpack.CPU, 0)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        """Return a capsule that keeps the memory alive; what comes on `stream` finds what is there now.

        Raises
        ------
        BufferError
            A copy is asked for, another device, or DLPack does not know the dtype.
        """
        block, where = self._live(), self.__dlpack_device__()
        if copy:
            raise BufferError("the memory is shared, not copied; use copy_to_host()")
        if dl_device is not None and tuple(dl_device) != where:
            raise BufferError(f"the memory lies at {where}, not at {tuple(dl_device)}")
        if self.dtype.fields is not None:
            raise BufferError(f"DLPack has no structured dtypes such as {self.dtype}")
        capsule = dlpack.capsule_of(self._view(), self.dtype, where, max_version)
        if block.is_device and stream != -1:
            make_wait(block.stream or dlpack.LEGACY_STREAM, stream or dlpack.LEGACY_STREAM)
        return capsule

    # -- copies ----------------------------------------------------------------------------------------------------

    def copy_to_host(self) -> np.ndarray[Any, Any]:
        """Return a copy as a NumPy array, when what is on the array's stream is done.

        Raises
        ------
        AccessError
            The array was closed.

        Examples
        --------
        >>> stf.OwnedArray.from_host([1, 2], stf.data_place.host()).copy_to_host().tolist()
        [1, 2]
        """
        block = self._live()
        found = np.empty(self.shape, self.dtype)
        if self.nbytes:
            block.copy(found.ctypes.data, block.address, self.nbytes, block.stream)
        return found

    def copy_to_device(self, array: Any) -> None:
        """Copy an array of the host here, behind what is on the array's stream, and wait for it.

        Raises
        ------
        ValueError
            It has another shape, its values do not fit without loss, as those that a task returns, or it has a mask.
        OverflowError
            A list has a number that is out of the range of the dtype.
        AccessError
            The array was closed.

        Examples
        --------
        >>> array = stf.data_place.host().allocate(2)
        >>> array.copy_to_device([1, 2])
        >>> array.copy_to_host().tolist()
        [1, 2]
        """
        block = self._live()
        try:
            must_have_no_mask(array, f"the array for {self!r}")
            shape = np.shape(array)
            if shape != self.shape:
                raise ValueError(f"{self!r} takes an array of its shape, got shape {shape}; reshape it")
            check_value(array, self.dtype, f"the array for {self!r}")
        except TypeError as error:
            raise ValueError(str(error)) from None
        source = np.ascontiguousarray(np.array(array, self.dtype))
        if self.nbytes:
            block.copy(block.address, source.ctypes.data, self.nbytes, block.stream)

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self, stream: Any = None) -> None:
        """Free the memory; logical data and arrays of other libraries over it keep it as long as they need it.

        After ``np.asarray`` or ``cupy.asarray`` of it, the memory goes with this object and all such arrays.

        Parameters
        ----------
        stream : int or object with ``__cuda_stream__``, optional
            Stream in whose order it goes, in place of that of `DataPlace.allocate`.

        Examples
        --------
        >>> array = stf.OwnedArray.from_host([1.0, 2.0], stf.data_place.host())
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data(array)
        ...     array.close()  # the data have the memory still
        ...     print(x.numpy())
        [1. 2.]
        """
        block, self._block = self._block, None
        if block is not None and stream is not None:
            block.stream, block.owner_of_stream = pointer_of(stream), stream

    def __enter__(self) -> OwnedArray:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    _shown = ["data_place", "dtype", "shape", *public(dir())]

    def __repr__(self) -> str:
        where = "closed" if self._block is None else repr(self.data_place)
        return f"<array {self.dtype} {self.shape}, {where}>"


def allocate(place: Any, shape: Any, dtype: Any, stream: Any, on_cuda: bool) -> OwnedArray:
    """Allocate an array at a place, whose devices are CUDA's or emulated; see `DataPlace.allocate`."""
    if dtype is None and not is_integer(shape):
        raise TypeError(f"an array of shape {shape!r} needs a dtype; without one, the shape is a number of bytes")
    extents = as_dims(shape)
    kind = np.dtype(np.uint8) if dtype is None else dtype_of(dtype)
    if kind.hasobject:
        raise TypeError(f"memory holds no Python objects, got dtype {kind}")
    pointer = 0 if stream is None else pointer_of(stream)
    nbytes = math.prod(extents) * kind.itemsize
    try:
        block = block_at(place, extents, kind, nbytes, pointer, on_cuda)
    except MemoryError as error:
        raise OutOfMemoryError(f"no room for {nbytes} bytes at {place!r}: {error}") from error
    block.owner_of_stream = stream
    return OwnedArray(block, extents, kind, place)


def block_at(place: Any, shape: tuple[int, ...], dtype: Any, nbytes: int, stream: int, on_cuda: bool) -> Block:
    """Return memory of a place."""
    if place.kind == "composite":
        return composite_block(place, shape, dtype, nbytes, on_cuda)
    if place.kind not in ("host", "device", "managed", "current_device"):
        raise PlaceError(f"{place!r} is no memory of its own; allocate at data_place.device(i) or data_place.host()")
    if not on_cuda:
        return HostBlock(nbytes)
    current = max(cuda_current(), 0)
    if place.kind == "device" and place.index >= cuda_devices():
        raise PlaceError(f"{place!r} is not on this machine, which has {cuda_devices()} CUDA device(s)")
    if place.kind in ("host", "managed"):
        return CudaBlock(PINNED if place.kind == "host" else MANAGED, current, nbytes, 0)
    return CudaBlock(DEVICE, current if place.kind == "current_device" else place.index, nbytes, stream)


def composite_block(place: Any, shape: tuple[int, ...], dtype: Any, nbytes: int, on_cuda: bool) -> Block:
    """Return memory of several places under one address, of which each page lies where most of its bytes belong."""
    members = list(place.grid)
    parts = [part_of(place.partition, shape, where, place.grid.dims) for where in positions_of(place.grid.dims)]
    kinds = {member.kind for member in members}
    if not on_cuda or kinds == {"host"}:
        return HostBlock(nbytes)
    if "host" in kinds:
        raise PlaceError(f"{place!r} has the host beside devices; give a grid of devices, or of the host alone")
    if missing := [member for member in members if member.index >= cuda_devices()]:
        raise PlaceError(f"{missing[0]!r} is not on this machine, which has {cuda_devices()} CUDA device(s)")
    if nbytes == 0 or len(members) == 1:
        return CudaBlock(DEVICE, members[0].index, nbytes, 0)
    runs = runs_of_pages(parts, shape, c_strides(shape, dtype), dtype.itemsize)
    if runs is None:
        raise PlaceError(f"{place!r} divides shape {shape} into too many pieces to be mapped; use larger blocks")
    return MappedBlock([member.index for member in members], PAGE, runs, nbytes)
