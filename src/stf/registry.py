"""Which memory is registered: the same memory again is the same data, overlapping memory is a mistake."""

from __future__ import annotations

import bisect
import itertools
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from stf.interop.memory import Memory, view_at

MAX_WORK = 100_000


class Registry:
    """The registered host memory of one context.

    Its lock is taken inside the engine's gate, where data are given up; so nothing here enters the engine. It may be
    taken again by its thread: a garbage collection inside may run a finalizer that registers.
    """

    def __init__(self) -> None:
        self.same: dict[tuple[Any, ...], weakref.ref[Any]] = {}
        self.starts: list[tuple[int, int]] = []  # (lowest address, data id), sorted
        self.entries: dict[int, tuple[int, int, Memory, tuple[Any, ...]]] = {}
        self.longest = 0
        self.lock = threading.RLock()
        self.leaving: dict[int, Any] = {}  # data id: the last events on memory that is given up

    def find(self, memory: Memory) -> Any:
        """The handle of the data that has exactly this memory, or None; one that was released has it no more."""
        known = self.same.get(key_of(memory))
        handle = known() if known is not None else None
        return None if handle is None or handle.core.released else handle

    def overlapping(self, memory: Memory) -> list[int]:
        """The ids of data whose memory overlaps `memory`, in the order of their addresses."""
        with self.lock:
            return list(self._overlapping(memory))

    def _overlapping(self, memory: Memory) -> Iterator[int]:
        low, high = bounds(memory)
        first = bisect.bisect_left(self.starts, (low - self.longest, -1))
        for start, ident in self.starts[first:]:
            if start >= high or low == high:
                break
            _, end, other, _ = self.entries[ident]
            if end > low and shares_memory(memory, other):
                yield ident

    def add(self, ident: int, memory: Memory, handle: Any, known: Collection[int]) -> bool:
        """Remember the memory of a data; False if memory overlaps that is not `known`: another thread was first."""
        low, high = bounds(memory)
        key = key_of(memory)
        with self.lock:
            if (low == high and self.find(memory) is not None) or not set(self._overlapping(memory)) <= set(known):
                return False
            self.same[key] = weakref.ref(handle)
            self.entries[ident] = (low, high, memory._replace(owner=None, stream=None), key)
            bisect.insort(self.starts, (low, ident))
            self.longest = max(self.longest, high - low)
            return True

    def leave(self, ident: int, last: Any) -> None:
        """A data is given up; whoever registers its memory comes after the events `last`."""
        with self.lock:
            if last.count and ident in self.entries:
                self.leaving[ident] = last
            else:
                self.remove(ident)

    def sweep(self, is_done: Callable[[Any], bool]) -> None:
        """Forget what was given up and is not in use any more, the oldest first."""
        with self.lock:
            for ident, last in list(itertools.islice(self.leaving.items(), 64)):
                if not is_done(last):
                    break
                self.remove(ident)

    def remove(self, ident: int) -> None:
        """Forget a data."""
        with self.lock:
            self.leaving.pop(ident, None)
            entry = self.entries.pop(ident, None)
            if entry is None:
                return
            low, _, _, key = entry
            index = bisect.bisect_left(self.starts, (low, ident))
            del self.starts[index]
            known = self.same.get(key)
            handle = known() if known is not None else None
            if handle is None or handle.core.id == ident:
                self.same.pop(key, None)


def key_of(memory: Memory) -> tuple[Any, ...]:
    address = memory.address or -id(memory.owner)  # empty arrays on devices are all at 0
    return (address, memory.shape, memory.strides, memory.dtype, memory.readonly)


def bounds(memory: Memory) -> tuple[int, int]:
    """Lowest address and the one past the highest; equal for empty arrays."""
    low = high = memory.address
    for n, step in zip(memory.shape, memory.strides, strict=True):
        if n == 0:
            return memory.address, memory.address
        low += min((n - 1) * step, 0)
        high += max((n - 1) * step, 0)
    return low, high + memory.dtype.itemsize


def shares_memory(one: Memory, other: Memory) -> bool:
    """Whether two arrays have a byte in common; True where that is too hard to say."""
    first, second = (view_at(m.address, m.shape, m.strides, m.dtype, None, True) for m in (one, other))
    options: Any = {"max_work": MAX_WORK}
    try:
        return np.shares_memory(first, second, **options)
    except np.exceptions.TooHardError:
        return True
