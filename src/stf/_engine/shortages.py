"""The description of a shortage: an allocation that cannot be met, and who holds what at that place.

It is made after all that could go has gone. What the order of eviction has left is pinned, and this is all that is
looked at, however many data there are.
"""

from __future__ import annotations

from typing import Any

from stf._engine import host_waits
from stf._engine.versions import outermost

MOST_NAMED = 16  # the largest ones; more of them are a number


def describe(coherency: Any, pool: Any, nbytes: int, data: Any) -> str:
    """Say what was asked of a pool, and who holds its memory."""
    pinned, partials = left_in(coherency, pool)
    held = name_largest(coherency, pinned, partials)
    scope = coherency.scope if coherency.asking is None else coherency.asking.engine.scope
    while scope.records:
        own = sum(r.layout.nbytes for r in scope.temporaries if r.place == pool.place)
        held += [f"{own} bytes of {scope.description}"] if own else []
        scope = scope.parent
    known = {id(replica) for replica in pinned}
    for recording in coherency.recordings.values():
        own = recording.own_memory(pool.place, known)
        if own:
            held.append(f"{own} bytes of {recording.description}")
    limit = f" of {pool.limit}" if pool.limit else ""
    remedy = "close() recorded graphs, " if coherency.recordings else ""
    last_remedy = "raise memory_limit" if pool.limit else "free what others hold there"
    where = coherency.places[pool.place].name
    elsewhere = 0 if pool.limit else used_elsewhere(coherency, where)
    others = f" and {elsewhere} in other contexts of this process, which finalize() frees" if elsewhere else ""
    task = f" for task {coherency.asking.label()}" if coherency.asking is not None else ""
    return (
        f"no room for {nbytes} bytes of {data.describe()}{task} on {where}: "
        f"{pool.used}{limit} bytes are in use{others}; pinned: {', '.join(held) or 'nothing'}; "
        f"use smaller pieces (lX.tiles), release data, {remedy}or {last_remedy}"
    )


def left_in(coherency: Any, pool: Any) -> tuple[list[Any], list[Any]]:
    """Return the pinned replicas and the partial results at a place, in the order in which their data were made."""
    pinned, partials = [], []
    asking = coherency.asking
    for replica in [] if pool.order is None else pool.order.members():
        version = outermost(replica.data.version)
        if replica in pool.partials:
            partials.append(replica)
        elif (
            replica.pins
            or version.frozen
            or (asking is not None and asking.holds(replica.data))
            or not coherency.is_free_to_go(version, replica)
        ):
            pinned.append(replica)
    return sorted(pinned, key=age), sorted(partials, key=age)


def age(replica: Any) -> int:
    """Data are numbered as they are made."""
    return int(replica.data.id)


def name_largest(coherency: Any, pinned: list[Any], partials: list[Any]) -> list[str]:
    """Name the largest replicas and who holds them; of the others, how many and how large they are."""
    everything = sorted([*pinned, *partials], key=age)
    largest = {id(r) for r in sorted(everything, key=lambda r: -r.layout.nbytes)[:MOST_NAMED]}
    are_partial = {id(replica) for replica in partials}
    named = []
    for replica in everything:
        if id(replica) in largest:
            holders = "a partial result" if id(replica) in are_partial else holders_of(coherency, replica)
            named.append(f"{replica.data.label()} {replica.layout.nbytes} bytes ({holders})")
    rest = [replica.layout.nbytes for replica in everything if id(replica) not in largest]
    return [*named, f"{len(rest)} more with {sum(rest)} bytes"] if rest else named


def holders_of(coherency: Any, replica: Any) -> str:
    """Say who keeps a replica from being evicted."""
    data, asking = replica.data, coherency.asking
    if data.version.frozen:
        return "frozen"
    tasks = [] if asking is None else [*asking.engine.opened(), asking]
    names = [f"task {task.label()}" for task in tasks if task.holds(data)]
    names += [f"the body of task {task.label()}" for task in host_waits.RUNNING.values() if task.works_on(data)]
    names += [recording.description for recording in coherency.recordings.values() if recording.holds(replica)]
    scope = coherency.scope if asking is None else asking.engine.scope
    while scope.records:
        names += [scope.description] if any(held is replica for _, held in scope.held) else []
        scope = scope.parent
    return ", ".join(names) or "a copy"


def used_elsewhere(coherency: Any, name: str) -> int:
    """Return how many bytes other contexts have at a place of this name."""
    others = [engine.coherency for engine in host_waits.living_engines() if engine.coherency is not coherency]
    return int(sum(pool.used for other in others for pool in other.pools if other.places[pool.place].name == name))
