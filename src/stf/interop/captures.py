"""Memory that bodies allocate while they are recorded: it belongs to the graph, since each launch uses it again."""

from __future__ import annotations

import sys
import threading

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

modules: dict = sys.modules

# Torch's pools by device, for later recordings: while anything is captured into a pool, torch ends the process if
# another one is destroyed (``captures_underway.empty()`` in its CUDACachingAllocator.cpp), and graphs go at any time.
spare_pools: dict = {}


_thread = threading.local()  # its `entered` pools, the last of which CuPy allocates from; what CuPy had, `saved`


def take_over(cupy):
    """Let CuPy allocate from pools in this thread; return what gives it back.

    These functions are those that ``cupy.cuda.using_allocator`` calls, which takes longer than a task.
    """
    memory = getattr(cupy.cuda, "memory", None)
    put = getattr(memory, "_set_thread_local_allocator", None)
    if put is None:
        manager = cupy.cuda.using_allocator(_allocate_cupy)
        manager.__enter__()
        return manager.__exit__, (None, None, None)
    before = memory._get_thread_local_allocator()
    put(_allocate_cupy)
    return put, (before,)


def hand_back(saved):
    """Let CuPy allocate as before."""
    if saved is not None:
        saved[0](*saved[1])
    return 0


def are_needed():
    """Whether a library is loaded whose arrays may need memory."""
    return "cupy" in modules or "torch" in modules


@cython.cclass
class PrivatePools:
    """Pools of CuPy's and torch's for one recorded body; a with-block puts them in place of the common ones.

    They add themselves to `kept`, a list, when they have memory.

    What a body allocates is at the same addresses in every launch, and other bodies may run beside it there: so nothing
    is given back as long as the graph keeps these pools. Bodies of several threads each have their own; those that are
    open in one thread at a time, too.
    """

    def __init__(self, kept=None):
        self._kept = kept
        self._torch = self._torch_manager = self._blocks = None
        self.is_open = False

    def __enter__(self):
        entered = vars(_thread).setdefault("entered", [])
        cupy = modules.get("cupy")
        if not entered and cupy is not None and hasattr(cupy.cuda, "using_allocator"):
            _thread.saved = take_over(cupy)
        entered.append(self)
        self.is_open = True
        torch = modules.get("torch")
        if torch is not None and getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
            device = torch.cuda.current_device()
            try:
                pool = spare_pools[device].pop()
            except (KeyError, IndexError):
                pool = torch.cuda.MemPool()
            self._torch = (device, pool)
            self._keep()
            self._torch_manager = torch.cuda.use_mem_pool(pool)
            self._torch_manager.__enter__()
        return self

    def renew(self):
        """Another body came between: CuPy allocates from these again."""
        entered = vars(_thread).get("entered", [])
        if self in entered:
            entered.remove(self)
            entered.append(self)

    def __del__(self):
        if self._torch is not None:
            device, pool = self._torch
            spare_pools.setdefault(device, []).append(pool)

    def __exit__(self, kind, error, trace):
        manager, self._torch_manager = self._torch_manager, None
        if manager is not None:
            manager.__exit__(None, None, None)
        self.is_open = False
        entered = vars(_thread).get("entered", [])
        if self in entered:  # else they were opened by another thread
            entered.remove(self)
        if not entered:
            hand_back(vars(_thread).pop("saved", None))

    def allocate_cupy(self, size):
        """Memory of CuPy's own pool that stays allocated as long as the graph lives."""
        import cupy

        block = cupy.get_default_memory_pool().malloc(size)
        if self._blocks is None:
            self._blocks = []
        self._blocks.append(block)
        self._keep()
        return block

    def _keep(self):
        """Let the graph keep these, which have memory now."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.append(self)
        return 0


def _allocate_cupy(size):
    import cupy

    entered = _thread.entered
    while entered and not entered[len(entered) - 1].is_open:  # closed by another thread
        entered.pop()
    if entered:
        return entered[len(entered) - 1].allocate_cupy(size)
    hand_back(vars(_thread).pop("saved"))
    return cupy.cuda.alloc(size)
