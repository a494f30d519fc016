"""Memory that bodies allocate while they are recorded: it belongs to the graph, since each launch uses it again."""

from __future__ import annotations

import sys
from typing import Any


class PrivatePools:
    """Pools of CuPy's and torch's for one recording; a with-block puts them in place of the common ones.

    What a body allocates is at the same addresses in every launch. Freed while it is recorded, it is given to later
    bodies of the same recording alone, which come after it, or not: so nothing is given back before all is recorded.
    """

    def __init__(self) -> None:
        self._pools: list[Any] = []
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
            pool = torch.cuda.MemPool()
            self._pools.append(pool)
            manager = torch.cuda.use_mem_pool(pool)
            manager.__enter__()
            self._entered.append(manager)
        return self

    def __exit__(self, *exception: Any) -> None:
        while self._entered:
            self._entered.pop().__exit__(None, None, None)

    def _allocate_cupy(self, size: int) -> Any:
        """Memory of CuPy's own pool that stays allocated as long as the graph lives."""
        import cupy

        block = cupy.get_default_memory_pool().malloc(size)
        self._blocks.append(block)
        return block
