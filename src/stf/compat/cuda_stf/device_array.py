"""`DeviceArray`: an array that lies at a data place, outside of any context."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stf.compat.cuda_stf.allocations import new_memory
from stf.compat.cuda_stf.driver_graphs import checked
from stf.compat.cuda_stf.machine import MOST_AXES, is_on_cuda
from stf.compat.cuda_stf.streams import get_stream_pointer
from stf.compat.cuda_stf.views import interface_of
from stf.interop import dlpack
from stf.interop.cuda_arrays import make_wait
from stf.interop.memory import c_strides, view_at


class DeviceArray:
    """A packed array at a data place.

    On a CUDA device it has ``__cuda_array_interface__``; in memory of the host NumPy's array interface. Arrays of other
    libraries that were made of it by DLPack keep the memory alive.

    Parameters
    ----------
    shape : int or tuple of int
        One to four extents.
    dtype : dtype
        The element type.
    dplace : data_place
        Where it lies.
    stream : int or object with ``__cuda_stream__``, optional
        The stream in whose order the memory comes and goes.
    dims, elemsize : optional
        Another geometry of the same bytes, by which memory of several places is divided.
    """

    __slots__ = ("__weakref__", "_base", "_dplace", "_dtype", "_owner", "_pointer", "_ptr", "_shape", "_stream")

    def __init__(
        self, shape: Any, dtype: Any, dplace: Any, stream: Any = None, *, dims: Any = None, elemsize: int | None = None
    ) -> None:
        self._shape = shape_of(shape)
        self._dtype = np.dtype(dtype)
        self._dplace, self._stream, self._pointer = dplace, stream, get_stream_pointer(stream)
        self._base: DeviceArray | None = None
        geometry, kind = self._shape, self._dtype
        if dims is not None:
            geometry = tuple(int(n) for n in dims)
            size = self._dtype.itemsize if elemsize is None else int(elemsize)
            if math.prod(geometry) * size != self.nbytes:
                raise ValueError(
                    f"dims {geometry} of {size} bytes are {math.prod(geometry) * size} bytes, and shape {self._shape} "
                    f"of {self._dtype} is {self.nbytes}"
                )
            kind = self._dtype if size == self._dtype.itemsize else np.dtype(f"V{size}")
        elif elemsize is not None:
            raise ValueError("elemsize is the size of an element of dims; give dims with it")
        self._owner = new_memory(dplace, geometry, kind, stream) if self.nbytes else None
        self._ptr = 0 if self._owner is None else int(self._owner.ptr)

    @staticmethod
    def from_host(host_array: Any, dplace: Any, stream: Any = None) -> DeviceArray:
        """Return a copy of an array at a place."""
        source = np.ascontiguousarray(host_array)
        made = DeviceArray(source.shape, source.dtype, dplace, stream)
        made.copy_to_device(source)
        return made

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self._dtype.itemsize

    @property
    def data_place(self) -> Any:
        """Where it lies."""
        return self._dplace

    @property
    def _on_device(self) -> bool:
        return is_on_cuda() and self._dplace._place.kind != "host"

    # -- parts of it -----------------------------------------------------------------------------------------------

    def _view(self, offset: int, shape: tuple[int, ...]) -> DeviceArray:
        view = object.__new__(DeviceArray)
        view._shape, view._dtype, view._dplace = shape, self._dtype, self._dplace
        view._stream, view._pointer, view._owner = self._stream, self._pointer, self._owner
        view._ptr = self._ptr + offset
        view._base = self if self._base is None else self._base
        return view

    def reshape(self, *shape: Any) -> DeviceArray:
        """Return the same memory with another shape; one extent may be -1."""
        given = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        wanted = [int(n) for n in given]
        if wanted.count(-1) > 1:
            raise ValueError("at most one dimension may be -1")
        if -1 in wanted:
            rest = math.prod(n for n in wanted if n != -1)
            if rest == 0 or self.size % rest:
                raise ValueError(f"cannot infer the dimension -1 of shape {tuple(wanted)} for {self.size} elements")
            wanted[wanted.index(-1)] = self.size // rest
        found = shape_of(tuple(wanted))
        if math.prod(found) != self.size:
            raise ValueError(f"shape {found} has {math.prod(found)} elements, and the array has {self.size}")
        return self._view(0, found)

    def __getitem__(self, key: Any) -> DeviceArray:
        if not isinstance(key, slice):
            raise TypeError(f"DeviceArray indices must be slices, not {type(key).__name__}")
        if self.ndim != 1:
            raise IndexError("an array of several axes is not sliced; use reshape(-1) first")
        start, stop, step = key.indices(self.size)
        if step != 1:
            raise IndexError(f"slices are contiguous (step 1), got step {step}")
        return self._view(start * self._dtype.itemsize, (max(0, stop - start),))

    # -- for other libraries -----------------------------------------------------------------------------------------

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._on_device:
            raise AttributeError("this memory is the host's, which has no CUDA array interface")
        return interface_of(self._ptr, self._shape, self._dtype, self._pointer)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._on_device:
            raise AttributeError("this memory is a device's; use copy_to_host()")
        return interface_of(self._ptr, self._shape, self._dtype, 0)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and the number of the device."""
        return (2, self._dplace.device_id) if self._on_device else (1, 0)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        """Return a capsule that keeps the memory alive.

        Raises
        ------
        BufferError
            A copy is asked for, another device, or DLPack does not know the dtype.
        """
        if copy:
            raise BufferError("the memory is shared, not copied; use copy_to_host()")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory lies at {self.__dlpack_device__()}, not at {tuple(dl_device)}")
        if self._on_device and stream is not None:
            if isinstance(stream, bool) or not isinstance(stream, int):
                raise TypeError(f"the stream of a consumer is its address as int, or None; got {stream!r}")
            if stream < -1:
                raise ValueError(f"the stream of a consumer is -1, 1, 2 or an address, got {stream}")
        if not self._on_device and self._dtype.fields is not None:
            raise BufferError(f"DLPack has no structured dtypes such as {self._dtype}")
        strides = c_strides(self._shape, self._dtype)
        raw = view_at(self._ptr, self._shape, strides, self._dtype, self._base or self, True)
        if not self._on_device:
            return raw.__dlpack__(stream=None, max_version=max_version)
        capsule = dlpack.capsule_of(raw, self._dtype, self.__dlpack_device__(), max_version)
        if stream != -1:  # what comes on it finds what is on the array's own stream now
            make_wait(self._pointer or dlpack.LEGACY_STREAM, stream or dlpack.LEGACY_STREAM)
        return capsule

    # -- copies ----------------------------------------------------------------------------------------------------

    def copy_to_host(self) -> np.ndarray[Any, Any]:
        """Return a copy as a NumPy array."""
        found = np.empty(self._shape, self._dtype)
        self._copy(found.ctypes.data, self._ptr)
        return found

    def copy_to_device(self, host_array: Any) -> None:
        """Copy an array of the same number of bytes here.

        Raises
        ------
        ValueError
            It has another number of bytes.
        """
        source = np.ascontiguousarray(host_array, dtype=self._dtype)
        if source.nbytes != self.nbytes:
            raise ValueError(
                f"source ({source.nbytes} bytes) does not match destination buffer ({self.nbytes} bytes); sizes must "
                "match exactly"
            )
        self._copy(self._ptr, source.ctypes.data)

    def _copy(self, target: int, source: int) -> None:
        if self.nbytes == 0:
            return
        if not self._on_device:
            import ctypes

            ctypes.memmove(target, source, self.nbytes)
            return
        from cuda.bindings import driver

        checked(driver.cuMemcpyAsync(target, source, self.nbytes, self._pointer))
        checked(driver.cuStreamSynchronize(self._pointer))

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self._shape}, dtype={self._dtype}, ptr={self._ptr:#x}, place={self._dplace.kind})"


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return one to four extents that are not negative."""
    if isinstance(shape, bool):
        raise TypeError("the shape of a DeviceArray is an int or a sequence of ints")
    found = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
    if not 1 <= len(found) <= MOST_AXES:
        raise ValueError(f"a DeviceArray has 1 to 4 dimensions, got {len(found)}")
    if any(n < 0 for n in found):
        raise ValueError(f"DeviceArray size must be non-negative, got {found}")
    return found
