"""Arrays of CUDA devices: views of replicas for CuPy, torch and Numba, and what users hand in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from stf.errors import PlaceError

LIBRARIES = ("cupy", "torch", "numba")


class DeviceMemory:
    """An array on a device, as ``__cuda_array_interface__`` tells it.

    The read-only flag is never set: torch and Numba refuse such arrays, or compile for them anew.
    """

    __slots__ = ("__cuda_array_interface__", "owner")

    def __init__(self, replica: Any) -> None:
        layout = replica.layout
        self.owner = replica.owner
        self.__cuda_array_interface__ = {
            "shape": layout.shape,
            "strides": None if is_c_packed(layout) else layout.strides,
            "typestr": layout.dtype.str,
            "descr": layout.dtype.descr,
            "data": (replica.address if layout.nbytes else 0, False),
            "version": 2,
        }


def is_c_packed(layout: Any) -> bool:
    """Whether an array lies without gaps, in C order."""
    step = layout.itemsize
    for n, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if n > 1 and stride != step:
            return False
        step *= max(n, 1)
    return True


def device_view(replica: Any, lib: str | None, ordinal: int) -> Any:
    """The array of a replica on CUDA device `ordinal`, in library `lib` (CuPy if None)."""
    library = lib or "cupy"
    views = replica.views
    if views is None:
        views = replica.views = {}
    view = views.get(library)
    if view is None:
        view = views[library] = make_view(replica, library, ordinal)
    return view


def make_view(replica: Any, library: str, ordinal: int) -> Any:
    from stf.interop.adapters import check_library, import_library

    if replica.layout.interface is not None:
        return replica.layout.interface.view(replica.instance)
    if library == "numpy":
        raise PlaceError(
            f"NumPy arrays live in host memory and this task runs on device({ordinal}); use CuPy, torch or Numba "
            "arrays here, or run it with exec_place.host()"
        )
    check_library(library)
    module = import_library(library)
    if library == "cupy":
        return cupy_view(module, replica, ordinal)
    if library == "torch":
        return module.as_tensor(DeviceMemory(replica), device=f"cuda:{ordinal}")
    return import_library("numba.cuda").from_cuda_array_interface(
        DeviceMemory(replica).__cuda_array_interface__, owner=replica.owner, sync=False
    )


def cupy_view(cupy: Any, replica: Any, ordinal: int) -> Any:
    """A CuPy array over the memory of a replica; strides of either sign."""
    layout = replica.layout
    low = sum((n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True) if step < 0 and n)
    extent = -low + sum((n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True) if step > 0 and n)
    memory = cupy.cuda.UnownedMemory(replica.address + low, extent + layout.itemsize, replica.owner, ordinal)
    return cupy.ndarray(layout.shape, layout.dtype, cupy.cuda.MemoryPointer(memory, -low), layout.strides)


# -- what users hand in --------------------------------------------------------------------------------------------


def describe_device_array(obj: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any], bool, int | None]:
    """(address, shape, strides, dtype, read-only, producer's stream) of an object with ``__cuda_array_interface__``.

    The stream is an address, 1 for CUDA's legacy default stream, 2 for the per-thread one; None where there is
    nothing to wait for.
    """
    source = obj.detach() if is_torch(obj) else obj
    interface = source.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    if dtype.kind == "V" and len(interface.get("descr") or ()) > 1:
        dtype = np.dtype(interface["descr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = tuple(dtype.itemsize * int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    address, readonly = interface["data"]
    if interface.get("mask") is not None:
        raise TypeError(f"{type(obj).__name__} has a mask, which logical data cannot have; fill it first")
    return address, shape, tuple(strides), dtype, bool(readonly), producer_stream(obj, interface)


def is_torch(obj: Any) -> bool:
    return type(obj).__module__.partition(".")[0] == "torch"


def current_stream(library: str, ordinal: int) -> int:
    """The address of the caller's current stream in a library; 0 is CUDA's default stream."""
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)
    return 0


def copied(array: Any, library: str) -> Any:
    """A copy of a device array, made on the caller's current stream."""
    if library == "torch":
        return array.clone()
    if library == "cupy":
        return array.copy()
    from stf.interop.adapters import import_library

    target = import_library("numba.cuda").device_array_like(array)
    target.copy_to_device(array)
    return target


def producer_stream(obj: Any, interface: dict[str, Any]) -> int | None:
    """The stream on which an array's content is being made."""
    stream = interface.get("stream")
    if stream is not None:
        return int(stream)
    if is_torch(obj):
        torch = sys.modules["torch"]
        return int(torch.cuda.current_stream(obj.device).cuda_stream) or 1
    return None
