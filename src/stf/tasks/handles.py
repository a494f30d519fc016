"""Tasks as handles: whether one is done, how it went, and whom to tell.

A call of a task function gives its task back. That holds nothing of its data and of its context, so who keeps it keeps
nothing else, and who drops it has paid for nothing. The first who asks to be told makes the task's `TaskWatch`, and
puts an operation behind the task's end on a stream of the host's, whose worker tells.

A task that is cancelled is done at once for who asks and waits. Its turn on the stream comes later, and its data can be
used only then, as those of each task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

from stf._engine import claims, host_waits, outcomes
from stf._engine.failures import Cancellation
from stf._engine.task import ENDED, NEW  # type: ignore[attr-defined]  # of the .pxd
from stf._port.events import EventSet
from stf._support import arguments
from stf._support.sync import make_baton
from stf.errors import ContextClosedError, TaskStateError

log = logging.getLogger("stf")
WAITS, BEGUN, CALLED_OFF = range(3)
RECORDED, GATHERED = -1, -2
MANY_NESTED = 1024  # tasks in `NESTED`, among which those that are done are looked for
NESTED: dict[Any, list[Any]] = {}  # by task: what its body has submitted, if that submits tasks itself (`stf.Data`)
most_nested = MANY_NESTED
lock = threading.RLock()
MOMENT_S = 100e-6  # in which an event loop waits for a task
MOST_LOST = 1023  # awaits without a moment
moments_lost = moments_saved = 0


def is_done(task: Any) -> bool:
    """Return whether the task has run, failed, or was cancelled or skipped; nothing is waited for.

    So must have those that its body has nested.
    """
    return is_over(task) and (not NESTED or nested_left(task) is None)


def has_run(task: Any) -> bool:
    """Return whether the body of a task is over, without asking a device and without submitting anything."""
    if task.fate == CALLED_OFF or task.engine.closed is not None:
        return True
    return task.outcome is not None and not is_pending(task)


def is_pending(task: Any) -> bool:
    """Return whether the body of a task that has an outcome is not over."""
    if task.outcome.pending:
        task.engine.root.tell_compiled()
    return bool(task.outcome.pending)


def is_over(task: Any) -> bool:
    """Return whether a task itself has run, failed, or was cancelled or skipped."""
    if task.fate == CALLED_OFF:
        return True
    if task.is_held:
        task.engine.submit_held()
    if task.state != ENDED:
        return failure_of(task) is not None  # an input was known to be poisoned, so that it never began
    if task.engine.closed is not None:
        return True
    if task.outcome is not None and is_pending(task):
        launch_gathered(task)
        return False
    if task.event > 0:
        return bool(task.engine.is_done(task.event))
    return all(map(task.engine.is_done, end_of(task).tolist()))


def end_of(task: Any) -> EventSet:
    """Return the events after which a task has run."""
    if task.is_held:
        task.engine.submit_held()
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
    """Return what a task failed with, as far as is known; None if it did not."""
    failure = None if task.outcome is None else task.outcome.failed()
    if failure is None and task.fate == CALLED_OFF:  # its turn is still to come
        return Cancellation.of(task)
    return failure


# -- waiting -------------------------------------------------------------------------------------------------------


def wait(task: Any, timeout: float | None, what: str) -> None:
    """Block until a task is done; TimeoutError if that takes longer than `timeout` seconds."""
    if is_done(task):
        return
    inside = claims.inside(task.engine, threading.get_ident(), True)
    if inside is not None:
        raise TaskStateError(f"{what} of task {task.label()} inside {inside}")
    if not wait_for_all(task, end_after(arguments.seconds(timeout))):
        raise TimeoutError(f"task {task.label()} was still running after {timeout} s")


def end_after(timeout_s: float) -> float | None:
    """Return when a wait ends that may last so long; None for one without a limit."""
    return None if timeout_s < 0 else time.monotonic() + timeout_s


def wait_for_all(task: Any, end: float | None) -> bool:
    """Block until a task is done, and those that its body has nested; False if that is not until `end`."""
    waited = task
    while waited is not None:
        timeout_s = -1.0 if end is None else max(end - time.monotonic(), 0.0)
        if not wait_until_done(waited, timeout_s) and not is_over(waited):
            return False
        waited = nested_left(task) if NESTED else None
    return True


def wait_until_done(task: Any, timeout_s: float) -> bool:
    """Block until a task is done; False if the time ran out."""
    if task.outcome is None or not is_pending(task) or task.fate != WAITS:
        return bool(task.engine.wait_events(end_of(task), timeout_s))
    events = end_of(task)
    must_end(task, "a wait", events)
    baton = make_baton()  # another thread may cancel it, which no event tells
    add_waiter(task, lambda _: baton.release())
    return bool(task.engine.await_baton(events, baton, timeout_s))


def must_end(task: Any, what: str, events: EventSet) -> None:
    """Raise TaskStateError for a wait for the end of a task that waits for this thread itself."""
    if not host_waits.ends(task.engine.root, events):
        inside = claims.inside(task.engine, threading.get_ident()) or "a task that this thread holds open"
        raise TaskStateError(f"{what} for task {task.label()} ({task.call_site}) inside {inside}")


def exception(task: Any, timeout: float | None = None) -> Exception | None:
    """Wait for the task and return its error; None if it went well.

    Parameters
    ----------
    timeout : float, optional
        Seconds.

    Returns
    -------
    TaskFailedError or None
        Later waits do not raise it again.

    Raises
    ------
    TimeoutError
        It took longer.
    TaskStateError
        The task is part of a recorded graph, or was not submitted.
    """
    wait(task, timeout, "exception")
    return error_of(task)


def error_of(task: Any) -> Exception | None:
    """Return the error of a task that is done; who gets it is told, so that no later wait raises it again."""
    failure = failure_of(task)
    if failure is None:
        return None
    outcomes.take_failure(task.engine, failure)
    error: Exception = failure.error() if failure.is_own(task) else failure.error_of_reader(task.label(), "its input")
    return error


def result(task: Any, timeout: float | None = None) -> None:
    """Wait for the task and raise its error, if it failed. Its results are in its data.

    Parameters
    ----------
    timeout : float, optional
        Seconds.

    Raises
    ------
    TaskFailedError
        The task failed, was skipped, or was cancelled.
    TimeoutError
        It took longer.
    """
    wait(task, timeout, "result")
    error = error_of(task)
    if error is not None:
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


# -- bodies that submit ------------------------------------------------------------------------------------------------


def nest(task: Any, inner: Any) -> None:
    """Let a task be done only when another one is, too, which its body submits, and whose body submits itself."""
    global most_nested
    with lock:
        NESTED.setdefault(task, []).append(inner)
        if len(NESTED) > most_nested:
            for one in reversed(list(NESTED)):  # those that are nested came later
                if has_run(one) and all(has_run(other) and other not in NESTED for other in NESTED[one]):
                    del NESTED[one]
            most_nested = max(MANY_NESTED, 2 * len(NESTED))


def nested_left(task: Any) -> Any:
    """Return a task that the body of one which is over has nested, and that is not done; None if all are."""
    left = list(NESTED.get(task, ()))
    if not left:
        return None
    while left:
        inner = left[-1]
        if (inner.state == ENDED or inner.is_held) and not is_over(inner):  # else the call has failed that made it
            break
        left.pop()
        left += NESTED.get(inner, ())
    with lock:
        if task in NESTED:
            NESTED[task] = left  # no more come
        if not left:
            NESTED.pop(task, None)
    return left[-1] if left else None


def forget_nested(engine: Any) -> None:
    """Forget the tasks of a context that has ended."""
    with lock:
        for task in [task for task in NESTED if task.engine is engine]:
            del NESTED[task]


# -- cancelling ----------------------------------------------------------------------------------------------------


def cancel(task: Any) -> bool:
    """Keep the task's body from running; return whether that was in time.

    Bodies that wait on a worker can be cancelled until they begin. The task is done at once then: this call runs
    its callbacks. What it was to write is poisoned. Kernels and functions for a GPU were given to it and cannot.
    """
    if task.fate == CALLED_OFF:
        return True
    if task.is_held:
        task.engine.submit_held()
    task.engine.root.ask_first()
    if task.state != ENDED or task.outcome is None or not task.outcome.pending or task.fate != WAITS:
        return False
    task.fate = CALLED_OFF  # nothing is called since `fate` was read, so that no other thread came between
    if task.watch is not None:
        tell(task)
    return True


def is_cancelled(task: Any) -> bool:
    """Return whether the task was cancelled before its body began.

    Itself, with all of its context, or with the graph that it was gathered for.
    """
    if task.fate == CALLED_OFF:
        return True
    failure = failure_of(task)
    if not isinstance(failure, Cancellation):
        return False
    return failure.is_own(task) or (task.event == GATHERED and not task.outcome.skipped)


def is_running(task: Any) -> bool:
    """Return whether the body of the task has begun, and has not ended."""
    return bool(task.fate == BEGUN and not is_done(task))


def description(task: Any) -> str:
    """Return how a task is, in a word, as far as is known without asking anybody."""
    failure = failure_of(task)
    if failure is not None:
        return "cancelled" if is_cancelled(task) else "skipped" if task.outcome.skipped else "failed"
    if task.state != ENDED:
        return "held" if task.is_held else "new" if task.state == NEW else "open"
    if task.event == RECORDED or task.event == GATHERED:
        return "recorded"
    if task.outcome is not None and is_pending(task):
        return "running" if task.fate == BEGUN else "submitted"
    return "done" if task.engine.is_done(task.event) else "submitted"


# -- telling -------------------------------------------------------------------------------------------------------


class TaskWatch:
    """Who wants to be told when a task is done: those who wait, then the callbacks.

    `concurrent.futures.wait` and `as_completed` look at ``_condition``, ``_state`` and ``_waiters`` of each task. While
    they hold the condition, the state must stay as it is. So a task is done for them when `is_told` is set, under the
    condition. Each task has a condition of its own, so that what goes wrong with one concerns no other. A lock will do
    for it.
    """

    __slots__ = ("callbacks", "condition", "is_told", "waiters")

    def __init__(self) -> None:
        self.condition = threading.RLock()
        self.is_told = False
        self.waiters: list[Any] = []  # those of concurrent.futures, and ours, which are told as these are
        self.callbacks: list[Callable[[Any], object]] | None = []  # None once they are called


def watch_of(task: Any) -> TaskWatch:
    """Return the watch of a task; the first who asks for it has a worker tell it when the task is done."""
    watch: TaskWatch | None = task.watch
    if watch is not None:
        return watch
    events = None if is_done(task) else end_of(task)
    made = TaskWatch()
    if task.watch is None:  # nothing is called since this, so that no other thread comes between
        task.watch = made
        try:
            tell_after(task, events)
        except BaseException:
            task.watch = None
            raise
    watch = task.watch
    return watch or made


def tell_after(task: Any, events: EventSet | None) -> None:
    """Let a worker tell the watch of a task after `events`; None, and a context that has ended, mean now."""
    if events is not None:
        try:
            task.engine.call_after(task, events, tell)
        except ContextClosedError:
            events = None
    if events is None or task.fate == CALLED_OFF:
        tell(task)


def tell(task: Any) -> None:
    """Tell who waits for a task that it is done, and call its callbacks, whatever they raise."""
    left = nested_left(task) if NESTED else None
    if left is not None:
        tell_after(task, end_of(left))
        return
    watch: TaskWatch = task.watch
    with watch.condition:
        tell_waiters(task, watch)
        callbacks, watch.callbacks = watch.callbacks, None
    interrupt = None
    for fn in callbacks or ():
        try:
            call(fn, task)
        except BaseException as error:
            if interrupt is None:
                interrupt = error
            else:  # only one can be raised
                log_raised(task)
    if interrupt is not None:
        raise interrupt


def tell_waiters(task: Any, watch: TaskWatch) -> None:
    """Tell those who wait, once; the condition is held."""
    if watch.is_told:
        return
    watch.is_told = True
    for waiter in watch.waiters:
        if is_cancelled(task):
            waiter.add_cancelled(task)
        elif failure_of(task) is not None:
            waiter.add_exception(task)
        else:
            waiter.add_result(task)


def call(fn: Callable[[Any], object], task: Any) -> None:
    """Call a callback; what it raises is logged, as that of a future is."""
    try:
        fn(task)
    except Exception:
        log_raised(task)


def log_raised(task: Any) -> None:
    """Log what a callback raised just now."""
    log.exception("a callback of task %s raised", task.label())


def add_waiter(task: Any, tell: Callable[[Any], object]) -> None:
    """Call ``tell(task)``, which is short, when a task is done, before the callbacks."""
    watch = watch_of(task)
    with watch.condition:
        if not watch.is_told:
            watch.waiters.append(SimpleNamespace(add_result=tell, add_exception=tell, add_cancelled=tell))
            return
    tell(task)


def add_done_callback(task: Any, fn: Callable[[Any], object]) -> None:
    """Call ``fn(task)`` when the task is done: at once if it is, else by a worker. What it raises is logged.

    It may read data, submit tasks and wait for one, but not for everything, as ``ctx.synchronize()`` does.
    """
    if not callable(fn):
        raise TypeError(f"add_done_callback takes a function, got {type(fn).__name__}")
    if not is_done(task):
        watch = watch_of(task)
        with watch.condition:
            if watch.callbacks is not None:
                watch.callbacks.append(fn)
                return
    call(fn, task)


def condition(task: Any) -> Any:
    """Return what `concurrent.futures` holds while it looks at a task; whether that is done is known from here on."""
    watch = watch_of(task)
    if not watch.is_told:
        if is_done(task):
            with watch.condition:
                tell_waiters(task, watch)
        else:
            must_end(task, "a wait", end_of(task))
    return watch.condition


def waiters(task: Any) -> list[Any]:
    """Return where `concurrent.futures` puts who waits for a task."""
    return watch_of(task).waiters


def state(task: Any) -> str:
    """Return the state as `concurrent.futures` calls it."""
    if watch_of(task).is_told:
        return "CANCELLED_AND_NOTIFIED" if is_cancelled(task) else "FINISHED"
    return "RUNNING" if task.fate == BEGUN else "PENDING"


def awaitable(task: Any) -> Generator[Any, None, None]:
    """What ``await task`` runs: wait for it, and raise what it failed with."""
    if not is_done(task):
        yield  # others of the loop submit their tasks meanwhile, which run beside this one
        if not is_done(task) and not ends_in_a_moment(task):
            must_end(task, "an await", end_of(task))
            done, tell_loop = loop_future()
            add_waiter(task, tell_loop)
            yield from done
    result(task, None)


def ends_in_a_moment(task: Any) -> bool:
    """Hold the loop for the moment in which a short task ends, which is cheaper than to be told by another thread.

    After moments that were lost, more and more tasks get none: those of a program whose tasks are long.
    """
    global moments_lost, moments_saved
    if moments_saved < moments_lost:
        moments_saved += 1
        return False
    moments_saved = 0
    ends = bool(task.engine.wait_events(end_of(task), MOMENT_S)) and is_done(task)
    moments_lost = 0 if ends else min(2 * moments_lost + 1, MOST_LOST)
    return ends


def loop_future() -> tuple[Any, Callable[[Any], None]]:
    """Return a future of the running event loop, and what another thread calls, with anything, when it is done."""
    import asyncio  # which few programs need, and which takes its time

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish() -> None:
        if not done.done():  # it may have been cancelled
            done.set_result(None)

    def tell_loop(_: Any) -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:
            if not loop.is_closed():
                raise

    return done, tell_loop
