"""Patterns of dependence between steps, as Task Bench defines them, and what a run of each must compute.

A graph has `steps` rows of at most `width` tasks. Task ``(step, column)`` reads the outputs of some columns of the step
before. Slaughter et al., "Task Bench: A Parameterized Benchmark for Evaluating Parallel Runtime Performance", SC 2020,
table 2; `random_nearest` draws its edges from NumPy's generator instead of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["PATTERNS", "Graph"]

RADIX = 5  # inputs of a task in `nearest`, `spread` and `random_nearest`, at most
SETS = 3  # different steps of `spread` and `random_nearest`, which then come again
FRACTION, SEED = 0.5, 20  # of the possible edges of `random_nearest`, and what draws them
RECORDED = 8  # steps of a period, at least: graphs are recorded by the period
MODULUS = 2**31 - 1  # of checksums: float64 holds each of them, and each product below, exactly

Rule = Callable[[int, int, int], list[int]]


def trivial(column: int, turn: int, width: int) -> list[int]:
    return []


def no_comm(column: int, turn: int, width: int) -> list[int]:
    return [column]


def stencil_1d(column: int, turn: int, width: int) -> list[int]:
    return [c for c in (column - 1, column, column + 1) if 0 <= c < width]


def stencil_1d_periodic(column: int, turn: int, width: int) -> list[int]:
    return sorted({(column - 1) % width, column, (column + 1) % width})


def fft(column: int, turn: int, width: int) -> list[int]:
    return [c for c in (column - 2**turn, column, column + 2**turn) if 0 <= c < width]


def tree(column: int, turn: int, width: int) -> list[int]:
    return [column // 2]


def nearest(column: int, turn: int, width: int) -> list[int]:
    return list(range(max(column - RADIX // 2, 0), min(column + (RADIX - 1) // 2, width - 1) + 1))


def spread(column: int, turn: int, width: int) -> list[int]:
    return sorted({(column + i * width // RADIX + (turn if i else 0)) % width for i in range(min(RADIX, width))})


def random_nearest(column: int, turn: int, width: int) -> list[int]:
    drawn = np.random.default_rng((SEED, turn, column)).random(RADIX)
    return [c for c, u in zip(nearest(column, turn, width), drawn, strict=False) if c == column or u < FRACTION]


def all_to_all(column: int, turn: int, width: int) -> list[int]:
    return list(range(width))


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        trivial,
        no_comm,
        stencil_1d,
        stencil_1d_periodic,
        fft,
        tree,
        nearest,
        spread,
        random_nearest,
        all_to_all,
    )
}
PATTERNS = tuple(RULES)


class Graph:
    """A pattern of a width.

    Attributes
    ----------
    first : int
        The step from which on the pattern repeats. Before it, a tree grows.
    period : int
        So many steps later the same tasks come again, on the same rows of a double buffer.
    """

    def __init__(self, pattern: str, width: int) -> None:
        self.pattern, self.width = pattern, width
        self.rule = RULES[pattern]
        growing, turns = 1, 1
        if pattern == "tree":
            growing = math.ceil(math.log2(width)) + 1
        elif pattern == "fft":
            turns = max(math.ceil(math.log2(width)), 1)
        elif pattern in ("spread", "random_nearest"):
            turns = SETS
        both = math.lcm(turns, 2)
        self.first, self.turns, self.period = growing, turns, both * math.ceil(RECORDED / both)
        self.rows = [self._row(step) for step in range(self.first + self.period)]

    def row(self, step: int) -> list[list[int]]:
        """Return for each task of a step the columns that it reads."""
        return self.rows[self._of(step)]

    def count(self, steps: int) -> int:
        """Return the number of tasks of `steps` steps."""
        return sum(len(self.row(step)) for step in range(steps))

    def steps_for(self, tasks: int) -> int:
        """Return a number of steps that ends with a period, of at least two periods, for about so many tasks."""
        periods = (tasks - self.count(self.first)) // (self.period * self.width)
        return self.first + self.period * max(periods, 2)

    def expected(self, steps: int) -> list[np.ndarray]:
        """Return the checksums of the last two steps, the last one first."""
        before = row = np.zeros(0, np.int64)
        tables = [table_of(columns) for columns in self.rows]
        for step in range(steps):
            table = tables[self._of(step)]
            inputs = np.append(row, 0)[table].sum(axis=1)
            before, row = row, checksum(step, np.arange(len(table)), inputs)
        return [row, before]

    def _of(self, step: int) -> int:
        return step if step < self.first else self.first + (step - self.first) % self.period

    def _row(self, step: int) -> list[list[int]]:
        width = min(self.width, 2**step) if self.pattern == "tree" else self.width
        if step == 0:
            return [[] for _ in range(width)]
        turn = (step - 1) % self.turns
        return [self.rule(column, turn, self.width) for column in range(width)]


def table_of(columns: list[list[int]]) -> np.ndarray:
    """Return the inputs of each task of a step in a row as long as the longest; -1 where there are fewer."""
    table = np.full((len(columns), max(map(len, columns))), -1)
    for column, inputs in enumerate(columns):
        table[column, : len(inputs)] = inputs
    return table


def checksum(step: int, columns: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Return the checksums of the tasks of some columns, whose inputs have checksums of these sums."""
    return (7919 * step + 104729 * columns + 3 * inputs + 1) % MODULUS
