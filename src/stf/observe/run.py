"""What a run did: the recorded tasks, joined with when they ran, what they waited for, and their copies.

The engine numbers its tasks and operations. A driver tells when those ran, by their numbers.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stf._support.many_objects import many_objects

from .dot import DataLayout, DotOptions, DotRecorder, TaskFailure
from .order import Order
from .taskgraph import Section
from .trace import MAIN_THREAD, TimedOperation, TimeSpan, TraceRecorder
from .units import format_bytes

_AROUND = 2  # lines of source before and after a line
_LONGEST_LINE = 160


class RunTask(NamedTuple):
    """A task; `before` are the indices of the tasks that it waits for.

    `accesses` are ``data << 3 | mode``. Times are None where nothing was recorded.
    """

    id: int
    name: str
    kind: str
    place: str
    section: int
    call_site: str
    accesses: tuple[int, ...]
    before: list[int]
    submitted_ns: int | None


class RunSpan(NamedTuple):
    """A body ("task"), a "copy" or a "kernel" that ran; `task` and `operation` are indices, or -1 where unknown."""

    task: int
    operation: int
    name: str
    device: int
    row: int
    start_ns: int
    end_ns: int
    category: str


class RunOperation(NamedTuple):
    """An allocation, copy, free, eviction or write-back; `data` and `task` are indices, or -1."""

    time_ns: int
    kind: str
    data: int
    source: str
    target: str
    nbytes: int
    task: int


class SourceLine(NamedTuple):
    """A line that submitted tasks, and the text around it; `first` is the number of the first of `lines`."""

    call_site: str
    path: str
    first: int
    lines: list[str]


class Waiting(NamedTuple):
    """When what a task needs was there, in nanoseconds: it was submitted, its inputs written, its copies done."""

    submitted_ns: int
    inputs_ns: int
    copies_ns: int
    last_input: int  # the task that wrote the last of the inputs, or -1

    @property
    def ready_ns(self) -> int:
        """Return when all of it was there."""
        return max(self.submitted_ns, self.inputs_ns, self.copies_ns)


@dataclass
class Run:
    """Everything that was recorded.

    Attributes
    ----------
    origin_ns
        The time that the page and the trace call zero: of the first submission, body or copy.
    row_names
        The names of rows by (device, row).
    memory
        The bytes that were allocated at each place, as (time, bytes) at each change.
    """

    origin_ns: int = 0
    tasks: list[RunTask] = field(default_factory=list)
    spans: list[RunSpan] = field(default_factory=list)
    operations: list[RunOperation] = field(default_factory=list)
    row_names: dict[tuple[int, int], str] = field(default_factory=dict)
    data_names: Sequence[str] = ()
    layouts: Mapping[int, DataLayout] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    failures: list[TaskFailure] = field(default_factory=list)  # by task
    files: Mapping[str, str] = field(default_factory=dict)

    def row_name(self, device: int, row: int) -> str:
        """Return the name of a row of a place."""
        return self.row_names.get((device, row), f"worker {row}")

    def is_thread(self, device: int, row: int) -> bool:
        """Return whether a row is a thread; else it is a part of a CUDA device, which has a clock of its own."""
        return self.row_names.get((device, row), MAIN_THREAD) == MAIN_THREAD

    def spans_of_tasks(self) -> list[list[int]]:
        """Return for each task the indices of its spans, by start."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for index, span in enumerate(self.spans):
            if span.task >= 0 and span.category == "task":
                found[span.task].append(index)
        return found

    def memory(self) -> dict[str, list[tuple[int, int]]]:
        """Return the bytes that were allocated at each place, as (time, bytes) at each change."""
        series: dict[str, list[tuple[int, int]]] = {}
        for operation in self.operations:
            change = {"alloc": operation.nbytes, "free": -operation.nbytes}.get(operation.kind, 0)
            if change:
                changes = series.setdefault(operation.target or operation.source, [])
                changes.append((operation.time_ns, (changes[-1][1] if changes else 0) + change))
        return series

    def waiting(self) -> list[Waiting | None]:
        """Return for each task when what it needs was there; None for those that have not run."""
        starts: list[int | None] = [None] * len(self.tasks)
        ends = [0] * len(self.tasks)
        copies = [0] * len(self.tasks)
        for span in self.spans:
            if span.category == "copy":
                if span.operation >= 0 and self.operations[span.operation].task >= 0:
                    task = self.operations[span.operation].task
                    copies[task] = max(copies[task], span.end_ns)
            elif span.category == "task" and span.task >= 0:
                if starts[span.task] is None:
                    starts[span.task] = span.start_ns
                ends[span.task] = max(ends[span.task], span.end_ns)
        found: list[Waiting | None] = []
        for index, waiter in enumerate(self.tasks):
            if starts[index] is None:
                found.append(None)
                continue
            last = max(waiter.before, key=ends.__getitem__, default=-1)
            submitted = self.origin_ns if waiter.submitted_ns is None else waiter.submitted_ns
            found.append(Waiting(submitted, ends[last] if last >= 0 else 0, copies[index], last))
        return found

    def sources(self) -> Iterator[SourceLine]:
        """Yield each line that submitted tasks, with the lines around it as they are in the file now."""
        for call_site in dict.fromkeys(task.call_site for task in self.tasks):
            path = self.files.get(call_site, "")
            number = int(call_site.rpartition(":")[2] or 0)
            lines = linecache.getlines(path) if path else []
            first = max(number - _AROUND, 1)
            shown = [line.rstrip("\r\n")[:_LONGEST_LINE] for line in lines[first - 1 : number + _AROUND]]
            yield SourceLine(call_site, path, first, shown)

    def describe_data(self, data: int) -> str:
        """Return a data's name, type, shape and size."""
        layout = self.layouts.get(data)
        if layout is None:
            return self.data_names[data]
        shape = ", ".join(map(str, layout.shape))
        return f"{self.data_names[data]}: {layout.dtype}[{shape}], {format_bytes(layout.nbytes)}"

    def why_it_waited(self, waiting: Waiting | None) -> tuple[str, int]:
        """Return what a task waited for last, and when that was there."""
        if waiting is None or waiting.ready_ns <= self.origin_ns:
            return "nothing", self.origin_ns
        if waiting.ready_ns == waiting.copies_ns:
            return "a copy of its data", waiting.copies_ns
        if waiting.ready_ns == waiting.inputs_ns:
            return f"task {self.label(waiting.last_input)}", waiting.inputs_ns
        return "its submission", waiting.submitted_ns

    def label(self, task: int) -> str:
        """Return a task's name and the line that submitted it."""
        site = self.tasks[task].call_site
        return f"{self.tasks[task].name} ({site})" if site else self.tasks[task].name


