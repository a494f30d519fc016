"""Handing over to a caller's stream: what was submitted comes before what comes there, and the host waits for none.

So it is at the end of a context that has the stream, and where data are frozen: lent outside tasks.

Only bodies and callbacks on the host are waited for: work of theirs was not given to the device yet.
"""

from __future__ import annotations

import cython

from stf._engine import claims, ends, host_waits, parts, reductions, retiring
from stf.errors import UninitializedDataError


def hand_over(engine: Engine, place, pointer):
    """Write everything home and free it, for a context that ends; then let a caller's stream come after that."""
    owners = ends.complete(engine, retire_everything)
    tails = EventSet()  # of all devices, and of nodes of a graph that the host is called by
    engine.gate.enter()
    try:
        for device in range(0 if engine.root.captured else 1, len(engine.places)):
            engine.root.tails_at(device, tails)
    finally:
        engine.gate.leave()
    signal_stream(engine, place, tails, pointer, owners)


def retire_everything(engine: Engine):
    """One try: pause while bodies or callbacks run, or outcomes are open.

    Return the objects whose memory is still worked on.
    """
    retiring.drain(engine)
    pending = EventSet()
    if engine.calls_host():
        engine.root.tails_at(0, pending)  # what runs may submit more
    everything = ends.bring_home(engine, pending)
    owners = [data.home.owner for data in everything if data.home is not None]
    for item in everything:
        retiring.retire(engine, item)
    engine.coherency.free_all_spare()
    return owners


def signal_stream(engine: Engine, place, events: EventSet, pointer, owners):
    """Let what comes on a caller's stream start after `events`; `owners` live until then."""
    slot = open_slot(engine, place, events)
    try:
        engine.root.keep_alive(slot, owners)
        engine.root.callers.signal(slot, pointer)
    finally:
        close_slot(engine, slot)


def stream_after(engine: Engine, place, events: EventSet):
    """Return the driver's stream on which `events` are complete from here on."""
    slot = open_slot(engine, place, events)
    try:
        return engine.root.stream(slot)
    finally:
        close_slot(engine, slot)


def open_slot(engine: Engine, place, events: EventSet):
    """Return a slot after `events`, when all that stands before it was given to the device.

    Bodies on the host have run.
    """
    engine.gate.enter()
    try:
        slot = engine.root.begin(place, events, COMPUTE)
    finally:
        engine.gate.leave()
    try:
        host_waits.enter_slot(engine.root, slot)
    except BaseException:
        close_slot(engine, slot)
        raise
    return slot


def close_slot(engine: Engine, slot):
    """End a slot; return its event."""
    engine.gate.enter()
    try:
        return engine.root.end(slot)
    finally:
        engine.gate.leave()


def come_after(engine: Engine, place, pointer):
    """Return the event after what is on a caller's stream now."""
    slot = engine.root.begin(place, EventSet(), COMPUTE)
    try:
        engine.root.callers.wait_on(slot, pointer)
    finally:
        event = engine.root.end(slot)
    return event


def freeze(engine: Engine, data: Data, mode, holds):
    """Lend a data outside tasks; `mode` is READ or RW. Then it is in the list `holds`, too."""
    retiring.check_unused(data, "frozen")
    version = data.version
    if version.partials is not None:
        reductions.combine(engine, data)
    if version.valid == 0 and not data.token:
        retiring.raise_if_poisoned(data)
        raise UninitializedDataError(
            f"{data.describe()} is frozen before anything wrote it; write it first, or create it with "
            "logical_data_zeros"
        )
    holds.append(data)
    version.frozen, version.frozen_by = mode, PyThread_get_thread_ident()


def frozen_replica(engine: Engine, data: Data, place, mode):
    """Return a valid replica at `place` and the events after which it may be used."""
    version = data.version
    events = EventSet()
    slot = engine.root.begin(place, events, COMPUTE if place else HOST)
    try:
        replica = engine.coherency.provide(data, version, place, READ, slot)
        replica.pins -= 1
    finally:
        engine.root.abort(slot)
    events.update(version.writers)
    if mode & WRITE:
        events.update(version.readers)
        engine.coherency.own(version, replica)
    events.update(replica.ready)
    return replica, events


def unfreeze(engine: Engine, data: Data, place, pointers):
    """End a loan: who writes the data comes after what is on callers' streams now; who reads it, if it was written."""
    version = data.version
    version.joined |= version.frozen
    if version.frozen & WRITE and data.linked is not None:
        parts.note_change(engine, data)
    for pointer in pointers:
        event = come_after(engine, place, pointer)
        if version.frozen & WRITE:
            version.writers.add(event)
        else:
            version.readers.add(event)
    version.frozen = 0
    engine.coherency.reorder(version)
    if engine.claim_queue:
        claims.wake_claimants(engine)  # the writers of other threads


def keep_frozen(engine: Engine, data: Data):
    """A loan whose end nobody can call any more: who waits for it gets an error."""
    data.version.frozen_by = 0
    claims.wake_claimants(engine)


def number_loan(engine: Engine, data: Data, mode, begun):
    """Return the number of a loan, or of the end of the one that `begun` is of; and of what it comes after."""
    engine.gate.enter()
    try:
        version = data.version
        number: cython.longlong = engine.coherency.number_operation()
        events = EventSet()
        events.update(version.writers)
        if mode & WRITE:
            events.update(version.readers)
        if begun:
            events.add_number(-begun)
            (version.writers if mode & WRITE else version.readers).add_number(-number)
        return number, tuple(events.numbers or ())
    finally:
        engine.gate.leave()
