"""The end of an engine: everything runs, what users want goes home, and all memory is given back.

It is tried again as long as something runs that may submit more, an outcome is open, or another thread is inside: each
try pauses for that, outside of the gate. What fails on the way is given up (`forget_all`), and nothing goes home.
"""

from __future__ import annotations

import cython

from stf._engine import host_waits, reductions, retiring, room, thread_turns
from stf._engine.failures import Failure
from stf._engine.host_waits import Pause
from stf._support.sync import Gate
from stf.errors import TaskStateError


def abandon_open_tasks(engine: EngineState):
    """Tasks that nobody ended: what they were to write is poisoned. A body that still runs may end its own."""
    for task in engine.opened():
        if task.thread in host_waits.RUNNING or task.state != OPEN:  # or has ended it, and itself, just now
            continue
        error = TaskStateError(f"task {task.label()} ({task.call_site}) was never ended")
        failure = Failure.of(task, error)
        engine.failures.append(failure)
        engine.fail(task, failure)
    return 0


def retire_all(engine: EngineState):
    """Write everything home that can be, free everything."""
    return complete(engine, retire_everything)


def complete(engine: EngineState, action):
    """Do an action of a context that ends, and again while it pauses; the gate is all that it enters."""
    retries = 0
    while True:
        thread_turns.await_others(engine)
        if engine.last_open is not None:
            abandon_open_tasks(engine)
        engine.gate.enter()
        engine.coherency.pauses = retries
        try:
            return action(engine)
        except Pause as pause:
            events = pause.events
        finally:
            engine.coherency.pauses = 0
            engine.gate.leave()
        room.wait_outside(engine, events, retries)
        retries += 1


def retire_everything(engine: EngineState):
    """One try at `retire_all`: pause while bodies or callbacks run, or outcomes are open."""
    retiring.drain(engine)
    pending = EventSet()
    if engine.calls_host():
        engine.root.flush()
        engine.root.tails(pending)  # what runs may submit more
    everything = bring_home(engine, pending)
    engine.root.flush()
    wait_for_all(engine)
    for item in everything:
        retiring.retire(engine, item)
    engine.coherency.free_all_spare()
    wait_for_all(engine)
    return 0


def bring_home(engine: EngineState, pending: EventSet):
    """Write everything home that can be, and return all data; pause while `pending` or outcomes are open."""
    if pending.count == 0:
        if engine.deferred:
            retiring.settle_ready(engine)
        open_outcomes(engine, pending)
    pause_for(engine, pending)
    everything = in_order_of_end(engine)
    for item in everything:
        data: Data = item
        data.released = True
        data.write_back = data.write_back and retiring.is_reachable(data)
        if data.write_back and not data.version.is_poisoned():
            engine.coherency.write_home(data)
    return everything


def forget_all(engine: EngineState):
    """After a `retire_all` that failed: free what is left, and write nothing home."""
    with engine.gate:
        engine.dropped.clear()
        engine.deferred.clear()
        everything = in_order_of_end(engine)
        for item in everything:
            cython.cast(Data, item).released = True
        for item in everything:
            retiring.forget(engine, item)
        engine.coherency.free_all_spare()


def abandon(engine: EngineState, port, reason):
    """In the child of a fork: nothing reaches the parent's driver, and no thread is inside that isn't here."""
    engine.closed = reason
    engine.gate = Gate()
    engine.root = engine.port = engine.root_scope.port = port
    engine.coherency.enter(engine.root_scope)


def pause_for(engine: EngineState, pending: EventSet):
    """Pause until `pending` are complete, and while a body that runs has a task or a recording of this engine open."""
    records = engine.scope.records and engine.scope.thread in host_waits.RUNNING
    if pending.count or engine.last_open is not None or records:
        raise Pause(pending)
    return 0


def open_outcomes(engine: EngineState, pending: EventSet):
    """Combine what has partial results; add the events after which it is known what failed."""
    for item in list(engine.coherency.data.values()):
        data: Data = item
        if data.version.partials is not None and data.home is not None and data.write_back:
            reductions.combine(engine, data)
        if data.version.may_fail():
            pending.update(data.version.writers)
    return 0


def wait_for_all(engine: EngineState):
    """Block until every lane has done what it was given."""
    tails = EventSet()
    engine.root.tails(tails)
    engine.root.wait(tails, -1.0)
    return 0


def in_order_of_end(engine: EngineState):
    """All data: tiles before what they were cut from, and the last one first, as the registry forgets these quickly."""
    everything = list(engine.coherency.data.values())
    everything.reverse()
    everything.sort(key=is_whole)
    return everything


def is_whole(data: Data):
    return data.parent is None
