"""Record a program's tasks and write their graph in Graphviz's DOT language."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stf._support.call_sites import site_text
from stf._support.many_objects import many_objects
from stf._support.whole_file import write_whole

from .observer import ObservedTask, Observer, Operation
from .order import MODE_NAMES, OperationRecord, Order, TaskRecord
from .taskgraph import TOP, Node, Section, TaskGraph, collapsed, shortened, transitive_reduction, with_critical_path
from .trace import TraceRecorder
from .units import format_duration

_LABEL_WIDTH = 30  # characters of a line of accesses
_LABEL_LINES = 6  # lines of accesses before the rest is only counted

_KIND_COLORS = {
    "task": "#e3edfb",
    "section": "#f6f7f9",
    "host_launch": "#fdf0d5",
    "freeze": "#d9f2f5",
    "unfreeze": "#d9f2f5",
    "fence": "#f8dfe3",
}
_OTHER_COLOR = "#eceef1"
_HOST_COLOR = "#dfe2e7"
_GRID_COLOR = "#e9dcf7"
_DEVICE_COLORS = (
    "#9ecae9", "#ffbf79", "#a6d98c", "#ff9d98", "#86d3cb", "#f2cf5b",
    "#d6a5c9", "#c9ae98", "#b9c3f5", "#d8e08a", "#f7b6d2", "#9fd8b5",
)  # fmt: skip
_HEAT_COLORS = ("#fff7ec", "#fee8c8", "#fdd49e", "#fdbb84", "#fc8d59", "#ef6548")
_CRITICAL_COLOR = "#b3261e"
_MOST_MARKED = 0.9  # of the nodes: a critical path through more of them is not marked, which would say nothing
_EDGE_COLOR = "#5f6670"

_ALWAYS_HIDDEN = frozenset({"freeze", "unfreeze", "fence"})


@dataclass(frozen=True)
class DotOptions:
    """What the graph shows.

    Parameters
    ----------
    ignore_prereqs
        Leave out internal operations: allocations, copies, frees, write-backs.
    color_by_device
        Colour tasks by the place they run on, and name it.
    remove_data_deps
        Leave out the names and access modes of data.
    timing
        Show measured durations, colour by relative duration, and mark the critical path. It is not marked where it goes
        through more than nine of ten nodes.
    max_depth
        Merge what is nested in more than this many sections; None shows everything.
    show_fence, keep_freeze
        Show fences; show freezes and unfreezes.
    keep_redundant
        Keep edges that others imply.
    max_nodes
        Show no more nodes than this, the first in program order; None shows all.
    stats_file
        Also write the numbers of edges and vertices, total work and critical path to this CSV file.
    """

    ignore_prereqs: bool = True
    color_by_device: bool = False
    remove_data_deps: bool = False
    timing: bool = False
    max_depth: int | None = None
    show_fence: bool = False
    keep_redundant: bool = False
    stats_file: str | Path | None = None
    keep_freeze: bool = False
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        if self.max_nodes is not None and self.max_nodes < 1:
            raise ValueError(f"max_nodes is {self.max_nodes}; pass 1 or more, or None to show all")
        if self.max_depth is not None and self.max_depth < 0:
            raise ValueError(f"max_depth is {self.max_depth}; pass 0 or more, or None to show everything")

    @property
    def hidden_kinds(self) -> frozenset[str]:
        """Kinds of tasks that get no node."""
        shown = {"fence"} if self.show_fence else set()
        return _ALWAYS_HIDDEN - shown - ({"freeze", "unfreeze"} if self.keep_freeze else set())


class DataLayout(NamedTuple):
    """What the content of a data looks like."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class TaskFailure(NamedTuple):
    """Why a task failed, and the line that raised; or why it was skipped."""

    task_id: int
    description: str
    raised_at: str
    is_skip: bool


