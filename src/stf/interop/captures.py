"""Memory that bodies allocate while they are recorded: it belongs to the graph, since each launch uses it again."""

from __future__ import annotations

import sys
from typing import Any

# Torch's pools by device, for later recordings: while anything is captured into a pool, torch ends the process if
# another one is destroyed (``captures_underway.empty()`` in its CUDACachingAllocator.cpp), and graphs go at any time.
spare_pools: dict[int, list[Any]] = {}


class PrivatePools:
    """Pools of CuPy's and torch's for one recording; a with-block puts them in place of the common ones.

    What a body allocates is at the same addresses in every launch. Freed while it is recorded, it is given to later
    bodies of the same recording alone, which come after it, or not: so nothing is given back before all is recorded.
    """

    def __init__(self) -> None:
        self._pools: list[tuple[int, Any]] = []  # of torch's, by device
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
            self._pools.append((device, pool))
            manager = torch.cuda.use_mem_pool(pool)
            manager.__enter__()
            self._entered.append(manager)
        return self

    def __del__(self) -> None:
        for device, pool in self._pools:
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
