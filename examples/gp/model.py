"""The covariance of a trend with a yearly season, and a light fit of its hyper-parameters.

The model is the classical one for this series: C. E. Rasmussen and C. K. I. Williams, *Gaussian Processes for
Machine Learning*, MIT Press 2006, section 5.4.3, equations (5.15) to (5.18): a smooth long-term trend, a
season that is nearly periodic, irregularities over some years, and noise that is partly correlated.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
import scipy.optimize

from .series import Series

__all__ = [
    "BOOK",
    "WEEKLY_CO2",
    "WEEKLY_CO2_DEVIATION",
    "WEEKLY_CO2_HELD_OUT_YEARS",
    "Hyperparameters",
    "covariance",
    "fit",
    "log_marginal_likelihood",
]


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """The book's θ₁ to θ₁₁: amplitudes in the unit of the values, lengths in years, two pure numbers."""

    trend: float
    trend_years: float
    season: float
    season_decay_years: float
    season_width: float
    wiggle: float
    wiggle_years: float
    wiggle_shape: float
    weather: float
    weather_years: float
    noise: float

    def scaled(self, factor: float) -> Hyperparameters:
        """Return the same model for values in another unit, `factor` times as large."""
        amplitudes = ("trend", "season", "wiggle", "weather", "noise")
        return dataclasses.replace(self, **{name: factor * getattr(self, name) for name in amplitudes})

    @property
    def variance(self) -> float:
        """The variance of the function itself, noise left out."""
        return self.trend**2 + self.season**2 + self.wiggle**2 + self.weather**2


# Section 5.4.3, for monthly means (its θ₁₀ is 1.6 months).
BOOK = Hyperparameters(66.0, 67.0, 2.4, 90.0, 1.3, 0.66, 1.2, 0.78, 0.18, 1.6 / 12, 0.19)
# The same for weekly values, which scatter more: from the book's as a start, the likelihood of 400 and then of 800 of
# those from before 1992 was maximized. They know nothing of the ten years that the example forecasts.
WEEKLY_CO2_HELD_OUT_YEARS = 10.0
WEEKLY_CO2_DEVIATION = 12.3  # the standard deviation of the values that they were fitted to
WEEKLY_CO2 = Hyperparameters(43.4, 46.8, 4.27, 212.0, 1.64, 0.365, 0.654, 2.20, 0.180, 0.0430, 0.292)


def covariance(a: np.ndarray, b: np.ndarray, h: Hyperparameters) -> np.ndarray:
    """Return the covariance of the function at times `a` (rows) and `b` (columns), in years; noise left out."""
    distance = a[:, None] - b[None, :]
    squared = distance**2
    trend = h.trend**2 * np.exp(squared * (-0.5 / h.trend_years**2))
    season = np.sin(np.pi * distance) ** 2 * (-2.0 / h.season_width**2) - squared * (0.5 / h.season_decay_years**2)
    wiggle = (1.0 + squared * (0.5 / (h.wiggle_shape * h.wiggle_years**2))) ** -h.wiggle_shape
    weather = np.exp(squared * (-0.5 / h.weather_years**2))
    return trend + h.season**2 * np.exp(season) + h.wiggle**2 * wiggle + h.weather**2 * weather


def log_marginal_likelihood(whitened: np.ndarray, diagonal: np.ndarray) -> float:
    """Return log p(y) from L⁻¹y and the diagonal of L (the book's equation 2.30)."""
    return float(-0.5 * whitened @ whitened - np.log(diagonal).sum() - 0.5 * whitened.size * np.log(2 * np.pi))


def fit(series: Series, start: Hyperparameters, size: int = 400, seed: int = 0, progress=None) -> Hyperparameters:
    """Raise the likelihood of `size` values drawn from the series, from `start`, by L-BFGS on the logarithms."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(series))[:size])
    years, values = series.years[chosen], series.values[chosen] - series.mean

    def loss(logarithms: np.ndarray) -> float:
        h = Hyperparameters(*np.exp(logarithms))
        matrix = covariance(years, years, h)
        matrix[np.diag_indices_from(matrix)] += h.noise**2
        try:
            lower = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            return 1e10
        whitened = scipy.linalg.solve_triangular(lower, values, lower=True, check_finite=False)
        return -log_marginal_likelihood(whitened, np.diag(lower))

    iterations = 30
    result = scipy.optimize.minimize(
        loss,
        np.log(dataclasses.astuple(start)),
        method="L-BFGS-B",
        options={"maxiter": iterations},
        callback=None if progress is None else lambda _: progress.advance(1 / iterations),
    )
    return Hyperparameters(*(float(value) for value in np.exp(result.x)))