class DotRecorder(Observer):
    """Record tasks, and build their graph when asked.

    Recording keeps one tuple per task, of numbers and of what is there anyway: it costs each task less than the task
    itself. Names, lines, order, reduction and colours are worked out when somebody looks, which may be as often as one
    likes, while recording goes on.

    Parameters
    ----------
    name
        Name of the graph in the DOT file.
    """

    def __init__(self, name: str = "stf") -> None:
        self.name = name
        self._log: list[tuple[Any, ...]] = []  # what is not read yet: tasks, and arguments of `_read_…` after its name
        self._reading = threading.Lock()
        self._tasks: list[TaskRecord] = []
        self._operations: list[OperationRecord] = []
        self._spans: list[tuple[int, int, int]] = []  # task id, start, end; appended from any thread
        self.failures: list[TaskFailure] = []  # and of tasks that did not run since another had; from any thread
        self.sections: list[Section] = []  # that were opened
        self._section = TOP
        self._data_names: list[str] = []
        self._layouts: dict[int, DataLayout] = {}  # by index
        self._described: set[int] = set()  # accesses, as tasks tell them, to data whose layout was logged
        self._files: dict[str, str] = {}  # line as text → the file's path; "" where two files look the same
        self._data: dict[int, int] = {}  # data id → index in _data_names
        self._removed: dict[int, int] = {}
        self._strings: dict[str, str] = {}
        self.choices: dict[int, Any] = {}  # of places that were automatic, by task: ``lines()`` tells of one

    def task(self, task: ObservedTask) -> None:
        """Record a task."""
        known: Any = task  # the engine's tell more, and quicker, than others do
        try:
            tell = known.tell
        except AttributeError:
            entry = _record_of(task, self._section)
        else:
            if tell(self._log, self._described, self._section):
                return
            entry = known.record(self._section)
        if not self._described.issuperset(entry[9::2]):
            self._describe(task, entry[9::2])
        choice = getattr(task, "choice", None)
        if choice is not None and hasattr(choice, "lines"):
            self.choices[task.id] = choice
        self._log.append(entry)

    def loan(self, kind: str, data_id: int, data_name: str, mode: int, number: int, waits_for: tuple[int, ...]) -> None:
        """Record that data are frozen, or are so no more: the operation of that number."""
        access = data_id << 3 | mode, data_name
        self._log.append((self._section, -number, f"{kind} {data_name}", kind, "host", -1, "", 0, waits_for, *access))

    def operation(self, operation: Operation) -> None:
        """Record an internal operation."""
        self._log.append(("operation", operation, self._section))

    def ran(
        self,
        task_id: int,
        name: str,
        device: int,
        worker: int,
        start_ns: int,
        end_ns: int,
        category: str,
        operation: int = 0,
    ) -> None:
        """Record how long a body ran; may be called from any thread."""
        if category == "task":
            self._spans.append((task_id, start_ns, end_ns))

    def failed(self, task_id: int, description: str, raised_at: str) -> None:
        """Record why a task failed; may be called from any thread."""
        self.failures.append(TaskFailure(task_id, description, raised_at, False))

    def skipped(self, task_id: int, description: str) -> None:
        """Record why a task did not run; may be called from any thread."""
        self.failures.append(TaskFailure(task_id, description, "", True))

    def withdrawn(self, task_id: int) -> None:
        """Forget a task that could not begin; what was done for it stays."""
        self._log.append(("withdrawn", task_id))

    def section_begin(self, name: str) -> None:
        """Open a section in the innermost open one."""
        depth = 0 if self._section == TOP else self.sections[self._section].depth + 1
        self.sections.append(Section(name, self._section, depth))
        self._section = len(self.sections) - 1

    def section_end(self) -> None:
        """Close the innermost open section; does nothing if there is none."""
        if self._section != TOP:
            self._section = self.sections[self._section].parent

    def data_removed(self, data_id: int) -> None:
        """Take the next use of this id as another data."""
        self._described.difference_update(range(data_id << 3, (data_id + 1) << 3))
        self._log.append(("removed", data_id))

    def _describe(self, task: ObservedTask, seen: tuple[int, ...]) -> None:
        """Record the layouts of a task's data, of which some is new, or used in a new way."""
        described = {access >> 3 for access in self._described.intersection(seen)}
        self._described.update(seen)
        for access in task.accesses:
            data_id = access.data_id
            if data_id not in described:
                layout = getattr(getattr(getattr(access, "data", None), "core", None), "layout", None)
                if layout is not None:
                    self._log.append(("layout", data_id, layout.shape, layout.dtype, layout.nbytes))

    # -- reading what was recorded ---------------------------------------------------------------------------------

    def _read(self) -> None:
        """Make records of what was told since the last time, in order: names, numbers of data, and lines as text.

        What is told meanwhile, by another thread, is at the end of the log and waits for the next time.
        """
        if not self._log:
            return
        with self._reading, many_objects():
            count = len(self._log)
            sites: dict[Any, Any] = {}  # by the address of the code, which the log keeps alive
            for entry in self._log[:count]:
                if isinstance(entry[0], str):
                    getattr(self, f"_read_{entry[0]}")(*entry[1:])
                else:
                    self._read_task(entry, sites)
            del self._log[:count]

    def _read_task(self, entry: tuple[Any, ...], sites: dict[tuple[int, int], str]) -> None:
        section, task_id, symbol, kind, place, device, code, offset, waits_for = entry[:9]
        if isinstance(code, str):
            call_site = self._shared(code)
        else:
            call_site = sites.get((id(code), offset), "")
            if not call_site:
                call_site = sites[id(code), offset] = self._shared(site_text(code, offset))
                file = getattr(code, "co_filename", "")
                if self._files.setdefault(call_site, file) != file:
                    self._files[call_site] = ""
        accesses = []
        for i in range(9, len(entry), 2):
            access, name = entry[i], entry[i + 1]
            index = self._index_of(access >> 3)
            self._data_names[index] = name or f"data{access >> 3}"  # it may get its symbol after its first use
            accesses.append(index << 3 | access & 7)
        place = self._shared(place)
        self._tasks.append((task_id, symbol, kind, place, device, tuple(accesses), call_site, section, waits_for))

    def _read_operation(self, operation: Operation, section: int) -> None:
        kind, data_id, name, source, target, nbytes, task_id, number, waits_for = operation
        data = self._data.get(data_id, self._removed.get(data_id))  # what is removed may be freed later
        if data is None:
            data = self._index_of(data_id)
            self._data_names[data] = name
        source, target = self._shared(source), self._shared(target)
        about = nbytes, task_id, section, number, waits_for
        self._operations.append((len(self._tasks), kind, data, source, target, *about))

    def _read_withdrawn(self, task_id: int) -> None:
        found = next((i for i in reversed(range(len(self._tasks))) if self._tasks[i][0] == task_id), None)
        if found is None:
            return
        del self._tasks[found]
        for i in reversed(range(len(self._operations))):
            operation = self._operations[i]
            if operation[0] <= found:
                break
            self._operations[i] = (operation[0] - 1, *operation[1:])

    def _read_layout(self, data_id: int, shape: Any, dtype: Any, nbytes: int) -> None:
        self._layouts[self._index_of(data_id)] = DataLayout(tuple(shape or ()), str(dtype or ""), nbytes or 0)

    def _read_removed(self, data_id: int) -> None:
        if data_id in self._data:
            self._removed[data_id] = self._data.pop(data_id)

    def __len__(self) -> int:
        """Return about how many tasks and operations were recorded, without making records of them."""
        return len(self._log) + len(self._tasks) + len(self._operations)

    def __bool__(self) -> bool:
        return True

    @property
    def tasks(self) -> Sequence[TaskRecord]:
        """What was recorded of each task, in program order."""
        self._read()
        return self._tasks

    @property
    def operations(self) -> Sequence[OperationRecord]:
        """What was recorded of each internal operation, in program order."""
        self._read()
        return self._operations

    @property
    def data_names(self) -> Sequence[str]:
        """The names of the data that records call by number."""
        self._read()
        return self._data_names

    @property
    def layouts(self) -> Mapping[int, DataLayout]:
        """The layouts of the data that records call by number; tokens have none."""
        self._read()
        return self._layouts

    @property
    def files(self) -> Mapping[str, str]:
        """The path of the file of each line that submitted tasks; "" where two files have the same name."""
        self._read()
        return self._files

    def durations(self) -> dict[int, int]:
        """Return how long each task that has run did so, in nanoseconds, by its id."""
        return _durations(self._bodies())

    def duration_of(self, task_id: int) -> int | None:
        """Return how long a task ran, in nanoseconds; None if it has not."""
        return _durations([span for span in self._bodies() if span[0] == task_id]).get(task_id)

    def _bodies(self) -> list[tuple[int, int, int]]:
        """Return the task, the start and the end of each body that has run."""
        return list(self._spans)

    def graph(self, **options: Any) -> TaskGraph:
        """Return the graph as data; takes the options of `to_dot`."""
        return self._graph(DotOptions(**options))

    def to_dot(self, **options: Any) -> str:
        """Return the graph in the DOT language.

        Parameters
        ----------
        **options
            The fields of `DotOptions`.

        Returns
        -------
        str
            Text for Graphviz or `stf.observe.draw.render`.
        """
        chosen = DotOptions(**options)
        graph = self._graph(chosen)
        if chosen.stats_file is not None:
            write_whole(chosen.stats_file, _statistics(graph))
        return "\n".join(_Writer(graph, chosen).lines(self.name)) + "\n"

    def _graph(self, options: DotOptions) -> TaskGraph:
        self._read()
        order = Order(self._data_names, options.hidden_kinds, not options.ignore_prereqs)
        order.run(self._tasks, self._operations, self.durations())
        graph = with_critical_path(TaskGraph(order.nodes, order.predecessors, list(self.sections)))
        if options.max_depth is not None:
            graph = collapsed(graph, options.max_depth)
        if options.max_nodes is not None:
            graph = shortened(graph, options.max_nodes)
        if not options.keep_redundant:
            graph.predecessors = transitive_reduction(graph.predecessors)
        return graph

    def _index_of(self, data_id: int) -> int:
        """Return by which number records call a data."""
        index = self._data.get(data_id)
        if index is None:
            index = self._data[data_id] = len(self._data_names)
            self._data_names.append("")
        return index

    def _shared(self, text: str) -> str:
        """Return the one copy of `text` that all records share."""
        return self._strings.setdefault(text, text)


