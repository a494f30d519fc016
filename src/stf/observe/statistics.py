"""A snapshot of what a context has done so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .html import never_raises, statistics_html, table
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
    graphs_made, graphs_updated
        Executable CUDA graphs that were made, and that were updated instead to be another graph of the same shape; with
        `stf.Resources`, of all contexts that share them.
    graphs_kept, graphs_kept_bytes, graph_cache_bytes
        Executable CUDA graphs that wait for such a graph, about what they take, and what they may take at most.
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
    graphs_made: int = 0
    graphs_updated: int = 0
    graphs_kept: int = 0
    graphs_kept_bytes: int = 0
    graph_cache_bytes: int = 0

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
        lines += _table(["", "copies", "bytes"], self._routes())
        lines.append(f"memory: {sum(self.allocations.values())} allocations")
        lines += self._memory()
        lines += [f"CUDA graphs: {_graphs(self)}"] if self.graphs_made else []
        return "\n".join(lines)

    @never_raises
    def _repr_html_(self) -> str | None:
        return statistics_html("statistics", self)

    def tables(self) -> list[str]:
        """Return tables of HTML: the tasks by kind and by place, the copies by route, the memory by place."""
        by_kind = sorted(
            ((kind, count) for kind, count in self.tasks.items() if count), key=lambda row: (-row[1], row[0])
        )
        routes = self._routes()
        memory = [
            (place, format_bytes(peak), allocations, format_bytes(allocated), *others)
            for place, peak, allocations, allocated, *others in self.memory_rows(self.allocations)
        ]
        return [
            table(("kind", "tasks"), by_kind),
            table(("place", "tasks"), list(self.tasks_by_place.items())),
            *([table(("route", "copies", "bytes"), routes)] if routes else []),
            table(("place", "peak", "allocations", "allocated", "frees", "evictions", "write-backs"), memory),
        ]

    def _routes(self) -> list[list[str]]:
        return [
            [f"{source} → {target}", str(count), format_bytes(self.copied_bytes.get((source, target), 0))]
            for (source, target), count in sorted(self.copies.items())
        ]

    def memory_rows(self, places: Iterable[str] | None = None) -> list[list[Any]]:
        """Return for each place its name, peak bytes, allocations, allocated bytes, frees, evictions, write-backs."""
        counts = (self.allocations, self.allocated_bytes, self.frees, self.evictions, self.write_backs)
        columns = (self.peak_bytes, *counts)
        shown = sorted(set().union(*columns)) if places is None else places
        return [[place, *(column.get(place, 0) for column in columns)] for place in shown]

    def _memory(self) -> list[str]:
        rows = [
            [place, *map(str, (allocations, *others)), format_bytes(allocated), format_bytes(peak)]
            for place, peak, allocations, allocated, *others in self.memory_rows()
        ]
        return _table(["", "allocations", "frees", "evictions", "write-backs", "allocated", "peak"], rows)


@dataclass(frozen=True)
class DriverStatistics:
    """What a driver holds.

    Attributes
    ----------
    streams, spare_streams
        Streams that contexts have, and streams that wait for the next context.
    workers
        Threads that run bodies and copies.
    allocations, used_bytes
        Live allocations, and their bytes by place.
    graphs_made, graphs_updated
        Executable CUDA graphs that were made, and that were updated instead to be another graph of the same shape.
    graphs_kept, graphs_kept_bytes, graph_cache_bytes
        Executable CUDA graphs that wait for such a graph, about what they take, and what they may take at most.
    """

    streams: int = 0
    spare_streams: int = 0
    workers: int = 0
    allocations: int = 0
    used_bytes: Mapping[str, int] = field(default_factory=dict)
    graphs_made: int = 0
    graphs_updated: int = 0
    graphs_kept: int = 0
    graphs_kept_bytes: int = 0
    graph_cache_bytes: int = 0

    def __str__(self) -> str:
        text = f"{self.streams} streams in use and {self.spare_streams} spare, {self.workers} workers, "
        text += f"{self.allocations} allocations"
        used = ", ".join(f"{format_bytes(nbytes)} on {place}" for place, nbytes in self.used_bytes.items() if nbytes)
        text = f"{text} ({used})" if used else text
        return f"{text}, {_graphs(self)}" if self.graphs_made else text


@dataclass(frozen=True)
class ResourceStatistics:
    """What contexts share; see `stf.Resources`.

    Attributes
    ----------
    drivers
        What each driver holds, by the ``devices=`` that it is for.
    """

    drivers: Mapping[str, DriverStatistics] = field(default_factory=dict)

    @property
    def total_streams(self) -> int:
        """Streams that contexts have, of all drivers."""
        return sum(driver.streams for driver in self.drivers.values())

    @property
    def total_used_bytes(self) -> int:
        """Bytes of all live allocations."""
        return sum(sum(driver.used_bytes.values()) for driver in self.drivers.values())

    def __str__(self) -> str:
        return "\n".join(f"{name}: {driver}" for name, driver in self.drivers.items()) or "no drivers yet"


def _graphs(counts: Statistics | DriverStatistics) -> str:
    memory = f"{format_bytes(counts.graphs_kept_bytes)} of {format_bytes(counts.graph_cache_bytes)}"
    return f"{counts.graphs_made} graphs made, {counts.graphs_updated} updated, {counts.graphs_kept} kept ({memory})"


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
