"""Draw a trace as bars on a time axis, one row per worker of each place."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stf._support.whole_file import whole_file

from .trace import free_lane
from .units import format_duration

_FORMATS = (".svg", ".png", ".pdf")
_WIDTH = 14.0  # inches
_ROW_HEIGHT = 0.34
_LABELLED_BARS = 400
_ROW_BARS = 600  # with more in a row, single bars would be thinner than a pixel or two
_MAX_ROWS = 40  # with more, what computes at once on a device shares a row
_COLUMNS = 360
_THIN = 2e-3  # of the width
_SAME_US = 1e-3  # times are rounded to nanoseconds
_COPIES = "copies"
_COPY_COLOR = "#868d97"
_OTHER_COLOR = "#b4bac2"
_COLORS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1",
    "#9c755f", "#2b3f6b", "#d37295", "#a0cbe8", "#ffbe7d", "#8cd17d", "#d4a6c8",
)  # fmt: skip


@dataclass(frozen=True)
class _Bar:
    row: int
    lane: int
    start_ms: float
    duration_ms: float
    name: str
    is_copy: bool


def timeline(trace: dict[str, Any], path: str | Path, title: str | None = None) -> Path:
    """Draw what ran where and when.

    Parameters
    ----------
    trace
        What `TraceRecorder.to_chrome` returned.
    path
        Where to write; the suffix .png, .svg or .pdf chooses the format.
    title
        Text above the picture.

    Returns
    -------
    Path
        `path`.

    Notes
    -----
    Tasks have the colour of their name, without a trailing index such as in "gemm(2, 1)"; the names that
    took most time are in the legend. Copies are grey, hatched and half as high. Events of one row that
    overlap are drawn above one another: copies of a CUDA device, and its tasks where there are many rows.
    Where single events would be too thin to see, time is divided into columns, and a column's height is the
    share of its time that the worker was busy, by name.
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"cannot draw a timeline as {path.suffix!r}; pass a path that ends in .png, .svg or .pdf")
    try:
        from matplotlib.figure import Figure  # which does not touch the global state of pyplot
    except ImportError as error:
        raise ImportError("drawing needs Matplotlib: pip install matplotlib") from error
    labels, bars = _bars(trace["traceEvents"])
    colors = _colors(bars)
    figure = Figure(figsize=(_WIDTH, 1.3 + _ROW_HEIGHT * max(len(labels), 3)))
    axes = figure.add_subplot()
    is_dense = max(Counter(bar.row for bar in bars).values(), default=0) > _ROW_BARS
    (_draw_columns if is_dense else _draw_bars)(axes, bars, colors)
    _draw_axes(axes, labels, bars, title)
    if is_dense:
        axes.set_xlabel(f"time (ms); a column is {_end_ms(bars) / _COLUMNS:.3g} ms, its height the time busy")
    _draw_legend(axes, bars, colors)
    with whole_file(path) as partial:
        figure.savefig(partial, dpi=130, facecolor="white")
    return path


def _bars(events: list[dict[str, Any]]) -> tuple[list[str], list[_Bar]]:
    """Return the labels of the rows, from the top, and all bars."""
    spans = sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"])
    tracks = sorted({(event["pid"], event["tid"]) for event in spans})
    names = _row_labels(events, tracks)
    is_tall = len(set(map(_without_index, names))) < len(tracks) > _MAX_ROWS
    names = [_without_index(name) if is_tall or ", copies " in name else name for name in names]
    labels = list(dict.fromkeys(names))
    row_of = {track: labels.index(name) for track, name in zip(tracks, names, strict=True)}
    busy_until: defaultdict[int, list[float]] = defaultdict(list)
    bars = []
    for event in spans:
        row = row_of[event["pid"], event["tid"]]
        lane = free_lane(busy_until[row], event["ts"] + _SAME_US, event["ts"] + event["dur"])
        start_ms, duration_ms = event["ts"] / 1000, event["dur"] / 1000
        is_copy = event["cat"] == "copy"
        name = _COPIES if is_copy else family(event["name"])
        bars.append(_Bar(row, lane, start_ms, duration_ms, name, is_copy))
    return labels, bars


def _without_index(label: str) -> str:
    """Return what rows of one kind have in common: "device 0, compute 3" → "device 0, compute"; workers stay apart."""
    head, _, last = label.rpartition(" ")
    return head if last.isdigit() and not head.endswith("worker") else label


def family(name: str) -> str:
    """Return the name without what tells apart tasks of one kind: "gemm(2, 1)" → "gemm"."""
    head = name.split("(")[0].split("[")[0].rstrip("0123456789 _#.:-")
    return head or name


def _row_labels(events: list[dict[str, Any]], tracks: list[tuple[int, int]]) -> list[str]:
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and "name" in event["args"]
    }
    labels: list[str] = []
    for pid, tid in tracks:
        process = names.get(("process_name", pid, 0), f"process {pid}")
        labels.append(f"{process}, {names.get(('thread_name', pid, tid), f'worker {tid}')}")
    return labels


def _time_by_name(bars: list[_Bar]) -> dict[str, float]:
    """Return the total time of each name, the longest first."""
    total: defaultdict[str, float] = defaultdict(float)
    for bar in bars:
        total[bar.name] += bar.duration_ms
    return dict(sorted(total.items(), key=lambda pair: (-pair[1], pair[0])))


def _colors(bars: list[_Bar]) -> dict[str, str]:
    times = _time_by_name(bars)
    colors = dict(zip((name for name in times if name != _COPIES), _COLORS, strict=False))
    return colors | ({_COPIES: _COPY_COLOR} if _COPIES in times else {})


