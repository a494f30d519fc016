"""Rebinding: a recording is launched with other data in place of some that it was recorded with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stf._engine.access import READ, must_be_writeable
from stf.errors import CaptureError


class ByIdentity:
    """An object that is equal to itself alone, and not replaced by another one at its address while this is known."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class Bound(NamedTuple):
    """The data that a graph of the driver's works on: their key, the users' objects, and addresses by replica."""

    key: tuple[Any, ...]
    objects: tuple[Any, ...]
    addresses: dict[int, int]


class Rebinding:
    """Other data, of the same layout, for one launch: `data` are they, by the number of what they stand for.

    `wholes` make objects of several of them, by the identity of what made one of those that they stand for.
    """

    def __init__(self, data: dict[int, Any], wholes: dict[Any, Any]) -> None:
        self.data = data
        self.wholes = wholes
        self.objects = tuple((old, new.identity, ByIdentity(new.obj)) for old, new in wholes.items())
        self.reserved: list[Any] = []
        self.replicas: dict[int, Any] = {}  # by the identity of those that were recorded

    def replica_for(self, replica: Any) -> Any:
        """Return the replica that is used in place of one, at the same place; partial results stay what they are."""
        return self.replicas.get(id(replica), replica)

    def addresses(self, replicas: list[Any]) -> list[Any]:
        """Return the addresses of what is used in place of replicas, and the objects; none if all are as recorded."""
        found = [self.replica_for(replica) for replica in replicas]
        return [*[mine.address for mine in found], *self.objects] if self.objects or found != replicas else []

    def bound(self) -> Bound:
        """Return what is kept of the data with a graph that works on them; a rebinding would keep the data."""
        addresses = {number: replica.address for number, replica in self.replicas.items()}
        return Bound(self.key(), self.objects, addresses)

    def key(self) -> tuple[Any, ...]:
        """Return what a graph of the driver's that was captured with these data depends on."""
        return self.objects, *[(number, replica.place, replica.address) for number, replica in self.reserved]

    def must_suit(self, recording: Any) -> None:
        """Raise unless all that a recording does can be done with the other data.

        Raises
        ------
        AccessError
            One of them is read-only, and the recording writes what it stands for.
        ValueError
            One of them is in the recording itself.
        CaptureError
            A task of the recording cannot be done with other data.
        """
        used = {use.data.id for use in recording.uses}
        written = {use.data.id for use in recording.uses if use.mode != READ}
        for use in recording.uses:
            if use.data.id in self.data and use.data.linked is not None:
                raise ValueError(f"{use.data.describe()} is partitioned, or a part: no other data can stand for it")
        for number, core in self.data.items():
            if core.readonly and number in written:
                must_be_writeable(core, f"cannot stand for data that {recording.description} writes")
            if core.linked is not None:
                raise ValueError(f"{core.describe()} is partitioned, or a part, and cannot stand for another data")
            if core.id in used and core.id not in self.data:
                raise ValueError(
                    f"{core.describe()} cannot stand for another data: it is used in {recording.description} itself"
                )
        for part in all_parts(recording):
            for body in part.program.bodies():
                if hasattr(body, "refuses") and body.refuses(self.data):
                    raise CaptureError(
                        f"task {body.label} ({body.site}) was recorded as it stands, and cannot be done with other "
                        "data: functions (@stf.task) that do not take themselves (stf.Task) and kernel launches can; "
                        f"use one of these, or record {recording.description} anew"
                    )

    def reserve(self, engine: Any, task: Any, recording: Any) -> None:
        """Have memory wherever the recording has it, in the open task of a launch; for who is inside of the engine."""
        for part in all_parts(recording):
            for data, replica in part.held:
                core = self.data.get(data.id)
                if core is not None:
                    version = core.version
                    mine = engine.coherency.provide_for(core, version, replica.place, task.slot)
                    self.reserved.append((data.id, mine))
                    core.recorded += 1  # dropped by its user meanwhile, it goes with the launch
                    # bodies on the host look when the data may have lost this memory; a nested recording holds a shadow
                    self.replicas[id(replica.real or replica)] = mine.shadow()
                    known, wanted = mine.layout, replica.layout
                    if (known.shape, known.strides, known.dtype) != (wanted.shape, wanted.strides, wanted.dtype):
                        raise ValueError(
                            f"{core.describe()} cannot stand for {data.describe()}: at "
                            f"{engine.places[replica.place].name} its strides are {known.strides}, and "
                            f"{wanted.strides} were recorded; copy it to data that lies like that (ctx.copy)"
                        )

    def release(self, engine: Any) -> None:
        """Let go of the data, when the launch is submitted."""
        for _, replica in self.reserved:
            engine.coherency.unpin(replica)
            core = replica.data
            core.recorded -= 1
            if core.recorded == 0 and core.is_dropped:
                engine.dropped.append(core)


def all_parts(routine: Any) -> Iterator[Any]:
    """Return the recordings that a routine is made of, and those in them."""
    if hasattr(routine, "program"):
        yield routine
    for part in routine.parts:
        yield from all_parts(part)
