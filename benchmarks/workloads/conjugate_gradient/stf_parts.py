"""Conjugate gradient on rows of a sparse matrix: each device has some, and reads p at the columns of its neighbours.

The scalars stay on the devices, as data. The host reads nothing before the end, so it submits all steps at once.
"""

from __future__ import annotations

import importlib
from typing import Any

import contest
import numpy as np
from matrix import Csr, poisson

import stf

OPTIONS = {"place": "auto", "placement": stf.placement.owner()}
Sum = stf.Accumulate[stf.reducer.sum]


@stf.task
def multiply(values: stf.Read, columns: stf.Read, starts: stf.Read, p: stf.Read, q: stf.Write) -> None:
    library = "scipy.sparse" if isinstance(values, np.ndarray) else "cupyx.scipy.sparse"
    rows = importlib.import_module(library).csr_matrix((values, columns, starts), (q.size, p.size))
    rows.has_canonical_format = True  # else CuPy looks, and waits for the device, each time
    q[...] = rows @ p


@stf.task
def dot(x: stf.Read, y: stf.Read, total: Sum) -> None:
    total += x @ y


@stf.task
def clear(total: stf.Write) -> None:
    total[...] = 0.0


@stf.task
def advance(rr: stf.Read, pq: stf.Read, x: stf.ReadWrite, r: stf.ReadWrite, p: stf.Read, q: stf.Read) -> None:
    alpha = rr / pq
    x += alpha * p
    r -= alpha * q


@stf.task
def turn(new: stf.Read, old: stf.Read, p: stf.ReadWrite, r: stf.Read) -> None:
    p *= new / old
    p += r


class Solver:
    """The data of a system of equations, given out by rows; the matrix is of n by n points."""

    def __init__(self, ctx: stf.Context, n: int, matrix: Csr, b: np.ndarray) -> None:
        self.n = n
        place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        self.x, self.r, self.p, self.q = (
            ctx.logical_data(start, data_place=place, name=name)
            for start, name in ((np.zeros(n * n), "x"), (b.copy(), "r"), (b.copy(), "p"), (np.zeros(n * n), "q"))
        )
        self.new, self.old, self.pq = (
            ctx.logical_data_empty((), np.float64, name=name) for name in ("new", "old", "pq")
        )
        self.blocks = [rows_of(ctx, matrix, part, n) for part in self.p.parts]
        self.sum_of_squares()

    def sum_of_squares(self) -> None:
        """Let `new` be the square of the residual's norm."""
        clear(self.new)
        for part in self.r.parts:
            dot(part, part, self.new)

    def advance(self, steps: int) -> None:
        """Go on for so many steps."""
        x, r, p, q, pq = self.x, self.r, self.p, self.q, self.pq
        for _ in range(steps):
            clear(pq)
            for rows, mine, out in zip(self.blocks, p.parts, q.parts, strict=True):
                multiply(*rows, mine.read(halo=self.n), out)
                dot(mine, out, pq)
            for some in zip(x.parts, r.parts, p.parts, q.parts, strict=True):
                advance(self.new, pq, *some)
            self.new, self.old = self.old, self.new
            self.sum_of_squares()
            for mine, rest in zip(p.parts, r.parts, strict=True):
                turn(self.new, self.old, mine, rest)


def program(ctx: stf.Context, n: int, b: np.ndarray, steps: int) -> Any:
    """Return the solution after so many steps, as data."""
    solver = Solver(ctx, n, poisson(n), b)
    solver.advance(steps)
    return solver.x


def rows_of(ctx: stf.Context, matrix: Csr, part: Any, n: int) -> list[Any]:
    """Return the rows of a part as data; their columns count from the first element that its halo has."""
    (owned,) = part.region
    rows = matrix.rows(owned.start, owned.stop, max(owned.start - n, 0))
    return [ctx.logical_data(item) for item in rows]


def run(devices: str, n: int, matrix: Csr, b: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the seconds that so many steps took, after two that were not timed, and the solution."""
    with stf.context(devices=devices, **OPTIONS) as ctx:
        solver = Solver(ctx, n, matrix, b)
        solver.advance(2)
        with contest.timed(ctx.synchronize) as taken:
            solver.advance(steps)
        return taken.seconds, solver.x.numpy()
