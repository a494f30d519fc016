"""Choices of places, as `Context.why` tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stf.observe.units import format_bytes, format_duration


class Row(NamedTuple):
    """What was estimated of a task at one place: `number` is the engine's, `run_s` None where nothing was measured."""

    number: int
    free_s: float
    move_s: float
    move_bytes: int
    evict_bytes: int
    run_s: float | None
    finish_s: float


class Choice:
    """The place that was chosen for a task, and why; its times are those of the model, from when it began."""

    def __init__(self, number: int, rows: list[Row], rule: str, names: list[str], timing: Any) -> None:
        self.number, self.rows, self.rule, self.names, self.timing = number, rows, rule, names, timing

    def ran(self, start_ns: int, end_ns: int) -> None:
        """Take the times of the task's body."""
        if self.timing is not None:
            self.timing.ran(start_ns, end_ns)

    def begins(self, stream: int) -> None:
        """Let a time begin, where the body only enqueues work on a stream."""
        if self.timing is not None:
            self.timing.begins(stream)

    def ends(self, stream: int) -> None:
        """Let it end."""
        if self.timing is not None:
            self.timing.ends(stream)

    def lines(self) -> Iterator[str]:
        """Yield a table of the places."""
        yield f"placed automatically at {self.names[self.number]}: {self.rule}"
        table = [("place", "free", "moves", "evict", "run", "finish")]
        for row in self.rows:
            moves = f"{format_bytes(row.move_bytes)} in {in_units(row.move_s)}" if row.move_bytes else "0 B"
            run = "unknown" if row.run_s is None else in_units(row.run_s)
            table.append(
                (
                    self.names[row.number],
                    in_units(row.free_s),
                    moves,
                    format_bytes(row.evict_bytes),
                    run,
                    in_units(row.finish_s),
                )
            )
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            yield "  " + "  ".join(map(str.ljust, line, widths)).rstrip()


def in_units(seconds: float) -> str:
    """Return a time as people read it."""
    return format_duration(seconds * 1e9)
