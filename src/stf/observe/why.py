"""Say why a task ran when it did: what it waited for, because of which data, and what it caused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .dot import DotRecorder
from .observer import Observer, Observers
from .order import ACCUMULATE, READ, WRITE, TaskRecord
from .units import format_bytes, format_duration

_NAMED = 4  # tasks that are named before the rest is only counted
_VERBS = {READ: "reads", WRITE: "writes", READ | WRITE: "reads and writes", ACCUMULATE: "accumulates into"}
_CAUSED = {
    "alloc": "allocated {data} at {target}",
    "copy": "copied {data} {source} → {target}",
    "free": "freed {data} at {target}",
    "evict": "evicted {data} from {source}",
    "write_back": "wrote {data} back to the user's array",
}


@dataclass
class Wait:
    """What a task waited for because of one data; tasks are indices among the records.

    Attributes
    ----------
    data
        The data's number in the recorder.
    mode
        1 read, 2 write, 3 both, 4 accumulate.
    writers, readers
        Who wrote it last, and who read it since.
    """

    data: int
    mode: int
    writers: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)


def find_recorder(observer: Observer | None) -> DotRecorder | None:
    """Return the recorder of tasks among what listens to an engine."""
    candidates = observer.observers if isinstance(observer, Observers) else (observer,)
    return next((one for one in candidates if isinstance(one, DotRecorder)), None)


def waits_of(recorder: DotRecorder, index: int) -> tuple[list[Wait], list[int]]:
    """Return what the task at `index` waited for, for each of its data; and because of memory that was theirs before.

    The record names the tasks and the operations that it waits for; of an operation, those before it count.
    """
    tasks = recorder.tasks
    waits = [Wait(data, mode) for data, mode in _modes(tasks[index]).items()]
    elsewhere = []
    for number in _tasks_before(recorder, tasks[index][8]):
        modes = _modes(tasks[number])
        for wait in waits:
            if wait.data in modes:
                (wait.readers if modes[wait.data] == READ else wait.writers).append(number)
        if not any(wait.data in modes for wait in waits):
            elsewhere.append(number)
    return waits, elsewhere


def _tasks_before(recorder: DotRecorder, waits_for: Iterable[int]) -> list[int]:
    """Return the indices of the tasks among these numbers, and of those that the operations among them wait for."""
    index_of = {task[0]: index for index, task in enumerate(recorder.tasks)}
    operations = {-operation[8]: operation[9] for operation in recorder.operations}
    found, known, due = set(), set(), list(waits_for)
    while due:
        number = due.pop()
        if number in index_of:
            found.add(index_of[number])
        elif number in operations and number not in known:
            known.add(number)
            due.extend(operations[number])
    return sorted(found)


def explain(recorder: DotRecorder, index: int) -> Iterator[str]:
    """Yield lines on the recorded task at `index`: what it waited for, caused, and how it went."""
    tasks, names = recorder.tasks, recorder.data_names
    task_id = tasks[index][0]
    waits, elsewhere = waits_of(recorder, index)
    for wait in waits:
        yield f"{_VERBS[wait.mode]} {names[wait.data]}: {_reasons(tasks, wait, elsewhere)}"
    if elsewhere:
        yield f"comes after {_listed(tasks, elsewhere)}, which used the same memory"
    if not tasks[index][5]:
        yield "uses no data: nothing to wait for"
    if task_id in recorder.choices:
        yield from recorder.choices[task_id].lines()
    yield from _caused(recorder, task_id)
    yield from _how_it_went(recorder, tasks[index])


def describe(record: TaskRecord) -> str:
    """Return what messages call a recorded task: its name and the line that submitted it."""
    task_id, symbol, call_site = record[0], record[1], record[6]
    name = f"'{symbol}'" if symbol else f"#{task_id}"
    return f"{name} ({call_site})" if call_site else name


def _modes(record: TaskRecord) -> dict[int, int]:
    """Return the mode of each data that a task uses; one that it names twice has the joined mode."""
    modes: dict[int, int] = {}
    for access in record[5]:
        data, mode = access >> 3, access & 7
        joined = modes.get(data, mode) | mode
        modes[data] = joined if joined <= ACCUMULATE else READ | WRITE
    return modes


def _reasons(tasks: Sequence[TaskRecord], wait: Wait, elsewhere: Sequence[int]) -> str:
    reasons = []
    if wait.writers:
        reasons.append(f"after {_listed(tasks, wait.writers)}, which wrote it")
    if wait.readers:
        reasons.append(f"after {_listed(tasks, wait.readers)}, which read it")
    return "; ".join(reasons) or ("nothing to wait for" if not elsewhere else "no other task used it")


def _listed(tasks: Sequence[TaskRecord], numbers: Iterable[int]) -> str:
    named = [describe(tasks[number]) for number in sorted(numbers)]
    more = len(named) - _NAMED
    shown = ", ".join(named[:_NAMED])
    noun = "task" if len(named) == 1 else "tasks"
    return f"{noun} {shown} and {more} more" if more > 0 else f"{noun} {shown}"


def _caused(recorder: DotRecorder, task_id: int) -> Iterator[str]:
    """Yield the copies and allocations that were made for a task; an eviction and its free are one."""
    evicted = set()
    mine = [operation for operation in recorder.operations if operation[6] == task_id]
    for _, kind, data, source, target, nbytes, *_ in mine:
        if not (kind == "free" and (data, source) in evicted):
            size = f", {format_bytes(nbytes)}" if nbytes else ""
            name = recorder.data_names[data]
            yield _CAUSED.get(kind, kind + " {data}").format(data=name, source=source, target=target) + size
            if kind == "evict":
                evicted.add((data, source))


def _how_it_went(recorder: DotRecorder, record: TaskRecord) -> Iterator[str]:
    duration_ns = recorder.duration_of(record[0])
    if duration_ns is not None:
        yield f"ran for {format_duration(duration_ns)}"
    for task_id, description, raised_at, is_skip in list(recorder.failures):
        if task_id == record[0]:
            where = f", raised at {raised_at}" if raised_at else ""
            yield f"did not run: {description}" if is_skip else f"failed with {description}{where}"
