"""The pictures of a run: the fit, and who worked when."""

from __future__ import annotations

import pathlib

import numpy as np

from .series import Series

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch
except ImportError as error:
    raise ImportError("the pictures need Matplotlib: pip install matplotlib") from error

__all__ = ["draw_fit", "draw_timeline"]

_INK, _DATA, _FIT, _FORECAST = "#22303c", "#7a8793", "#1f6fb2", "#d9541e"
# One colour per kernel; a kernel without one takes the next of the spare ones.
_KERNELS = {
    "cov": "#8fb8de",
    "potrf": "#c0392b",
    "trsm": "#e8a33d",
    "syrk": "#5b8c5a",
    "gemm": "#2f5d8a",
    "trsv": "#8e5aa8",
    "gemv": "#c9a6d9",
    "predict": "#2a9d8f",
    "copy": "#b9b9b9",
}
_SPARE = ("#4d4d4d", "#a0522d", "#708238", "#d187a8")
_STYLE = {
    "font.size": 10,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "grid.color": "#e6eaee",
    "axes.axisbelow": True,
}


def draw_fit(path: pathlib.Path, data: Series, held_out: Series, years: np.ndarray, mean: np.ndarray, sigma: np.ndarray) -> None:
    """Draw the data, the fit, and the forecast with the band that holds 95 % of observations; below, the seam between them.

    `mean` and `sigma` are the prediction at `years`, `sigma` with the noise of an observation.
    """
    seam = data.years[-1]
    with pyplot.rc_context(_STYLE):
        figure, (whole, detail) = pyplot.subplots(2, 1, figsize=(11, 8.2), height_ratios=(1.45, 1.0), layout="constrained")
        for axes, size in ((whole, 1.6), (detail, 11.0)):
            axes.fill_between(years, mean - 1.96 * sigma, mean + 1.96 * sigma, color=_FORECAST, alpha=0.16, lw=0, label="95 % band")
            axes.scatter(data.years, data.values, s=size, color=_DATA, lw=0, label="measured")
            if len(held_out):
                axes.scatter(held_out.years, held_out.values, s=size, color="#111111", lw=0, label="measured, held out", zorder=3)
            past = years <= seam
            axes.plot(years[past], mean[past], color=_FIT, lw=0.9, label="fit")
            axes.plot(years[~past], mean[~past], color=_FORECAST, lw=1.1, label="forecast")
            axes.axvline(seam, color=_INK, lw=0.8, ls=(0, (4, 3)))
            axes.set_ylabel(data.label)
        whole.set_xlim(years[0], years[-1])
        whole.set_title(f"{len(data):,} values, and {years[-1] - seam:.0f} years beyond", loc="left", fontsize=13, weight="bold")
        whole.legend(loc="upper left", frameon=False, markerscale=3)
        first, last = max(years[0], seam - 5.0), min(years[-1], seam + 5.0)
        shown = (years >= first) & (years <= last)
        detail.set_xlim(first, last)
        low, high = (mean - 1.96 * sigma)[shown].min(), (mean + 1.96 * sigma)[shown].max()
        detail.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        detail.set_title("where the forecast begins", loc="left", fontsize=11)
        detail.set_xlabel("year")
        figure.align_ylabels()
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def draw_timeline(path: pathlib.Path, trace: dict, title: str) -> None:
    """Draw what each worker of each device did, from a trace in Chrome's format, one colour per kernel."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X" and not event["name"].startswith("tick")]
    if not events:
        raise ValueError("the trace holds no task; nothing to draw")
    lanes = sorted({(event["pid"], event["tid"]) for event in events})
    names = _lane_names(trace, lanes)
    start = min(event["ts"] for event in events)
    span = max(event["ts"] + event["dur"] for event in events) - start
    unit, scale = ("s", 1e6) if span > 5e6 else ("ms", 1e3)
    colors = _colors(events)
    with pyplot.rc_context(_STYLE | {"axes.spines.left": False}):
        figure, axes = pyplot.subplots(figsize=(13, 1.7 + 0.62 * len(lanes)), layout="constrained")
        for row, lane in enumerate(lanes):
            own = [event for event in events if (event["pid"], event["tid"]) == lane]
            bars = [((event["ts"] - start) / scale, event["dur"] / scale) for event in own]
            edge = {"edgecolor": "white", "linewidth": 0.3} if len(own) < 600 else {}
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=[colors[_kernel(event)] for event in own], **edge)
            busy = sum(event["dur"] for event in own) / span
            axes.annotate(f"{busy:.0%} busy", (1.005, row), xycoords=("axes fraction", "data"), va="center", color=_INK)
        axes.set_yticks(range(len(lanes)), names)
        axes.set_ylim(len(lanes) - 0.45, -0.55)
        axes.set_xlim(0, span / scale)
        axes.set_xlabel(f"time ({unit})")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_title(title, loc="left", fontsize=13, weight="bold")
        handles = [Patch(color=color, label=kernel) for kernel, color in colors.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, handlelength=1.0)
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def _kernel(event: dict) -> str:
    return "copy" if event.get("cat") == "copy" else event["name"].partition("(")[0]


def _colors(events: list[dict]) -> dict[str, str]:
    used = {_kernel(event) for event in events}
    colors = {kernel: color for kernel, color in _KERNELS.items() if kernel in used}
    others = sorted(used - colors.keys())
    return colors | {kernel: _SPARE[i % len(_SPARE)] for i, kernel in enumerate(others)}


def _lane_names(trace: dict, lanes: list[tuple[int, int]]) -> list[str]:
    """Number the workers of each device from 0, whatever their ids are."""
    devices = sorted({pid for pid, _ in lanes})
    workers = {lane: [tid for pid, tid in lanes if pid == lane[0]].index(lane[1]) for lane in lanes}
    if len(devices) == 1:
        return [f"worker {workers[lane]}" for lane in lanes]
    return [f"device {lane[0]}" + (f", worker {workers[lane]}" if sum(pid == lane[0] for pid, _ in lanes) > 1 else "") for lane in lanes]
