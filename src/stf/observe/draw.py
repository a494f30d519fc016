"""Make pictures: of a task graph with Graphviz or, where that is missing, with Matplotlib alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .dotfile import Cluster, Picture, parse_dot, unescaped
from .layered import Point
from .nested import Box, NestedLayout
from .timeline import canvas, timeline

__all__ = ["render", "timeline"]

_FORMATS = ("svg", "png", "pdf")
_MAX_NODES = 5000
_MAX_PIXELS = 16_000  # along one side of a PNG
_DPI = 150.0
_MARGIN = 12.0  # points, as all lengths here
_ROUNDING = 4.0
_LINE_SPACING = 1.25
_ARROW_LENGTH, _ARROW_HALF_WIDTH = 6.0, 2.4
_DASHES = (0, (4.0, 2.5))


def render(dot_text: str, path: str | Path) -> Path:
    """Draw a graph in the DOT language.

    Uses Graphviz's `dot` if it is on the PATH, else Matplotlib.

    Parameters
    ----------
    dot_text
        What `DotRecorder.to_dot` returned.
    path
        Where to write; the suffix .svg, .png or .pdf chooses the format.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    ValueError
        If the suffix is another one, or there is no Graphviz and the graph is too large to draw without.
    ImportError
        If there is neither Graphviz nor Matplotlib.
    """
    path = Path(path)
    file_format = path.suffix.lower().removeprefix(".")
    if file_format not in _FORMATS:
        raise ValueError(f"cannot draw a graph as {path.suffix!r}; pass a path that ends in .svg, .png or .pdf")
    dot = shutil.which("dot")
    if dot is None:
        _render_with_matplotlib(parse_dot(dot_text), path)
    else:
        _render_with_graphviz(dot, dot_text, path, file_format)
    return path


def _render_with_graphviz(dot: str, dot_text: str, path: Path, file_format: str) -> None:
    options = [f"-Gdpi={_DPI:.0f}"] if file_format == "png" else []
    command = [dot, f"-T{file_format}", *options, "-o", str(path)]
    done = subprocess.run(command, input=dot_text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Graphviz failed with {done.returncode}: {done.stderr.decode().strip()}")


def _render_with_matplotlib(picture: Picture, path: Path) -> None:
    if len(picture.nodes) > _MAX_NODES:
        raise ValueError(
            f"the graph has {len(picture.nodes)} nodes, more than the {_MAX_NODES} that are drawn without "
            "Graphviz; install Graphviz, or merge tasks with dot_section and max_depth"
        )
    _Drawing(picture).save(path)


class _Drawing:
    """One picture, drawn with y downwards, in points."""

    def __init__(self, picture: Picture) -> None:
        names = list(picture.nodes)
        index = {name: number for number, name in enumerate(names)}
        self._picture = picture
        self._labels = [unescaped(attributes.get("label", name)) for name, attributes in picture.nodes.items()]
        self._sizes = [
            _node_size(label, attributes)
            for label, attributes in zip(self._labels, picture.nodes.values(), strict=True)
        ]
        # In the order of the file each cluster comes after the one around it, as the layout wants it.
        self._layout = NestedLayout(
            self._sizes,
            [picture.cluster_of[name] for name in names],
            [cluster.parent for cluster in picture.clusters],
            [_cluster_label_size(cluster) for cluster in picture.clusters],
            [(index[source], index[target]) for source, target, _ in picture.edges],
        )

    def save(self, path: Path) -> None:
        title = unescaped(self._picture.attributes.get("label", ""))
        title_width, title_height = _text_size(title, 11.0)
        width = max(self._layout.width, title_width) + 2 * _MARGIN
        height = self._layout.height + 2 * _MARGIN + (title_height + _MARGIN if title else 0.0)
        figure = canvas(width / 72, height / 72)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        left = (self._layout.width - width) / 2
        axes.set(
            xlim=(left, left + width),
            ylim=(self._layout.height + _MARGIN, self._layout.height + _MARGIN - height),
        )
        axes.axis("off")
        if title:
            axes.text(left + width / 2, -_MARGIN, title, ha="center", va="bottom", fontsize=11, parse_math=False)
        self._draw_clusters(axes)
        self._draw_edges(axes)
        self._draw_nodes(axes)
        dpi = min(_DPI, 72 * _MAX_PIXELS / max(width, height))
        figure.savefig(path, dpi=dpi, facecolor="white")

    def _draw_clusters(self, axes: Any) -> None:
        for number, cluster in enumerate(self._picture.clusters):
            box, attributes = self._layout.cluster(number), cluster.attributes
            axes.add_patch(_box_patch(box, attributes, attributes.get("fillcolor", "none"), zorder=1))
            axes.text(
                box.x - box.width / 2 + 6,
                box.y - box.height / 2 + 4,
                unescaped(attributes.get("label", "")),
                ha="left",
                va="top",
                fontsize=_number(attributes, "fontsize", 11.0),
                color="#3c4450",
                parse_math=False,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5},
                zorder=4,
            )

    def _draw_edges(self, axes: Any) -> None:
        from matplotlib.collections import PathCollection, PolyCollection

        routes = [self._layout.route(number) for number in range(len(self._picture.edges))]
        colors = [attributes.get("color", "#000000") for *_, attributes in self._picture.edges]
        widths = [_number(attributes, "penwidth", 0.9) for *_, attributes in self._picture.edges]
        if routes:
            curves = [_curve(route) for route in routes]
            axes.add_collection(
                PathCollection(curves, facecolors="none", edgecolors=colors, linewidths=widths, zorder=2)
            )
            heads = [_arrow_head(route[-1]) for route in routes]
            axes.add_collection(PolyCollection(heads, facecolors=colors, linewidths=0, zorder=2.5))

    def _draw_nodes(self, axes: Any) -> None:
        for number, (label, attributes) in enumerate(zip(self._labels, self._picture.nodes.values(), strict=True)):
            box = self._layout.node(number)
            axes.add_patch(_node_patch(box, attributes))
            _draw_label(axes, box, label, _number(attributes, "fontsize", 10.0))


def _draw_label(axes: Any, box: Box, label: str, fontsize: float) -> None:
    """Write the lines of a label; the first, the name, is darker."""
    lines = label.split("\n")
    step = fontsize * _LINE_SPACING
    y = box.y - step * (len(lines) - 1) / 2
    for number, line in enumerate(lines):
        size, color = (fontsize, "#14181f") if number == 0 else (fontsize * 0.85, "#4a5361")
        style = {"ha": "center", "va": "center_baseline", "fontsize": size, "color": color, "zorder": 4}
        axes.text(box.x, y, line, parse_math=False, **style)
        y += step


def _node_patch(box: Box, attributes: dict[str, str]) -> Any:
    fill = attributes.get("fillcolor", "#ffffff") if "filled" in attributes.get("style", "") else "#ffffff"
    if attributes.get("shape", "ellipse") == "ellipse":
        from matplotlib.patches import Ellipse

        return Ellipse((box.x, box.y), box.width, box.height, fc=fill, **_stroke(attributes), zorder=3)
    return _box_patch(box, attributes, fill, zorder=3)


def _box_patch(box: Box, attributes: dict[str, str], fill: str, zorder: float) -> Any:
    from matplotlib.patches import FancyBboxPatch

    rounding = _ROUNDING if "rounded" in attributes.get("style", "") else 0.0
    return FancyBboxPatch(
        (box.x - box.width / 2, box.y - box.height / 2),
        box.width,
        box.height,
        boxstyle=f"round,pad=0,rounding_size={rounding}" if rounding else "square,pad=0",
        fc=fill,
        **_stroke(attributes),
        zorder=zorder,
    )


def _stroke(attributes: dict[str, str]) -> dict[str, Any]:
    return {
        "ec": attributes.get("color", "#000000"),
        "lw": _number(attributes, "penwidth", 0.9),
        "ls": _DASHES if "dashed" in attributes.get("style", "") else "solid",
    }


def _curve(route: Sequence[Point]) -> Any:
    """Return a smooth path through the points that is vertical in each of them."""
    from matplotlib.path import Path as Curve

    points: list[Point] = [route[0]]
    codes = [Curve.MOVETO]
    end = (route[-1][0], route[-1][1] - _ARROW_LENGTH / 2)
    for (x0, y0), (x1, y1) in zip(route, [*route[1:-1], end], strict=False):
        middle = (y0 + y1) / 2
        points += [(x0, middle), (x1, middle), (x1, y1)]
        codes += [Curve.CURVE4] * 3
    return Curve(points, codes)


def _arrow_head(tip: Point) -> list[Point]:
    x, y = tip
    return [(x, y), (x - _ARROW_HALF_WIDTH, y - _ARROW_LENGTH), (x + _ARROW_HALF_WIDTH, y - _ARROW_LENGTH)]


def _node_size(label: str, attributes: dict[str, str]) -> tuple[float, float]:
    width, height = _text_size(label, _number(attributes, "fontsize", 10.0))
    factor = 1.3 if attributes.get("shape", "ellipse") == "ellipse" else 1.0
    return max(width + 16.0, 34.0) * factor, (height + 9.0) * factor


def _cluster_label_size(cluster: Cluster) -> tuple[float, float]:
    label = unescaped(cluster.attributes.get("label", ""))
    width, height = _text_size(label, _number(cluster.attributes, "fontsize", 11.0))
    return width, height if label else 0.0


def _text_size(text: str, fontsize: float) -> tuple[float, float]:
    lines = text.split("\n")
    return max(_line_width(line, fontsize) for line in lines), len(lines) * fontsize * _LINE_SPACING


@cache
def _font() -> tuple[Any, Any]:
    try:
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path
    except ImportError as error:
        hint = "drawing a graph needs Graphviz (https://graphviz.org) or Matplotlib: pip install matplotlib"
        raise ImportError(hint) from error
    return text_to_path, FontProperties()


def _line_width(line: str, fontsize: float) -> float:
    """Return the sum of the characters' widths, which is near enough and can be cached."""
    return sum(map(_character_width, line)) * fontsize


@cache
def _character_width(character: str) -> float:
    text_to_path, font = _font()
    pair, _, _ = text_to_path.get_text_width_height_descent(f"n{character}n", font, ismath=False)
    single, _, _ = text_to_path.get_text_width_height_descent("nn", font, ismath=False)
    return float(pair - single) / float(font.get_size_in_points())


def _number(attributes: dict[str, str], key: str, default: float) -> float:
    try:
        return float(attributes.get(key, default))
    except ValueError:
        return default
