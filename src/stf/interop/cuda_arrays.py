"""Memory of CUDA devices for any library, by the array interface and DLPack: out of stf, and what users hand in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from operator import index
from typing import Any

import numpy as np

from stf.errors import DriverError
from stf.interop import dlpack
from stf.interop.dtypes import carrier, is_narrow
from stf.interop.known_arrays import Memory
from stf.interop.memory import c_strides, view_at

# -- out -------------------------------------------------------------------------------------------------------------


class DeviceMemory:
    """An array on a device for libraries that we do not know: ``__cuda_array_interface__`` and DLPack.

    The read-only flag is never set: torch and Numba refuse such arrays, or compile for them anew. The array interface
    tells no stream, since CuPy and Numba make the host wait for one that they are told; the content is ordered on the
    task's stream. DLPack makes any stream that its caller names wait for that.
    """

    __slots__ = ("__cuda_array_interface__", "device", "dtype", "layout", "owner", "stream")

    def __init__(
        self, replica: Any, device: tuple[int, int], stream: int | None, dtype: np.dtype[Any] | None = None
    ) -> None:
        layout = replica.layout
        self.layout = layout
        self.owner = replica.owner
        self.device = device
        self.stream = stream
        self.dtype = dtype = layout.dtype if dtype is None else dtype
        self.__cuda_array_interface__ = {
            "shape": layout.shape,
            "strides": None if is_c_packed(layout) else layout.strides,
            "typestr": carrier(dtype).str,
            "descr": carrier(dtype).descr,
            "data": (replica.address if layout.nbytes else 0, False),
            "version": 3,
            "stream": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's kind of device and its number."""
        return self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule; what comes on `stream` after this call finds the content (None is the default stream).

        Raises
        ------
        BufferError
            A copy or another device is asked for, or DLPack does not know the element type.
        """
        if self.stream is None and stream != -1:
            raise BufferError("what is recorded has no stream, and no content yet; pass its address to the kernels")
        if copy or (dl_device is not None and tuple(dl_device) != self.device):
            raise BufferError(f"stf gives its own memory on device {self.device}, and neither copies nor moves it")
        layout = self.layout
        address = self.__cuda_array_interface__["data"][0]
        raw = view_at(address, layout.shape, layout.strides, carrier(self.dtype), self.owner, True)
        capsule = dlpack.capsule_of(raw, self.dtype, self.device, max_version)
        if stream != -1 and self.stream is not None:
            make_wait(self.stream, stream or dlpack.LEGACY_STREAM)
        return capsule


def device_memory(replica: Any, ordinal: int, stream: int | None) -> DeviceMemory:
    """Return a replica for libraries that we do not know, made once; its content is ordered on `stream` from now on."""
    views = replica.views
    if views is None:
        views = replica.views = {}
    memory = views.get("memory")
    device = (dlpack.CUDA, ordinal) if replica.place else (dlpack.CUDA_HOST, 0)
    if memory is None:
        memory = views["memory"] = DeviceMemory(replica, device, stream)
    memory.stream, memory.device = stream, device
    return memory


def make_wait(stream: int, other: int) -> None:
    """Make what comes on the stream `other` start after what is on `stream` now; both by address."""
    if stream == other:
        return
    from cuda.bindings import driver

    with context_of(stream):
        code, event = driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        if not code:
            try:
                (code,) = driver.cuEventRecord(event, stream)
                if not code:
                    (code,) = driver.cuStreamWaitEvent(other, event, 0)
            finally:
                driver.cuEventDestroy(event)  # which CUDA does when it is done
    if code:
        raise DriverError(code.name, int(code), "cuStreamWaitEvent", f"stream {other:#x}")


@contextlib.contextmanager
def context_of(stream: int) -> Iterator[None]:
    """Let the context of a stream be current: a body may have made another one so, or a library that it loads."""
    from cuda.bindings import driver

    code, before = driver.cuCtxGetCurrent()
    context = before
    if not code and stream > dlpack.PER_THREAD_STREAM:  # the default streams are of any
        code, context, *_ = driver.cuStreamGetCtx(stream)
    if not code:
        (code,) = driver.cuCtxSetCurrent(context)
    if code:
        raise DriverError(code.name, int(code), "cuStreamGetCtx", f"stream {stream:#x}")
    try:
        yield
    finally:
        driver.cuCtxSetCurrent(before)


def is_c_packed(layout: Any) -> bool:
    """Return whether an array lies without gaps, in C order."""
    packed = c_strides(layout.shape, layout.dtype)
    return all([n <= 1 or mine == step for n, mine, step in zip(layout.shape, layout.strides, packed, strict=True)])


# -- what users hand in ----------------------------------------------------------------------------------------------


def describe_device_array(obj: Any) -> Memory:
    """Return the memory of an object with ``__cuda_array_interface__``, as that tells it.

    The stream is an address, 1 for CUDA's legacy default stream, 2 for the per-thread one; None where there is
    nothing to wait for.
    """
    interface = obj.__cuda_array_interface__
    try:
        is_masked = interface.get("mask") is not None
        shape, strides = tuple(map(index, interface["shape"])), interface.get("strides")
        steps = None if strides is None else tuple(map(index, strides))
        np.dtype(interface["typestr"])
        (address, readonly), stream = interface["data"], interface.get("stream")
        address, stream = index(address), None if stream is None else int(stream)
        if not 0 <= address < 1 << 64:
            raise ValueError(f"{address} is no address")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TypeError(
            f"{type(obj).__name__} has a __cuda_array_interface__ that cannot be read ({error!r}), got {interface!r}; "
            "it is a dict with shape, typestr, data as (address, is_readonly), and version"
        ) from None
    if is_masked:
        raise TypeError(f"{type(obj).__name__} has a mask, which logical data cannot have; fill it first")
    dtype = declared_dtype(obj, interface)
    steps = c_strides(shape, dtype) if steps is None else steps
    if len(steps) != len(shape) or min(shape, default=0) < 0:
        raise ValueError(
            f"{type(obj).__name__} tells {len(shape)} extents and {len(steps)} strides, got {shape} and {steps}; one "
            "each is needed, and no extent is negative"
        )
    return Memory(address, shape, steps, dtype, bool(readonly), obj, True, stream)


def declared_dtype(obj: Any, interface: Any) -> np.dtype[Any]:
    """The dtype of an object with an array interface, whose ``typestr`` says of records, and of bfloat16, the size."""
    dtype, own = np.dtype(interface["typestr"]), getattr(obj, "dtype", None)
    if dtype.hasobject:
        raise TypeError(f"logical data needs plain elements, and {type(obj).__name__} has Python objects (|O)")
    if isinstance(own, np.dtype) and own.itemsize == dtype.itemsize and (dtype.kind == "V" or is_narrow(own)):
        return own
    if dtype.kind != "V":
        return dtype
    fields = list(interface.get("descr") or ())
    found = np.lib.format.descr_to_dtype(fields) if any(field[0] for field in fields) else dtype
    return found if found.itemsize == dtype.itemsize else dtype
