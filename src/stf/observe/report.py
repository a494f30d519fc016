"""One page that tells what a run did: an HTML file with its data, its scripts, and no need of a network.

The page is made by the plain JavaScript of `assets`; here the run becomes columns of numbers, which are packed into it.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import sys
import time
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from stf._support.many_objects import many_objects
from stf._support.whole_file import write_whole

from .run import Run, SourceLine
from .statistics import Statistics
from .timeline import family
from .units import place_name

_SCRIPTS = ("model", "analysis", "elements", "timeline", "graph", "views", "detail", "page")
_SPAN_KINDS = {"task": 0, "copy": 1, "kernel": 2}  # as in `model.js`
_QUICK, _SMALL = 1, 9  # levels of gzip: for the run, which is packed each time; for what is packed once a process
_NOTEBOOK_HEIGHT = 720


class Report:
    """A page that can be written to a file; a notebook shows it.

    Parameters
    ----------
    title, subtitle
        What ran, and where.
    """

    def __init__(self, title: str, subtitle: str, statistics: Statistics, run: Run) -> None:
        parts = {
            "title": html.escape(title),
            "subtitle": html.escape(subtitle),
            "style": _asset("report.css"),
            "warning": _warning(statistics.pending),
            "run": packed(json.dumps(content(statistics, run), separators=(",", ":")), _QUICK),
            "graphviz": _packed_asset("viz-global.js"),
            "scripts": "\n".join(f"<script>\n{_asset(f'{name}.js')}</script>" for name in _SCRIPTS),
        }
        self.html = re.sub("@([a-z]+)@", lambda match: parts[match[1]], _asset("report.html"))

    def write(self, path: str | Path) -> Path:
        """Write the page; return its path."""
        return write_whole(path, self.html, "replace")

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {_NOTEBOOK_HEIGHT}px; border: 1px solid #8884; border-radius: 8px"
        return f'<iframe title="stf report" style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def packed(text: str, level: int) -> str:
    """Return text as base64 of gzip."""
    return base64.b64encode(gzip.compress(text.encode(), level, mtime=0)).decode()


@many_objects()
def content(statistics: Statistics, run: Run) -> dict[str, Any]:
    """Return what the page shows, as `model.js` reads it: columns of numbers, and lists of the strings they mean."""
    names, places, sources = _Numbers(), _Numbers(), _Numbers()
    shown = {
        "tasks": _task_columns(run, names, places, sources),
        "spans": _span_columns(run, names),
        "operations": _operation_columns(run, places),
        "rows": _rows(run),
        "data": _data_columns(run),
        "sections": [{"name": s.name, "parent": s.parent, "depth": s.depth} for s in run.sections],
        "failures": _failures(run),
        "statistics": _counts(statistics),
    }
    families = _Numbers()
    of_name = [families[family(name)] for name in names]
    return shown | {
        "names": list(names),
        "familyOfName": of_name,
        "families": list(families),
        "places": list(places),
        "sources": list(map(_source, run.sources())),  # numbered as the tasks name them
    }


class _Numbers(dict[str, int]):
    """Numbers for strings, in the order in which they are asked for first."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


def _differences(times: Iterable[int]) -> list[int]:
    """Return the first time, and how much later each other one is than the one before: few digits."""
    return [now - previous for previous, now in pairwise(chain((0,), times))]


def _task_columns(run: Run, names: _Numbers, places: _Numbers, sources: _Numbers) -> dict[str, Any]:
    tasks, origin_ns = run.tasks, run.origin_ns
    submitted = (-1 if task.submitted_ns is None else task.submitted_ns - origin_ns for task in tasks)
    return {
        "id": [task.id for task in tasks],
        "name": [names[task.name] for task in tasks],
        "kind": [task.kind for task in tasks],
        "place": [places[task.place] for task in tasks],
        "section": [task.section for task in tasks],
        "source": [sources[task.call_site] for task in tasks],
        "submitted": _differences(submitted),
        "numAccesses": [len(task.accesses) for task in tasks],
        "accesses": [access for task in tasks for access in task.accesses],
        "numBefore": [len(task.before) for task in tasks],
        "before": [index - before for index, task in enumerate(tasks) for before in task.before],
    }


