"""Memory that bodies allocate while they are recorded: it belongs to the graph, since each launch uses it again."""

from __future__ import annotations

import sys
from typing import Any

# Torch's pools by device, for later recordings: while anything is captured into a pool, torch ends the process if
# another one is destroyed (``captures_underway.empty()`` in its CUDACachingAllocator.cpp), and graphs go at any time.
spare_pools: dict[int, list[Any]] = {}


class PrivatePools:
    """Pools of CuPy's and torch's for one recorded body; a with-block puts them in place of the common ones.

    What a body allocates is at the same addresses in every launch, and other bodies may run beside it there: so nothing
    is given back as long as the graph keeps these pools. Bodies of several threads each have their own.
    """

    __slots__ = ("_blocks", "_entered", "_torch")

    def __init__(self) -> None:
        self._torch: tuple[int, Any] | None = None  # the device and torch's pool
        self._blocks: list[Any] = []
        self._entered: list[Any] = []

    def __enter__(self) -> PrivatePools:
        cupy = sys.modules.get("cupy")
        if cupy is not None and hasattr(cupy.cuda, "using_allocator"):
            manager = cupy.cuda.using_allocator(self._allocate_cupy)
            manager.__enter__()
            self._entered.append(manager)
        torch = sys.modules.get("torch")
        if torch is not None and getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
            device = torch.cuda.current_device()
            try:
                pool = spare_pools[device].pop()
            except (KeyError, IndexError):
                pool = torch.cuda.MemPool()
            self._torch = (device, pool)
            manager = torch.cuda.use_mem_pool(pool)
            manager.__enter__()
            self._entered.append(manager)
        return self

    def __del__(self) -> None:
        if self._torch is not None:
            device, pool = self._torch
            spare_pools.setdefault(device, []).append(pool)

    def __exit__(self, *exception: Any) -> None:
        while self._entered:
            self._entered.pop().__exit__(None, None, None)

    def _allocate_cupy(self, size: int) -> Any:
        """Memory of CuPy's own pool that stays allocated as long as the graph lives."""
        import cupy

        block = cupy.get_default_memory_pool().malloc(size)
        self._blocks.append(block)
        return block
