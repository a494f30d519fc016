"""Scopes whose recording is forgotten: a block raised, or nobody can end it any more."""

from __future__ import annotations

import threading

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._engine import reductions, thread_turns
from stf._engine.access import Data
from stf._engine.failures import Cancellation, Failure
from stf._engine.thread_turns import LEFT
from stf._engine.versions import Outcome
from stf._recording.recordings import Recording, check_closing, leave_scope
from stf.errors import TaskStateError

if not cython.compiled:
    from stf._engine.task import TaskCore

    WRITE = 2


def discard_scope(engine: Engine, scope):
    """Forget what was recorded: it never was."""
    engine.gate.enter()
    try:
        check_closing(engine, scope)
        for data in list(scope.touched):
            if data.version.partials is not None:
                reductions.forget_partials(engine, data)
        recording = Recording(engine, scope)
        leave_scope(engine, scope)
    finally:
        engine.gate.leave()
    recording.close()


def poison(engine: Engine, recording, failure):
    """Say of what a recording was to write that it failed, as its launch did not begin."""
    engine.gate.enter()
    try:
        for use in recording.uses:
            data: Data = use.data
            if use.mode & WRITE and not data.token and not data.version.is_poisoned():
                data.version.outcome = Outcome(False, failure)
    finally:
        engine.gate.leave()


def cancel(engine: Engine, recording, task):
    """Launch nothing of a recording, since its context cancels what has not begun."""
    failure = Cancellation(task.label(), task.call_site)
    engine.cancelled.append(failure)
    poison(engine, recording, failure)


def abandon_scope(engine: Engine, scope):
    """Forget a scope, if it is open still: the tasks that are open in it will not end."""
    if engine.scope is not scope:
        return
    for item in engine.opened():
        task: TaskCore = item
        error = TaskStateError(f"task {task.label()} ({task.call_site}) was open when {scope.story} was given up")
        engine.fail(task, Failure(task.label(), task.call_site, error, task.written(), True))
    discard_scope(engine, scope)


def abandon_own(engine: Engine):
    """Forget what this thread was recording when an exception left its context, with blocks that nothing has ended."""
    scope = engine.scope
    while scope is not None and not scope.once and scope.thread == threading.get_ident():
        abandon_scope(engine, scope)
        scope = engine.scope
    return 0


def leave(scope):
    """Nobody will end a scope, if it is open still: an exception came between, or its with-block is gone."""
    scope.thread = LEFT


def await_end(engine: Engine, scope):
    """Wait for a recording of another thread, or forget what was left open; False if that took too long."""
    if scope.thread == LEFT:
        forget_left(engine)
        return True
    return thread_turns.await_end(scope)


def forget_left(engine: Engine):
    """Forget the scopes that were left open."""
    while engine.epoch is not None and engine.epoch.is_left:
        engine.epoch.give_way()
    while engine.scope is not None and engine.scope.thread == LEFT:
        abandon_scope(engine, engine.scope)
