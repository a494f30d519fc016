"""Memory that bodies allocate while they are recorded: it belongs to the graph, since each launch uses it again.

Compiled: every recorded body that asks for its stream passes here.
"""

from __future__ import annotations

import sys

import cython

modules: dict = sys.modules

# Torch's pools by device, for later recordings: while anything is captured into a pool, torch ends the process if
# another one is destroyed (``captures_underway.empty()`` in its CUDACachingAllocator.cpp), and graphs go at any time.
spare_pools: dict = {}

cupy_calls: list = []  # from when CuPy was used: what the thread allocates from, and set it
pool_calls: list = []  # likewise of torch: the current device; of a pool: allocate from it, end that, give it back
owed: list = []  # (thread, what CuPy allocated from) of pools that another thread has closed


def are_needed():
    """Return whether a library is loaded whose arrays may need memory."""
    return "cupy" in modules or "torch" in modules


@cython.cclass
class TorchPool:
    """A pool of torch's for one recorded body; once nobody keeps it, a later recording gets it."""

    def __init__(self, device, pool):
        self.device, self.pool = device, pool

    def __del__(self):
        spare_pools.setdefault(self.device, []).append(self.pool)


@cython.freelist(8)
@cython.final
@cython.cclass
class PrivatePools:
    """Pools of CuPy's and torch's for one recorded body; a with-block puts them in place of the common ones.

    They add themselves to `kept`, a list, when they have memory.

    What a body allocates is at the same addresses in every launch, and other bodies may run beside it there: so nothing
    is given back as long as the graph keeps these pools. Those that are open form a chain, over all threads: bodies
    that are started and ended by hand may overlap, and another thread may end them.
    """

    def __init__(self, kept=None):
        self._kept = kept

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def open(self):
        """Put these in place of the common ones, in this thread."""
        global innermost
        self._thread = this_thread()
        if torch_calls or ("torch" in modules and has_cuda()):
            self.open_torch(modules["torch"])
        try:
            if "cupy" in modules and (innermost is None or of_thread(self._thread) is None):
                self._before = take_over(modules["cupy"])
                self._took_over = True
        except BaseException:
            self.close_torch()
            raise
        self._below = innermost
        innermost = self
        return 0

    def close(self):
        """Put the common ones back; where another thread opened these, it does so when it allocates."""
        self.leave_chain()
        if self._took_over:
            self._took_over = False
            before, self._before = self._before, None
            other: PrivatePools = of_thread(self._thread)
            if other is not None:
                other._before, other._took_over = before, True
            elif self._thread == this_thread():
                hand_back(before)
            elif is_alive(self._thread):
                owed.append((self._thread, before))
        return 0 if self._torch is None else self.close_torch()

    def renew(self):
        """Another body came between: CuPy allocates from these again."""
        global innermost
        if innermost is not self and self.leave_chain():
            self._below = innermost
            innermost = self
        return 0

    def leave_chain(self):
        """Go from the chain; False if these are not in it."""
        global innermost
        above: PrivatePools = innermost
        if above is self:
            innermost = self._below
        else:
            while above is not None and above._below is not self:
                above = above._below
            if above is None:
                return False
            above._below = self._below
        self._below = None  # graphs keep pools, and would keep each other's
        return True

    def open_torch(self, torch):
        """Let torch allocate from a pool of its own for these."""
        if not pool_calls:
            pool_calls[:] = calls_of_torch(torch)
        device = pool_calls[0]()
        try:
            pool = spare_pools[device].pop()
        except (KeyError, IndexError):
            pool = torch.cuda.MemPool()
        self._torch = TorchPool(device, pool)
        self._keep()
        if pool_calls[1] is None:
            self._manager = torch.cuda.use_mem_pool(pool)
            self._manager.__enter__()
        else:
            pool_calls[1](device, pool.id)
        return 0

    def close_torch(self):
        """Let torch allocate as before."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.__exit__(None, None, None)
        elif self._torch is not None and pool_calls[1] is not None:
            pool: TorchPool = self._torch
            pool_calls[2](pool.device, pool.pool.id)
            pool_calls[3](pool.device, pool.pool.id)
        return 0

    def allocate_cupy(self, size):
        """Memory of CuPy's own pool that stays allocated as long as the graph lives."""
        block = modules["cupy"].get_default_memory_pool().malloc(size)
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


innermost: PrivatePools = None  # the end of the chain


def pools_of(kept):
    """Return pools for what one body of a recording allocates, which it keeps as long as that list."""
    pools: PrivatePools = PrivatePools.__new__(PrivatePools)
    pools._kept = kept
    return pools


def of_thread(thread):
    """Return the last pools that a thread has opened, and that are open."""
    pools: PrivatePools = innermost
    while pools is not None and pools._thread != thread:
        pools = pools._below
    return pools


def take_over(cupy):
    """Let CuPy allocate from pools in this thread; return what `hand_back` takes.

    These functions are those that ``cupy.cuda.using_allocator`` calls, which takes longer than a task.
    """
    if owed and (item := what_is_owed()) is not None:
        return item[1]
    if not cupy_calls:
        memory = getattr(getattr(cupy, "cuda", None), "memory", None)
        names = ("_get_thread_local_allocator", "_set_thread_local_allocator")
        if memory is None or not hasattr(memory, names[1]):
            manager = cupy.cuda.using_allocator(_allocate_cupy)
            manager.__enter__()
            return manager
        cupy_calls[:] = [getattr(memory, name) for name in names]
    before = cupy_calls[0]()
    cupy_calls[1](_allocate_cupy)
    return before


def hand_back(before):
    """Let CuPy allocate as before."""
    if cupy_calls:
        cupy_calls[1](before)
    else:
        before.__exit__(None, None, None)
    return 0


def what_is_owed():
    """Return this thread, and what CuPy allocated from in it, where another one closed the pools; None if none has."""
    for item in list(owed):
        if item[0] == this_thread():
            owed.remove(item)
            return item
    return None


def calls_of_torch(torch):
    """Return what ``torch.cuda.use_mem_pool`` calls, which takes longer.

    None for each where torch does not have them.
    """
    core = torch._C
    names = ("_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool")
    return [torch.cuda.current_device, *[getattr(core, name, None) for name in names]]


def _allocate_cupy(size):
    pools: PrivatePools = of_thread(this_thread())
    if pools is not None:
        return pools.allocate_cupy(size)
    item = what_is_owed()
    if item is not None:
        hand_back(item[1])
    return modules["cupy"].cuda.alloc(size)