def _record_of(task: ObservedTask, section: int) -> tuple[Any, ...]:
    """Return what a task that is not the engine's has to tell: see its `record`."""
    accesses = [part for a in task.accesses for part in (a.data_id << 3 | a.mode, a.data_name)]
    line = task.call_site, 0, tuple(task.waits_for)
    return (section, task.id, task.symbol, task.kind, task.place_name, task.device, *line, *accesses)


class DotBesideTrace(DotRecorder):
    """Record tasks, where a trace is told when they ran, and keeps that already.

    Parameters
    ----------
    name : str
        Name of the graph in the DOT file.
    trace : TraceRecorder
        Told the same.
    """

    ran = Observer.ran  # so that nobody tells it

    def __init__(self, name: str, trace: TraceRecorder) -> None:
        super().__init__(name)
        self._trace = trace

    def _bodies(self) -> list[tuple[int, int, int]]:
        return self._trace.bodies()


def _durations(spans: list[tuple[int, int, int]]) -> dict[int, int]:
    """Return for each task how long any part of it ran; parts of a grid overlap, replays don't."""
    durations: dict[int, int] = {}
    until: dict[int, int] = {}
    for task_id, start_ns, end_ns in sorted(spans):
        start_ns = max(start_ns, until.get(task_id, start_ns))
        end_ns = max(start_ns, end_ns)
        until[task_id] = end_ns
        durations[task_id] = durations.get(task_id, 0) + end_ns - start_ns
    return durations