@many_objects()
def collect(recorder: DotRecorder | None, trace: TraceRecorder) -> Run:
    """Join what two recorders of one context know."""
    spans, row_names = trace.rows()
    submissions = trace.submissions()
    run = Run(row_names=row_names)
    if recorder is not None:
        run.data_names, run.layouts, run.files = recorder.data_names, recorder.layouts, recorder.files
        run.sections, run.failures = recorder.sections, sorted(recorder.failures)
        run.tasks = _tasks(recorder, submissions)
    index_of = {task.id: index for index, task in enumerate(run.tasks)}
    run.operations = _operations(recorder, trace.operations, index_of)
    operation_of = {operation.asked.number: index for index, operation in enumerate(trace.operations)}
    run.spans = list(_joined(spans, run, index_of, operation_of))
    times = [*(span.start_ns for span in run.spans[:1]), *list(submissions.values())[:1]]
    run.origin_ns = min([*times, *(operation.time_ns for operation in run.operations[:1])], default=0)
    return run


def _tasks(recorder: DotRecorder, submissions: dict[int, int]) -> list[RunTask]:
    records, hidden = recorder.tasks, DotOptions().hidden_kinds
    order = Order(recorder.data_names, hidden, False)
    order.run(records, recorder.operations, {})
    shown = (record for record in records if record[2] not in hidden)
    return [
        RunTask(id, symbol or f"{kind} {id}", kind, place, section, site, accesses, before, submissions.get(id))
        for (id, symbol, kind, place, _, accesses, site, section, _), before in zip(
            shown, order.predecessors, strict=True
        )
    ]


def _operations(
    recorder: DotRecorder | None, timed: Sequence[TimedOperation], index_of: dict[int, int]
) -> list[RunOperation]:
    """Join times with data, by the numbers of the operations."""
    data_of = {} if recorder is None else {record[8]: record[2] for record in recorder.operations}
    return [
        RunOperation(time_ns, asked.kind, data_of.get(asked.number, -1), *asked[3:6], index_of.get(asked.task_id, -1))
        for time_ns, asked in timed
    ]


def _joined(
    spans: Sequence[TimeSpan], run: Run, index_of: dict[int, int], operation_of: dict[int, int]
) -> Iterator[RunSpan]:
    """Yield the spans with their tasks and operations."""
    for span in spans:
        operation = operation_of.get(span.operation, -1)
        task = run.operations[operation].task if operation >= 0 else index_of.get(span.task_id, -1)
        name = span.name or f"{span.category} {span.task_id}"
        if operation >= 0 and run.operations[operation].data >= 0:
            name = f"copy {run.data_names[run.operations[operation].data]}"
        end_ns = max(span.end_ns, span.start_ns)
        yield RunSpan(task, operation, name, span.device, span.worker, span.start_ns, end_ns, span.category)
