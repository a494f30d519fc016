"""Conjugate gradient on rows of a sparse matrix: each device has some, and reads p at the columns of its neighbours.

The scalars stay on the devices, as data. The host reads nothing before the end, so it submits all steps at once.
"""

from __future__ import annotations

from typing import Any

import contest
import numpy as np
from matrix import Csr, poisson

import stf

OPTIONS = {"place": "auto", "placement": stf.placement.owner()}


def multiply(i, values, columns, starts, p, q):  # q is the product of the matrix and p
    total = 0.0
    for k in range(starts[i], starts[i + 1]):
        total += values[k] * p[columns[k]]
    q[i] = total


def dot(i, x, y):
    return x[i] * y[i]


def advance(i, rr, pq, p, q, x, r):
    x[i] += rr / pq * p[i]
    r[i] -= rr / pq * q[i]
    return r[i] * r[i]


def square(i, r):
    return r[i] * r[i]


def turn(i, new, old, r, p):
    p[i] = r[i] + new / old * p[i]


class Solver:
    """The data of a system of equations, given out by rows; the matrix is of n by n points."""

    def __init__(self, ctx: stf.Context, n: int, matrix: Csr, b: np.ndarray) -> None:
        self.ctx, self.n = ctx, n
        place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        self.x, self.r, self.p, self.q = (
            ctx.logical_data(start, data_place=place, name=name)
            for start, name in ((np.zeros(n * n), "x"), (b.copy(), "r"), (b.copy(), "p"), (np.zeros(n * n), "q"))
        )
        self.new, self.old, self.pq = (ctx.logical_data_empty((), name=name) for name in ("new", "old", "pq"))
        self.blocks = [rows_of(ctx, matrix, part, n) for part in self.p.parts]
        self.over_all(self.r.read(), self.new.reduce(stf.reducer.sum))(square)

    def over_all(self, *args: Any) -> Any:
        """Return a loop over all elements, each on the device that has it."""
        return self.ctx.parallel_for(self.x.grid, self.x.shape, *args)

    def advance(self, steps: int) -> None:
        """Go on for so many steps."""
        x, r, p, q, pq, add = self.x, self.r, self.p, self.q, self.pq, stf.reducer.sum
        for _ in range(steps):
            for rows, mine, out in zip(self.blocks, p.parts, q.parts, strict=True):
                matrix = [item.read() for item in rows]
                self.ctx.parallel_for(out.shape, *matrix, mine.read(halo=self.n), out.write())(multiply)
            self.over_all(p.read(), q.read(), pq.reduce(add))(dot)
            self.new, self.old = self.old, self.new
            of_r = self.new.reduce(add)
            self.over_all(self.old.read(), pq.read(), p.read(), q.read(), x.rw(), r.rw(), of_r)(advance)
            self.over_all(self.new.read(), self.old.read(), r.read(), p.rw())(turn)


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


def run(
    devices: str, n: int, matrix: Csr, b: np.ndarray, steps: int, is_recorded: bool = False
) -> tuple[float, np.ndarray]:
    """Return the seconds that so many steps took, after two that were not timed, and the solution.

    Two steps may be recorded, after which the data of `new` and `old` are as before; then they are launched often.
    """
    with stf.context(devices=devices, **OPTIONS) as ctx:
        solver = Solver(ctx, n, matrix, b)
        solver.advance(2)
        graph = ctx.task_graph(name="two steps")
        if is_recorded:
            with graph:
                solver.advance(2)
        with contest.timed(ctx.synchronize) as taken:
            if is_recorded:
                for _ in range(steps // 2):
                    graph.launch()
            else:
                solver.advance(steps)
        return taken.seconds, solver.x.numpy()
