"""The pictures of the overhead benchmarks."""

from __future__ import annotations

import pathlib

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

__all__ = ["draw_flat", "draw_grain", "draw_overhead"]

_INK, _FAINT, _BUDGET = "#22303c", "#7a8793", "#c0392b"
_COLORS = {"raw": "#aab4be", "stf": "#1f6fb2", "rival": "#e0975a"}
_NAMES = {"raw": "no task at all", "stf": "stf", "rival": "peers"}
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#c5ccd3",
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.0,
    "grid.color": "#e6eaee",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def draw_overhead(rows, budgets: dict[str, float], path: pathlib.Path) -> None:
    """One panel per case, one bar per contender: time per task, with marks where submission ends and budgets lie."""
    cases = list(dict.fromkeys(row.case for row in rows))
    names = list(dict.fromkeys(row.contender for row in rows))
    left = min(row.total_us for row in rows) / 2
    right = max(row.total_us for row in rows) * 8
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(2.6 + 2.5 * len(cases), 1.5 + 0.33 * len(names)), layout="constrained")
        panels = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for panel, case in zip(panels, cases, strict=True):
            _draw_case(panel, [row for row in rows if row.case == case], names, budgets, left)
            panel.set_title(case, fontsize=10, loc="left", fontweight="bold")
            panel.set_xlim(left, right)
        panels[0].set_ylim(len(names) - 0.4, -0.6)
        panels[0].set_yticks(range(len(names)), names)
        figure.supxlabel("µs per task (log)", fontsize=9)
        marks = [Patch(color=color, label=_NAMES[kind]) for kind, color in _COLORS.items()]
        marks.append(matplotlib.lines.Line2D([], [], color=_INK, lw=1.6, label="submitted"))
        marks.append(matplotlib.lines.Line2D([], [], color=_BUDGET, lw=1.6, ls=":", label="budget"))
        figure.legend(handles=marks, ncols=len(marks), loc="outside upper center", frameon=False)
        _save(figure, path)


def draw_grain(points, cores: int, floor: float, path: pathlib.Path) -> None:
    """Speed-up over one thread, by how long a body takes; with the grain from which on tasks pay."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 4.4), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.axhline(1.0, color=_FAINT, lw=1.0)
        axes.axhline(cores, color=_FAINT, lw=1.0, ls="--")
        axes.text(points[0].body_us, cores, f"{cores} cores", va="bottom", color=_FAINT)
        at = [p.body_us for p in points]
        line = {"lw": 2.0, "marker": "o", "ms": 4.5}
        axes.plot(at, [p.speedup for p in points], color=_COLORS["stf"], label="stf function tasks", **line)
        axes.plot(at, [p.peer_speedup for p in points], color=_COLORS["rival"], label="concurrent.futures", **line)
        if floor < float("inf"):
            axes.axvline(floor, color=_BUDGET, lw=1.4, ls=":")
            axes.annotate(
                f"pays from {floor:.1f} µs on", (floor, 0.0), (5, 6), textcoords="offset points", color=_BUDGET
            )
        axes.set_ylim(0, cores + 0.25)
        axes.set_xlabel("µs per body, run in sequence (log)")
        axes.set_ylabel("speed-up")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(True)
        axes.legend(loc="lower right", frameon=False)
        _save(figure, path)


def draw_flat(programs, path: pathlib.Path) -> None:
    """Cost and memory per window of tasks, one line per program."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 4.0), layout="constrained")
        cost, memory = figure.subplots(1, 2)
        for (name, windows), color in zip(programs.items(), ("#1f6fb2", "#6fb1e0", "#b5541c", "#e0975a"), strict=False):
            at = [window.tasks / 1e3 for window in windows]
            cost.plot(at, [w.cpu_us for w in windows], color=color, lw=2.0, marker="o", ms=3.5, label=name)
            memory.plot(at, [w.grown_mib for w in windows], color=color, lw=2.0, marker="o", ms=3.5)
        for axes, what in ((cost, "processor µs per task"), (memory, "resident MiB more than after the first window")):
            axes.set_xlabel("thousand tasks")
            axes.set_title(what, fontsize=9.5, loc="left")
            axes.grid(True)
        cost.set_ylim(0, None)
        memory.set_ylim(min(-1.0, memory.get_ylim()[0]), max(4.0, memory.get_ylim()[1]))
        figure.legend(ncols=len(programs), loc="outside upper center", frameon=False)
        _save(figure, path)


def _save(figure, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")


def _draw_case(panel, rows, names, budgets, left) -> None:
    baseline = next((row.total_us / row.ratio for row in rows if row.ratio), None)
    for row in rows:
        y = names.index(row.contender)
        panel.barh(y, row.total_us - left, left=left, height=0.68, color=_COLORS[row.kind], log=True)
        if row.submit_us < 0.97 * row.total_us:
            panel.plot([row.submit_us] * 2, [y - 0.34, y + 0.34], color=_INK, lw=1.6)
        end = row.total_us
        if baseline is not None and row.contender in budgets:
            budget = budgets[row.contender] * baseline
            end = max(end, budget)
            panel.plot([budget] * 2, [y - 0.42, y + 0.42], color=_BUDGET, lw=1.6, ls=":")
        panel.annotate(_short(row.total_us), (end, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
    panel.grid(axis="x")
    panel.tick_params(length=0)
    panel.xaxis.set_major_locator(LogLocator(numticks=8))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(NullFormatter())


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
