"""Routines: recordings that run again and again, or not at all.

A device decides itself where its driver can, as a part of one graph (`put`); else the host does, between two launches
(`run`).
"""

from __future__ import annotations

from typing import Any

from stf._engine import thread_turns
from stf._recording.device_graphs import DriverGraph
from stf._recording.recordings import Recording, Routine, joined_uses
from stf.errors import CaptureError

UNROLLED = 1024  # nodes of a repetition that stand one after the other in a graph; more are a loop
NO_LIMIT = (1 << 63) - 1
ALWAYS = (0, 0, 0, 1)  # a decision that needs no flag and no counter


class Flag:
    """The truth of a condition, as a device and the host find it: data of one byte.

    `read` says on the host what was computed.
    """

    def __init__(self, data: Any, read: Any) -> None:
        self.data = data
        self.read = read

    def holds(self) -> bool:
        """What was computed, once it is on the host."""
        return bool(self.read(self.data))

    def address_at(self, memory: int) -> int:
        """Where it is at a data place, where a recording has reserved it."""
        return address_of(self.data, memory)


def address_of(data: Any, memory: int) -> int:
    """Where a data is at a data place."""
    return next(int(replica.address) for replica in data.version.replicas if replica.place == memory)


class Several(Routine):
    """Recordings that are launched together, as one task."""

    description = "a routine"
    flag: Flag | None = None

    def __init__(self, parts: list[Any], may_not_run: tuple[Any, ...] = ()) -> None:
        super().__init__(parts[0].engine, parts, False)
        self.uses = joined_uses(parts, may_not_run)
        self.graph = DriverGraph(0)
        self.is_shared = any(part.is_shared for part in parts)
        for part in parts:
            self.after.update(part.after)

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> str | None:
        """Why it cannot be part of one graph of the driver's; see `Recording.refusal`."""
        reasons = (part.refusal(where, memory, True, unread) for part in self.parts)
        return next((reason for reason in reasons if reason is not None), None)

    def run_captured(self, launch: Any, slot: int) -> int:
        """Let the graph of a caller's do it, which is being filled."""
        where = launch.task.where
        launch.unread = frozenset(self.flags())
        reason = self.refusal(where, launch.engine.places[where].memory, False, launch.unread)
        if reason is not None:
            raise CaptureError(f"{self.description} cannot be part of a graph of yours: {reason}")
        return int(self.put(launch, slot))

    def flags(self) -> list[Any]:
        """The data that decisions in it look at: those of the host, if that decides, and else nobody does."""
        return [*([] if self.flag is None else [self.flag.data]), *super().flags()]


class Repeat(Several):
    """A recording, so many times; `start`, where there is one, sets the data `counter` to zero."""

    description = "repeat"

    def __init__(self, body: Recording, count: Any, start: Recording | None, counter: Any) -> None:
        super().__init__([body] if start is None else [start, body])
        self.body = body
        self.length = max(nodes_of(body), 1)
        self.count = count
        self.start = start
        self.counter = counter

    def run(self, launch: Any, slot: int) -> int:
        """Do it once after the other; in one launch where that is a loop of the device's, or has one in it."""
        if not launch.engine.root.captured and (self.is_loop() or (self.start is not None and self.body.parts)):
            done = int(self.graph.launch(launch, self, slot))
            if done >= 0:
                return done
        for _ in range(self.count):
            slot = self.body.run(launch, slot)
        return slot

    def is_loop(self) -> bool:
        """Whether it is a loop of the device's rather than a long graph."""
        return self.start is not None and self.count * self.length > UNROLLED

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> str | None:
        """Why it cannot be part of one graph of the driver's; see `Recording.refusal`."""
        if not self.is_loop() and self.count * self.length > UNROLLED:
            return f"it repeats {self.length} nodes {self.count} times"
        return self.body.refusal(where, memory, looped or self.is_loop(), unread, hosts)

    def put(self, launch: Any, slot: int) -> int:
        """Let a graph do it, of which this becomes a part."""
        if not self.is_loop():
            for _ in range(self.count):
                slot = self.body.put(launch, slot)
            return slot
        assert self.start is not None
        memory = launch.engine.places[launch.task.where].memory
        decision = (0, address_of(self.counter, memory), self.count, 1)
        return put_loop(launch, self.start.put(launch, slot), decision, [self.body], False)


