"""Data and tasks in the order in which they are done."""

from __future__ import annotations

import functools
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stf._support import arguments
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData
from stf.errors import TaskFailedError
from stf.tasks import handles, host_task
from stf.tasks.checks import must_be_outside
from stf.tasks.group import Tasks
from stf.tasks.lent import BORROWERS, borrowers_of
from stf.tasks.task import Task

__all__ = ["as_completed"]

HANDLES = (Task, Tasks)


def as_completed(items: Iterable[Any], timeout: float | None = None) -> Iterator[Any]:
    """Yield data, or handles of tasks, in the order in which they are done.

    Data are done when all tasks have run that were submitted before this call and write them. What failed is yielded
    too: reading it, or ``result()`` of a handle, raises.

    Parameters
    ----------
    items : iterable of LogicalData, CompositeData or Task
        What to wait for. Each is yielded once, as it was given.
    timeout : float, optional
        Seconds from this call on; no limit by default.

    Yields
    ------
    LogicalData, CompositeData or Task
        The one that is done next.

    Raises
    ------
    TimeoutError
        One of them was not done within `timeout` seconds.
    TypeError
        An item is neither data nor a task.
    TaskStateError
        It is called in a body or a recording, or in a callback that must end before an item can be done.

    Examples
    --------
    >>> import time, stf
    >>> @stf.task
    ... def nap(seconds, x: stf.ReadWrite):
    ...     time.sleep(seconds)
    ...     x += seconds
    >>> with stf.context(devices="cpu", workers=2) as ctx:
    ...     slow, quick = ctx.logical_data_zeros(2), ctx.logical_data_zeros(2)
    ...     nap(0.2, slow), nap(0.0, quick)
    ...     for x in stf.as_completed([slow, quick]):
    ...         print(x.numpy())
    [0. 0.]
    [0.2 0.2]
    """
    seconds = None if timeout is None else arguments.seconds(timeout)
    end = None if seconds is None else time.monotonic() + seconds
    given = list(items)
    wrong = next((item for item in given if not isinstance(item, (LogicalData, CompositeData, *HANDLES))), None)
    if wrong is not None:
        raise TypeError(
            f"as_completed takes logical data and handles of tasks, got {type(wrong).__name__}; pass a list of them"
        )
    for item in given:
        if isinstance(item, HANDLES) and item.done():
            continue
        owner: Any = item.pending() or item.tasks[0] if isinstance(item, Tasks) else item
        owner = owner if isinstance(owner, Task) else item.context
        must_be_outside(owner, "as_completed", False, waits_for_one=True)
    arrivals = Arrivals()
    handles_left = [watch(item, functools.partial(arrivals.done.put, item)) for item in given]
    for handle in filter(None, handles_left):
        handles.must_end(handle, "as_completed", handles.end_of(handle))
    return each_of(arrivals, handles_left, end, timeout)


class Arrivals:
    """What is done and was not yielded yet; it is waited for as a baton is."""

    def __init__(self) -> None:
        self.done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.item: Any = None

    def acquire(self, blocking: bool, timeout_s: float) -> bool:
        """Take the next item; False if the time ran out."""
        try:
            self.item = self.done.get(blocking, None if timeout_s < 0 else timeout_s)
        except queue.Empty:
            return False
        return True


def each_of(
    arrivals: Arrivals, handles_left: list[Task | None], end: float | None, timeout: float | None
) -> Iterator[Any]:
    """Yield what comes, until the time is up; a worker that waits lends its place to another."""
    count = len(handles_left)
    for position in range(count):
        if not arrivals.acquire(False, 0.0):
            handle: Any = next(filter(None, handles_left))
            seconds = -1.0 if end is None else max(end - time.monotonic(), 0.0)
            if not handle.engine.await_baton(handles.end_of(handle), arrivals, seconds):
                raise TimeoutError(f"{count - position} of {count} were not done after {timeout} s")
        item, arrivals.item = arrivals.item, None
        yield item


def watch(item: Any, tell: Callable[[], object]) -> Task | None:
    """Call a function when data, or a task, are done; return the task that tells, None if they are."""
    try:
        if not isinstance(item, HANDLES):
            borrower = borrower_of(item)
            if borrower is not None:  # what its body submits comes first
                borrower.add_done_callback(lambda _: watch_again(item, tell))
                return borrower
            if item.ready():
                tell()
                return None
        handle = item if isinstance(item, HANDLES) else reader_of(item)
    except TaskFailedError:  # they are known to be poisoned
        tell()
        return None
    if handle.done():
        tell()
        return None
    handle.add_done_callback(lambda _: tell())
    return handle.pending() if isinstance(handle, Tasks) else handle


def watch_again(item: Any, tell: Callable[[], object]) -> None:
    """Watch data as soon as a body is over that might submit tasks on them; tell at once if that cannot be."""
    try:
        watch(item, tell)
    except BaseException:
        tell()  # who reads them gets the error
        raise


def borrower_of(data: Any) -> Task | None:
    """Return a task whose body may still submit tasks on data; None if there is none."""
    if not BORROWERS:
        return None
    parts = data.parts if isinstance(data, CompositeData) else [data]
    return next((task for part in parts for task in borrowers_of(part.core)), None)


def reader_of(data: Any) -> Task:
    """Return a task on the host that reads data, and does nothing."""
    parts = data.parts if isinstance(data, CompositeData) else [data]
    accesses = tuple([part.read() for part in parts])
    task: Task = data.context.make_host_task(accesses, "as_completed", False)
    task.kind, task.warns_if_unused = "wait", False  # before which what was gathered for a graph is launched
    host_task.call_on_host(task, lambda *_: None, None, "numpy")
    return task
