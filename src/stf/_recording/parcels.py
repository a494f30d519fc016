"""Parcels: recordings that other processes keep, so that a launch is one command for each of them.

The devices of a context may be processes of a cluster. A recording that is played there costs a few commands a task.
So what it does travels once, and each launch says which recording, and what is not as it was recorded::

    first launch ──▶ played ──second──▶ packed, and sent ──▶ launched by its number
                                │ something in it is of this process, or a kernel, or another recording: played

A parcel is made for the data that it works on. Launches with other data get some of their own, when these come again.
It holds what never changes: the order of the nodes, copies, and bodies whose arguments are numbers, texts and arrays.
A body that takes parameters, or a list that may have changed, gets its arguments anew with each launch.

Each process does its nodes on streams of its own, and they tell each other what they have reached. The launch is a slot
for each process: that comes after the launch's start, and ends when all nodes of that process are done.
"""

from __future__ import annotations

from typing import Any

from stf._recording.graph_calls import CarriedLaunch

OTHERS = 4  # parcels that are kept of launches with other data, and keys of such launches


class Parcels:
    """The parcels of one recording, and the keys of data that it was launched with once."""

    def __init__(self) -> None:
        self.by_key: dict[Any, Any] = {}
        self.seen: dict[Any, None] = {}
        self.is_refused = False

    def known(self, key: Any) -> Any:
        """Return the parcel for the data with a key; None if there is none."""
        found = self.by_key.pop(key, None)
        if found is not None:
            self.by_key[key] = found  # the one that was launched last comes last
        return found

    def made(self, key: Any, role: Any, program: Any, frame: Any) -> Any:
        """Return a new parcel where these data come again; None if the launch is to be played."""
        if self.is_refused or key not in self.seen:
            self.seen[key] = None
            if len(self.seen) > OTHERS:
                del self.seen[next(iter(self.seen))]
            return None
        made = packed(role, program, frame)
        if made is None:
            self.is_refused = True
            self.seen.clear()
            return None
        self.by_key[key] = made
        if len(self.by_key) > OTHERS:
            self.by_key.pop(next(iter(self.by_key))).close()
        return made

    def close(self) -> None:
        """Let the other processes forget them, after the launches that are on their way."""
        for parcel in self.by_key.values():
            parcel.close()
        self.by_key.clear()


def launch(frame: Any, recording: Any) -> bool:
    """Launch a recording that other processes keep; return False if it is to be played."""
    role = frame.port.parcels
    if role is None or frame.unread or recording.runs_once:
        return False
    life = recording.life
    if life.parcels is None:
        life.parcels = Parcels()
    rebinding = frame.launch.rebinding
    key = None if rebinding is None else rebinding.key()
    parcel = life.parcels.known(key) or life.parcels.made(key, role, recording.program, frame)
    if parcel is None or not role.is_whole(parcel):
        return False
    launched = CarriedLaunch(frame.launch, parcel.bodies, frame.values)
    changed = {number: launched.trip(number).travels() for number in parcel.varying}
    run = role.prepare(parcel, launched, changed)
    if run is None:
        return False
    frame.carry(run)
    return True


def packed(role: Any, program: Any, frame: Any) -> Any:
    """Return a program, with the data of a launch, as a parcel; None if other processes cannot do all of it."""
    rebinding = frame.launch.rebinding
    nodes: list[tuple[Any, ...]] = []
    bodies: list[Any] = []
    trips: list[Any] = []
    varying = set()
    for number, (place, operations) in enumerate(program.contents()):
        steps: list[tuple[Any, ...]] = []
        for name, what in operations:
            if name == "call":
                body = what[0]
                trip = body.travels() if hasattr(body, "travels") else None
                if trip is None:
                    return None
                if any([hasattr(value, "value_in") for value in trip[2][0]]):
                    varying.add(len(bodies))
                steps.append(("call", len(bodies)))
                bodies.append(body)
                trips.append(trip)
            elif name == "copy":
                steps.append(("copy", described(what[0], rebinding), described(what[1], rebinding)))
            elif name == "fill":
                steps.append(("fill", described(what[0], rebinding), what[1]))
            else:
                return None
        nodes.append((place, program.needs_of(number), steps))
    if not bodies:
        return None
    launched = CarriedLaunch(frame.launch, bodies, frame.values)
    if rebinding is not None:
        trips = [launched.trip(number).travels() for number in range(len(bodies))]
    return role.pack(nodes, bodies, trips, varying)


def described(recorded: Any, rebinding: Any) -> tuple[Any, ...]:
    """Return the memory of a replica: address, strides, shape, bytes of an element, and what keeps it."""
    replica = recorded if rebinding is None else rebinding.replica_for(recorded)
    layout = replica.layout
    return replica.address, layout.strides, layout.shape, layout.itemsize, replica.owner
