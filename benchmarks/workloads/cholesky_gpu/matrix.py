"""Symmetric positive definite matrices on devices or on the host, and whether a factor of one is right.

The elements follow from their indices, so a matrix is filled anew before each run, and checked after, without a copy
of it. Only the lower triangle counts.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

__all__ = ["Matrix", "element_block", "relative_error"]


def element_block(xp: Any, order: int, first_row: int, rows: int, first_column: int, columns: int) -> Any:
    """A block of the matrix: within ±1/2, and `order` more on the diagonal, which dominates it."""
    i = xp.arange(first_row, first_row + rows)[:, None]
    j = xp.arange(first_column, first_column + columns)[None, :]
    return ((i * 7919 + j * 104729) % 1009) / 1009 - 0.5 + (i == j) * float(order)


class Matrix:
    """A matrix in block columns of `tile`, dealt out in turn to `parts`, which are column-major.

    One part on each of some devices is what cuSOLVERMg takes; a single part is an ordinary matrix.

    Parameters
    ----------
    xp
        NumPy or CuPy, whose functions fill and check.
    parts
        How many.
    on_host : optional
        ``on_host(shape)`` makes the one part, in host memory; by default the parts are on devices 0, 1, …
    """

    def __init__(self, xp: Any, order: int, tile: int, parts: int = 1, on_host: Any = None) -> None:
        self.xp, self.order, self.tile = xp, order, tile
        self.count = -(-order // tile)
        self.is_on_host = on_host is not None
        columns = -(-self.count // parts) * tile if parts > 1 else order
        self.parts = []
        for part in range(parts):
            with self.device(part):
                self.parts.append(on_host((order, columns)) if on_host else xp.empty((order, columns), order="F"))

    def device(self, part: int) -> Any:
        """Make the device of a part current."""
        if self.xp is np:
            return contextlib.nullcontext()
        return self.xp.cuda.Device(0 if self.is_on_host else part)

    def width(self, j: int) -> int:
        """Columns of block column j."""
        return min(self.tile, self.order - j * self.tile)

    def column(self, j: int) -> Any:
        """Block column j, all rows."""
        first = j // len(self.parts) * self.tile
        return self.parts[j % len(self.parts)][:, first : first + self.width(j)]

    def fill(self) -> None:
        """Set all elements."""
        for j in range(self.count):
            with self.device(j % len(self.parts)):
                values = element_block(self.xp, self.order, 0, self.order, j * self.tile, self.width(j))
                if self.is_on_host and self.xp is not np:
                    values = values.get(order="F")
                self.column(j)[...] = values
        self.synchronize()

    def synchronize(self) -> None:
        """Wait until the devices have done everything."""
        for part in range(len(self.parts) if self.xp is not np else 0):
            with self.device(part) as device:
                device.synchronize()


def relative_error(factor: Matrix) -> float:
    """‖A x − L Lᵀ x‖ / ‖A x‖ for a random x, where `factor` has L in the lower triangle of A's place."""
    xp, order, tile = factor.xp, factor.order, factor.tile
    x = np.random.default_rng(0).standard_normal(order)
    expected, found = np.zeros(order), np.zeros(order)
    for j in range(factor.count):
        with factor.device(j % len(factor.parts)):
            first, width = j * tile, factor.width(j)
            here, below = slice(first, first + width), slice(first + width, order)
            x_here, x_below = xp.asarray(x[here]), xp.asarray(x[below])
            column = xp.asarray(factor.column(j)[first:])
            lower, rest = xp.tril(column[:width]), column[width:]
            product = lower.T @ x_here + rest.T @ x_below
            add_to(found, here, lower @ product)
            add_to(found, below, rest @ product)
            values = element_block(xp, order, first, order - first, first, width)
            lower, rest = xp.tril(values[:width]), values[width:]
            add_to(expected, here, lower @ x_here + xp.tril(values[:width], -1).T @ x_here + rest.T @ x_below)
            add_to(expected, below, rest @ x_here)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def add_to(total: np.ndarray, rows: slice, part: Any) -> None:
    total[rows] += part.get() if hasattr(part, "get") else part
