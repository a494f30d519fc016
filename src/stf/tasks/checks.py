# cython: binding=True
"""What a call of a context checks first: whose data it got, and whether it may be called here and now. Compiled.

A `context` is what has its engine: the context, or one of its tasks.
"""

from __future__ import annotations

from typing import Any

import cython

from stf._engine import claims, outcomes, thread_turns
from stf._engine.access import check_mine
from stf._engine.failures import raise_failures
from stf.errors import TaskStateError
from stf.tasks import lent

LENT: dict = lent.BORROWERS


def check_array(context, data):
    """Raise unless this is an array of the context's."""
    if isinstance(data, DataHandle):
        core: Data = cython.cast(DataHandle, data).core
        if core.engine is context.engine and not core.token:
            return
    check_mine(context.engine, data)
    if data.is_token:
        raise TypeError(f"{data.core.describe()} has no content; use logical data with a shape")


def must_be_settled(context, data):
    """Raise unless data are the context's; wait for bodies that may still submit tasks on them (`stf.Data`).

    Whatever reads data outside of tasks, moves them or gives them back begins with this.
    """
    check_mine(context.engine, data)
    if LENT:
        lent.settle(data)
    return 0


def must_be_open(context):
    """Raise if the context was finalized."""
    engine: Engine = context.engine
    if engine.closed is not None:
        raise thread_turns.closed_error(engine)
    return 0


def must_not_be_in_a_body(context, what):
    """Raise in a body, which could wait for itself."""
    if claims.runs_body(context.engine, PyThread_get_thread_ident()):
        raise TaskStateError(f"{what} inside the body of a task: it could wait for itself; call it outside")
    return 0


def must_be_outside(context, what, launch=True, waits_for_one=False):
    """Blocking calls inside a body would wait for themselves; what was gathered for a graph is launched.

    One that `waits_for_one` task or data may be called in a callback of a handle.
    """
    engine: Engine = context.engine
    if engine.closed is not None:
        raise thread_turns.closed_error(engine)
    if owed:
        return_owed()
    thread_turns.forget_left(engine)
    inside = claims.inside(engine, PyThread_get_thread_ident(), waits_for_one)
    if inside is not None:
        raise TaskStateError(f"{what} inside {inside}")
    engine.submit_held()
    if launch and engine.gathering is not None:
        engine.gathering.step_out()
    return 0


def check_errors(context: Any) -> None:
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
    raise_what_failed(context)


def raise_what_failed(context):
    """Do what `check_errors` does, for modules that are compiled."""
    engine = context.engine
    if engine.failures:
        raise_failures(outcomes.take_failures(engine))
    error = engine.root.look() if context._caller is not None else None if context._finished else engine.root.fault()
    if error is not None:
        raise error
    return 0


def task_of_kind(context: ContextCore, kind, accesses, name, place=None):
    """Return a task of the context's own: at a place, or at the default place of this thread."""
    task = context.make_task(tuple(accesses), name)
    task.kind = kind
    task.find_site_outside()
    if place is not None:
        place_at(task, context, place)
    return task


def submit_known(context: ContextCore, task: TaskCore, call: KnownCall):
    """Submit a task whose body is known, or have it held for a window that comes again."""
    finder: RepeatFinder = context.finder
    if finder is not None and finder.look(task, call.what):
        finder.hold(task, call)
    else:
        call(task)
