"""LU with partial pivoting, by columns of tiles: a pivot is chosen among all rows, so a column is one piece of data.

factor(column 0) ──▶ update(1) ──▶ factor(1) ──▶ update(2 by 1) ...      the next column is factored
                 ├─▶ update(2) ───────────────┘                          while the others are updated
                 └─▶ update(3) ...
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

import stf


def linalg_of(array: Any) -> Any:
    """Return SciPy's linear algebra for an array, or CuPy's."""
    name = "scipy.linalg" if isinstance(array, np.ndarray) else "cupyx.scipy.linalg"
    return importlib.import_module(name)


def swap(column: Any, pivots: Any, first: int) -> None:
    """Interchange rows as LAPACK's ``laswp`` does, from the row `first` on."""
    order = list(range(column.shape[0]))
    for i, pivot in enumerate(pivots.tolist()):
        order[first + i], order[first + pivot] = order[first + pivot], order[first + i]
    column[...] = column[order]


@stf.task
def factor(column: stf.ReadWrite, pivots: stf.Write, first: int) -> None:
    below, found = linalg_of(column).lu_factor(column[first:])
    column[first:] = below
    pivots[...] = found


@stf.task
def update(left: stf.Read, pivots: stf.Read, column: stf.ReadWrite, first: int) -> None:
    swap(column, pivots, first)
    last = first + left.shape[1]
    solve = linalg_of(column).solve_triangular
    column[first:last] = solve(left[first:last], column[first:last], lower=True, unit_diagonal=True)
    column[last:] -= left[last:] @ column[first:last]


@stf.task
def reorder(pivots: stf.Read, column: stf.ReadWrite, first: int) -> None:
    swap(column, pivots, first)


def program(ctx: stf.Context, a: np.ndarray, tile: int) -> None:
    """Factor a matrix in place; `tile` divides its order."""
    columns = ctx.logical_data(a, name="A").tiles((a.shape[0], tile)).ravel()
    pivots = [ctx.logical_data_empty((tile,), np.int32, name=f"pivots {k}") for k in range(len(columns))]
    for k, column in enumerate(columns):
        factor(column, pivots[k], k * tile)
        for other in columns[k + 1 :]:
            update(column, pivots[k], other, k * tile)
    for k, later in enumerate(pivots):  # the columns to the left get the later interchanges
        for column in columns[:k]:
            reorder(later, column, k * tile)


def run(devices: str, a: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, with the way there and back, and L and U in one matrix."""
    result = a.copy()
    with stf.context(devices=devices, place="auto") as ctx:
        begin = time.perf_counter()
        program(ctx, result, tile)
        ctx.finalize()
        return time.perf_counter() - begin, result
