"""Programs for several devices, without a word on where tasks run; and where one would put them by hand.

Each takes a context, and a rule that says by a tile's coordinates where its tasks go, or None for the context's own
placement. The bodies are counted by the simulator and not run, so they only say which data they use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stf

TILE = 2048  # rows and columns of float64: 32 MiB
Rule = Callable[[int, int], int] | None

SECONDS = {  # of a tile on one device
    "potrf": 0.55e-3,
    "getrf": 0.55e-3,
    "trsm": 0.30e-3,
    "syrk": 0.34e-3,
    "gemm": 0.34e-3,
    "step": 0.34e-3,
    "leaf": 0.34e-3,
    "add": 0.34e-3,
    "make": 0.0,
}


@stf.task
def make(a: stf.Write) -> None:
    a[...] = 1.0


@stf.task
def potrf(a: stf.ReadWrite) -> None:
    a[...] = np.linalg.cholesky(a)


@stf.task
def getrf(a: stf.ReadWrite) -> None:
    a += 0.0


@stf.task
def trsm(triangle: stf.Read, b: stf.ReadWrite) -> None:
    b[...] = np.linalg.solve(triangle, b.T).T


@stf.task
def syrk(a: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ a.T


@stf.task
def gemm(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ b.T


@stf.task
def step(below: stf.Read, old: stf.Read, above: stf.Read, new: stf.Write) -> None:
    new[...] = below + old + above


@stf.task
def leaf(a: stf.ReadWrite) -> None:
    a += 1.0


@stf.task
def add(a: stf.ReadWrite, b: stf.Read) -> None:
    a += b


def at(function: Any, rule: Rule, i: int, j: int) -> Any:
    """Return a task function at the place that the rule gives a tile, or as it is."""
    return function if rule is None else function.on(rule(i, j))


class Program:
    """A program, the devices that its data start on, and the efficiency and copies to reach."""

    def __init__(
        self, name: str, run: Callable[[Any, Rule, Rule], None], tasks: int, work_s: float, columns: int = 0
    ) -> None:
        self.name, self.run, self.tasks, self.work_s, self.columns = name, run, tasks, work_s, columns

    def by_hand(self, devices: int) -> Rule:
        """Return where one would put its tiles: in one row, neighbours together; else cyclic over rows and columns."""
        return blocked(devices, self.columns) if self.columns else cyclic(devices)


def tiles(ctx: Any, rows: int, columns: int, start: Rule, size: int = TILE) -> list[list[Any]]:
    """Return tiles, each made on the device where it starts."""
    made = [[ctx.logical_data_empty((size, size), name=f"{i},{j}") for j in range(columns)] for i in range(rows)]
    for i in range(rows):
        for j in range(columns):
            at(make, start, i, j)(made[i][j])
    return made


def cholesky(n: int) -> Callable[[Any, Rule, Rule], None]:
    """Return the tiled Cholesky factorization of n by n tiles, right-looking."""

    def run(ctx: Any, start: Rule, rule: Rule) -> None:
        a = tiles(ctx, n, n, start)
        for k in range(n):
            at(potrf, rule, k, k)(a[k][k])
            for i in range(k + 1, n):
                at(trsm, rule, i, k)(a[k][k], a[i][k])
            for i in range(k + 1, n):
                at(syrk, rule, i, i)(a[i][k], a[i][i])
                for j in range(k + 1, i):
                    at(gemm, rule, i, j)(a[i][k], a[j][k], a[i][j])

    return run


def lu(n: int) -> Callable[[Any, Rule, Rule], None]:
    """Return the tiled LU factorization of n by n tiles, without pivots."""

    def run(ctx: Any, start: Rule, rule: Rule) -> None:
        a = tiles(ctx, n, n, start)
        for k in range(n):
            at(getrf, rule, k, k)(a[k][k])
            for i in range(k + 1, n):
                at(trsm, rule, i, k)(a[k][k], a[i][k])
                at(trsm, rule, k, i)(a[k][k], a[k][i])
            for i in range(k + 1, n):
                for j in range(k + 1, n):
                    at(gemm, rule, i, j)(a[i][k], a[k][j], a[i][j])

    return run


def product(n: int) -> Callable[[Any, Rule, Rule], None]:
    """Return C -= A B of n by n tiles."""

    def run(ctx: Any, start: Rule, rule: Rule) -> None:
        a, b, c = tiles(ctx, n, n, start), tiles(ctx, n, n, start), tiles(ctx, n, n, start)
        for k in range(n):
            for i in range(n):
                for j in range(n):
                    at(gemm, rule, i, j)(a[i][k], b[k][j], c[i][j])

    return run


def stencil(blocks: int, steps: int) -> Callable[[Any, Rule, Rule], None]:
    """Return a stencil over blocks in a ring, each of which reads both neighbours."""

    def run(ctx: Any, start: Rule, rule: Rule) -> None:
        old, new = tiles(ctx, 1, blocks, start)[0], tiles(ctx, 1, blocks, start)[0]
        for _ in range(steps):
            for j in range(blocks):
                at(step, rule, 0, j)(old[j - 1], old[j], old[(j + 1) % blocks], new[j])
            old, new = new, old

    return run


def reductions(trees: int, leaves: int) -> Callable[[Any, Rule, Rule], None]:
    """Return sums of tiles in binary trees, one after the other."""

    def run(ctx: Any, start: Rule, rule: Rule) -> None:
        a = tiles(ctx, trees, leaves, start)
        for i in range(trees):
            for j in range(leaves):
                at(leaf, rule, i, j)(a[i][j])
            width = 1
            while width < leaves:
                for j in range(0, leaves, 2 * width):
                    at(add, rule, i, j)(a[i][j], a[i][j + width])
                width *= 2

    return run


def seconds_of_cholesky(n: int) -> float:
    """Return the work of a factorization on one device."""
    rest = n * (n - 1) // 2
    updates = n * (n - 1) * (n - 2) // 6
    return n * SECONDS["potrf"] + rest * (SECONDS["trsm"] + SECONDS["syrk"]) + updates * SECONDS["gemm"]


def seconds_of_lu(n: int) -> float:
    """Return the work of a factorization on one device."""
    updates = (n - 1) * n * (2 * n - 1) // 6
    return n * SECONDS["getrf"] + n * (n - 1) * SECONDS["trsm"] + updates * SECONDS["gemm"]


PROGRAMS = [
    Program("Cholesky, 16 x 16 tiles", cholesky(16), 816, seconds_of_cholesky(16)),
    Program("LU, 12 x 12", lu(12), 650, seconds_of_lu(12)),
    Program("product, 8 x 8 x 8", product(8), 512, 512 * SECONDS["gemm"]),
    Program("stencil, 16 blocks", stencil(16, 40), 640, 640 * SECONDS["step"], 16),
    Program("reductions, 8 of 64", reductions(8, 64), 1016, 1016 * SECONDS["add"]),
    Program("Cholesky, 32 x 32 tiles", cholesky(32), 5984, seconds_of_cholesky(32)),
]


def blocked(devices: int, columns: int) -> Rule:
    """Return the rule that gives each device as many neighbouring columns."""
    return lambda i, j: j * devices // columns


def cyclic(devices: int) -> Rule:
    """Return the two-dimensional cyclic rule of the squarest grid of so many devices."""
    rows = max(r for r in range(1, devices + 1) if devices % r == 0 and r * r <= devices)
    columns = devices // rows
    return lambda i, j: (i % rows) * columns + j % columns
