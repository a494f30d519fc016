"""Routines: recordings that run again and again, or not at all.

A device decides itself where its driver can, as a part of one graph (`put`); else the host does, between two launches
(`run`).
"""

from __future__ import annotations

from typing import Any

from stf._engine import thread_turns
from stf._recording import persistent
from stf._recording.device_graphs import DriverGraph
from stf._recording.recordings import Recording, Routine, joined_uses
from stf.errors import CaptureError
from stf.interop.memory import numpy_view

UNROLLED = 1024  # nodes of a repetition that stand one after the other in a graph; more are a loop
NO_LIMIT = (1 << 63) - 1
FIRST = 2  # rounds that are played before the others are a loop of compiled bodies
ALWAYS = (0, 0, 0, 1)  # a decision that needs no flag and no counter


def replica_at(data: Any, memory: int) -> Any:
    """Return the replica of data at a data place, where a recording has reserved it."""
    return next(replica for replica in data.version.replicas if replica.place == memory)


def address_of(data: Any, memory: int) -> int:
    """Return where data are at a data place."""
    return int(replica_at(data, memory).address)


class Several(Routine):
    """Recordings that are launched together, as one task.

    `flag` is the data, of one byte, that says what a condition is; None if there is none.
    """

    description = "a routine"
    flag: Any = None

    def __init__(self, parts: list[Any], may_not_run: tuple[Any, ...] = ()) -> None:
        super().__init__(parts[0].engine, parts, False)
        self.uses = joined_uses(parts, may_not_run)
        self.graph = DriverGraph(0)
        self.is_shared = any(part.is_shared for part in parts)
        self.loops = persistent.loops_by_default(self.engine)
        for part in parts:
            self.after.update(part.after)
            if part.loops is not None:
                part.loops.runs_left += 2 * FIRST * part.loops.runs_left  # meanwhile all together may become a loop

    def rounds_first(self) -> int:
        """Return how many rounds are played before the others are a loop."""
        return 0 if self.loops is None or not self.loops.runs_left else FIRST

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> str | None:
        """Return why it cannot be part of one graph of the driver's; see `Recording.refusal`."""
        reasons = (part.refusal(where, memory, True, unread) for part in self.parts)
        return next((reason for reason in reasons if reason is not None), None)

    def run_captured(self, frame: Any) -> None:
        """Let the graph of a caller's do it, which is being filled."""
        frame.unread = frozenset(self.flags())
        reason = self.refusal(frame.task.where, memory_of(frame), False, frame.unread)
        if reason is not None:
            raise CaptureError(f"{self.description} cannot be part of a graph of yours: {reason}")
        self.put(frame)

    def flags(self) -> list[Any]:
        """Return the data that decisions in it look at: those of the host, if that decides, and else nobody does."""
        return [*([] if self.flag is None else [self.flag]), *super().flags()]


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

    def run(self, frame: Any) -> None:
        """Do it once after the other; in one launch where that is a loop of the device's, or has one in it."""
        may_decide = self.is_loop() or (self.start is not None and self.body.parts)
        if may_decide and not frame.engine.root.captured and self.graph.launch(frame, self):
            return
        first, count = min(self.rounds_first(), self.count), self.count
        for _ in range(first):
            self.body.run(frame)
        if count - first >= FIRST and self.loops is not None and persistent.launch(frame, self, (first, count, 0)):
            return
        for _ in range(first, count):
            self.body.run(frame)

    def add_steps(self, steps: Any) -> None:
        """Add what a round of a loop does to its steps."""
        self.body.add_steps(steps)

    def is_loop(self) -> bool:
        """Return whether it is a loop of the device's rather than a long graph."""
        return self.start is not None and self.count * self.length > UNROLLED

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> str | None:
        """Return why it cannot be part of one graph of the driver's; see `Recording.refusal`."""
        if not self.is_loop() and self.count * self.length > UNROLLED:
            return f"it repeats {self.length} nodes {self.count} times"
        return self.body.refusal(where, memory, looped or self.is_loop(), unread, hosts)

    def put(self, frame: Any) -> None:
        """Let a graph do it, of which this becomes a part."""
        if not self.is_loop():
            for _ in range(self.count):
                self.body.put(frame)
            return
        assert self.start is not None
        self.start.put(frame)
        decision = (0, address_of(self.counter, memory_of(frame)), self.count, 1)
        put_loop(frame, decision, [self.body], False)


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
        flag: Any,
        limit: int | None,
        report_count: Any,
        start: Recording | None,
        counter: Any,
    ) -> None:
        parts = [part for part in (start, condition, body) if part is not None]
        super().__init__(parts, (body,) if condition is not None or limit == 0 else ())
        self.condition = condition
        self.body = body
        self.flag = flag
        self.limit = limit
        self.most = NO_LIMIT if limit is None else limit
        self.report_count = report_count
        self.start = start
        self.counter = counter

    def run(self, frame: Any) -> None:
        """Test and run until the condition does not hold."""
        if frame.engine.root.captured and self.limit != 0:
            return self.run_captured(frame)
        if self.start is not None and self.limit != 0 and self.graph.launch(frame, self):
            return self.report_count(None)
        goes_on = self.limit != 0 and (self.condition is None or self.test(frame))
        count = 0
        while goes_on:
            if count == self.rounds_first() and self.loops is not None:
                run = persistent.launch(frame, self, (count, self.most, address_of(self.flag, 0)))
                if run is not None:
                    try:
                        thread_turns.await_bodies(frame.engine, frame.wait)
                    except BaseException:  # such as Ctrl-C; the loop may have no other end
                        run.give_up()
                        raise
                    return self.report_count(run.rounds)
            self.body.run(frame)
            count += 1
            may_go_on = self.limit is None or count < self.limit
            goes_on = (may_go_on or self.condition is None) and self.test(frame) and may_go_on
        self.report_count(count)

    def test(self, frame: Any) -> bool:
        """Return whether the condition holds, which is computed unless the body has done so."""
        if self.condition is not None:
            self.condition.run(frame)
        return is_decided(frame, self.flag, True)

    def add_steps(self, steps: Any) -> None:
        """Add what a round of a loop does to its steps: the body, and what tests whether another one follows."""
        before = steps.joined(steps.add(self.body.program, [], None))
        if self.condition is not None:
            steps.add(self.condition.program, before, None)

    def refusal(self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = False) -> str | None:
        """Return why it cannot be part of one graph of the driver's; see `Recording.refusal`."""
        if self.limit == 0:
            return None  # nothing is put
        if self.start is None:
            return "there is nothing to decide on the device"
        return super().refusal(where, memory, looped, unread, hosts)

    def put(self, frame: Any) -> None:
        """Let a graph do it, of which this becomes a part."""
        if self.limit == 0:
            return self.report_count(0)
        assert self.start is not None
        self.start.put(frame)
        if self.condition is not None:
            self.condition.put(frame)
        memory = memory_of(frame)
        decision = (address_of(self.flag, memory), address_of(self.counter, memory), self.most, 1)
        parts = [self.body] if self.condition is None else [self.body, self.condition]
        self.report_count(None)
        put_loop(frame, decision, parts, self.condition is None)

    def flags(self) -> list[Any]:
        """Return the data that decisions in it look at."""
        return [] if self.limit == 0 else super().flags()