def _statistics(graph: TaskGraph) -> str:
    header = "edges,vertices,total_work_ms,critical_path_ms"
    times = f"{graph.work_ns / 1e6:.6f},{graph.critical_ns / 1e6:.6f}"
    return f"{header}\n{graph.num_edges},{len(graph.nodes)},{times}\n"


class _Writer:
    """Write one graph."""

    def __init__(self, graph: TaskGraph, options: DotOptions) -> None:
        self._graph = graph
        self._options = options
        self._timed = options.timing and graph.work_ns > 0
        self._marks_path = self._timed and len(graph.critical_nodes) <= _MOST_MARKED * len(graph.nodes)
        self._longest_ns = max((node.duration_ns or 0 for node in graph.nodes), default=0)

    def lines(self, name: str) -> Iterator[str]:
        yield f"digraph {_quoted(name)} {{"
        yield f"  graph [{_attributes(self._graph_attributes())}];"
        yield f"  node [{_attributes(_NODE_DEFAULTS)}];"
        yield f"  edge [{_attributes(_EDGE_DEFAULTS)}];"
        yield from self._node_lines()
        yield from self._edge_lines()
        yield "}"

    def _graph_attributes(self) -> dict[str, str]:
        attributes = {"fontname": "Helvetica", "fontsize": "11"}
        if self._timed:
            work_ns, critical_ns = self._graph.work_ns, self._graph.critical_ns
            attributes["label"] = (
                f"T1 = {format_duration(work_ns)}, T∞ = {format_duration(critical_ns)}, "
                f"parallelism {work_ns / critical_ns:.1f}"
            )
            attributes["labelloc"] = "t"
        return attributes

    def _node_lines(self) -> Iterator[str]:
        """Go through the nodes in program order; a section is contiguous, so it opens and closes once."""
        opened: list[int] = []
        for index, node in enumerate(self._graph.nodes):
            path = self._graph.path(node.section)
            while opened != path[: len(opened)]:
                opened.pop()
                yield f"{_indent(opened)}}}"
            for section in path[len(opened) :]:
                yield f"{_indent(opened)}subgraph {_quoted(f'cluster_{section}')} {{"
                opened.append(section)
                yield from self._cluster_lines(section, _indent(opened))
            attributes = _attributes(self._node_attributes(index, node))
            yield f"{_indent(opened)}{_quoted(node.name)} [{attributes}];"
        while opened:
            opened.pop()
            yield f"{_indent(opened)}}}"

    def _cluster_lines(self, section: int, indent: str) -> Iterator[str]:
        label = _escaped(self._graph.sections[section].name)
        for key, value in {"label": label, **_CLUSTER_ATTRIBUTES}.items():
            yield f"{indent}{key}={_string(value)};"

    def _node_attributes(self, index: int, node: Node) -> dict[str, str]:
        attributes = {"label": "\n".join(self._label(node)), "fillcolor": self._fill(node)}
        if node.num_tasks == 0:
            attributes |= {"shape": "ellipse", "style": "filled", "fontsize": "8"}
        elif node.kind == "section":
            attributes["style"] = "rounded,filled,dashed"
        if self._timed and self._options.color_by_device and node.place:
            attributes |= {"color": _place_color(node), "penwidth": "2.5"}
        elif self._marks_path and index in self._graph.critical_nodes:
            attributes |= {"color": _CRITICAL_COLOR, "penwidth": "1.5"}
        if node.call_site:
            attributes["tooltip"] = node.call_site
        return {key: _escaped(value) for key, value in attributes.items()}

    def _label(self, node: Node) -> Iterator[str]:
        yield node.title
        if node.detail:
            yield node.detail
        if node.kind == "section":
            yield f"{node.num_tasks} task{'s' if node.num_tasks != 1 else ''}"
        if not self._options.remove_data_deps:
            yield from _access_lines(node.accesses)
        if self._options.color_by_device and node.place and not node.detail:
            yield f"@ {node.place}"
        if self._timed and node.duration_ns is not None:
            yield format_duration(node.duration_ns)

    def _fill(self, node: Node) -> str:
        if node.num_tasks == 0:
            return "#ffffff"
        if self._timed:
            share = (node.duration_ns or 0) / self._longest_ns
            return _HEAT_COLORS[min(int(share * len(_HEAT_COLORS)), len(_HEAT_COLORS) - 1)]
        if self._options.color_by_device and node.place:
            return _place_color(node)
        return _KIND_COLORS.get(node.kind, _OTHER_COLOR)

    def _edge_lines(self) -> Iterator[str]:
        nodes = self._graph.nodes
        for source, target in self._graph.edges():
            attributes = ""
            if self._marks_path and (source, target) in self._graph.critical_edges:
                attributes = f" [{_attributes({'color': _CRITICAL_COLOR, 'penwidth': '2'})}]"
            yield f"  {_quoted(nodes[source].name)} -> {_quoted(nodes[target].name)}{attributes};"


