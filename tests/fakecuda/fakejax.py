"""A stand-in for the part of JAX that stf uses, over the stand-in for CuPy: arrays on a stream of their own.

What is computed goes on that stream, which waits for others, and lets others wait, only by DLPack. Memory that nobody
holds goes back at once and is overwritten, as JAX's allocator may give it to the next result.
"""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import cupy

from stf.interop import cuda_arrays, dlpack
from stf.interop.memory import view_at

CUDA = (dlpack.CUDA, 0)
stream = None


def work() -> Any:
    """Return JAX's stream, made when it is first used."""
    global stream
    if stream is None:
        with cupy.cuda.Device(0):
            stream = cupy.cuda.Stream(non_blocking=True)
    return stream


class Array:
    """An array of JAX."""

    def __init__(self, value: Any, owner: Any = None) -> None:
        self.value, self.owner = value, owner
        self.shape, self.dtype, self.ndim = value.shape, value.dtype, value.ndim

    def __add__(self, other: Any) -> Array:
        return computed(lambda x, y: x + y, self, other)

    def __mul__(self, other: Any) -> Array:
        return computed(lambda x, y: x * y, self, other)

    def reshape(self, shape: Any) -> Array:
        return Array(self.value.reshape(shape), self)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        cuda_arrays.make_wait(work().ptr, stream)
        raw = view_at(self.value.data.ptr, self.shape, self.value.strides, self.dtype, self, True)
        return dlpack.capsule_of(raw, self.dtype, CUDA, max_version)

    def __del__(self) -> None:
        if self.owner is None and not sys.is_finalizing():
            self.value._host[...] = -77  # at once, as a later result on JAX's stream would be


def computed(function: Any, *arrays: Any) -> Array:
    """Compute on JAX's stream."""
    with cupy.cuda.Device(0), work():
        return Array(function(*[x.value if isinstance(x, Array) else x for x in arrays]))


def from_dlpack(memory: Any) -> Array:
    """Return an array in the same memory."""
    found = dlpack.described(memory.__dlpack__(stream=work().ptr, max_version=dlpack.VERSION))
    nbytes = found.dtype.itemsize * max(1, math.prod(found.shape))
    pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(found.address, nbytes, memory, 0), 0)
    return Array(cupy.ndarray(found.shape, found.dtype, pointer, found.strides), found)


def array(value: Array, copy: bool = True) -> Array:
    return computed(lambda x: x.copy(), value)


def broadcast_to(value: Array, shape: Any) -> Array:
    return computed(lambda x: cupy.broadcast_to(x, shape).copy(), value)


def asarray(value: Any, dtype: Any) -> Array:
    return value if isinstance(value, Array) else computed(lambda: cupy.full((), value, dtype))


def local_devices(backend: str) -> list[Any]:
    return [types.SimpleNamespace(local_hardware_id=0)]


def device_put(value: Array, device: Any) -> Array:
    return value


def install() -> None:
    """Let it be JAX in this process."""
    jax: Any = types.ModuleType("jax")
    jax.numpy, jax.dlpack = types.ModuleType("jax.numpy"), types.ModuleType("jax.dlpack")
    jax.local_devices, jax.device_put = local_devices, device_put
    jax.numpy.array, jax.numpy.asarray, jax.numpy.broadcast_to = array, asarray, broadcast_to
    jax.dlpack.from_dlpack = from_dlpack
    sys.modules.update({"jax": jax, "jax.numpy": jax.numpy, "jax.dlpack": jax.dlpack})
