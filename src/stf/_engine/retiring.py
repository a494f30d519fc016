"""Giving data up: home, freed and forgotten, when what uses them has run; tiles join their parent again.

The functions are done inside the engine, by ``Engine.patiently``: one that cannot go on raises `Pause`, and is begun
again when what it waits for is there.
"""

from __future__ import annotations

from stf._engine import adoption, host_waits, parts, reductions, tiles
from stf._engine.access import must_have_shape
from stf._engine.host_waits import Pause
from stf.errors import AccessError, TaskStateError

MAX_DEFERRED = 256


def drain(engine: EngineState):
    """Release what the user dropped (finalizers only append to a list)."""
    try:
        while engine.dropped:
            item = engine.dropped.pop()
            if not isinstance(item, Data):
                item.close_inside()  # a recording
                continue
            data: Data = item
            if not data.released:
                release_now(engine, data)
        if len(engine.deferred) > engine.settle_at:
            settle_ready(engine)
            engine.settle_at = max(MAX_DEFERRED, 2 * len(engine.deferred))
    except Pause:
        pass  # it is among the deferred: another time


def release_now(engine: EngineState, data: Data):
    """Write the data home, free its replicas, forget it; later if its content may still turn out poisoned.

    What fails here is tried again when the data it was cut from is used, or at the end.
    """
    if data.recorded or data.tiles:
        data.is_dropped = True  # it goes with the recording, or with its last tile
        tiles.unprotect(engine, data)  # the array is the user's
        if data.recorded and data.home is not None:
            engine.has_dropped = True
            if data.write_back:
                engine.orphans[data.id] = data
            if data.parent is not None and data.recorded == data.cached:
                engine.dropped_tiles[data.id] = data
        return 0
    data.released = True
    try:
        if is_plain(data):
            forget_plain(engine, data)
            return 0
        fold(engine, data)
        if not is_dirty(data) or not data.version.may_fail():
            retire(engine, data)
            return 0
    except BaseException:
        engine.deferred.append(data)
        raise
    engine.deferred.append(data)
    return 0


def is_plain(data: Data):
    """Return whether nobody but tasks has to do with the memory of a data: no user, recording, part or reduction."""
    if data.home is not None or data.span is not None or data.parent is not None or data.linked is not None:
        return False
    return data.version.partials is None and data.owner is None and data.protection is None


def forget_plain(engine: EngineState, data: Data):
    """Forget data that are plain: programs make and drop those that tasks return by the million."""
    engine.coherency.drop_replicas(data)
    engine.coherency.data.pop(data.id, None)
    if engine.has_dropped:
        engine.orphans.pop(data.id, None)
        engine.dropped_tiles.pop(data.id, None)
    if engine.observer is not None:
        engine.observer.data_removed(data.id)
    return 0


def fold(engine: EngineState, data: Data):
    """Combine the partials of a reduction if somebody wants them, else forget them."""
    if data.version.partials is not None:
        if data.home is not None and data.write_back:
            reductions.combine(engine, data)
        else:
            reductions.forget_partials(engine, data)


def is_dirty(data: Data):
    """Return whether the user's memory lacks what tasks computed, and wants it."""
    return data.home is not None and data.write_back and data.home.state == INVALID and data.version.valid > 0


def retire(engine: EngineState, data: Data):
    """Write home unless poisoned, free, forget."""
    poisoned = data.version.is_poisoned()
    if data.write_back and not poisoned:
        engine.coherency.write_home(data)
    forget(engine, data)


def forget(engine: EngineState, data: Data):
    """Free the replicas of a data, and forget it."""
    if data.parent is not None:
        tiles.join(engine, data)
    last = EventSet.__new__(EventSet)
    version = data.version
    home = data.home
    if not version.is_untouched():
        last.update(version.writers)
        last.update(version.readers)
    if data.linked is not None and data.parent is not None:
        home.owner = None  # it lies in memory of ours, which goes after its last use
    forget_plain(engine, data)
    if data.parent is not None:
        tiles.unprotect(engine, data)
    data.owner = data.protection = data.linked = None
    # no cycle, into which the collector does not look: a failure keeps its traceback, and that what the body had
    version.outcome = version.wrote_outcome = version.earlier = version.partials = None
    if home is not None:
        home.data = None
    if data.span is not None:
        span, data.span = data.span, None
        book, span.book = span.book, None  # which may keep the span
        book.give_up(span, last)


def settle_all(engine: EngineState, into: EventSet):
    """Retire what can be; add the events after which that is done."""
    settle_ready(engine)
    pending = EventSet()
    for item in list(engine.orphans.values()):
        data: Data = item
        if data.released or not data.is_dropped:
            engine.orphans.pop(data.id)
        else:
            write_orphan_home(engine, data, pending)
    if pending.count:
        raise Pause(pending)
    engine.root.tails(into)


def write_orphan_home(engine: EngineState, data: Data, pending: EventSet):
    """Write home what launches computed in data that their user has dropped, and looks at in the array.

    Where it may turn out to have failed, that is once `pending` are complete: partial results are combined by a body.
    """
    version = data.version
    if version.claims or version.accumulators or version.frozen or data.tiles or not is_reachable(data):
        return
    fold(engine, data)
    if not is_dirty(data):
        return
    if version.may_fail():
        pending.update(version.writers)
    elif not version.is_poisoned():
        engine.coherency.write_home(data)


def settle(engine: EngineState, waiting):
    """Retire released data whose outcome was open; pause until it is known."""
    settle_ready(engine)
    pending = EventSet()
    for item in waiting:
        data: Data = item
        if data in engine.deferred:
            pending.update(data.version.writers)
    if pending.count:
        raise Pause(pending)