_NODE_DEFAULTS = {
    "shape": "box",
    "style": "rounded,filled",
    "color": "#8a929e",
    "fontname": "Helvetica",
    "fontsize": "10",
    "margin": "0.12,0.06",
    "height": "0.3",
}
_EDGE_DEFAULTS = {"color": _EDGE_COLOR, "arrowsize": "0.7"}
_CLUSTER_ATTRIBUTES = {"style": "dashed,rounded", "color": "#8a929e", "labeljust": "l"}


def _indent(opened: list[int]) -> str:
    return "  " * (len(opened) + 1)


def _access_lines(accesses: tuple[tuple[str, int], ...]) -> Iterator[str]:
    """Yield "X (read), Y (rw)", wrapped, and no more than a few lines."""
    line, num_lines = "", 0
    for index, (name, mode) in enumerate(accesses):
        item = f"{name} ({MODE_NAMES.get(mode, 'rw')})"
        if line and len(line) + len(item) + 2 > _LABEL_WIDTH:
            yield line + ","
            line, num_lines = "", num_lines + 1
        if num_lines == _LABEL_LINES:
            yield f"… and {len(accesses) - index} more"
            return
        line = f"{line}, {item}" if line else item
    if line:
        yield line


def _place_color(node: Node) -> str:
    if node.place == "host":
        return _HOST_COLOR
    if node.device >= 0 and node.place.startswith("device("):
        return _DEVICE_COLORS[node.device % len(_DEVICE_COLORS)]
    return _GRID_COLOR


def _attributes(attributes: dict[str, str]) -> str:
    return ", ".join(f"{key}={_string(value)}" for key, value in attributes.items())


def _quoted(name: str) -> str:
    return _string(_escaped(name))


def _string(value: str) -> str:
    """Return a value whose escapes are in place as a quoted string."""
    return f'"{value}"'


def _escaped(text: str) -> str:
    """Escape what Graphviz would interpret: quotes, backslash sequences, entities, line ends."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\\n")
    return "".join(c if c.isprintable() else f"\\\\x{ord(c):02x}" for c in text)
