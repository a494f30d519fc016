"""A snapshot of what a context has done so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .units import format_bytes

_Route = tuple[str, str]  # names of the source and the target place


@dataclass(frozen=True)
class Statistics:
    """Counts of tasks, copies and allocations; places go by name, such as "host" or "device(1)".

    Attributes
    ----------
    tasks, tasks_by_place
        Tasks submitted, by kind ("task", "fill", …) and by place.
    copies, copied_bytes
        Transfers between places and their bytes, by (source, target).
    allocations, allocated_bytes, frees
        Allocations of replicas, all their bytes, and how many were given back, by place.
    peak_bytes
        The most bytes that were allocated at one time, by place.
    evictions
        Replicas given up to make room, by the place that needed it.
    write_backs
        Copies into a user's own array, by the place they came from.
    pending
        Tasks submitted and not known to have ended.
    """

    tasks: Mapping[str, int] = field(default_factory=dict)
    tasks_by_place: Mapping[str, int] = field(default_factory=dict)
    copies: Mapping[_Route, int] = field(default_factory=dict)
    copied_bytes: Mapping[_Route, int] = field(default_factory=dict)
    allocations: Mapping[str, int] = field(default_factory=dict)
    allocated_bytes: Mapping[str, int] = field(default_factory=dict)
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    evictions: Mapping[str, int] = field(default_factory=dict)
    frees: Mapping[str, int] = field(default_factory=dict)
    write_backs: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0

    @property
    def total_tasks(self) -> int:
        """Tasks of every kind."""
        return sum(self.tasks.values())

    @property
    def total_copies(self) -> int:
        """Copies between all places."""
        return sum(self.copies.values())

    @property
    def total_copied_bytes(self) -> int:
        """Bytes of all copies."""
        return sum(self.copied_bytes.values())

    def __str__(self) -> str:
        lines = [f"tasks: {self.total_tasks}" + (f" ({self.pending} pending)" if self.pending else "")]
        lines += _counts("by kind", self.tasks) + _counts("by place", self.tasks_by_place)
        lines.append(f"copies: {self.total_copies} ({format_bytes(self.total_copied_bytes)})")
        lines += self._routes()
        lines.append(f"memory: {sum(self.allocations.values())} allocations")
        lines += self._memory()
        return "\n".join(lines)

    def _routes(self) -> list[str]:
        rows = [
            [f"{source} → {target}", str(count), format_bytes(self.copied_bytes.get((source, target), 0))]
            for (source, target), count in sorted(self.copies.items())
        ]
        return _table(["", "copies", "bytes"], rows)

    def _memory(self) -> list[str]:
        counted = (self.allocations, self.frees, self.evictions, self.write_backs)
        sized = (self.allocated_bytes, self.peak_bytes)
        places = sorted(set().union(*counted, *sized))
        rows = [
            [place, *(str(column.get(place, 0)) for column in counted)]
            + [format_bytes(column.get(place, 0)) for column in sized]
            for place in places
        ]
        return _table(["", "allocations", "frees", "evictions", "write-backs", "allocated", "peak"], rows)


def _counts(title: str, counts: Mapping[str, int]) -> list[str]:
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count)
    return [f"  {title}: {listed}"] if listed else []


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *cells]))
    return lines
