"""A stand-in for the part of CuPy that stf and its tests use, over the stand-in for CUDA's driver library.

An operation waits for the current stream and then works on the "device" memory, which is the host's: so it is ordered
as a kernel would be, and a wait that is missing before or after it shows (``FAKECUDA_SEED``). On a stream that is
captured it becomes a kernel of the graph. It refuses what CuPy
refuses: conversion to NumPy that is not asked for, NumPy arrays among its operands, element types that it has no
kernels for, arrays of devices out of reach.
"""

from __future__ import annotations

import builtins  # this module has an `all` and an `any` of its own
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import cuda

__version__ = "14.0.0"
KERNEL_TYPES = "?bhilqBHILQefdFD"
COMPARISONS = numpy.greater, numpy.greater_equal, numpy.less, numpy.less_equal, numpy.equal, numpy.not_equal


class Flags:
    """What is known of an array's layout; there is no ``writeable``."""

    def __init__(self, host: Any) -> None:
        self.c_contiguous, self.f_contiguous = host.flags.c_contiguous, host.flags.f_contiguous
        self.fnc = self.f_contiguous and not self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        return getattr(self, name.lower())


class ndarray(NDArrayOperatorsMixin):
    """An array on a device."""

    __slots__ = ("__weakref__", "_host", "data")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"):
        dtype = numpy.dtype(dtype)
        if dtype.hasobject:
            raise ValueError(f"Unsupported dtype {dtype}")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = dtype.itemsize * int(numpy.prod(shape, dtype=int))
        self.data = memptr if memptr is not None else cuda.alloc(nbytes)
        if not nbytes:
            self._host = numpy.ndarray(shape, dtype, strides=strides, order=order)
            return
        mem = self.data.mem
        buffer = (ctypes.c_char * mem.size).from_address(mem.ptr)
        self._host = numpy.ndarray(shape, dtype, buffer, self.data.ptr - mem.ptr, strides, order)

    # -- what it is ------------------------------------------------------------------------------------------------

    shape = property(lambda self: self._host.shape)
    strides = property(lambda self: self._host.strides)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    flags = property(lambda self: Flags(self._host))
    device = property(lambda self: cuda.Device(self.data.device_id))
    T = property(lambda self: self._view(self._host.T))
    real = property(lambda self: self._view(self._host.real))
    imag = property(lambda self: self._view(self._host.imag))
    flat = property(lambda self: iter(self.ravel()))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": None if self.flags.c_contiguous else self.strides,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.data.ptr if self.size else 0, False),
            "stream": cuda.get_current_stream().ptr or 1,
            "version": 3,
        }

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[ndarray]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # -- to and from the host --------------------------------------------------------------------------------------

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        """A NumPy copy, made on the current stream of the array's device."""
        with self.device:
            cuda._refuse_while_capturing("D2H")
            cuda._ready([self])
        return self._host.copy(order) if out is None else numpy.copyto(out, self._host)

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy a NumPy array of the same shape and type in."""
        if not isinstance(arr, numpy.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        with self.device:
            cuda._refuse_while_capturing("H2D")
            cuda._ready([self])
        self._host[...] = arr

    def tolist(self) -> Any:
        return self.get().tolist()

    def item(self, *args: Any) -> Any:
        return self.get().item(*args)

    def tobytes(self, order: str = "C") -> bytes:
        return self.get().tobytes(order)

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, text: str) -> str:
        return format(self.get(), text)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _view(self, host: Any) -> ndarray:
        """Another array in the same memory."""
        view = ndarray.__new__(ndarray)
        view._host = host
        offset = host.__array_interface__["data"][0] - self.data.mem.ptr if host.nbytes else 0
        view.data = cuda.MemoryPointer(self.data.mem, offset)
        return view

    def __getitem__(self, index: Any) -> ndarray:
        basic, host_index = to_host_index(index)
        if basic:
            if not builtins.any(part is Ellipsis for part in host_index):
                host_index = (*host_index, ...)
            return self._view(self._host[host_index])
        cuda._ready([self])
        return moved(self._host[host_index])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, numpy.ndarray):
            if value.shape != ():
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            value = value.item()
        operands = [self]
        host_value, host_index = to_host(value, operands), to_host_index(index)[1]

        def work() -> None:
            self._host[host_index] = host_value

        cuda._put(operands, work)

    def fill(self, value: Any) -> None:
        self[...] = value

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        host = self._host.reshape(*shape, order=order)
        return self._view(host) if numpy.shares_memory(host, self._host) or not host.size else computed("copy", host)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def view(self, dtype: Any = None) -> ndarray:
        return self._view(self._host.view(self.dtype if dtype is None else dtype))

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self._host.transpose(*axes))

    def swapaxes(self, a: int, b: int) -> ndarray:
        return self._view(self._host.swapaxes(a, b))

    def squeeze(self, axis: Any = None) -> ndarray:
        return self._view(self._host.squeeze(axis))

    def diagonal(self, *args: Any) -> ndarray:
        return self._view(self._host.diagonal(*args))

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        if ufunc in COMPARISONS:  # NumPy's scalars come as arrays here
            inputs = tuple(x.item() if isinstance(x, numpy.ndarray) and not x.ndim else x for x in inputs)
        return computed(ufunc, *inputs, out=out[0] if out is not None else None, **options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = globals().get(func.__name__) if func.__module__ == "numpy" else None
        own = own or (getattr(linalg, func.__name__, None) if func.__module__ == "numpy.linalg" else None)
        return NotImplemented if own is None else own(*args, **kwargs)


def to_host_index(index: Any) -> tuple[bool, tuple[Any, ...]]:
    """Whether an index makes a view, and the index for the host's array."""
    parts = index if isinstance(index, tuple) else (index,)
    basic = builtins.all(
        part is None or part is Ellipsis or isinstance(part, (slice, int, numpy.integer)) for part in parts
    ) and not builtins.any(isinstance(part, bool) for part in parts)
    return basic, tuple(part.get() if isinstance(part, ndarray) else part for part in parts)