def _draw_bars(axes: Any, bars: list[_Bar], colors: dict[str, str]) -> None:
    from matplotlib.collections import PolyCollection

    lanes: defaultdict[int, int] = defaultdict(lambda: 1)
    for bar in bars:
        lanes[bar.row] = max(lanes[bar.row], bar.lane + 1)
    has_edges = len(bars) <= 2000
    thin_ms = _end_ms(bars) * _THIN
    for is_copy in (False, True):
        drawn = [bar for bar in bars if bar.is_copy == is_copy]
        faces = [colors.get(bar.name, _OTHER_COLOR) for bar in drawn]
        thin = [bar.duration_ms < thin_ms for bar in drawn]  # an edge in white would be all that is seen of them
        axes.add_collection(
            PolyCollection(
                [_corners(bar, lanes[bar.row]) for bar in drawn],
                facecolors=faces,
                edgecolors=[face if is_thin else "white" for face, is_thin in zip(faces, thin, strict=True)],
                linewidths=0.4 if has_edges else 0.0,
                hatch="////" if is_copy and has_edges and not any(thin) else None,
            )
        )
    if len(bars) <= _LABELLED_BARS:
        _label_bars(axes, bars, lanes)


def _draw_columns(axes: Any, bars: list[_Bar], colors: dict[str, str]) -> None:
    """Draw for each row and span of time how long each name ran, stacked from the bottom of the row."""
    from matplotlib.collections import PolyCollection

    step_ms = _end_ms(bars) / _COLUMNS
    rank = {name: number for number, name in enumerate(colors)}
    corners, faces = [], []
    for (row, column), times in sorted(_times_by_column(bars, step_ms).items()):
        scale = 0.84 / max(step_ms, sum(times.values()))
        left, bottom = column * step_ms, row + 0.42
        for name in sorted(times, key=lambda name: (rank.get(name, len(rank)), name)):
            top = bottom - times[name] * scale
            corners.append([(left, top), (left + step_ms, top), (left + step_ms, bottom), (left, bottom)])
            faces.append(colors.get(name, _OTHER_COLOR))
            bottom = top
    axes.add_collection(PolyCollection(corners, facecolors=faces, linewidths=0, antialiaseds=False))


def _times_by_column(bars: list[_Bar], step_ms: float) -> dict[tuple[int, int], dict[str, float]]:
    times: defaultdict[tuple[int, int], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for bar in bars:
        end_ms = bar.start_ms + bar.duration_ms
        for column in range(int(bar.start_ms / step_ms), min(int(end_ms / step_ms), _COLUMNS - 1) + 1):
            start, end = max(bar.start_ms, column * step_ms), min(end_ms, (column + 1) * step_ms)
            times[bar.row, column][bar.name] += max(end - start, 0.0)
    return {key: dict(named) for key, named in times.items()}


def _corners(bar: _Bar, lanes: int) -> list[tuple[float, float]]:
    height = 0.84 / lanes
    top = bar.row - 0.42 + bar.lane * height
    if bar.is_copy:
        top, height = top + height / 4, height / 2
    left, right = bar.start_ms, bar.start_ms + bar.duration_ms
    return [(left, top), (right, top), (right, top + height), (left, top + height)]


def _label_bars(axes: Any, bars: list[_Bar], lanes: dict[int, int]) -> None:
    """Write a name into each bar that is wide enough for it."""
    inch_per_ms = 0.75 * _WIDTH / max(_end_ms(bars), 1e-12)
    style = {"ha": "center", "va": "center", "fontsize": 7, "color": "white", "parse_math": False}
    for bar in bars:
        needed_ms = (0.085 * len(bar.name) + 0.05) / inch_per_ms
        if not bar.is_copy and lanes[bar.row] == 1 and bar.duration_ms > needed_ms:
            axes.text(bar.start_ms + bar.duration_ms / 2, bar.row, bar.name, **style)


def _end_ms(bars: list[_Bar]) -> float:
    return max((bar.start_ms + bar.duration_ms for bar in bars), default=1.0)


def _draw_axes(axes: Any, labels: list[str], bars: list[_Bar], title: str | None) -> None:
    axes.set(xlim=(0, _end_ms(bars) * 1.005), ylim=(max(len(labels), 1) - 0.5, -0.5), xlabel="time (ms)")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#d5d9df", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for row in range(0, len(labels), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f5f7", zorder=0)
    if title:
        axes.set_title(title, loc="left", fontsize=11, parse_math=False)
    left = 0.3 + 0.075 * max(map(len, labels), default=0)
    height = axes.figure.get_figheight()
    axes.figure.subplots_adjust(left / _WIDTH, 0.55 / height, 0.84, 1 - (0.4 if title else 0.15) / height)


def _draw_legend(axes: Any, bars: list[_Bar], colors: dict[str, str]) -> None:
    from matplotlib.patches import Patch

    times = _time_by_name(bars)
    handles = []
    for name, color in colors.items():
        hatch = "////" if name == _COPIES else None
        short = name if len(name) <= 24 else name[:23] + "…"
        label = f"{short}, {format_duration(times[name] * 1e6)}"
        handles.append(Patch(fc=color, ec="white", lw=0, hatch=hatch, label=label))
    others = sum(time for name, time in times.items() if name not in colors)
    if others:
        handles.append(
            Patch(fc=_OTHER_COLOR, label=f"{len(times) - len(colors)} others, {format_duration(others * 1e6)}")
        )
    if handles:
        legend = axes.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            frameon=False,
            fontsize=8,
            borderaxespad=0,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
