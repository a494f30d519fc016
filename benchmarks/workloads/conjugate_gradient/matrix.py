"""The matrix of Poisson's equation on a square, in compressed rows, and a right-hand side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Csr(NamedTuple):
    """A square matrix in compressed rows."""

    values: np.ndarray
    columns: np.ndarray
    starts: np.ndarray

    def rows(self, first: int, last: int, shift: int) -> Csr:
        """Return some rows, whose columns count from `shift` on."""
        low, high = self.starts[first], self.starts[last]
        return Csr(
            self.values[low:high], self.columns[low:high] - shift, self.starts[first : last + 1] - self.starts[first]
        )


def poisson(n: int) -> Csr:
    """Return the five-point matrix of n by n points; a row has no entry farther than n from its diagonal."""
    number = np.arange(n * n).reshape(n, n)
    rows, columns, values = [number.ravel()], [number.ravel()], [np.full(n * n, 4.0)]
    for a, b in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1])):
        for one, other in ((a, b), (b, a)):
            rows.append(one.ravel())
            columns.append(other.ravel())
            values.append(np.full(one.size, -1.0))
    row, column, value = map(np.concatenate, (rows, columns, values))
    order = np.lexsort((column, row))
    starts = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n * n))])
    return Csr(value[order], column[order].astype(np.int32), starts.astype(np.int32))  # as cuSPARSE takes them
