"""The rule of order, told once more: what tests compare the engine's with, and by which fake programs are ordered."""

from __future__ import annotations

R, W, RW, ACC = 1, 2, 3, 4


class Order:
    """Who may still have to be waited for, of one data: the numbers of tasks, and with a minus sign of operations."""

    def __init__(self) -> None:
        self.writers: list[int] = []
        self.readers: list[int] = []
        self.base: list[int] = []
        self.accumulating = False
        self.replicas: dict[str, int] = {}  # place → the operation that made the replica there
        self.movers: list[int] = []  # operations that read a replica since the last write

    def take(self, number: int, mode: int, place: str) -> set[int]:
        """Note an access by a task; return what it waits for."""
        if mode == R:
            waits = self.writers
        elif mode == ACC and self.accumulating and not self.readers:
            waits = self.base
        else:
            waits = self.writers + self.readers
        found = {*waits, *(self.movers if mode != R else ()), self.replicas.get(place, number)}
        if mode == R:
            self.readers.append(number)
        elif mode == ACC and waits is self.base:
            self.writers.append(number)
        else:
            self.accumulating = mode == ACC
            self.base = list(waits) if self.accumulating else []
            self.writers, self.readers = [number], []
        if mode != R:
            self.replicas, self.movers = {}, []
        return found - {number}

    def move(self, number: int, kind: str, source: str, target: str) -> set[int]:
        """Note an operation; return what it waits for."""
        found = set(self.writers) if kind in ("copy", "write_back", "evict") else set()
        if kind in ("free", "evict"):
            found.update(self.writers, self.readers, self.movers)
        found.update(self.replicas[place] for place in (source, target) if place in self.replicas)
        if kind in ("free", "evict"):
            self.replicas.pop(source, None)
        if kind in ("copy", "alloc"):
            self.replicas[target] = -number
        if kind in ("copy", "write_back", "evict"):
            self.movers.append(-number)
        return found
