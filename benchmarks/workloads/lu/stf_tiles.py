"""LU with partial pivoting, by columns of tiles: a pivot is chosen among all rows, so a column is one piece of data.

factor(column 0) ──▶ update(1) ──▶ factor(1) ──▶ update(2 by 1) ...      the next column is factored
                 ├─▶ update(2) ───────────────┘                          while the others are updated
                 └─▶ update(3) ...

`factor` makes of the pivots the order of all rows, once; who updates a column takes its rows in that order.
"""

from __future__ import annotations

import importlib
from typing import Any

import contest
import numpy as np

import stf


def linalg_of(array: Any) -> Any:
    """Return SciPy's linear algebra for an array, or CuPy's."""
    name = "scipy.linalg" if isinstance(array, np.ndarray) else "cupyx.scipy.linalg"
    return importlib.import_module(name)


def order_by(pivots: list[int], rows: int, first: int) -> np.ndarray:
    """Return which row comes where, as LAPACK's ``laswp`` interchanges them, from the row `first` on."""
    order = np.arange(rows)
    for i, pivot in enumerate(pivots):
        order[[first + i, first + pivot]] = order[[first + pivot, first + i]]
    return order


@stf.task
def factor(column: stf.ReadWrite, order: stf.Write, first: int) -> None:
    below, pivots = linalg_of(column).lu_factor(column[first:])
    column[first:] = below
    rows = order_by(pivots.tolist(), len(column), first)
    if isinstance(order, np.ndarray):
        order[...] = rows
    else:
        order.set(rows)


@stf.task
def update(left: stf.Read, order: stf.Read, column: stf.ReadWrite, first: int) -> None:
    last = first + left.shape[1]
    rows = column[order]
    solve = linalg_of(column).solve_triangular
    column[:first] = rows[:first]
    column[first:last] = solve(left[first:last], rows[first:last], lower=True, unit_diagonal=True)
    column[last:] = rows[last:] - left[last:] @ column[first:last]


@stf.task
def reorder(order: stf.Read, column: stf.ReadWrite) -> None:
    column[...] = column[order]


def columns_of(ctx: stf.Context, a: np.ndarray, tile: int) -> tuple[list[Any], list[Any]]:
    """Return a matrix as columns of tiles, and the orders of rows; `tile` divides the matrix."""
    columns = list(ctx.logical_data(a, name="A").tiles((a.shape[0], tile)).ravel())
    return columns, [ctx.logical_data_empty((len(a),), np.int64, name=f"order {k}") for k in range(len(columns))]


def factor_all(columns: list[Any], orders: list[Any], tile: int) -> None:
    """Factor a matrix in place."""
    for k, column in enumerate(columns):
        factor(column, orders[k], k * tile)
        for other in columns[k + 1 :]:
            update(column, orders[k], other, k * tile)
    for k, later in enumerate(orders):  # the columns to the left get the later interchanges
        for column in columns[:k]:
            reorder(later, column)


def program(ctx: stf.Context, a: np.ndarray, tile: int) -> None:
    """Factor a matrix in place."""
    factor_all(*columns_of(ctx, a, tile), tile)


def run(devices: str, a: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, the columns being on the devices in turn at first, and L and U in one matrix."""
    result = a.copy()
    with stf.context(devices=devices, place="auto") as ctx:
        columns, orders = columns_of(ctx, result, tile)
        for k, column in enumerate(columns):
            ctx.prefetch(column, ctx.devices[k % len(ctx.devices)].affine_data_place)
        with contest.timed(ctx.synchronize) as taken:
            factor_all(columns, orders, tile)
    return taken.seconds, result