def settle_beside(engine: EngineState, data: Data):
    """Retire one such data inside of a recording of this thread's, as no part of that."""
    if data.version.partials is not None or not host_waits.settles(engine.root, data.version.writers):
        return
    coherency = engine.coherency
    engine.gate.enter()
    scope = coherency.enter(engine.root_scope)
    try:
        if data in engine.deferred and not data.version.may_fail():
            retire(engine, data)
            engine.deferred.remove(data)
    finally:
        coherency.enter(scope)
        engine.gate.leave()


def settle_ready(engine: EngineState):
    """Retire the released data whose outcome is known by now, and what that drops: tiles whose last tile it was."""
    while True:
        for item in list(engine.deferred):
            data: Data = item
            fold(engine, data)
            if not data.version.may_fail():
                retire(engine, data)
                engine.deferred.remove(data)
        if not engine.dropped:
            return
        drain(engine)  # a tile is dropped when the last of its own tiles is retired


# -- the user's wishes ---------------------------------------------------------------------------------------------


def release_data(engine: EngineState, data: Data):
    """Give a data up now, at the user's word."""
    if not data.released:
        check_unused(data, "released")
        check_unrecorded(data, "released")
        release_now(engine, data)


def refresh(engine: EngineState, data: Data):
    """Copy the content home when it is there; return the events after which that is done."""
    check_unused(data, "written back")
    version = data.version
    if version.partials is not None:
        reductions.combine(engine, data)
    if version.may_fail() and data.layout.interface is not None:
        raise Pause(version.writers)
    events = EventSet()
    events.update(version.writers)
    if not version.is_poisoned():
        engine.coherency.offer_home(data)
        events.update(data.home.ready)
    return events


def check_unused(data: Data, what):
    """Open tasks and tiles forbid what would pull the data from under them."""
    version = data.version
    if data.is_result and data.layout.dtype is None and what != "released":
        raise must_have_shape(data)
    if data.released:
        raise AccessError(f"{data.describe()} was released; it cannot be {what}")
    if version.claims or version.accumulators:
        holder = data.engine.holder_of(version).label()
        raise TaskStateError(f"{data.describe()} cannot be {what} while task {holder} is open; end it first")
    if data.tiles:
        join_deferred(data.engine, data)
    if data.tiles:
        names, remedy = tiles.refusal(data.engine, data)
        raise AccessError(f"{data.describe()} cannot be {what} while {data.tiles} tiles of it live {names}; {remedy}")
    if version.frozen:
        raise AccessError(f"{data.describe()} cannot be {what} while it is frozen; unfreeze it first")
    if data.linked is not None:
        parts.check_alone(data.engine, data, what)


def check_unrecorded(data: Data, what):
    """Memory that a living recording knows stays where it is."""
    engine: EngineState = data.engine
    if data.recorded and engine.gathering is not None and engine.gathering.launcher:
        raise Pause(EventSet())  # another thread launches what used it
    if data.recorded:
        raise AccessError(f"{data.describe()} cannot be {what} while a recorded graph uses it; close that first")


def raise_if_poisoned(data: Data):
    """Raise if the content is known to be spoiled."""
    if data.version.is_poisoned():
        failure = data.version.outcome.failed()
        failure.delivered = True
        raise failure.error_of_reader("of the caller", data.describe())


def accept(engine: EngineState, data: Data):
    """Declare poisoned content good."""
    version = data.version
    if version.may_fail():
        raise Pause(version.writers)
    if version.outcome is not None and version.outcome.failed() is not None:
        version.outcome.failed().accept()
    version.outcome = None
    adoption.forget_result(version)
    if version.valid == 0 and data.home is not None:
        engine.coherency.own(version, data.home)


# -- tiles ---------------------------------------------------------------------------------------------------------


def split(engine: EngineState, data: Data):
    """Make the home replica (host memory for data without home) the only one, to be cut into tiles; return it."""
    if data.linked is not None:
        raise AccessError(f"{data.describe()} is partitioned, or a part, and has no tiles")
    check_unused(data, "split into tiles")
    check_unrecorded(data, "split into tiles")
    version = data.version
    if version.partials is not None:
        reductions.combine(engine, data)
    home = data.home if data.home is not None else version.find(0)
    if home is None:
        home = make_replica(data, 0, data.layout.packed())
        version.replicas.append(home)
    version.was_valid = version.valid > 0
    if version.was_valid and home.state == INVALID:
        engine.coherency.fetch(data, version, home)
    elif not home.has_memory():
        slot = engine.root.begin(0, version.writers, HOST)
        try:
            engine.coherency.allocate(data, home, slot)
        finally:
            home.ready.add(engine.root.abort(slot))
    for item in list(version.replicas):
        replica: Replica = item
        if replica is not home:
            engine.coherency.discard(version, replica, False)
    engine.coherency.own(version, home)
    return home


def join_deferred(engine: EngineState, parent: Data):
    """Retire the released tiles of `parent`, and tiles of those; pause while the outcome of some is open."""
    settle_ready(engine)  # what is dropped by now is among the deferred then
    settle(engine, deferred_within(engine, parent))
    if any([tiles.is_within(tile, parent) for tile in engine.dropped_tiles.values()]):
        raise Pause(EventSet())


def deferred_within(engine: EngineState, parent: Data):
    """Released data that were cut from `parent` and whose outcome is open."""
    return [data for data in engine.deferred if tiles.is_within(data, parent)]


def is_reachable(data: Data):
    """Return whether the user can look at the home of a data once the context is gone.

    Not for tiles of memory of ours.
    """
    return tiles.whole(data).home is not None
