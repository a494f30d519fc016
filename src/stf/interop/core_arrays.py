"""Memory of ``cuda.core``: its Buffer and its StridedMemoryView, handed in as arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stf.errors import PlaceError
from stf.interop.known_arrays import LEGACY_STREAM, Memory, describe_numpy, must_have_cuda
from stf.interop.libraries import Describer, Library
from stf.interop.memory import c_strides, view_at

BYTE = np.dtype(np.uint8)


class Core(Library):
    """Memory of cuda.core; `describe` describes any array."""

    def __init__(self, describe: Describer) -> None:
        self.describe = describe

    def describer_of(self, kind: type) -> Describer | None:
        if not kind.__module__.startswith("cuda.core"):
            return None
        if kind.__name__ == "StridedMemoryView":
            return functools.partial(describe_view, self.describe)
        return describe_buffer if kind.__name__ == "Buffer" else None


def describe_buffer(obj: Any, on_cuda: bool) -> Memory:
    """Return the bytes of a ``cuda.core.Buffer``; it tells no stream, so it comes after the default one."""
    if obj.is_host_accessible:
        return describe_numpy(view_at(int(obj.handle), (obj.size,), (1,), BYTE, obj, True), on_cuda)
    must_have_cuda(obj, on_cuda)
    return Memory(int(obj.handle), (obj.size,), (1,), BYTE, False, obj, True, LEGACY_STREAM)


def describe_view(describe: Describer, obj: Any, on_cuda: bool) -> Memory:
    """Return the memory of a ``StridedMemoryView``; its content is being made where that of the viewed object is."""
    dtype = obj.dtype
    if dtype is None:
        raise TypeError("this StridedMemoryView has no dtype; give it one with view.view(dtype=...)")
    shape = tuple(obj.shape)
    counts = obj.strides
    strides = c_strides(shape, dtype) if counts is None else tuple([n * dtype.itemsize for n in counts])
    readonly = bool(obj.readonly)
    if not obj.is_device_accessible or obj.device_id < 0:
        return describe_numpy(view_at(int(obj.ptr), shape, strides, dtype, obj, not readonly), on_cuda)
    must_have_cuda(obj, on_cuda)
    return Memory(
        int(obj.ptr), shape, strides, dtype, readonly, obj, True, stream_of(describe, obj.exporting_obj, on_cuda)
    )


def stream_of(describe: Describer, obj: Any, on_cuda: bool) -> Any:
    """Return where the content of an object is being made, if it tells."""
    try:
        return describe(obj, on_cuda).stream
    except (TypeError, PlaceError):
        return None
