"""What a call of a context checks first: whose data it got, and whether it may be called here and now."""

from __future__ import annotations

import threading
from typing import Any

from stf._engine import claims, outcomes, thread_turns
from stf._engine.access import check_mine
from stf._engine.failures import raise_failures
from stf.errors import TaskStateError
from stf.interop.current import return_owed
from stf.tasks.lent import BORROWERS, settle
from stf.tasks.placing import place_at
from stf.tasks.repeats import KnownCall
from stf.tasks.task import ContextCore, Task


def check_array(context: ContextCore, data: Any) -> None:
    """Raise unless this is an array of the context's."""
    check_mine(context.engine, data)
    if data.is_token:
        raise TypeError(f"{data.core.describe()} has no content; use logical data with a shape")


def must_be_settled(context: ContextCore, data: Any) -> None:
    """Raise unless data are the context's; wait for bodies that may still submit tasks on them (`stf.Data`).

    Whatever reads data outside of tasks, moves them or gives them back begins with this.
    """
    check_mine(context.engine, data)
    if BORROWERS:
        settle(data)


def must_be_open(context: ContextCore) -> None:
    """Raise if the context was finalized."""
    if context.engine.closed is not None:
        raise thread_turns.closed_error(context.engine)


def must_not_be_in_a_body(context: ContextCore, what: str) -> None:
    """Raise in a body, which could wait for itself."""
    if claims.runs_body(context.engine, threading.get_ident()):
        raise TaskStateError(f"{what} inside the body of a task: it could wait for itself; call it outside")


def must_be_outside(context: ContextCore, what: str, launch: bool = True, waits_for_one: bool = False) -> None:
    """Blocking calls inside a body would wait for themselves; what was gathered for a graph is launched.

    One that `waits_for_one` task or data may be called in a callback of a handle.
    """
    must_be_open(context)
    return_owed()
    thread_turns.forget_left(context.engine)
    inside = claims.inside(context.engine, threading.get_ident(), waits_for_one)
    if inside is not None:
        raise TaskStateError(f"{what} inside {inside}")
    context.engine.submit_held()
    if launch and context.engine.gathering is not None:
        context.engine.gathering.step_out()


def check_errors(context: ContextCore) -> None:
    """Raise what failed since it was last asked: one error, or an ExceptionGroup; DriverError if a device is lost.

    On a caller's stream, also what was still to run when the context was finalized.

    Raises
    ------
    TaskFailedError
        A task failed; it names the task and its line.
    ExceptionGroup
        Tasks failed for several causes: one error for each.
    DriverError
        A device is lost.

    Examples
    --------
    >>> def broken(x):
    ...     raise ValueError("no")
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(3, name="x")
    ...     ctx.task(x.rw(), name="broken")(broken)
    ...     try:
    ...         ctx.synchronize()
    ...     except stf.TaskFailedError as error:
    ...         print(repr(error.__cause__))
    ...     ctx.check_errors()  # it was told: nothing is left to raise
    ValueError('no')
    """
    raise_failures(outcomes.take_failures(context.engine))
    root = context.engine.root
    error = root.look() if context._caller is not None else None if context._finished else root.fault()
    if error is not None:
        raise error


def task_of_kind(context: ContextCore, kind: str, accesses: Any, name: str, place: Any = None) -> Task:
    """Return a task of the context's own: at a place, or at the default place of this thread."""
    task = context.make_task_at(accesses, name)
    task.kind = kind
    task.find_site_outside()
    if place is not None:
        place_at(task, context, place)
    return task


def submit_known(context: ContextCore, task: Task, call: KnownCall) -> None:
    """Submit a task whose body is known, or have it held for a window that comes again."""
    finder = context.finder
    if finder is not None and finder.look(task, call.what):
        finder.hold(task, call)
    else:
        call(task)
