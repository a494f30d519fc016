"""Routines: recordings that run again and again, or not at all. The host decides here, between two launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stf._engine.deps import EventSet
from stf._engine.recordings import Recording, joined_uses


class Routine:
    """Recordings that are launched together, as one task."""

    once = False

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.uses = joined_uses(parts)
        self.after = EventSet()
        for part in parts:
            self.after.update(part.after)

    def has_calls(self) -> bool:
        """Whether bodies run on the host."""
        return any(part.has_calls() for part in self.parts)

    calls = has_calls

    def close(self) -> None:
        """Give the memory of the recordings up."""
        for part in self.parts:
            part.close()

    def close_inside(self) -> None:
        """What `close` does, by who is inside of the engine."""
        for part in self.parts:
            part.close_inside()


class Repeat(Routine):
    """A recording, so many times."""

    def __init__(self, body: Recording, count: Any) -> None:
        super().__init__([body])
        self.body = body
        self.count = count

    def run(self, launch: Any, slot: int) -> int:
        """Do it once after the other."""
        for _ in range(self.count):
            slot = self.body.run(launch, slot)
        return slot


class While(Routine):
    """A recording, as long as a condition holds, which another recording computes: before each time, or after it.

    `holds` says on the host what was computed; `told` is called with the number of iterations.
    """

    def __init__(
        self,
        condition: Recording | None,
        body: Recording,
        holds: Callable[[], bool],
        limit: int | None,
        told: Callable[[int], None],
    ) -> None:
        super().__init__([body] if condition is None else [condition, body])
        self.condition = condition
        self.body = body
        self.holds = holds
        self.limit = limit
        self.told = told

    def run(self, launch: Any, slot: int) -> int:
        """Test and run until the condition does not hold."""
        count = 0
        while self.limit is None or count < self.limit:
            if self.condition is not None:
                slot = self.condition.run(launch, slot)
                slot = decided(launch)
                if launch.failure is not None or not self.holds():
                    break
            slot = self.body.run(launch, slot)
            count += 1
            if self.condition is None:
                slot = decided(launch)
                if launch.failure is not None or not self.holds():
                    break
        self.told(count)
        return slot


class Branch(Routine):
    """One of two recordings, as a condition says, which a third one computes."""

    def __init__(
        self, condition: Recording, body: Recording, other: Recording | None, holds: Callable[[], bool]
    ) -> None:
        super().__init__([part for part in (condition, body, other) if part is not None])
        self.condition = condition
        self.body = body
        self.other = other
        self.holds = holds

    def run(self, launch: Any, slot: int) -> int:
        """Test, and run one of them."""
        slot = self.condition.run(launch, slot)
        slot = decided(launch)
        if launch.failure is not None:
            return slot
        chosen = self.body if self.holds() else self.other
        return slot if chosen is None else int(chosen.run(launch, slot))


def decided(launch: Any) -> int:
    """Wait until the condition is there; the slot after it."""
    launch.wait()
    launch.look()
    return int(launch.slot)
