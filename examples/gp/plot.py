"""The picture of a regression: data, fit and forecast."""

from __future__ import annotations

import pathlib

import numpy as np

from .series import Series

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("the picture needs Matplotlib: pip install matplotlib") from error

__all__ = ["draw_fit"]

_INK, _DATA, _HELD_OUT, _FIT, _FORECAST = "#22303c", "#7a8793", "#111111", "#1f6fb2", "#d9541e"
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#9aa5b1",
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": "#e6eaee",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_SEAM_YEARS = 5.0


def draw_fit(
    path: pathlib.Path,
    data: Series,
    held_out: Series,
    years: np.ndarray,
    mean: np.ndarray,
    sigma: np.ndarray,
) -> None:
    """Draw the whole series with its forecast and, below, the years around the seam and those that were held out.

    `mean` and `sigma` are the prediction at `years`, `sigma` with the noise of an observation: the band
    of ± 1.96 sigma is to hold 95 % of what is measured.
    """
    seam = data.years[-1]
    low, high = mean - 1.96 * sigma, mean + 1.96 * sigma
    shown = max(_SEAM_YEARS, held_out.years[-1] - seam if len(held_out) else 0.0)
    around = (years > seam - _SEAM_YEARS) & (years < seam + shown)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 8.2), layout="constrained")
        whole, detail = figure.subplots(2, 1, height_ratios=(1.45, 1.0))
        dot = min(max(5000.0 / len(data), 2.5), 12.0)
        for axes, size in ((whole, dot), (detail, 12.0)):
            axes.fill_between(years, low, high, color=_FORECAST, alpha=0.17, lw=0, label="95 % band")
            axes.scatter(data.years, data.values, s=size, color=_DATA, lw=0, label="measured")
            if len(held_out):
                axes.scatter(
                    held_out.years,
                    held_out.values,
                    s=size,
                    color=_HELD_OUT,
                    lw=0,
                    label="measured, held out",
                    zorder=3,
                )
            begin = max(np.searchsorted(years, seam, side="right") - 1, 0)  # the two lines meet here
            axes.plot(years[: begin + 1], mean[: begin + 1], color=_FIT, lw=0.9, label="fit")
            axes.plot(years[begin:], mean[begin:], color=_FORECAST, lw=1.1, label="forecast")
            axes.axvline(seam, color=_INK, lw=0.8, ls=(0, (4, 3)))
            axes.set_ylabel(data.label)
        whole.set_xlim(years[0], years[-1])
        title = f"Gaussian-process regression on {len(data):,} values, and {years[-1] - seam:.0f} years beyond"
        whole.set_title(title, loc="left", fontsize=13, weight="bold")
        whole.legend(loc="upper left", frameon=False, markerscale=3.0 / dot**0.5)
        margin = 0.06 * (high[around].max() - low[around].min())
        detail.set_xlim(years[around][0], years[around][-1])
        detail.set_ylim(low[around].min() - margin, high[around].max() + margin)
        detail.set_title("where the forecast begins", loc="left", fontsize=11)
        detail.set_xlabel("year")
        figure.align_ylabels()
        figure.savefig(path, dpi=130, facecolor="white")
