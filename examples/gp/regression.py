"""Gaussian-process regression as one stream of tasks.

    t --> cov ----> potrf trsm syrk gemm ----> L --.
     \\                                              |--> trsv gemv ---> z = L⁻¹ y  --.
      \\                                             |                                |--> predict --> mean, variance
       '--> cross covariance K* -------------------'---> trsm gemm --> V = L⁻¹ K*  --'

Nothing waits between the stages: the first tiles of K* are computed and solved while the factorization is
still at work. (Algorithm 2.1 of Rasmussen and Williams, with the mean as Vᵀz, which spares the second solve.)
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import _blas as blas
import numpy as np

import stf
from stf.observe import Statistics

from .cholesky import block_cyclic, factor, solve_columns, solve_vector
from .model import Hyperparameters, covariance, log_marginal_likelihood
from .series import Series

__all__ = ["Regression", "covariance_matrix", "regress"]


@dataclasses.dataclass(frozen=True)
class Regression:
    """The prediction at `years`: the function's mean and standard deviation, and how the run went."""

    years: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    log_likelihood: float
    seconds: float
    statistics: Statistics
    trace: dict


@stf.task
def assemble(rows: stf.Read, columns: stf.Read, tile: stf.Write, h: Hyperparameters, noise: float = 0.0) -> None:
    """Compute a tile of the covariance matrix; `noise` is the variance to add on its diagonal."""
    step = 32  # rows at a time, so that what is between the operations stays in the cache: half the time
    for first in range(0, rows.size, step):
        tile[first : first + step] = covariance(rows[first : first + step], columns, h)
    if noise:
        tile[np.diag_indices_from(tile)] += noise


@stf.task
def predict(whitened: stf.Read, solved: stf.Read, mean: stf.Write, variance: stf.Write, prior: float) -> None:
    """Compute a part of the prediction from lists of tiles: mean = Vᵀz, variance = k(s, s) - diag(VᵀV)."""
    mean[...] = 0.0
    variance[...] = prior
    for z, v in zip(whitened, solved, strict=True):
        blas.gemv(v.T, z, mean)
        variance -= np.einsum("ij,ij->j", v, v)


def regress(
    series: Series, at: np.ndarray, h: Hyperparameters, *, tile: int, devices: str, progress=None
) -> Regression:
    """Predict the series at the times `at`, on the devices of a new context."""
    count, points = len(series), at.size
    whitened = series.values - series.mean
    mean, variance = np.empty(points), np.empty(points)
    lower = blas.empty_matrix(count, count)
    factor_share = count / (count + 3 * points)
    start = time.perf_counter()
    with blas.blas_threads(1), stf.context(devices=devices, name="regression", observe="trace") as ctx:
        place = block_cyclic(ctx.devices)
        t = ctx.logical_data(series.years, name="t", readonly=True).tiles((tile,))
        s = ctx.logical_data(at, name="s", readonly=True).tiles((tile,))
        z = ctx.logical_data(whitened, name="z").tiles((tile,))
        a = ctx.logical_data(lower, name="A").tiles((tile, tile))
        v = ctx.logical_data_empty((count, points), np.float64, name="V").tiles((tile, tile))
        means = ctx.logical_data(mean, name="mean").tiles((tile,))
        variances = ctx.logical_data(variance, name="variance").tiles((tile,))

        _assemble_lower(t, a, h, place)
        factor(a, place, progress, factor_share)
        solve_vector(a, z, place)
        for i, c in np.ndindex(v.shape):
            assemble.on(place(i, c)).named(f"cov({i},{c})")(t[i], s[c], v[i, c], h)
        solve_columns(a, v, place, progress, 1.0 - factor_share)
        for c in range(len(s)):
            task = predict.on(place(0, c)).named(f"predict({c})")
            task(list(z), list(v[:, c]), means[c], variances[c], h.variance)
    seconds = time.perf_counter() - start
    return Regression(
        at,
        mean + series.mean,
        np.sqrt(np.maximum(variance, 0.0)),
        log_marginal_likelihood(whitened, lower.diagonal()),
        seconds,
        ctx.statistics(),
        ctx.trace(),
    )


def _assemble_lower(times: np.ndarray, tiles: np.ndarray, h: Hyperparameters, place: Callable) -> None:
    """Submit the tiles of the covariance matrix of the observations, its upper ones left out."""
    for i in range(len(times)):
        for j in range(i + 1):
            noise = h.noise**2 if i == j else 0.0
            assemble.on(place(i, j)).named(f"cov({i},{j})")(times[i], times[j], tiles[i, j], h, noise)


def covariance_matrix(series: Series, h: Hyperparameters) -> np.ndarray:
    """Return the covariance matrix of the observations, noise included."""
    matrix = covariance(series.years, series.years, h)
    matrix[np.diag_indices_from(matrix)] += h.noise**2
    return matrix
