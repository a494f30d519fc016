"""Reading back: the host looks at a few bytes that a device has just written, once, and keeps no replica of them.

It is what a program does that asks for a scalar in every step. A task that reads on the host would cost a replica
there, a lane, two events and a wait for the second; a copy behind the writer, which the port watches, costs the copy.
Who looks at the same content again gets a replica: then it is worth having.
"""

from __future__ import annotations

from stf._engine import host_waits


def read_back(engine, task, data):
    """Return the bytes of a data for a task that has not begun, and need not then; None where it must.

    The caller is inside of nothing.
    """
    if not is_plain(engine, data):
        return None
    engine.enter()
    try:
        landing = -1
        version = data.version
        if not engine.scope.records and is_free(data, version):
            replica = only_replica(version)
            if replica.place != 0:
                landing = put(engine, task, data, version, replica)
    finally:
        engine.gate.leave()
    if landing < 0:
        return None
    return engine.root.readback.end(landing, data.layout.nbytes)


def is_on_host(engine, data):
    """Return whether the host has the content of a data, and nobody who reads it there would wait."""
    if engine.gathering is not None or engine.scope.records or engine.watches or data.layout is None:
        return False
    if not engine.is_ready(data):
        return False
    version = data.version
    if version.outcome is not None and version.outcome.failed() is not None:
        return False
    for item in version.replicas:
        replica: Replica = item
        if replica.place == 0 and replica.state != INVALID:
            return all([engine.is_done(event) for event in replica.ready.tolist()])
    return False


def is_plain(engine, data):
    """Whether a data is small and packed, no array of the user's, and nobody wants to know more than its content."""
    layout = data.layout
    if layout is None:  # of a token
        return False
    nbytes = layout.nbytes
    return (
        0 < nbytes <= LARGEST
        and nbytes % 4 == 0
        and (len(layout.shape) == 0 or (len(layout.shape) == 1 and layout.strides[0] == layout.itemsize))
        and layout.interface is None
        and data.home is None
        and engine.observer is None
        and engine.gathering is None
        and not engine.watches
        and not host_waits.repeated_scopes
        and not engine.blocking
    )


def is_free(data, version):
    """Return whether one task wrote the content, surely and in one place, and nobody has looked at it or holds it."""
    return (
        version.valid == 1
        and version.writers.count == 1
        and version.looked_at != version.writers.items[0]
        and version.claims >= 0
        and version.accumulators == 0
        and version.outcome is None
        and version.partials is None
        and version.parent is None
        and not (version.frozen or data.tiles or data.released)
    )


def only_replica(version):
    """Return the replica that has the content."""
    for item in version.replicas:
        replica: Replica = item
        if replica.state != INVALID:
            return replica
    raise AssertionError("a version with one valid replica has none")


def put(engine, task, data, version, replica):
    """Put the copy behind what wrote the replica, and count it as what it stands for: a task that waits, and a copy."""
    waits = engine.waits
    waits.clear()
    waits.update(version.writers)
    waits.update(replica.ready)
    port = engine.root
    slot = port.begin(replica.place, waits, COMPUTE)
    try:
        landing = port.readback.begin(slot, replica)
    except BaseException:
        version.readers.add(port.abort(slot))
        raise
    version.readers.add(port.end(slot))
    if landing < 0:
        return landing
    version.looked_at = version.writers.items[0]
    version.joined |= READ
    coherency = engine.coherency
    coherency.tick += 1
    replica.last_use = coherency.tick
    if replica.position and not replica.is_recent:
        coherency.note_use(replica)
    engine.next_task += 1
    task.id = engine.next_task
    pool: Pool = coherency.pools[0]
    pool.tasks += 1
    engine.kinds.add("wait", 1)
    coherency.asking = task
    coherency.count_copy(data, replica.place, 0, data.layout.nbytes, 0, None)  # nobody observes
    coherency.asking = None
    return landing


def await_array(engine: Engine, core):
    """Wait until the user's array on a device has what `LogicalData.write_back` brings there."""
    home = core.home
    if home is not None and home.place > 0 and home.ready.count:
        engine.wait_events(home.ready, -1.0)
    return 0
