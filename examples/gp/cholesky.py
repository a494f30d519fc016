"""Cholesky factorization and triangular solves over tiles, as tasks.

potrf(0)                  A = L Lᵀ by panels of tiles: factor the tile on the diagonal,
 | \\                      solve the tiles below it, then update all tiles to the right.
 |  trsm(1,0) trsm(2,0)   Nobody waits for a whole panel: potrf(1) starts as soon as
 |    |    \\    /  |      its one update is done, while other updates of panel 0 still run.
 | syrk(1,0) gemm  syrk(2,0)
 |    |        |      |
potrf(1) -- trsm(2,1) |
               |      |
               syrk(2,1) -- potrf(2)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import _blas as blas
import numpy as np

import stf

__all__ = ["block_cyclic", "factor", "factor_flops", "solve_columns", "solve_vector"]


@stf.task
def potrf(a: stf.ReadWrite) -> None:
    """A = L, where A = L Lᵀ."""
    blas.potrf(a)


@stf.task
def trsm(triangle: stf.Read, b: stf.ReadWrite) -> None:
    """B = B L⁻ᵀ: a tile below the diagonal becomes one of L."""
    blas.trsm(triangle, b, side="right", transposed=True)


@stf.task
def syrk(a: stf.Read, c: stf.ReadWrite) -> None:
    """C = C - A Aᵀ, on the diagonal."""
    blas.syrk(a, c, alpha=-1.0)


@stf.task
def gemm(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    """C = C - A Bᵀ, below the diagonal."""
    blas.gemm(a, b.T, c, alpha=-1.0)


@stf.task
def solve(triangle: stf.Read, b: stf.ReadWrite) -> None:
    """B = L⁻¹ B."""
    if b.ndim == 1:
        blas.trsv(triangle, b)
    else:
        blas.trsm(triangle, b)


@stf.task
def subtract(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    """C = C - A B."""
    if c.ndim == 1:
        blas.gemv(a, b, c, alpha=-1.0)
    else:
        blas.gemm(a, b, c, alpha=-1.0)


@stf.task
def tick(_tile: stf.Read, progress, fraction: float) -> None:
    """Tell the progress line that a tile is ready."""
    progress.advance(fraction)


def block_cyclic(devices) -> Callable:
    """Return the place of tile (i, j): a grid of the devices, repeated, so that each has work to the end."""
    places = list(devices)
    rows = max(r for r in range(1, math.isqrt(len(places)) + 1) if len(places) % r == 0)
    columns = len(places) // rows
    return lambda i, j=0: places[(i % rows) * columns + j % columns]


def factor(tiles: np.ndarray, place: Callable, progress=None, share: float = 1.0) -> None:
    """Submit the factorization of a symmetric positive definite matrix of tiles; the lower ones are used."""
    count = len(tiles)
    for k in range(count):
        potrf.on(place(k, k)).named(f"potrf({k})")(tiles[k, k])
        if progress is not None:
            tick.on(place(k, k))(tiles[k, k], progress, share * _work_of_panel(k, count))
        for i in range(k + 1, count):
            trsm.on(place(i, k)).named(f"trsm({i},{k})")(tiles[k, k], tiles[i, k])
        for i in range(k + 1, count):
            for j in range(k + 1, i):
                gemm.on(place(i, j)).named(f"gemm({i},{j},{k})")(tiles[i, k], tiles[j, k], tiles[i, j])
            syrk.on(place(i, i)).named(f"syrk({i},{k})")(tiles[i, k], tiles[i, i])


def solve_vector(tiles: np.ndarray, parts: np.ndarray, place: Callable) -> None:
    """Submit y = L⁻¹ y for a vector in parts."""
    for i in range(len(parts)):
        for j in range(i):
            subtract.on(place(i)).named(f"gemv({i},{j})")(tiles[i, j], parts[j], parts[i])
        solve.on(place(i)).named(f"trsv({i})")(tiles[i, i], parts[i])


def solve_columns(tiles: np.ndarray, right: np.ndarray, place: Callable, progress=None, share: float = 1.0) -> None:
    """Submit B = L⁻¹ B for a matrix of tiles, one column of them after the other."""
    rows, columns = right.shape
    for c in range(columns):
        for i in range(rows):
            for j in range(i):
                subtract.on(place(i, c)).named(f"gemm({i},{c},{j})")(tiles[i, j], right[j, c], right[i, c])
            solve.on(place(i, c)).named(f"trsm({i},{c})")(tiles[i, i], right[i, c])
        if progress is not None:
            tick.on(place(rows - 1, c))(right[rows - 1, c], progress, share / columns)


def factor_flops(n: int) -> float:
    """Return the floating-point operations of a Cholesky factorization: n³/3 + n²/2 + n/6 (LAPACK Working Note 41)."""
    return n**3 / 3 + n**2 / 2 + n / 6


def _work_of_panel(k: int, count: int) -> float:
    """Return the part of the work that is done between the diagonal tiles k - 1 and k."""
    return 0.0 if k == 0 else ((count - k + 1) ** 3 - (count - k) ** 3) / count**3
