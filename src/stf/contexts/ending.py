"""How a context ends: everything runs, arrays are written back, memory and streams are given up.

Compiled, since programs open contexts by the thousand, and most have nothing of what is looked for here.
"""

from __future__ import annotations

import logging

import cython

from stf._engine import ends, handover, lifetime, outside_events, recording_caches, thread_turns
from stf._engine.failures import description_of_cancelled
from stf.contexts.observing import write_pictures
from stf.devices.make import stream_is_captured
from stf.errors import CaptureError, OutOfMemoryError, TaskStateError
from stf.tasks import capsules, lent

log = logging.getLogger("stf")
LENT: dict = lent.BORROWERS

FINALIZED = (
    "was finalized: registered arrays hold their results; read other data before its end, or make a new one with "
    "stf.context()"
)


@cython.binding(True)
def finalize(context):
    """Run everything, write back, release; calling it again does nothing.

    Raises
    ------
    TaskFailedError, ExceptionGroup
        Something failed that was not told yet; the context is finalized all the same.

    Examples
    --------
    >>> X = np.zeros(3)
    >>> ctx = stf.context(devices="cpu")
    >>> handle = ctx.fill(ctx.logical_data(X), 1.0)
    >>> ctx.finalize()
    >>> X
    array([1., 1., 1.])
    """
    core: ContextCore = context
    if core._finished:
        return
    must_be_outside(core, "finalize", False)  # which launches, when it has abandoned what others left open
    finish(core)
    raise_what_failed(core)


@cython.binding(True)
def finish(context, knows_stream=True):
    """Finalize, whoever is inside: nobody can use the context any more.

    A context that nobody finalized `knows_stream` no more: a caller's stream may be gone by then.
    """
    core: ContextCore = context
    must_have_room()
    thread_turns.begin_ending(core.engine)
    try:
        fault = None if core._finished else retire(core, knows_stream)  # else by another thread meanwhile
    finally:
        core.engine.ending = 0
    if fault is not None:
        raise fault


def retire(context: ContextCore, knows_stream):
    """Run everything, write back, release, close; return what became of the device, if it is lost."""
    engine, caller = context.engine, context._caller
    try:
        thread_turns.await_others(engine)
        engine.submit_held()
        if not knows_stream:  # nor does anybody know its events
            outside_events.cancel_all(engine)
        outside_events.await_open(engine)
        if LENT and engine in LENT:  # what their bodies write must be there when parts are brought home
            ends.abandon_open_tasks(engine)
            lent.settle_all(engine)
        if context._kept_parts:
            from stf.data.partitioned import bring_home

            bring_home(context)
        if caller is not None and caller.captured and not (knows_stream and stream_is_captured(caller.pointer)):
            end_lost_capture(context)
        end_graphs(context)
        if caller is None or not knows_stream:
            ends.retire_all(engine)
        else:
            handover.hand_over(engine, context.default_code, caller.pointer)  # whose stream comes after all
    except (KeyboardInterrupt, TaskStateError):
        raise  # not finished: the data are still there, and finalize can be called again
    except BaseException as error:
        if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
            raise  # likewise
        give_up(context)
        raise
    fault = context._driver.fault() if caller is None else None
    close(context)
    return fault


def end_graphs(context: ContextCore):
    """Launch what was gathered, and give up what was recorded."""
    engine = context.engine
    gathering = engine.gathering
    if gathering is not None:
        if gathering.implicit:
            gathering.is_over = True
            if gathering.scope is not None:
                ends.abandon_open_tasks(engine)
            gathering.flush()
        from stf.graphs.graph_scope import await_launches

        await_launches(engine.gathering)
    if context._graphs:
        from stf.graphs.task_graph import close_graphs

        close_graphs(context._graphs)
    while engine.scope.records:
        engine.scope.discard()
    engine.gathering = None


def end_lost_capture(context: ContextCore):
    """Give up what was gathered for a capture that is over: launched now, it would run."""
    engine = context.engine
    if engine.gathering is not None and engine.gathering.implicit:
        engine.gathering.is_over = True
        ends.abandon_open_tasks(engine)
        engine.gathering.discard()
    raise CaptureError(
        f"{context!r} is on a stream that was being captured, and was not finalized during the capture; finalize the "
        "context before the capture ends. Nothing was written back"
    )


def give_up(context: ContextCore):
    """Close after a failure; what fails on the way is less than what failed before."""
    try:
        ends.forget_all(context.engine)
    except Exception as error:
        log.debug("%r: %s", context, error)
    close(context)


def close(context: ContextCore):
    """Give the port and the driver back; the context is finalized."""
    engine = context.engine
    engine.gate.enter()  # what begins beside this has seen that it ends, or sees this
    try:
        context._finished = True
        engine.closed = FINALIZED
    finally:
        engine.gate.leave()
    try:
        lifetime.forget(context)
        if LENT:
            lent.forget(engine)
        context._driver.ignore_loss(context._suspects)
        recording_caches.end(engine)
    finally:
        engine.port.shutdown()
    context._more_places.clear()
    if context._caller is not None:
        if context._caller.filling is not None:
            context._caller.filling.end()
        context._caller = context._caller._replace(owner=None, filling=None)
    if context._dot is not None:
        write_pictures(context)
    if context._capsules:
        capsules.tell_unused(context)
    if context.placement is not None:
        context.placement.end()
    if context._spec.count > 1:
        tell_idle_devices(context)


def end_after(context, error):
    """Finalize after an exception: tasks whose bodies have not begun are cancelled."""
    engine = context.engine
    cancelled = engine.cancel_what_waits()  # and it stays so: what is left of the context is its end
    try:
        if engine.window is not None:
            engine.window.drop()
        thread_turns.abandon_own(engine)
        lifetime.abandon_open(engine)
        outside_events.cancel_all(engine)
        finalize(context)
    except BaseException as late:
        error.add_note(f"while the context was finalized: {type(late).__name__}: {late}")
    if cancelled:
        error.add_note(description_of_cancelled(cancelled))


def tell_idle_devices(context):
    """Log that everything ran on one of several devices."""
    used = [0] * context._spec.count
    for pool in context.engine.coherency.pools[1:]:
        used[max(context.engine.places[pool.place].memory, 1) - 1] += pool.tasks
    if sum(1 for n in used if n) == 1 and sum(used) > 1:
        where = next(i for i, n in enumerate(used) if n)
        log.info("all %d tasks ran on device(%d) of %d; use .on(place)", sum(used), where, len(used))
