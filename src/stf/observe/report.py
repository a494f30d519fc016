"""One page that tells what a run did: counts, pictures, where the time went, what failed."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import html
from .dot import DotRecorder
from .html import Markup, table, text
from .replay import TaskRecord
from .statistics import Statistics
from .taskgraph import TaskGraph
from .timeline import family, timeline
from .trace import TraceRecorder
from .units import format_bytes, format_duration
from .why import cause_of, label_of

_MAX_NODES = 500
_READABLE_NODES = 100  # a picture of more is shown in its own size, to be scrolled
_MAX_ROWS = 20
_SHARP_BARS = 2000  # with more spans than this the timeline is pixels: as lines it would be megabytes


@dataclass
class Run:
    """What a page is made of.

    Attributes
    ----------
    title, subtitle
        What ran, and where.
    tasks, trace
        What was recorded.
    """

    title: str
    subtitle: str
    statistics: Statistics
    tasks: DotRecorder
    trace: TraceRecorder


@dataclass
class _Group:
    """The tasks of one name that one line submitted."""

    name: str
    call_site: str
    durations_ns: list[int] = field(default_factory=list)
    critical_ns: int = 0
    places: set[str] = field(default_factory=set)

    @property
    def total_ns(self) -> int:
        return sum(self.durations_ns)


def write(run: Run, path: str | Path) -> Path:
    """Write the page; return its path."""
    path = Path(path)
    path.write_text("".join(_Page(run).parts()), encoding="utf-8")
    return path


class _Page:
    """One page."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._statistics = run.statistics
        self._durations = run.tasks.durations()
        self._graph: TaskGraph = run.tasks.graph(keep_redundant=True)
        self._trace = run.trace.to_perfetto()
        self._spans = [event for event in self._trace["traceEvents"] if event["ph"] == "X"]

    def parts(self) -> Iterator[str]:
        """Yield the page from top to bottom."""
        title = text(self._run.title)
        yield f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        yield f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        yield f"<h1>{title}</h1><p class='note'>{text(self._run.subtitle)}</p>"
        yield from self._pending()
        yield f'<div class="cards">{"".join(self._cards())}</div>'
        for heading, content in self._sections():
            yield f"<section><h2>{heading}</h2>{content}</section>"
        yield "</body></html>\n"

    def _sections(self) -> Iterator[tuple[str, str]]:
        if self._run.tasks.failures:
            yield "What failed", self._failures()
        yield "Timeline", self._timeline()
        yield "Where the time went", self._time_by_name()
        yield "The longest tasks", self._longest()
        yield "Task graph", self._task_graph()
        yield "Tasks", f'<div class="side">{html.tasks_tables(self._statistics)}</div>'
        yield "Copies", html.copies_table(self._statistics)
        yield "Memory", html.memory_table(self._statistics)

    def _pending(self) -> Iterator[str]:
        if self._statistics.pending:
            yield (
                f"<p class='warning'>{self._statistics.pending} tasks had not run when this was written: their times "
                "are missing. Call ctx.synchronize() or ctx.finalize() before ctx.report().</p>"
            )

    # -- numbers -----------------------------------------------------------------------------------------------

    def _cards(self) -> Iterator[str]:
        statistics, graph = self._statistics, self._graph
        yield _card("tasks", str(statistics.total_tasks))
        yield _card("from first to last", format_duration(self._wall_ns()))
        if graph.critical_ns:
            yield _card("work of all tasks (T1)", format_duration(graph.work_ns))
            yield _card("critical path (T∞)", format_duration(graph.critical_ns))
            possible = f"of {graph.work_ns / graph.critical_ns:.1f} possible"
            yield _card("parallelism", f"{graph.work_ns / max(self._wall_ns(), 1):.1f}", possible)
        yield _card("copies", f"{statistics.total_copies}", format_bytes(statistics.total_copied_bytes))
        if statistics.peak_bytes:
            place = max(statistics.peak_bytes, key=lambda name: statistics.peak_bytes[name])
            yield _card("memory peak", format_bytes(statistics.peak_bytes[place]), place)
        failures = len(self._run.tasks.failures)
        yield _card("failures", str(failures), "" if failures else "none", "bad" if failures else "")

    def _wall_ns(self) -> float:
        """The time from the first start of a body or a copy to the last end."""
        return max((span["ts"] + span["dur"] for span in self._spans), default=0.0) * 1000

    def _failures(self) -> str:
        records = {record[0]: record for record in self._run.tasks.tasks}
        rows = []
        for task_id, description in sorted(self._run.tasks.failures):
            record = records.get(task_id)
            if record is None:
                rows.append((f"#{task_id}", "", "", description))
            else:
                rows.append((_name(record), record[6], record[3], cause_of(record, description)))
        return table(("task", "submitted at", "place", "why"), rows[:_MAX_ROWS]) + _more(len(rows), "failures")

    # -- time --------------------------------------------------------------------------------------------------

    def _timeline(self) -> str:
        if not self._spans:
            return "<p>Nothing has run.</p>"
        file_format = "svg" if len(self._spans) <= _SHARP_BARS else "png"
        shown = html.picture(lambda path: timeline(self._trace, path), file_format, "timeline")
        return f'<div class="picture wide">{shown}</div>'

    def _time_by_name(self) -> str:
        groups = sorted(self._groups(), key=lambda group: -group.total_ns)
        if not groups:
            return "<p>No task has run.</p>"
        work_ns = max(sum(group.total_ns for group in groups), 1)
        rows = [self._row(group, work_ns) for group in groups[:_MAX_ROWS]]
        header = ("task", "submitted at", "runs", "total", "share", "mean", "longest", "on the critical path", "places")
        return table(header, rows) + _more(len(groups), "kinds of tasks")

    def _groups(self) -> list[_Group]:
        groups: dict[tuple[str, str], _Group] = {}
        critical = {self._graph.nodes[index].name for index in self._graph.critical_nodes}
        for record in self._run.tasks.tasks:
            duration_ns = self._durations.get(record[0])
            if duration_ns is not None:
                name = family(record[1] or record[2])
                group = groups.setdefault((name, record[6]), _Group(name, record[6]))
                group.durations_ns.append(duration_ns)
                group.places.add(record[3])
                group.critical_ns += duration_ns if f"t{record[0]}" in critical else 0
        return list(groups.values())

    def _row(self, group: _Group, work_ns: int) -> tuple[object, ...]:
        durations = group.durations_ns
        return (
            group.name,
            group.call_site,
            len(durations),
            format_duration(group.total_ns),
            _bar(group.total_ns / work_ns),
            format_duration(group.total_ns / len(durations)),
            format_duration(max(durations)),
            format_duration(group.critical_ns) if group.critical_ns else "",
            _places(group.places),
        )

    def _longest(self) -> str:
        ran = [record for record in self._run.tasks.tasks if record[0] in self._durations]
        ran.sort(key=lambda record: -self._durations[record[0]])
        starts: defaultdict[int, float] = defaultdict(float)
        for span in reversed(self._spans):
            if span["cat"] != "copy":
                starts[span["args"]["task"]] = span["ts"] * 1000
        rows = [
            (
                _name(record),
                record[6],
                record[3],
                format_duration(starts[record[0]]),
                format_duration(self._durations[record[0]]),
            )
            for record in ran[: _MAX_ROWS // 2]
        ]
        header = ("task", "submitted at", "place", "started after", "ran for")
        return table(header, rows) if rows else "<p>No task has run.</p>"

    def _task_graph(self) -> str:
        if not self._graph.nodes:
            return "<p>No tasks.</p>"
        places = {node.place for node in self._graph.nodes}
        shown = html.graph_picture(self._run.tasks, _MAX_NODES, timing=True, color_by_device=len(places) > 1)
        fits = "" if len(self._graph.nodes) > _READABLE_NODES else " checked"
        return (_LEGEND if self._graph.work_ns else "") + _FIT.format(checked=fits) + shown


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


def _name(record: TaskRecord) -> str:
    return record[1] or f"{record[2]} {label_of(None, record[0])}"


def _places(places: set[str]) -> str:
    listed = sorted(places)
    return ", ".join(listed) if len(listed) <= 3 else f"{', '.join(listed[:2])} and {len(listed) - 2} more"


def _more(count: int, what: str) -> str:
    return f"<p class='note'>… of {count} {what} in all.</p>" if count > _MAX_ROWS else ""


def _bar(share: float) -> Markup:
    return Markup(f'<span class="bar"><i style="width:{100 * share:.1f}%"></i></span> {100 * share:.1f} %')


def _card(label: str, value: str, detail: str = "", css_class: str = "") -> str:
    small = f"<small>{text(detail)}</small>" if detail else ""
    return f'<div class="card {css_class}"><span>{text(label)}</span><b>{text(value)}</b>{small}</div>'


_FIT = '<input type="checkbox" id="fit"{checked}><label for="fit"> as wide as the page</label>'
_LEGEND = (
    "<p class='note'>The darker a task, the longer it ran; red edges are the critical path. "
    "With several places, a task's border has the colour of its place.</p>"
)
_STYLE = """
:root { --line: #d9dde3; --soft: #5b6472; --accent: #4e79a7; --bad: #b3261e; }
body { font: 14px/1.5 system-ui, sans-serif; color: #14181f; background: #fff; max-width: 1240px;
       margin: 0 auto; padding: 24px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 32px 0 8px; }
.note { color: var(--soft); margin: 2px 0 10px; }
.warning { border-left: 4px solid #e0a100; background: #fff8e1; padding: 8px 12px; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; margin-top: 18px; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 8px 14px; min-width: 104px; }
.card span, .card small { display: block; color: var(--soft); font-size: 12px; }
.card b { font-size: 19px; font-weight: 600; } .bad b { color: var(--bad); }
table { border-collapse: collapse; margin: 4px 0 8px; font-variant-numeric: tabular-nums; }
.side { display: flex; gap: 48px; align-items: flex-start; }
th { text-align: left; white-space: nowrap; font-weight: 600; color: var(--soft); font-size: 12px; }
th, td { border-bottom: 1px solid var(--line); padding: 4px 18px 4px 0; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
.bar { display: inline-block; width: 90px; height: 9px; background: #eef0f3; border-radius: 2px; }
.bar i { display: block; height: 100%; background: var(--accent); border-radius: 2px; }
.picture { overflow: auto; max-height: 860px; border: 1px solid var(--line); border-radius: 8px; padding: 8px; }
.picture img { display: block; margin: auto; } .wide img { width: 100%; }
#fit:checked ~ .picture img { max-width: 100%; }
"""
