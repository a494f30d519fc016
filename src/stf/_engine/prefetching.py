"""Copies for the task that comes next, where a plan knows it, and memory runs out.

Submission is ahead of the devices, so copies for later tasks are queued while earlier tasks run, and nothing is to be
gained. That ends where the host looks at a result before it submits the next task, as in a loop until something
converges: the device has nothing queued then, and each task waits for its own copies::

    without    copy 1 │ task 1 │ look │ copy 2 │ task 2 │ look │ copy 3 …
    with       copy 1 │ task 1 │ look │ task 2 │ look │ task 3 …
                        copy 2          copy 3

So, where the plan has such a look, the copies for the next task are queued when a task has got its own. Content that an
open task writes cannot be copied yet. Nothing is brought where no memory was ever short: there, data stay where they
are used. Nobody waits for a prefetch: it is left out if there is no room that could be won back at once, and the task
brings its data itself.

Four sweeps over 16 blocks of 32 MiB with room for 8, with a look after each block, take 113 ms by the plan alone and 67
with this; without looks 52. Left-looking Cholesky of which a quarter has room, with a look at each pivot, is bound by
its copies and gains 4 %. Copies ahead of every task, also where nobody looks, were tried: the sweeps had a tenth more
copies and the same time, and Cholesky took from 2 % less to 2 % more (`tests/pure/test_next_uses.py`).
"""

from __future__ import annotations

import cython

from stf._engine import host_waits
from stf.errors import OutOfMemoryError


def bring(engine: EngineState, numbers, places, following):
    """Copy data, by their numbers, to the memories where the next task reads them; -1 for those that it does not read.

    `following` is the number of that task in the plan.
    """
    coherency: Coherency = engine.coherency
    there: list = []
    missing: list = []
    held: Replica
    try:
        for number, place in zip(numbers, places, strict=True):
            data: Data = coherency.data.get(number)
            if data is None or place < 0 or not may_come(engine, data, place):
                continue
            data.next_use = following
            replica: Replica = data.version.find(place)
            if replica is None or replica.state == INVALID:
                missing.append((data, place))
                continue
            replica.pins += 1  # so that it does not make room for the others
            there.append(replica)
        for data, place in missing:
            if not fetch(coherency, data, place):
                break
    finally:
        for item in there:
            held = item
            held.pins -= 1
            coherency.reorder(cython.cast(Data, held.data).version)
    return len(missing)


def may_come(engine: EngineState, data: Data, place):
    """Return whether the content of data is there, or queued, and may be copied to a memory."""
    version = data.version
    if place >= len(engine.coherency.pools) or cython.cast(Pool, engine.coherency.pools[place]).order is None:
        return False
    if data.token or data.released or data.tiles or data.linked is not None or data.layout.interface is not None:
        return False
    if version.parent is not None or version.valid == 0 or version.frozen or version.is_poisoned():
        return False
    return version.claims >= 0 and version.accumulators == 0 and version.partials is None


def fetch(coherency: Coherency, data: Data, place):
    """Copy data to a memory; return whether there was room."""
    version, pool = data.version, cython.cast(Pool, coherency.pools[place])
    excess: cython.longlong = 0
    if pool.limit:
        coherency.settle_frees(pool)
        if pool.leaving_bytes:
            return False  # who allocates now waits for that
        excess = pool.used + data.layout.nbytes - pool.limit
    replica: Replica = version.find(place)
    if replica is None:
        replica = make_replica(data, place, data.layout.packed())
        version.replicas.append(replica)
    before = coherency.pauses
    coherency.pauses = AHEAD
    replica.pins += 1
    try:
        if excess > 0:
            freed = EventSet()
            has_room: cython.bint = coherency.evict(pool, excess, freed)
            replica.ready.update(freed)
            if not has_room:
                return False
        coherency.fetch(data, version, replica)
    except (host_waits.Pause, OutOfMemoryError):
        return False
    finally:
        coherency.pauses = before
        replica.pins -= 1
        coherency.reorder(version)
    return True
