"""Threads of a hierarchy on a CPU.

Threads that never wait for each other are the elements of a loop, cut over the workers. Most bodies that wait become
loops over groups, cut at their barriers; see `group_loops`. Of the others each thread is a generator, compiled by
Numba, that gives the level of each barrier it comes to. One thread of the system runs all of a group, in turn, and goes
on behind a barrier when each of the group has come to it.
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
from collections import deque
from typing import Any

import numpy as np

from stf.kernels.hierarchy import Hierarchy
from stf.kernels.thread_code import MEMORY, items_of, name
from stf.places.partition import Part

__all__ = ["BarrierTask", "MemoryTask", "OnCpu", "must_fit", "rooms_of", "widths_on_cpu"]

ALIGNED = 16  # bytes of the memory of a group
FEW = 4  # threads where any number will do, and they wait for each other


class OnCpu:
    """Barriers and memory of a group in the code of a thread on a CPU."""

    has_barriers = False
    resumes = True

    @staticmethod
    def barrier(level: int) -> ast.stmt:
        """Give the level of the barrier."""
        return ast.Expr(ast.Yield(ast.Constant(level)))

    @staticmethod
    def memory(level: int, group: ast.expr, dtype: np.dtype[Any], count: int) -> ast.expr:
        """Return the memory of a group as an array."""
        return items_of(ast.Subscript(name(f"{MEMORY}{level}"), group, ast.Load()), dtype, count)


def widths_on_cpu(hierarchy: Hierarchy, workers: int, waits: bool) -> Hierarchy:
    """Return a width for each level that has none: the workers outside, and inside few threads, so that they meet."""
    others = FEW if waits else 1
    widths = [level.width or (others if number else workers) for number, level in enumerate(hierarchy.levels)]
    return hierarchy.with_widths(tuple(widths))


def rooms_of(hierarchy: Hierarchy) -> list[tuple[int, int]]:
    """Return for each level how many groups it has, and the bytes of the memory of one."""
    levels = enumerate(hierarchy.levels)
    return [(hierarchy.groups(number), -(-level.nbytes // ALIGNED) * ALIGNED) for number, level in levels]


def must_fit(rooms: list[tuple[int, int]], hierarchy: Hierarchy) -> None:
    """Raise ValueError if the machine has not so much memory, for groups of so many bytes."""
    try:
        for room in rooms:
            np.empty(room, np.uint8)
    except (MemoryError, ValueError):
        nbytes = sum(groups * each for groups, each in rooms)
        raise ValueError(
            f"the groups of {hierarchy!r} need {nbytes} bytes of memory in all, which this machine has not; give "
            "mem() fewer bytes, or the levels smaller widths"
        ) from None


class MemoryTask:
    """A body of a task that gets memory for the groups of a hierarchy.

    Parameters
    ----------
    run : callable
        Gets the arguments, with the memory of each level that has some.
    hierarchy : Hierarchy
        With all widths.
    position : int
        Before which argument the memory comes.
    levels : int
        How many levels get it so, the first; by default all.
    """

    def __init__(self, run: Any, hierarchy: Hierarchy, position: int, levels: int | None = None) -> None:
        self.run = run
        self.rooms = rooms_of(hierarchy)[:levels]
        self.rooms = [room for room in self.rooms if room[1]]
        self.position = position
        must_fit(self.rooms, hierarchy)

    def memory(self) -> list[Any]:
        """Return the memory of each level that has some, a row for each group."""
        return [np.empty(room, np.uint8) for room in self.rooms]

    def at(self, driver: Any) -> MemoryTask:
        """Return the same, with the driver whose workers help."""
        run = self.run.at(driver)
        if run is self.run:
            return self
        found = copy.copy(self)
        found.run = run
        return found

    def __call__(self, *values: Any) -> None:
        """Run on the arrays of a task, and further arguments."""
        self.run(*values[: self.position], *self.memory(), *values[self.position :])


class BarrierTask:
    """Runs the threads of a hierarchy, which wait for each other at barriers.

    Parameters
    ----------
    thread : callable
        Makes the generator of a thread, of its ranks and the arguments.
    part : Part
        The ranks in the first level, and in the others.
    barriers : frozenset of int
        The levels at which threads wait.
    numbers : list of int
        The arguments that are zero-dimensional arrays, of which a thread gets the number.
    """

    def __init__(self, thread: Any, part: Part, barriers: frozenset[int], numbers: list[int]) -> None:
        self.thread = thread
        self.part = part
        self.is_whole = 0 in barriers
        self.numbers = numbers

    def at(self, driver: Any) -> BarrierTask:
        """Return the same: no other worker helps."""
        return self

    def __call__(self, *values: Any) -> None:
        """Run all threads."""
        given = list(values)
        for i in self.numbers:
            given[i] = given[i][()]
        for box in self.part.boxes():
            for outer in [box[0]] if self.is_whole else [[rank] for rank in box[0]]:
                self.run_group(list(itertools.product(outer, *box[1:])), [len(axis) for axis in box], given)

    def run_group(self, ranks: list[tuple[int, ...]], widths: list[int], given: list[Any]) -> None:
        """Run threads that may meet."""
        ready = deque((rank, self.thread(*rank, *given)) for rank in ranks)
        waiting: dict[tuple[int, tuple[int, ...]], list[Any]] = {}
        while ready:
            rank, thread = ready.popleft()
            level = next(thread, None)
            if level is None:
                continue
            group = waiting.setdefault((level, rank[:level]), [])
            group.append((rank, thread))
            if len(group) == math.prod(widths[level:]):
                ready.extend(group)
                del waiting[level, rank[:level]]
        for (level, _), group in waiting.items():
            raise RuntimeError(
                f"{len(group)} of {math.prod(widths[level:])} threads wait at sync({level}), where the others do not "
                "come; all threads of a group come to the same barriers"
            )
