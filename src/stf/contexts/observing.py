"""Seeing what a context does: DOT pictures, traces, statistics, reports, and why a task waited."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, overload

from stf import config
from stf._support import arguments
from stf._support.log_once import log_once
from stf._support.profilers import shows_ranges
from stf._support.whole_file import write_whole
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData
from stf.devices.spec import graph_statistics
from stf.errors import TaskStateError
from stf.observe.html import context_html, lines_html, never_raises
from stf.observe.observer import Observer
from stf.tasks.group import Tasks
from stf.tasks.task import ContextCore, Task

if TYPE_CHECKING:
    from pathlib import Path

    from stf.observe.report import Report
    from stf.observe.statistics import Statistics

log = logging.getLogger("stf")

MOST_TIMED = 10_000  # tasks of which `why` tells times: it looks at all of them


@never_raises
def html_of_task(task: Any) -> str | None:
    return lines_html(why(task))


def setup_observers(context: ContextCore, observe: str | bool) -> None:
    if observe is not False and observe not in (False, True, "dot", "trace", "durations", "cupti", None):
        raise ValueError(f"observe is 'dot', 'trace', 'durations', 'cupti', True or False, got {observe!r}")
    if observe == "cupti" and context._driver.stamps is None:
        raise ValueError("observe='cupti' is for CUDA devices, and this context has none; pass observe=True")
    context._dot = context._trace = context._durations = context._device_times = device_times = kernels = ranges = None
    if shows_ranges():
        ranges = nvtx_ranges()
    if observe in (True, "trace", "cupti"):
        from stf.observe.trace import TraceRecorder

        context._trace = recorder = TraceRecorder(context._driver.clock_ns)
        if context._driver.stamps is None:
            context._driver.watch_copies(
                lambda number, device, thread, start, end: recorder.ran(
                    0, "copy", device, thread, start, end, "copy", number
                )
            )
    if observe in (True, "dot", "cupti") or config.dot_file:
        from stf.observe.dot import DotBesideTrace, DotRecorder

        title = context.name or "stf"
        context._dot = DotRecorder(title) if context._trace is None else DotBesideTrace(title, context._trace)
    if observe in (True, "durations", "cupti"):
        from stf.observe.durations import Durations

        kinds = [place.kind for place in context.engine.places]
        context._durations = Durations(kinds, context._driver.stamps is not None)
    if context._driver.stamps is not None and observes_times(observe):
        from stf.observe.devices import DeviceTimes

        context._device_times = device_times = DeviceTimes(context.engine.port)
        if observe == "cupti":
            from stf.observe.kernels import KernelTimes

            context._device_times = kernels = KernelTimes(device_times)
    listeners = (context._dot, context._trace, context._durations, device_times, kernels, ranges)
    active = [o for o in listeners if o is not None]
    if active:
        from stf.observe import Observers

        context.engine.observe(active[0] if len(active) == 1 else Observers(*active))


def nvtx_ranges() -> Observer | None:
    """Return what makes ranges of tasks; None without the package for that, where only the profiler asks for them."""
    from stf.observe.ranges import NvtxRanges

    try:
        return NvtxRanges()
    except ImportError:
        if config.nvtx:
            raise ImportError("STF_NVTX=1 needs the package nvtx: pip install nvtx") from None
        log_once("a profiler", "NVTX", "sees no names of tasks without the package nvtx: pip install nvtx")
        return None


def dot(context: ContextCore, **options: Any) -> DotText:
    """Return the task graph so far in the DOT language; a notebook shows the picture.

    Parameters
    ----------
    **options
        As the ``STF_DOT_*`` variables, in lower case: ``ignore_prereqs``, ``color_by_device``,
        ``remove_data_deps``, ``timing``, ``max_depth``, ``show_fence``, ``keep_redundant``, ``keep_freeze``; and
        ``max_nodes``: show only so many, the first.

    Raises
    ------
    TaskStateError
        The context was opened without ``observe="dot"`` and without ``STF_DOT_FILE``.

    Examples
    --------
    >>> with stf.context(devices="cpu", observe="dot") as ctx:
    ...     x = ctx.logical_data_empty(3, name="x")
    ...     ctx.fill(x, 1.0)
    ...     text = ctx.dot()
    >>> text.startswith("digraph")
    True
    """
    if context._dot is None:
        raise TaskStateError("no task graph was recorded; open the context with observe='dot', or set STF_DOT_FILE")
    read_device_times(context)
    settings = {each.name.removeprefix("dot_"): each.value for each in config.SETTINGS if each.name.startswith("dot_")}
    del settings["file"]
    return DotText(context._dot.to_dot(**settings | options))


@overload
def trace(context: ContextCore, path: None = None) -> dict[str, Any]: ...


@overload
def trace(context: ContextCore, path: str | Path) -> Path: ...


def trace(context: ContextCore, path: str | Path | None = None) -> dict[str, Any] | Path:
    """Write when and where bodies and copies ran, for https://ui.perfetto.dev; or return it as a dictionary.

    On a CUDA device, where bodies only enqueue, it is when their work was on the device: from the moment when its
    stream got there and what it waits for was done, to its end. Work that has not ended yet is missing.

    Parameters
    ----------
    path : str or Path, optional
        Where to write. With the suffix ``.pftrace`` it is Perfetto's own format: each slice says its function, line,
        data, bytes moved, and what it waited for; flows are dependencies, counters are memory and tasks in flight. This
        takes a context with ``observe=True`` for all but names and times. With ``.json`` it is Chrome's format, which
        has names and times.

    Returns
    -------
    dict or Path
        The trace in Chrome's format; or `path`.

    Raises
    ------
    TaskStateError
        The context was opened without ``observe="trace"``.
    ValueError
        The path has another suffix.

    Examples
    --------
    >>> with stf.context(devices="cpu", observe="trace") as ctx:
    ...     ctx.task(ctx.logical_data_zeros(3).rw(), name="step")(lambda x: x + 1)
    ...     ctx.synchronize()
    ...     trace = ctx.trace()
    >>> any(event["name"].startswith("step") for event in trace["traceEvents"])
    True
    """
    if context._trace is None:
        raise TaskStateError("no trace was recorded; open the context with observe='trace'")
    import json
    from pathlib import Path

    suffix = None if path is None else Path(path).suffix
    if suffix not in (None, ".json", ".pftrace"):
        raise ValueError(f"cannot write a trace as {suffix!r}; pass a path that ends in .pftrace, or in .json")
    read_device_times(context)
    if path is None:
        return context._trace.to_chrome()
    if suffix == ".json":
        return write_whole(path, json.dumps(context._trace.to_chrome()))
    from stf.observe import perfetto_trace, run

    return perfetto_trace.write(run.collect(context._dot, context._trace), path)


@overload
def report(context: ContextCore, path: None = None) -> Report: ...


@overload
def report(context: ContextCore, path: str | Path) -> Path: ...


def report(context: ContextCore, path: str | Path | None = None) -> Path | Report:
    """Write a page that tells what the run did so far; call it when the work is done.

    One HTML file that needs no network: what failed, the timeline, the task graph, where the time went and which lines
    asked for it, why workers were idle, the critical path, what if there were more workers, memory and copies.

    Parameters
    ----------
    path : str or Path, optional
        Where to write. Without it, the page is returned, and a notebook shows it.

    Returns
    -------
    Path or Report
        `path`; or the page, with a method ``write(path)``.

    Raises
    ------
    TaskStateError
        The context was opened without ``observe=True``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with stf.context(devices="cpu", observe=True) as ctx:
    ...     ctx.fill(ctx.logical_data_empty(3, name="x"), 1.0)
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         path = ctx.report(pathlib.Path(folder) / "run.html")
    ...         print(path.name, path.stat().st_size > 1000)
    run.html True
    """
    if context._dot is None or context._trace is None:
        missing = [what for what, one in (("tasks", context._dot), ("times", context._trace)) if one is None]
        raise TaskStateError(
            f"no {' and '.join(missing)} were recorded, and a report needs both; open the context with observe=True"
        )
    from stf.observe import report, run

    read_device_times(context)
    title = f"stf: {context.name}" if context.name else "stf report"
    subtitle = report.subtitle(str(context._spec), bool(context._finished))
    page = report.Report(title, subtitle, statistics(context), run.collect(context._dot, context._trace))
    return page if path is None else page.write(path)


def why_in(context: ContextCore, what: Any) -> str:
    """Say why a task ran when it did; as `stf.why`, and a task may be given by its name.

    Parameters
    ----------
    what : Task, LogicalData, str or int
        A name means the last task that had it; a number is the one that messages have after ``#``.

    Raises
    ------
    TaskStateError
        No tasks were recorded: the context was opened without ``observe``.
    ValueError
        No such task was recorded.
    TypeError
        It is neither a task, a name, a number nor logical data.

    Examples
    --------
    >>> with stf.context(devices="cpu", observe="dot") as ctx:
    ...     x = ctx.logical_data_ones(3, name="x")
    ...     ctx.task(x.rw(), name="first")(lambda x: x + 1)
    ...     ctx.task(x.rw(), name="second")(lambda x: x * 2)
    ...     text = ctx.why("second")
    >>> "after task 'first'" in text
    True

    With ``observe=True`` it also says when all that the task needs was there, and when the task started.
    Of a task whose place was automatic, a table shows what decided.
    """
    read_device_times(context)
    if not isinstance(what, (str, int)):
        return why(what)
    if context._dot is None:
        raise TaskStateError("no tasks were recorded; open the context with observe='dot'")
    field = 1 if isinstance(what, str) else 0
    index = _last_task(context._dot, field, what)
    if index is None:
        raise ValueError(f"no task {what!r} was recorded; ctx.dot() lists those that were")
    return _story(context, context._dot, index)


def _last_task(recorder: Any, field: int, value: Any) -> int | None:
    """Return the index of the last recorded task of which a field, 0 its number or 1 its name, has a value."""
    tasks = recorder.tasks
    return next((index for index in reversed(range(len(tasks))) if tasks[index][field] == value), None)


def _when(context: ContextCore, task_id: int) -> list[str]:
    """Lines on when a task had all it needs, and when it started; none where that was not recorded."""
    if context._trace is None or len(context._dot.tasks) > MOST_TIMED:
        return []
    from stf.observe import run  # loaded by whoever looks at what ran
    from stf.observe.units import format_duration

    found = run.collect(context._dot, context._trace)
    index = next((index for index, task in enumerate(found.tasks) if task.id == task_id), -1)
    waiting = found.waiting()[index] if index >= 0 else None
    if waiting is None:
        return []
    start = found.spans[found.spans_of_tasks()[index][0]].start_ns
    reason, ready = found.why_it_waited(waiting)
    lines = [
        f"  ready after {format_duration(max(ready - found.origin_ns, 0))}; the last thing it waited for: {reason}"
    ]
    if start > ready:
        lines.append(f"  started {format_duration(start - ready)} later: its worker was busy, or had to wake up")
    return lines


def read_device_times(context: ContextCore) -> None:
    """Tell the observers what has run on devices since the last time."""
    if context._device_times is not None:
        context._device_times.tell(context.engine.observer)


@never_raises
def html_of_context(context: ContextCore) -> str | None:
    return context_html(repr(context), statistics(context), context._dot)


def dot_section(context: ContextCore, name: str) -> OpenSection:
    """Open a section of the task graph: a with-block, or end it with ``end()``.

    Raises
    ------
    TypeError
        The name is no text.

    Examples
    --------
    >>> with stf.context(devices="cpu", observe="dot") as ctx:
    ...     x = ctx.logical_data_empty(3, name="x")
    ...     with ctx.dot_section("set-up"):
    ...         ctx.fill(x, 1.0)
    ...     print("set-up" in ctx.dot())
    True
    """
    if not isinstance(name, str):
        arguments.refuse_name(name)
    return OpenSection(context, name)


def statistics(context: ContextCore) -> Statistics:
    """Return what was done so far: tasks, copies and bytes by place, allocations, evictions.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(np.ones(3))
    ...     ctx.prefetch(x, stf.data_place.device(0))
    ...     ctx.synchronize()
    ...     counts = ctx.statistics()
    ...     print(counts.total_copies, counts.total_copied_bytes)
    1 24
    """
    from stf.observe.statistics import Statistics

    engine = context.engine
    names = [place.name for place in engine.places]
    begun = engine.next_task - engine.withdrawn  # before its kind is counted, so that no task of stf's is the program's
    kinds = {kind: n for kind, n in engine.kinds.items() if n}
    counted = sum(kinds.values())
    pools = engine.coherency.pools
    copied = engine.coherency.copy_counts()
    return Statistics(
        tasks={"task": max(begun - counted, 0)} | kinds,
        tasks_by_place={names[p.place]: p.tasks for p in pools},
        copies={(names[s], names[t]): count for (s, t), (count, _) in copied.items()},
        copied_bytes={(names[s], names[t]): nbytes for (s, t), (_, nbytes) in copied.items()},
        allocations={names[p.place]: p.allocations for p in pools},
        allocated_bytes={names[p.place]: p.allocated_bytes for p in pools},
        peak_bytes={names[p.place]: p.peak for p in pools},
        evictions={names[p.place]: p.evictions for p in pools},
        frees={names[p.place]: p.frees for p in pools},
        write_backs={names[0]: engine.coherency.write_backs},
        pending=engine.pending() + count_gathered(context),
        **graph_statistics(context._driver),
    )


def count_gathered(context: ContextCore) -> int:
    """Queued bodies that gathering scopes have gathered, and not launched yet."""
    gathering, count = context.engine.gathering, 0
    while gathering is not None:
        count += 0 if gathering.scope is None else gathering.scope.port.program.calls
        gathering = gathering.around
    return count


def write_pictures(context: ContextCore) -> None:
    if config.dot_file:
        try:
            write_whole(next_file(config.dot_file), dot(context))
        except OSError as error:  # a picture must not hide what the program has to say
            log.error("the task graph could not be written: %s", error)


written: dict[str, int] = {}  # pictures of this process, by the file that is asked for


def next_file(asked: str) -> str:
    """Return the file for a picture: graph.dot for that of the first context, graph-2.dot for the second, and so on."""
    number = written[asked] = written.get(asked, 0) + 1
    from pathlib import Path

    path = Path(asked)
    return asked if number == 1 else str(path.with_name(f"{path.stem}-{number}{path.suffix}"))


def observes_times(observe: str | bool) -> bool:
    """Return whether a context that observes so records when bodies ran."""
    return observe in (True, "trace", "durations", "cupti") or bool(config.dot_file and config.dot_timing)


class OpenSection:
    """An open section of the task graph."""

    def __init__(self, owner: ContextCore, name: str) -> None:
        self._owner: ContextCore | None = owner
        observer = owner.engine.observer
        if observer is not None:
            observer.section_begin(str(name))

    def end(self) -> None:
        """Close the section; again does nothing."""
        owner, self._owner = self._owner, None
        if owner is not None and owner.engine.observer is not None:
            owner.engine.observer.section_end()

    def __enter__(self) -> OpenSection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def __del__(self) -> None:
        self.end()


class DotText(str):
    """Text in the DOT language; a notebook shows the picture."""

    __slots__ = ()

    @never_raises
    def _repr_svg_(self) -> str | None:
        import tempfile
        from pathlib import Path

        from stf.observe import draw

        with tempfile.TemporaryDirectory() as folder:
            return draw.render(self, Path(folder, "graph.svg")).read_text(encoding="utf-8")


def why(what: Any) -> str:
    """Say what a task waited for and because of which data, or what became of its data.

    Parameters
    ----------
    what : Task or LogicalData
        A task, open or ended: what it waited for, with the lines that submitted it; the copies and allocations that it
        caused; how long it ran, or why it failed. This takes a context with ``observe="dot"``. A logical data: its
        `LogicalData.history`.

    Returns
    -------
    str
        Lines of text.

    Raises
    ------
    TypeError
        It is neither a task nor logical data.

    Examples
    --------
    >>> import numpy as np, stf
    >>> with stf.context(devices="cpu", observe="dot") as ctx:
    ...     x = ctx.logical_data(np.zeros(3), name="x")
    ...     with ctx.task(x.rw(), name="first"):
    ...         pass
    ...     with ctx.task(x.read(), name="second") as second:
    ...         pass
    ...     print(stf.why(second))  # doctest: +ELLIPSIS
    task 'second' (...) at device(0)
      reads x: after task 'first' (...), which wrote it
      ran for ...
    """
    if isinstance(what, (LogicalData, CompositeData)):
        return what.history()
    if isinstance(what, Tasks):
        return "\n".join(map(_why_task, what.tasks))
    if not isinstance(what, Task):
        raise TypeError(f"why takes a task or logical data, got {type(what).__name__}; ctx.why takes a task's name too")
    return _why_task(what)


def _why_task(task: Any) -> str:
    from stf.observe.why import find_recorder

    heading = f"task {task.label()} ({task.call_site}) at {task.place_name}"
    state = task.state_name()
    if state == "new":
        return f"{heading}\n  it has not started, and waits for nothing yet"
    context = task.engine.context()
    if context is not None:
        context._read_device_times()
    recorder = find_recorder(task.engine.observer)
    if recorder is None:
        return f'{heading}\n  what it waited for was not recorded; open the context with observe="dot"'
    index = _last_task(recorder, 0, task.id)
    if index is None:
        return f"{heading}\n  it is not among the recorded tasks: it did not begin"
    return _story(context, recorder, index)


def _story(context: Any, recorder: Any, index: int) -> str:
    from stf.observe.why import describe, explain

    record = recorder.tasks[index]
    story = "\n  ".join([f"task {describe(record)} at {record[3]}", *explain(recorder, index)])
    return "\n".join([story, *([] if context is None else _when(context, record[0]))])
