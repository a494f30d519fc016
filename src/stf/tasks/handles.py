"""Tasks as handles: whether one is done, how it went, and whom to tell.

A call of a task function gives its task back. That holds nothing of its data and of its context, so who keeps it keeps
nothing else, and who drops it has paid for nothing. Where somebody asks to be told, an operation behind the task's end
is put on a stream of the host's, whose worker calls.

`concurrent.futures.wait` and `as_completed` look at ``_condition``, ``_state`` and ``_waiters`` of what they are given.
All tasks share one condition, which is held for moments only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from stf._engine import claims, outcomes
from stf._port.events import EventSet
from stf._support import arguments
from stf.errors import TaskStateError

log = logging.getLogger("stf")
condition = threading.Condition()  # of all handles
NEW, OPEN, ENDED = range(3)
WAITS, BEGUN, CALLED_OFF = range(3)
RECORDED, GATHERED = -1, -2


def is_done(task: Any) -> bool:
    """Whether a task has run, failed, or was cancelled or skipped."""
    if task.state != ENDED:
        return failure_of(task) is not None  # an input was known to be poisoned, so that it never began
    if task.engine.closed is not None:
        return True
    if task.outcome is not None and task.outcome.pending:
        launch_gathered(task)
        return False
    return all(map(task.engine.is_done, end_of(task).tolist()))


def end_of(task: Any) -> EventSet:
    """The events after which a task has run."""
    if task.state != ENDED:
        raise TaskStateError(f"task {task.label()} was not submitted yet: end it, or give it a body")
    if task.event == RECORDED:
        raise TaskStateError(
            f"task {task.label()} ({task.call_site}) is part of a graph, and runs in each launch; wait for its data"
        )
    if task.event == GATHERED:
        launch_gathered(task)
        if task.later is None:  # it is done, at the latest, when all is that was submitted by now
            task.later = task.engine.tails()
        later: EventSet = task.later
        return later
    events = EventSet()
    events.add(task.event)
    return events


def launch_gathered(task: Any) -> None:
    """Launch what a graph context has gathered, once somebody asks about a task of it."""
    context = task.engine.context()
    if task.event == GATHERED and context is not None and task.engine.closed is None:
        context.submit()


def failure_of(task: Any) -> Any:
    """What a task failed with, as far as is known; None if it did not."""
    return None if task.outcome is None else task.outcome.failed()


def wait(task: Any, timeout: float | None, what: str) -> None:
    """Block until a task is done; TimeoutError if that takes longer than `timeout` seconds."""
    if is_done(task):
        return
    inside = claims.inside(task.engine, threading.get_ident())
    if inside is not None:
        raise TaskStateError(f"{what} of task {task.label()} inside {inside}")
    seconds = arguments.seconds(timeout)
    if not task.engine.wait_events(end_of(task), seconds):
        raise TimeoutError(f"task {task.label()} was still running after {timeout} s")


def exception(task: Any, timeout: float | None, what: str = "exception") -> Exception | None:
    """The error of a task, once it is done; who gets it is told, so that no later wait raises it again."""
    wait(task, timeout, what)
    failure = failure_of(task)
    if failure is None:
        return None
    outcomes.take_failure(task.engine, failure)
    is_own = failure.label == task.label()
    error: Exception = failure.error() if is_own else failure.error_of_reader(task.label(), "its input")
    return error


def result(task: Any, timeout: float | None) -> None:
    """Wait for a task, and raise what it failed with."""
    error = exception(task, timeout, "result")
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


def cancel(task: Any) -> bool:
    """Keep a queued body from running; False if it has begun, or is none."""
    if task.state != ENDED or task.outcome is None or not task.outcome.pending or task.fate != WAITS:
        return False
    task.fate = CALLED_OFF  # nothing is called since `fate` was read, so that no other thread came between
    return True


def state(task: Any) -> str:
    """The state as `concurrent.futures` calls it."""
    if not is_done(task):
        return "RUNNING" if task.fate == BEGUN else "PENDING"
    return "CANCELLED_AND_NOTIFIED" if task.fate == CALLED_OFF else "FINISHED"


def description(task: Any) -> str:
    """How a task is, in a word, as far as is known without asking anybody."""
    failure = failure_of(task)
    if failure is not None:
        return "cancelled" if task.fate == CALLED_OFF else "skipped" if task.outcome.skipped else "failed"
    if task.state != ENDED:
        return "new" if task.state == NEW else "open"
    if task.event == RECORDED or task.event == GATHERED:
        return "recorded"
    if task.outcome is not None and task.outcome.pending:
        return "running" if task.fate == BEGUN else "submitted"
    return "done" if task.engine.is_done(task.event) else "submitted"


def add_done_callback(task: Any, fn: Callable[[Any], Any]) -> None:
    """Call ``fn(task)`` when a task is done: now, if it is, else by a worker."""
    if not callable(fn):
        raise TypeError(f"add_done_callback takes a function, got {type(fn).__name__}")
    if is_done(task):
        call(fn, task)
    else:
        task.engine.call_after(end_of(task), lambda: call(fn, task))


def call(fn: Callable[[Any], Any], task: Any) -> None:
    """Call a callback; what it raises is logged, as that of a future is."""
    try:
        fn(task)
    except Exception:
        log.exception("a callback of task %s raised", task.label())


def waiters_of(task: Any) -> list[Any]:
    """Who of `concurrent.futures` waits for a task; they are told when it is done."""
    if task.waiters is None:
        task.waiters = []
        if not is_done(task):
            task.engine.call_after(end_of(task), lambda: call(tell_waiters, task))
    waiters: list[Any] = task.waiters
    return waiters


def tell_waiters(task: Any) -> None:
    """Tell who waits by `concurrent.futures` that a task is done."""
    with condition:
        for waiter in task.waiters:
            if task.fate == CALLED_OFF:
                waiter.add_cancelled(task)
            elif failure_of(task) is not None:
                waiter.add_exception(task)
            else:
                waiter.add_result(task)


async def awaited(task: Any) -> None:
    """Wait for a task in a coroutine, and raise what it failed with."""
    import asyncio  # 30 ms, which `import stf` goes without

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish() -> None:
        if not done.done():  # it may have been cancelled
            done.set_result(None)

    def tell(_: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish)

    add_done_callback(task, tell)
    await done
    result(task, None)


def awaitable(task: Any) -> Any:
    """What ``await task`` runs."""
    coroutine: Coroutine[Any, Any, None] = awaited(task)
    return coroutine.__await__()
