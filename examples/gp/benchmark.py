"""The tiled factorization beside SciPy's, in one run and on the same cores."""

from __future__ import annotations

import dataclasses
import statistics
import time

import _blas as blas
import numpy as np
import scipy.linalg

import stf
from stf.observe import Statistics

from .cholesky import block_cyclic, factor, factor_flops
from .progress import Progress

__all__ = ["Comparison", "compare", "factor_tiled", "synthetic_matrix"]


# OpenBLAS's threads spin for some 30 ms after their work, on the cores that the next one to be measured needs.
_SPIN_S = 0.1


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Seconds of each run, and how far the tiled factor is from one: ‖LLᵀ - A‖ / ‖A‖ (Frobenius)."""

    order: int
    tiled_s: list[float]
    scipy_s: list[float]
    lapack_s: list[float]
    residual: float
    statistics: Statistics

    def gflops(self, seconds: list[float]) -> float:
        return factor_flops(self.order) / statistics.median(seconds) / 1e9

    @property
    def ratio(self) -> float:
        """The median of tiled over SciPy, each pair taken one after the other."""
        return statistics.median(t / s for t, s in zip(self.tiled_s, self.scipy_s, strict=True))


def compare(matrix: np.ndarray, *, tile: int, devices: str, repeat: int, progress: Progress) -> Comparison:
    """Factor `matrix` (its lower triangle) by tiles, by SciPy and by LAPACK's dpotrf, in turns.

    SciPy gets what it likes best: columns in order, its input as output, no check for NaN, and all cores.
    """
    order = len(matrix)
    work, columns = blas.empty_matrix(order, order), np.empty((order, order), order="F")
    tiled_s, scipy_s, lapack_s = [], [], []
    share = 1.0 / (3 * repeat)
    for _ in range(repeat):
        np.copyto(work, matrix)
        time.sleep(_SPIN_S)
        seconds, ctx = factor_tiled(work, tile, devices, progress=progress, share=share)
        tiled_s.append(seconds)
        for times, factorize in ((scipy_s, _factor_scipy), (lapack_s, blas.potrf)):
            np.copyto(columns, matrix)
            time.sleep(_SPIN_S)
            with blas.blas_threads(blas.core_count()):
                times.append(_seconds(factorize, columns))
            progress.advance(share)
    return Comparison(order, tiled_s, scipy_s, lapack_s, _residual(work, matrix), ctx.statistics())


def factor_tiled(
    matrix: np.ndarray,
    tile: int,
    devices: str,
    *,
    observe: str | bool = False,
    progress: Progress | None = None,
    share: float = 1.0,
) -> tuple[float, stf.Context]:
    """Factor in place; return the seconds, and the finished context for what it saw.

    The time is all of it: from making the context to having the result in `matrix`.
    """
    with blas.blas_threads(1):
        start = time.perf_counter()
        with stf.context(devices=devices, name="cholesky", observe=observe) as ctx:
            tiles = ctx.logical_data(matrix, name="A").tiles((tile, tile))
            factor(tiles, block_cyclic(ctx.devices), progress, share)
        return time.perf_counter() - start, ctx


def synthetic_matrix(order: int, seed: int = 0) -> np.ndarray:
    """Return a random matrix with `order` added on the diagonal.

    Its lower triangle, mirrored, is positive definite; the upper one is not read.
    """
    matrix = np.random.default_rng(seed).random((order, order))
    matrix[np.diag_indices(order)] += order
    return matrix


def _factor_scipy(columns: np.ndarray) -> None:
    scipy.linalg.cholesky(columns, lower=True, overwrite_a=True, check_finite=False)


def _seconds(function, *args) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def _residual(lower: np.ndarray, matrix: np.ndarray, block: int = 1024) -> float:
    """Compare LLᵀ with the lower triangle of `matrix`, by blocks of rows, so that no second matrix is needed."""
    difference = norm = 0.0
    for first in range(0, len(matrix), block):
        last = min(first + block, len(matrix))
        rows = np.tril(lower[first:last, :last], first)
        for left in range(0, last, block):
            right = min(left + block, last)
            expected = matrix[first:last, left:right]
            error = rows[:, :right] @ np.tril(lower[left:right, :right], left).T - expected
            if left == first:
                error, expected, twice = (
                    np.tril(error),
                    np.tril(expected),
                    np.tril(np.full(error.shape, 2.0), -1) + np.eye(len(error)),
                )
            else:
                twice = 2.0  # the block stands for its mirror image too
            difference += float((twice * error**2).sum())
            norm += float((twice * expected**2).sum())
    return (difference / norm) ** 0.5