class Branch(Several):
    """A recording that runs if a flag is true, or if it is not `wanted` to be, which another recording computes."""

    description = "if_"

    def __init__(self, condition: Recording, body: Recording, flag: Any, wanted: bool) -> None:
        super().__init__([condition, body], (body,))
        self.condition = condition
        self.body = body
        self.flag = flag
        self.wanted = wanted

    def run(self, frame: Any) -> None:
        """Test, and run it or not."""
        if frame.engine.root.captured:
            self.run_captured(frame)
        elif not self.graph.launch(frame, self):
            self.condition.run(frame)
            if is_decided(frame, self.flag, self.wanted):
                self.body.run(frame)

    def put(self, frame: Any) -> None:
        """Let a graph do it, of which this becomes a part."""
        self.condition.put(frame)
        port = frame.port
        condition = port.captures.condition(frame.slot, False)
        port.captures.decide(frame.slot, condition, (address_of(self.flag, memory_of(frame)), 0, 0, int(self.wanted)))
        port.captures.play_if(frame.slot, condition, lambda port: frame.play_on(port, [self.body]).slot)


def nodes_of(routine: Any) -> int:
    """Return how many nodes of a graph a routine becomes, about."""
    nodes = sum(map(nodes_of, routine.parts)) + (routine.program.count if hasattr(routine, "program") else 0)
    return nodes * routine.count if isinstance(routine, Repeat) and not routine.is_loop() else nodes


def put_loop(frame: Any, decision: tuple[int, int, int, int], parts: list[Any], at_first: bool) -> None:
    """Let a graph do recordings one after the other as long as a decision says so, or at least once."""
    port, slot = frame.port, frame.slot
    condition = port.captures.condition(slot, True)
    first = ALWAYS if at_first else decision
    port.captures.decide(slot, condition, first)  # each time: a loop may stand in another one

    def play(port: Any) -> int:
        last = int(frame.play_on(port, parts).slot)
        port.captures.decide(last, condition, decision)
        return last

    port.captures.play_if(slot, condition, play)


def is_decided(frame: Any, flag: Any, wanted: bool) -> bool:
    """Wait until the condition is there; return whether it holds as it is wanted to, and nothing has failed."""
    thread_turns.await_bodies(frame.engine, frame.wait)
    return frame.launch.failed() is None and bool(numpy_view(replica_at(flag, 0), False)) == wanted


def memory_of(frame: Any) -> int:
    """Return the data place of where a launch runs."""
    return int(frame.engine.places[frame.task.where].memory)
