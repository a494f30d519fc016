"""What notebooks show of contexts, data and tasks: tables, and pictures that need no file beside them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from .units import format_bytes

if TYPE_CHECKING:  # loaded by whoever records, not by everyone who can be shown
    from pathlib import Path

    from .dot import DotRecorder

_log = logging.getLogger("stf")
_Owner = TypeVar("_Owner")
_NOTEBOOK_NODES = 120  # a picture of more takes seconds to draw, and nobody reads it in a cell
_NOTEBOOK_RECORDS = 2_000  # tasks and operations; to go through more takes as long as the picture
_NOTEBOOK_ROW = "display: flex; flex-wrap: wrap; gap: 24px; align-items: flex-start"
_NOTEBOOK_GRAPH = "overflow: auto; max-height: 640px"
_NUMBER = ' style="text-align: right"'


def never_raises(show: Callable[[_Owner], str | None]) -> Callable[[_Owner], str | None]:
    """Make a method that shows an object in a notebook return None instead of raising: the repr is shown then."""

    @wraps(show)
    def shown(owner: _Owner) -> str | None:
        try:
            return show(owner)
        except Exception:
            _log.debug("%s could not be shown as HTML", type(owner).__name__, exc_info=True)
            return None

    return shown


# -- elements ------------------------------------------------------------------------------------------------------


def text(value: object) -> str:
    """Return a value as text whose markup has no meaning."""
    import html  # 3 ms, which `import stf` goes without

    return html.escape(str(value))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    rows = list(rows)
    numbers = [_is_number(cell) for cell in rows[0]] if rows else []
    head = "".join(
        f"<th{_NUMBER * (column < len(numbers) and numbers[column])}>{text(cell)}</th>"
        for column, cell in enumerate(header)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return f"<td{_NUMBER * _is_number(value)}>{text(value)}</td>"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and value[:1].isdigit())


def picture(draw: Callable[[Path], object], description: str) -> str:
    """Return an image in the page itself; or, if it cannot be drawn, the reason.

    Parameters
    ----------
    draw
        Draws into the SVG file whose path it is given.
    description
        What the image shows.
    """
    import base64
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.svg")
        try:
            draw(path)
        except (ImportError, ValueError, RuntimeError) as error:
            return f'<p class="note">No picture: {text(error)}</p>'
        data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{text(description)}" src="data:image/svg+xml;base64,{data}">'


# -- the task graph ------------------------------------------------------------------------------------------------


def fitting_depth(recorder: DotRecorder, max_nodes: int) -> tuple[int | None, int]:
    """Return the deepest nesting of sections at which the graph has at most `max_nodes` nodes, and how many it has.

    The depth is None where everything can be shown, and 0, the outermost sections alone, where nothing fits.
    """
    from .taskgraph import collapsed

    graph = recorder.graph(keep_redundant=True)
    num_nodes = len(graph.nodes)
    if num_nodes <= max_nodes:
        return None, num_nodes
    for depth in range(max((section.depth for section in graph.sections), default=0), -1, -1):
        num_nodes = len(collapsed(graph, depth).nodes)
        if num_nodes <= max_nodes:
            return depth, num_nodes
    return (0, num_nodes) if graph.sections else (None, num_nodes)


def graph_picture(recorder: DotRecorder, max_nodes: int, **options: Any) -> str:
    """Return a picture of the task graph; sections are merged until it fits, then its beginning is shown."""
    from . import draw

    depth, num_nodes = fitting_depth(recorder, max_nodes)
    notes = []
    if depth is not None:
        notes.append(
            f"Sections nested in more than {depth} others are one node each." if depth else "A section is one node."
        )
    if num_nodes > max_nodes:
        notes.append(
            f"These are the first {max_nodes} of {num_nodes} nodes; group tasks with ctx.dot_section(name) to see all."
        )
    dot_text = recorder.to_dot(max_depth=depth, max_nodes=max_nodes, **options)
    shown = picture(lambda path: draw.render(dot_text, path), "task graph")
    note = f'<p class="note">{text(" ".join(notes))}</p>' if notes else ""
    return f'{note}<div class="picture">{shown}</div>'


# -- in a notebook -------------------------------------------------------------------------------------------------


def statistics_html(title: str, statistics: Any) -> str:
    """Return what a notebook shows of a context's `Statistics`."""
    pending = f", {statistics.pending} pending" if statistics.pending else ""
    return (
        f"<p><b>{text(title)}</b>: {statistics.total_tasks} tasks{pending}, {statistics.total_copies} copies "
        f"({format_bytes(statistics.total_copied_bytes)})</p>"
        f'<div style="{_NOTEBOOK_ROW}">{"".join(statistics.tables())}</div>'
    )


def context_html(title: str, statistics: Any, recorder: DotRecorder | None) -> str:
    """Return what a notebook shows of a context: its statistics, and its task graph if a small one was recorded."""
    parts = [statistics_html(title, statistics)]
    if recorder is not None and len(recorder) > _NOTEBOOK_RECORDS:
        parts.append("<p>These are too many tasks for a picture here: <code>ctx.report()</code> shows them.</p>")
    elif recorder is not None and recorder.tasks:
        graph = graph_picture(recorder, _NOTEBOOK_NODES)
        parts.append(
            f'<details open><summary>task graph</summary><div style="{_NOTEBOOK_GRAPH}">{graph}</div></details>'
        )
    return "".join(parts)


def data_html(title: str, history: str) -> str:
    """Return what a notebook shows of a logical data: a row for each line of its history."""
    first, *lines = history.split("\n")
    rows = [("written by", first.rsplit("written by ", 1)[-1])]
    for line in map(str.strip, lines):
        head, _, rest = line.partition(" " if line.startswith("copied ") else ": ")
        rows.append((head, rest))
    return f"<p><b>{text(title)}</b></p>{table(('', ''), rows)}"


def lines_html(lines: str) -> str:
    """Return lines of text as they are."""
    return f"<pre>{text(lines)}</pre>"
