"""The picture of Task Bench: efficiency by granularity on one pattern, and METG on all of them."""

from __future__ import annotations

import math
import pathlib

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from metg import HALF, Curve

__all__ = ["draw"]

INK, FAINT, LIMIT = "#22303c", "#7a8793", "#c0392b"
BLUES = ("#0f3d66", "#1f6fb2", "#4fa3d9", "#1b998b", "#5fc2b4", "#8bd3c7")
WARMS = ("#b5541c", "#e0975a", "#8e5572", "#c98bb0", "#8a7a4f")
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#c5ccd3",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.0,
    "grid.color": "#e6eaee",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw(curves: list[Curve], cores: int, path: pathlib.Path) -> None:
    """Write the picture; the curves are those of `stencil_1d`, or of the first pattern."""
    patterns = list(dict.fromkeys(curve.pattern for curve in curves))
    shown = "stencil_1d" if "stencil_1d" in patterns else patterns[0]
    colors = colors_of(curves)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
        draw_curves(left, [curve for curve in curves if curve.pattern == shown], colors)
        left.set_title(f"{shown}, {cores} core{'s' * (cores > 1)}", loc="left", fontsize=10, fontweight="bold")
        draw_metg(right, curves, patterns, colors)
        right.set_title("METG(50 %) by pattern", loc="left", fontsize=10, fontweight="bold")
        for axes in (left, right):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.grid(True)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130, facecolor="white")


def colors_of(curves: list[Curve]) -> dict[str, str]:
    """Return a color for each runner: cold ones for stf, warm ones for its peers."""
    colors: dict[str, str] = {}
    for kind, shades in (("stf", BLUES), ("peer", WARMS)):
        names = dict.fromkeys(curve.runner for curve in curves if curve.kind == kind)
        colors.update(zip(names, shades, strict=False))
    return colors


def draw_curves(axes, curves: list[Curve], colors: dict[str, str]) -> None:
    """Efficiency by granularity, with the line that METG is read at."""
    for curve in curves:
        at = [point.granularity_us for point in curve.points]
        efficiency = [100 * point.efficiency for point in curve.points]
        dashes = "-" if curve.kind == "stf" else "--"
        axes.plot(at, efficiency, dashes, color=colors[curve.runner], lw=1.8, marker="o", ms=3.5, label=curve.runner)
    axes.axhline(100 * HALF, color=LIMIT, lw=1.2, ls=":")
    axes.set_ylim(0, 130)  # beside a peak that other work slowed down, more than 100 % is measured
    axes.set_xlabel("granularity, µs (wall time × cores / tasks)")
    axes.set_ylabel("% of the kernel's peak rate")


def draw_metg(axes, curves: list[Curve], patterns: list[str], colors: dict[str, str]) -> None:
    """A row for each pattern, a mark for each runner."""
    for curve in curves:
        if math.isfinite(curve.metg_us):
            mark = "o" if curve.kind == "stf" else "D"
            axes.plot(curve.metg_us, patterns.index(curve.pattern), mark, color=colors[curve.runner], ms=6, alpha=0.9)
    axes.set_ylim(len(patterns) - 0.5, -0.5)
    axes.set_yticks(range(len(patterns)), patterns)
    axes.set_xlabel("granularity, µs (less is better)")