def to_host(value: Any, operands: list[Any]) -> Any:
    """An operand as NumPy sees it; those on a device are noted. What CuPy has no kernel for is refused."""
    if isinstance(value, ndarray):
        if value.dtype.char not in KERNEL_TYPES or not value.dtype.isnative:
            raise TypeError(f"Unsupported dtype {value.dtype}")
        operands.append(value)
        return value._host
    if issubclass(type(value), (bool, int, float, complex, numpy.generic)):  # CuPy asks no object what it says it is
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def to_host_in(value: Any, operands: list[Any]) -> Any:
    """The same for an argument of a function, which may be a sequence of arrays, an axis or a name."""
    if isinstance(value, (list, tuple)) and builtins.any(isinstance(v, (ndarray, numpy.ndarray)) for v in value):
        return type(value)([to_host(v, operands) for v in value])
    if isinstance(value, (ndarray, numpy.ndarray)):
        return to_host(value, operands)
    return value


def moved(host: Any) -> Any:
    """A result of NumPy's in memory of the device's; of several, each."""
    if isinstance(host, tuple):
        return tuple(moved(part) for part in host)
    if not isinstance(host, (numpy.ndarray, numpy.generic)):
        return host
    host = numpy.asarray(host)
    result = ndarray(host.shape, host.dtype, order="F" if host.flags.fnc else "C")
    result._host[...] = host
    return result


def computed(function: Any, *args: Any, out: Any = None, **kwargs: Any) -> Any:
    """Call NumPy's function, or the method of that name, on the memory of arrays; its result is on the device."""
    operands: list[Any] = []
    host_args = [to_host(a, operands) if isinstance(function, numpy.ufunc) else to_host_in(a, operands) for a in args]
    host_kwargs = {name: to_host_in(value, operands) for name, value in kwargs.items()}
    if out is not None:
        if not isinstance(out, ndarray):
            raise TypeError("return arrays must be of ArrayType")
        host_kwargs["out"] = to_host(out, operands)
    if isinstance(function, str):
        function = getattr(numpy.ndarray, function)
    if not cuda._is_capturing():
        cuda._ready(operands)
        result = function(*host_args, **host_kwargs)
        return out if out is not None else moved(result)
    if out is not None:
        cuda._put(operands, lambda: function(*host_args, **host_kwargs))
        return out
    with numpy.errstate(all="ignore"):  # of whatever lies there now: the shape and the type count
        result = moved(function(*host_args, **host_kwargs))
    if not isinstance(result, ndarray):
        raise cuda.CUDARuntimeError("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: the stand-in captures single results")

    target = result._host  # an address, as kernels have it: who replays keeps the memory

    def work() -> None:
        target[...] = function(*host_args, **host_kwargs)

    cuda._put(operands, work)
    return result


