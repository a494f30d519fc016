"""Claims, the rare cases: guards of a data, conflicts between tasks, dropped tasks, double accesses."""

from __future__ import annotations

import cython

from stf._engine import host_waits, reductions, retiring, thread_turns, tiles
from stf._engine.failures import Failure
from stf._engine.task import OWN_REFERENCES
from stf._support.sync import make_baton
from stf.errors import AccessError, TaskStateError

FOR_ITSELF = "it would wait for itself; call it after the task has ended, or pass the data to it"
NOTHING_RAN = (
    "nothing of it has run yet, so that the host can neither wait for its data nor branch on them; use ctx.if_ or "
    "ctx.while_loop, or do that before or after"
)


def check_guards(engine: EngineState, task: TaskCore, use: Access, version: Version):
    """Return the rare states of a data: released, split, frozen, or with partial results of a reduction.

    Return whether the task has to wait until the thread that has lent the data unfreezes them.
    """
    data = use.core
    if data.released:
        raise AccessError(f"{data.describe()} was released; task {task.label()} cannot use it")
    if data.tiles and not engine.scope.records:
        retiring.join_deferred(engine, data)
    elif data.tiles and engine.scope.runs_once and tiles.are_going(engine, data):
        raise host_waits.Pause(EventSet())  # another thread lets go of them just now
    if data.tiles:
        names, remedy = tiles.refusal(engine, data)
        raise AccessError(
            f"{data.describe()} is split into {data.tiles} tiles {names}; task {task.label()} must use those, or "
            f"{remedy}"
        )
    if version.frozen & WRITE or (version.frozen and use.mode != READ):
        return thread_turns.waits_for_loan(engine, task, data, version, use.mode)
    if version.partials is not None and version.claims == 0 and version.accumulators == 0:
        mode = joined_mode_of(task, data)
        if mode & READ or (mode == ACCUMULATE and use.op != version.op):
            reductions.combine(engine, data, resolved(engine, task, use))  # a pure write forgets them at its end
    return False


def await_claim(engine: EngineState, task: TaskCore, version: Version):
    """Queue for a data that another task holds; an error if this thread itself holds one."""
    baton = make_baton()
    if reap(engine):
        baton.release()
        return baton
    thread = PyThread_get_thread_ident()
    for item in engine.opened():
        other: TaskCore = item
        if other.thread == thread:
            holder: TaskCore = engine.holder_of(version)
            raise TaskStateError(
                f"task {task.label()} needs data that task {holder.label()} ({holder.call_site}) holds, while this "
                f"thread holds task {other.label()} ({other.call_site}) open; end that task first"
            )
    if host_waits.is_waited_for(thread):
        host_waits.note(thread, host_waits.ClaimWait(engine, version), task)
    engine.claim_queue.append(baton)
    return baton


def reap(engine: EngineState):
    """Fail the open tasks that nobody can end any more, since the last reference is gone; say how many."""
    count = 0
    task = engine.last_open
    while task is not None:
        before = task.before
        listed: cython.int = 1 if before is None else 2
        if references(task) == listed + OWN_REFERENCES:
            error = TaskStateError(f"task {task.label()} ({task.call_site}) was dropped while it was open")
            failure = Failure.of(task, error)
            engine.failures.append(failure)
            task.outcome = Outcome(False, failure)
            engine.finish(task, engine.port.abort(task.slot))
            count += 1
            before = None
            task = engine.last_open  # from the start: the lanes of a task on several places go with it
            continue
        task = before
    return count


def inside(engine: EngineState, thread, waits_for_one=False):
    """Say which task or recording the thread is inside of, and why that is no place to wait; None if there is none.

    A callback may wait for one task, or one data: what they wait for does not wait for the callback.
    """
    if engine.last_open is not None:
        engine.gate.enter()
        try:
            reap(engine)
        finally:
            engine.gate.leave()
    body = host_waits.RUNNING.get(thread)
    if (body is not None and body.engine is engine) or runs_inline(engine, thread):
        if not isinstance(body, host_waits.Callback):
            return f"the body of a task: {FOR_ITSELF}"
        if not waits_for_one:
            return f"a callback of task {body.label()} ({body.call_site}): {FOR_ITSELF.replace('the task', 'it')}"
    for task in engine.opened() if engine.last_open is not None else ():
        if task.thread == thread:
            return f"task {task.label()} ({task.call_site}): {FOR_ITSELF}"
    description = recorded_description(engine, thread)
    return None if description is None else f"{description}: {NOTHING_RAN}"


def recorded_description(engine: EngineState, thread):
    """Return what the thread records, in which the host can wait for nothing.

    None if it records nothing of the kind.
    """
    scope, gathering = engine.scope, engine.gathering
    if scope.thread == thread:
        return scope.description
    return gathering.description if gathering is not None and gathering.thread == thread else None


def runs_inline(engine: EngineState, thread):
    """Return whether the thread runs a body that enqueues work where it was submitted."""
    task = engine.last_open
    while task is not None:
        if task.runs_in_call and task.thread == thread:
            return True
        task = task.before
    return False


def wake_one(engine: EngineState):
    """Let one who waits look again, and thereby release what was dropped; for a finalizer, which cannot go inside."""
    try:
        engine.claim_queue.pop().release()
    except IndexError:
        return  # nobody waits


def wake_claimants(engine: EngineState):
    for baton in engine.claim_queue:
        baton.release()
    engine.claim_queue.clear()


def join_duplicates(engine: EngineState, task: TaskCore):
    """One access per data: joined modes, one place."""
    joined = {}
    for item in task.accesses:
        access: Access = item
        known: Access = joined.get(access.core.id)
        if known is None:
            joined[access.core.id] = access
            continue
        if known.place != access.place and resolved(engine, task, known) != resolved(engine, task, access):
            raise ValueError(
                f"task {task.label()} asks for {access.core.describe()} at two data places at once; ask for one"
            )
        if known.op is not None and access.op is not None and known.op is not access.op:
            raise AccessError(
                f"task {task.label()} accumulates into {access.core.describe()} with two operators, {known.op!r} and "
                f"{access.op!r}; use one"
            )
        if known.mode != access.mode:
            if known.mode == ACCUMULATE or access.mode == ACCUMULATE:
                raise AccessError(
                    f"task {task.label()} both accumulates into and accesses {access.core.describe()}; do either"
                )
            merged: Access = make_access_like(access, known.mode | access.mode)
            joined[access.core.id] = merged
    task.uses = tuple(joined.values())
    return 0


def joined_mode_of(task: TaskCore, data: Data):
    """Return the mode of all accesses of a task to a data."""
    mode = 0
    for item in task.uses:
        use: Access = item
        if use.core is data:
            mode |= use.mode
    return mode


def resolved(engine: EngineState, task: TaskCore, access: Access):
    """Return the data place that an access means."""
    return engine.place(task.where).memory if access.place == AFFINE else access.place


def runs_body(engine: EngineState, thread):
    """Return whether the thread runs the body of a task of this engine."""
    task = host_waits.RUNNING.get(thread)
    return (task is not None and task.engine is engine) or runs_inline(engine, thread)
