"""Blocks of memory outside of any context: of a CUDA device, of several, or of the host; each frees itself."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from stf.devices.make import cuda_memory
from stf.errors import PlaceError

ALIGNMENT = 64  # of host memory, in bytes
DEVICE, PINNED, MANAGED = 0, 1, 2


class Block:
    """Memory that lives as long as something holds this.

    Attributes
    ----------
    address, nbytes : int
        Where it lies.
    ordinal : int
        The CUDA device that it is on, or by which it is freed; -1 for memory that is not CUDA's.
    is_device : bool
        The host cannot look at it.
    stream : int
        The CUDA stream in whose order it goes; 0 for none.
    """

    ordinal, is_device, stream = -1, False, 0
    owner_of_stream: Any = None

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes between addresses, of which one is in this memory, and wait for it."""
        import ctypes

        ctypes.memmove(target, source, nbytes)


class HostBlock(Block):
    """Memory of the host: NumPy's."""

    def __init__(self, nbytes: int) -> None:
        try:
            self.array = np.empty(max(nbytes, 1) + ALIGNMENT, np.uint8)
        except (ValueError, OverflowError) as error:  # larger than any memory
            raise MemoryError(str(error)) from None
        super().__init__(-(-self.array.ctypes.data // ALIGNMENT) * ALIGNMENT, nbytes)


class CudaBlock(Block):
    """Memory of a CUDA device, pinned memory, or managed memory."""

    def __init__(self, kind: int, ordinal: int, nbytes: int, stream: int) -> None:
        cuda = cuda_memory("blocks")
        super().__init__(with_room(lambda: cuda.allocate(kind, ordinal, nbytes, stream)), nbytes)
        self.kind, self.ordinal, self.stream, self.is_device = kind, ordinal, stream, kind == DEVICE
        self.free = cuda.free

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        cuda_memory("blocks").copy(self.ordinal, target, source, nbytes, stream)

    def __del__(self) -> None:
        if hasattr(self, "free"):
            self.free(self.kind, self.ordinal, self.address, self.stream)


class MappedBlock(Block):
    """Memory of several CUDA devices under one address: `runs` of pages, as for `Driver.reserve`."""

    is_device = True
    copy = CudaBlock.copy

    def __init__(self, ordinals: Sequence[int], page: int, runs: Sequence[tuple[int, int, int]], nbytes: int) -> None:
        self.settle = cuda_memory("blocks").settle  # a destructor may run when nothing can be imported any more
        virtual = cuda_memory("virtual")

        if not virtual.can_share(ordinals, page):
            raise PlaceError(
                f"the CUDA devices {sorted(set(ordinals))} cannot use each other's memory under one address; allocate "
                "at each of them, or partition data of a context"
            )
        self.mapping = with_room(lambda: virtual.reserve(page, ordinals, runs))
        self.used: list[int] = []
        super().__init__(self.mapping.address, nbytes)
        self.ordinal, self.ordinals = ordinals[0], sorted(set(ordinals))
        for place in range(len(ordinals)):
            self.used.append(place)
            with_room(lambda place=place: self.mapping.map(place))  # type: ignore[misc]

    def __del__(self) -> None:
        if not hasattr(self, "used"):
            return
        for ordinal in getattr(self, "ordinals", ()):
            self.settle(ordinal)
        for place in self.used:
            self.mapping.leave(place)


def with_room(allocate: Any) -> Any:
    """Return what `allocate()` returns; where memory is short, once more without the memory that is kept."""
    try:
        return allocate()
    except MemoryError:
        with contextlib.suppress(PlaceError):
            cuda_memory("virtual").free_spare()
        return allocate()
