"""Events that others complete: a thread of the user's, a callback of a library, a coroutine, another process.

Such an event is a task that writes a token, and perhaps data. It is submitted as it is made, and no worker has it: it
ends when somebody says so. Tasks that come after it read the token, or the data. So it orders, fails, poisons, and is
waited for as all tasks are.

Others can write data only when nobody uses them, and in the user's own array. So whoever makes an event of data has
waited for that, in a task on the host, which leaves the array as the only valid replica.
"""

from __future__ import annotations

import logging

import cython

from stf._engine import thread_turns
from stf._engine.access import WRITE
from stf._engine.failures import EventCancellation
from stf.errors import AccessError, CaptureError, TaskStateError

REPORTED_S = 1.0  # how long the end of a context waits for events before it says so
log = logging.getLogger("stf")


def must_be_possible(engine: Engine):
    """Raise where no event can be made."""
    if engine.root.captured:
        raise CaptureError("an event that others complete cannot be part of a CUDA graph of yours")
    if engine.scope.records and not thread_turns.gathers(engine.scope):
        raise TaskStateError(
            f"an event inside {engine.scope.description}: what is recorded has none that others complete; make it "
            "before, and let the task that launches come after it"
        )


def open_event(engine: Engine, task: TaskCore, written):
    """Let a task, which has begun nowhere, be the event that writes a new token, and data that nobody uses."""
    engine.enter()
    try:
        must_be_possible(engine)
        if any([cython.cast(Data, item).linked is not None for item in written]):
            raise AccessError("an event writes no partitioned data, nor parts; let it write other data, and copy them")
        outcome = Outcome(True)
        event: cython.longlong = engine.root.open_event()
        engine.outside[event] = task
        engine.next_task += 1
        task.id, task.event, task.state, task.outcome = engine.next_task, event, ENDED, outcome
        engine.kinds.add(task.kind, 1)
        for item in written:
            version = cython.cast(Data, item).version
            version.writers.add(event)
            version.outcome = outcome
            version.joined |= WRITE
            version.set_writer(task.symbol, task.code, task.lasti, outcome)
            if engine.observer is not None:
                task.add_predecessors(version.writers)
                version.writers.add_number(task.id)
        if engine.observer is not None:
            engine.observer.task(task)
        task.cores, task.written_mask = list(written[1:]), -1  # all of them, but for the token
        task.accesses = task.context = None  # as every task that was submitted, it keeps nothing alive
    finally:
        engine.gate.leave()
    return 0


def complete(engine: Engine, task: TaskCore, failure):
    """End an event, with a `failure` or well; False if it has ended before."""
    engine.gate.enter()
    try:
        if not task.outcome.pending:
            return False
        engine.outside.pop(task.event, None)
        task.outcome.failure = failure
        task.outcome.pending = False
        if failure is not None:
            if not failure.delivered:
                engine.failures.append(failure)
            if engine.observer is not None:
                failure.tell(engine.observer, task.id, False)
        if engine.closed is None:
            engine.root.complete_event(task.event)
    finally:
        engine.gate.leave()
    return True


def await_open(engine: Engine):
    """Wait a little for events that are open, and say for which one the end of a context waits longer."""
    if not engine.outside:
        return 0
    events = EventSet()
    for event in list(engine.outside):
        events.add(event)
    if not engine.wait_events(events, REPORTED_S):
        for task in list(engine.outside.values())[:1]:
            log.warning(
                "finalize waits for event %s (%s), which nobody has completed yet", task.label(), task.call_site
            )
    return 0


def cancel_all(engine: Engine):
    """Cancel the events that are open: nobody waits for them any more."""
    for task in list(engine.outside.values()):
        complete(engine, task, EventCancellation.of(task))