# -- methods and functions -----------------------------------------------------------------------------------------


def method(name: str) -> Callable[..., Any]:
    def call(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        return computed(name, self, *args, **kwargs)

    call.__name__ = name
    return call


def function(numpys: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return computed(numpys, *args, **kwargs)

    call.__name__ = numpys.__name__
    return call


METHODS = """all any argmax argmin astype clip conj copy cumprod cumsum dot flatten max mean min nonzero prod ptp repeat
round std sum take trace var"""
FUNCTIONS = """all any argmax argmin argsort array_equal broadcast_to clip concatenate copy cumsum diag dot einsum
expand_dims flip linspace eye nan_to_num tensordot trapezoid max mean min minimum nonzero outer prod ravel reshape roll sort stack
std sum tril triu transpose var vdot where zeros_like ones_like empty_like full_like tile repeat"""
CONSTANTS = """bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 dtype
inf nan newaxis pi"""
UFUNCS = [name for name, value in vars(numpy).items() if isinstance(value, numpy.ufunc)]

for _name in METHODS.split():
    if hasattr(numpy.ndarray, _name):
        setattr(ndarray, _name, method(_name))
for _name in {*FUNCTIONS.split(), *UFUNCS}:
    globals()[_name] = function(getattr(numpy, _name))
for _name in CONSTANTS.split():
    globals()[_name] = getattr(numpy, _name)


class linalg:
    """Linear algebra."""

    cholesky = staticmethod(function(numpy.linalg.cholesky))
    norm = staticmethod(function(numpy.linalg.norm))
    solve = staticmethod(function(numpy.linalg.solve))


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> ndarray:
    return made(numpy.full(shape, fill_value, dtype))


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return made(numpy.zeros(shape, dtype, order))


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return made(numpy.ones(shape, dtype))


def arange(*args: Any, **kwargs: Any) -> ndarray:
    return made(numpy.arange(*args, **kwargs))


def made(host: Any) -> ndarray:
    result = ndarray(host.shape, host.dtype, order="F" if host.flags.fnc else "C")

    def work() -> None:
        result._host[...] = host

    cuda._put([], work)
    return result


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K") -> ndarray:
    """An array on the current device; NumPy's are copied there, since that is asked for."""
    if isinstance(obj, ndarray):
        return obj.copy() if dtype is None else obj.astype(dtype)
    return made(numpy.array(obj, dtype, order=order))


def asarray(obj: Any, dtype: Any = None, order: str = "K") -> ndarray:
    if isinstance(obj, ndarray) and (dtype is None or obj.dtype == dtype):
        return obj
    return array(obj, dtype, order=order)


def ascontiguousarray(obj: Any, dtype: Any = None) -> ndarray:
    obj = asarray(obj, dtype)
    return obj if obj.flags.c_contiguous else moved(numpy.ascontiguousarray(obj.get()))


def asfortranarray(obj: Any, dtype: Any = None) -> ndarray:
    obj = asarray(obj, dtype)
    return obj if obj.flags.f_contiguous else moved(numpy.asfortranarray(obj.get()))


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """A NumPy copy of an array on a device; what is on the host as NumPy's."""
    return a.get(order=order) if isinstance(a, ndarray) else numpy.asarray(a)


def get_array_module(*args: Any) -> Any:
    import cupy

    return cupy if builtins.any(isinstance(a, ndarray) for a in args) else numpy


def get_default_memory_pool() -> Any:
    return cuda._pool


def may_share_memory(a: ndarray, b: ndarray) -> bool:
    return numpy.may_share_memory(a._host, b._host)


shares_memory = may_share_memory