def _span_columns(run: Run, names: _Numbers) -> dict[str, Any]:
    spans = run.spans
    rows = {key: number for number, key in enumerate(_row_keys(run))}
    return {
        "task": [span.task for span in spans],
        "operation": [span.operation for span in spans],
        "name": [names[span.name] for span in spans],
        "row": [rows[span.device, span.row] for span in spans],
        "kind": [_SPAN_KINDS[span.category] for span in spans],
        "start": _differences(span.start_ns - run.origin_ns for span in spans),
        "duration": [span.end_ns - span.start_ns for span in spans],
    }


def _operation_columns(run: Run, places: _Numbers) -> dict[str, Any]:
    operations = run.operations
    return {
        "time": _differences(operation.time_ns - run.origin_ns for operation in operations),
        "kind": [operation.kind for operation in operations],
        "data": [operation.data for operation in operations],
        "source": [places[operation.source] for operation in operations],
        "target": [places[operation.target] for operation in operations],
        "bytes": [operation.nbytes for operation in operations],
        "task": [operation.task for operation in operations],
    }


def _row_keys(run: Run) -> list[tuple[int, int]]:
    return sorted({(span.device, span.row) for span in run.spans})


def _rows(run: Run) -> list[dict[str, Any]]:
    return [
        {
            "place": place_name(device),
            "name": run.row_name(device, row),
            "isThread": run.is_thread(device, row),
        }
        for device, row in _row_keys(run)
    ]


def _data_columns(run: Run) -> dict[str, Any]:
    layouts = [run.layouts.get(data) for data in range(len(run.data_names))]
    return {
        "name": list(run.data_names),
        "dtype": ["" if layout is None else layout.dtype for layout in layouts],
        "shape": [[] if layout is None else layout.shape for layout in layouts],
        "nbytes": [-1 if layout is None else layout.nbytes for layout in layouts],
    }


def _source(source: SourceLine) -> dict[str, Any]:
    number = int(source.call_site.rpartition(":")[2] or 0)
    return {
        "site": source.call_site,
        "path": source.path,
        "first": source.first,
        "lines": source.lines,
        "line": number - source.first,  # among `lines`
    }


def _failures(run: Run) -> list[dict[str, Any]]:
    index_of = {task.id: index for index, task in enumerate(run.tasks)}
    found = []
    for task_id, description, raised_at, is_skip in run.failures:
        index = index_of.get(task_id, -1)
        told = {"task": index, "why": description, "raised": raised_at, "skipped": is_skip}
        task = run.tasks[index] if index >= 0 else None
        found.append(
            told | {"name": f"#{task_id}", "site": "", "place": ""}
            if task is None
            else told | {"name": task.name, "site": task.call_site, "place": task.place}
        )
    return found


def _counts(statistics: Statistics) -> dict[str, Any]:
    peak = max(statistics.peak_bytes.items(), key=lambda item: item[1], default=("", 0))
    return {
        "total": statistics.total_tasks,
        "tasks": sorted(([kind, n] for kind, n in statistics.tasks.items() if n), key=lambda pair: -pair[1]),
        "places": [[place, count] for place, count in statistics.tasks_by_place.items()],
        "copies": statistics.total_copies,
        "copiedBytes": statistics.total_copied_bytes,
        "peak": list(peak) if peak[1] else None,
        "memory": statistics.memory_rows(statistics.allocations),
        "graphs": _graphs(statistics),
    }


def _graphs(statistics: Statistics) -> str:
    if not statistics.graphs_made:
        return ""
    return f"{statistics.graphs_made} made, {statistics.graphs_updated} updated, {statistics.graphs_kept} kept"


def _warning(pending: int) -> str:
    if not pending:
        return ""
    return (
        f'<p class="warning">{pending} tasks had not run when this was written: their times are missing. '
        "Call ctx.synchronize() or ctx.finalize() before ctx.report().</p>"
    )


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _packed_asset(name: str) -> str:
    return packed(_asset(name), _SMALL)


def subtitle(devices: str, finished: bool) -> str:
    """Return a line on where and when something ran."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = f"stf {version('sequential-task-flow')}"
    except PackageNotFoundError:
        release = "stf"
    state = "finalized" if finished else "not finalized yet"
    python = ".".join(map(str, sys.version_info[:3]))
    return f"devices {devices!r}, {state}; {release}, Python {python}; {time.strftime('%Y-%m-%d %H:%M:%S')}"
