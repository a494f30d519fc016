"""Every cross-link of the engine's state, verified: for tests after each step, and for users with STF_VALIDATE=1."""

from __future__ import annotations

from typing import Any

from stf._engine.eviction_order import key_of
from stf._port.replicas import INVALID, MODIFIED  # type: ignore[attr-defined]  # of the .pxd

STAYS = 0x7FFFFFFF


def check_state(engine: Any) -> None:
    """Raise an AssertionError that names a cross-link of `engine` that is broken."""
    used = [0] * len(engine.places)
    pins: dict[int, int] = {}
    for task in engine.opened():
        must(task.is_open, f"task {task.label()} is listed as open and is not")
        for replica in task.held_replicas():
            pins[id(replica)] = pins.get(id(replica), 0) + 1
    if engine.scope.records:
        return  # a recording has states of its own
    for data in list(engine.coherency.data.values()):
        check_data(engine, data, used, pins)
    recorded = any(data.recorded for data in engine.coherency.data.values())  # programs may have memory of their own
    for pool in engine.coherency.pools:
        must(
            pool.used == used[pool.place] or (recorded and pool.used > used[pool.place]),
            f"pool {pool.place} counts {pool.used} bytes, its replicas have {used[pool.place]}",
        )
        must(pool.peak >= pool.used, f"pool {pool.place} has peak {pool.peak} below use {pool.used}")
        must(not pool.limit or pool.used <= pool.limit, f"pool {pool.place} uses {pool.used} of {pool.limit}")
        if pool.order is not None:
            check_order(pool)


def check_data(engine: Any, data: Any, used: list[int], pins: dict[int, int]) -> None:
    """One data: its replicas, claims and events."""
    version = data.version
    label = data.describe()
    states = [replica.state for replica in version.replicas]
    must(version.valid == sum(s != INVALID for s in states), f"{label} counts {version.valid} valid replicas: {states}")
    must(MODIFIED not in states or version.valid == 1, f"{label} has a modified replica and others valid: {states}")
    places = [replica.place for replica in version.replicas if not replica.home]
    must(len(places) == len(set(places)), f"{label} has two replicas at one place: {places}")
    must(version.claims >= -1 and version.accumulators >= 0, f"{label} has claims {version.claims}")
    held = [t for t in engine.opened() if t.holds(data)]
    must(
        bool(held) == bool(version.claims or version.accumulators),
        f"{label} has claims {version.claims}, held by {held}",
    )
    partials = [partial.replica for partial in version.partials or ()]
    for replica in [*version.replicas, *partials]:
        expected = pins.get(id(replica), 0)
        held = replica.pins >= expected if data.recorded else replica.pins == expected
        must(held, f"{label}: {replica} has {replica.pins} pins")
        must(
            replica.state == INVALID or replica.address or replica.instance is not None or replica.awaits_result,
            f"{label}: {replica} is nowhere",
        )
        if not (replica.home or replica.adopted) and (replica.address or replica.instance is not None):
            used[replica.place] += replica.layout.nbytes
            check_key(engine.coherency, version, replica, replica in partials)
    for events in (version.writers, version.readers):
        lanes = [event >> 44 for event in events.tolist()]
        must(len(lanes) == len(set(lanes)), f"{label} keeps two events of a lane: {events}")


def check_order(pool: Any) -> None:
    """The order of eviction of one place: every member knows its position, and they stand in the order of last use."""
    members = pool.order.members()
    must(len(members) == pool.order.count, f"pool {pool.place} counts {pool.order.count} replicas of {len(members)}")
    positions = [replica.position for replica in members]
    must(0 not in positions and positions == sorted(positions), f"pool {pool.place} has positions {positions}")
    uses = [replica.last_use for replica in members if replica not in pool.partials]
    must(uses == sorted(uses), f"pool {pool.place} is not in the order of last use: {uses}")


def check_key(coherency: Any, version: Any, replica: Any, is_partial: bool) -> None:
    """One replica with memory of ours: it takes part in the order of eviction, and no later than its state allows."""
    pool = coherency.pools[replica.place]
    order = pool.order
    must((replica in pool.partials) == is_partial, f"{replica} is a partial result, or it is none")
    if order is None:
        must(replica.position == 0, f"{replica} has a position and its place has no order")
        return
    must(replica in order.members(), f"{replica} is not in the order of its place")
    key, most = order.key_at(replica.position), STAYS if is_partial else key_of(version, replica)
    is_left_out = key == STAYS and (replica.place == 0 or coherency.stays_long(version, replica))
    must(key <= most or is_left_out, f"{replica} has key {key} of eviction, and should have {most}")


def must(condition: Any, description: str) -> None:
    if not condition:
        raise AssertionError(description)
