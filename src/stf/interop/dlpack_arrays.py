"""Arrays that are handed in by DLPack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stf.errors import PlaceError
from stf.interop import dlpack
from stf.interop.known_arrays import Memory, describe_numpy
from stf.interop.memory import view_at


def describe_dlpack(obj: Any, on_cuda: bool, no_stream: Any = -1) -> Memory:
    """Return the memory of an object that speaks DLPack; `no_stream` asks it to make no stream wait.

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