class While(Several):
    """A recording, as long as a flag is true, which another recording computes before it, or it computes itself.

    Where the device can decide, the recording `start` sets the data `counter`, of 64 bits, to what is done unasked: 0
    or 1. `report_count` is called with the number of iterations, or with None if the device counts them.
    """

    description = "while_loop"

    def __init__(
        self,
        condition: Recording | None,
        body: Recording,
        flag: Flag,
        limit: int | None,
        report_count: Any,
        start: Recording | None,
        counter: Any,
    ) -> None:
        parts = [part for part in (start, condition, body) if part is not None]
        super().__init__(parts, (body,) if condition is not None or limit == 0 else ())
        self.condition = condition
        self.body = body
        self.flag: Flag = flag
        self.limit = limit
        self.report_count = report_count
        self.start = start
        self.counter = counter

    def run(self, launch: Any, slot: int) -> int:
        """Test and run until the condition does not hold."""
        if launch.engine.root.captured and self.limit != 0:
            return self.run_captured(launch, slot)
        if self.start is not None and self.limit != 0:
            done = self.graph.launch(launch, self, slot)
            if done >= 0:
                self.report_count(None)
                return done
        count = 0
        while self.limit is None or count < self.limit:
            if self.condition is not None:
                slot = self.condition.run(launch, slot)
                slot = decided(launch)
                if launch.failure is not None or not self.flag.holds():
                    break
            slot = self.body.run(launch, slot)
            count += 1
            if self.condition is None:
                slot = decided(launch)
                if launch.failure is not None or not self.flag.holds():
                    break
        self.report_count(count)
        return slot

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> str | None:
        """Why it cannot be part of one graph of the driver's; see `Recording.refusal`."""
        if self.limit == 0:
            return None  # nothing is put
        if self.start is None:
            return "there is nothing to decide on the device"
        return super().refusal(where, memory, looped, unread, hosts)

    def put(self, launch: Any, slot: int) -> int:
        """Let a graph do it, of which this becomes a part."""
        if self.limit == 0:
            self.report_count(0)
            return slot
        assert self.start is not None
        slot = self.start.put(launch, slot)
        if self.condition is not None:
            slot = self.condition.put(launch, slot)
        memory = launch.engine.places[launch.task.where].memory
        limit = NO_LIMIT if self.limit is None else self.limit
        decision = (self.flag.address_at(memory), address_of(self.counter, memory), limit, 1)
        parts = [self.body] if self.condition is None else [self.body, self.condition]
        self.report_count(None)
        return put_loop(launch, slot, decision, parts, self.condition is None)

    def flags(self) -> list[Any]:
        """The data that decisions in it look at."""
        return [] if self.limit == 0 else super().flags()


class Branch(Several):
    """A recording that runs if a flag is true, or if it is not `wanted` to be, which another recording computes."""

    description = "if_"

    def __init__(self, condition: Recording, body: Recording, flag: Flag, wanted: bool) -> None:
        super().__init__([condition, body], (body,))
        self.condition = condition
        self.body = body
        self.flag: Flag = flag
        self.wanted = wanted

    def run(self, launch: Any, slot: int) -> int:
        """Test, and run it or not."""
        if launch.engine.root.captured:
            return self.run_captured(launch, slot)
        done = self.graph.launch(launch, self, slot)
        if done >= 0:
            return done
        slot = self.condition.run(launch, slot)
        slot = decided(launch)
        if launch.failure is not None or self.flag.holds() != self.wanted:
            return slot
        return int(self.body.run(launch, slot))

    def put(self, launch: Any, slot: int) -> int:
        """Let a graph do it, of which this becomes a part."""
        slot = self.condition.put(launch, slot)
        memory = launch.engine.places[launch.task.where].memory
        port = launch.port
        condition = port.condition(slot, False)
        port.decide(slot, condition, (self.flag.address_at(memory), 0, 0, int(self.wanted)))
        port.play_if(slot, condition, lambda inner: launch.play_on(inner, [self.body]))
        return slot


def nodes_of(routine: Any) -> int:
    """How many nodes of a graph a routine becomes, about."""
    nodes = sum(map(nodes_of, routine.parts)) + (routine.program.count if hasattr(routine, "program") else 0)
    return nodes * routine.count if isinstance(routine, Repeat) and not routine.is_loop() else nodes


def put_loop(launch: Any, slot: int, decision: tuple[int, int, int, int], parts: list[Any], at_first: bool) -> int:
    """Let a graph do recordings one after the other as long as a decision says so, or at least once."""
    port = launch.port
    condition = port.condition(slot, True)
    port.decide(slot, condition, ALWAYS if at_first else decision)  # each time: a loop may stand in another one

    def play(inner: Any) -> int:
        last = int(launch.play_on(inner, parts))
        inner.decide(last, condition, decision)
        return last

    port.play_if(slot, condition, play)
    return slot


def decided(launch: Any) -> int:
    """Wait until the condition is there; the slot after it."""
    thread_turns.await_bodies(launch.engine, launch.wait)
    launch.look()
    return int(launch.slot)
