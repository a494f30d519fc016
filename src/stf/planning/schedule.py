"""What a simulated run says: its critical path, and why devices had nothing to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stf.observe.units import place_name

CAUSES = ("dependencies", "copies", "submission", "end")
TOLERANCE_S = 1e-12


class Span(NamedTuple):
    """Work that a simulated driver did; `cause` is the index of that which let it start, negative for the host.

    The source of a body is its own device. See `SimulatedDriver.spans`.
    """

    name: str
    device: int
    source: int
    nbytes: int
    start_s: float
    end_s: float
    cause: int


class Step(NamedTuple):
    """A part of the critical path: a task or a copy, where it was, and when it began and ended, in seconds."""

    name: str
    place: str
    start_s: float
    end_s: float


def is_copy(span: Span) -> bool:
    """Return whether a span is a copy between two places."""
    return span.source != span.device


def path_of(spans: Sequence[Span]) -> list[Span]:
    """Return the spans that the last one waited for, one after the other: that which ends first comes first."""
    found: list[Span] = []
    index = max(range(len(spans)), key=lambda i: spans[i].end_s, default=-1)
    while index >= 0:
        found.append(spans[index])
        cause = spans[index].cause
        index = cause if cause >= 0 else -2 - cause
    return found[::-1]


def steps_of(path: Sequence[Span]) -> list[Step]:
    """Return a path for people to read."""
    steps = []
    for span in path:
        place = place_name(span.device)
        where = f"{place_name(span.source)} to {place}" if is_copy(span) else place
        steps.append(Step(span.name, where, span.start_s, span.end_s))
    return steps


def idle_of(spans: Sequence[Span], count: int, makespan_s: float) -> dict[str, dict[str, float]]:
    """Return for each device for how many seconds it had nothing to do, by what it waited for."""
    found = {}
    bodies: list[list[Span]] = [[] for _ in range(count)]
    for span in spans:
        if span.device >= 0 and not is_copy(span):
            bodies[span.device].append(span)
    for device, mine in enumerate(bodies):
        idle = dict.fromkeys(CAUSES, 0.0)
        busy_until = 0.0
        for span in sorted(mine, key=lambda item: item.start_s):
            gap = span.start_s - busy_until
            if gap > TOLERANCE_S:
                cause = span.cause
                reason = "submission" if cause < 0 else "copies" if is_copy(spans[cause]) else "dependencies"
                idle[reason] += gap
            busy_until = max(busy_until, span.end_s)
        idle["end"] = max(makespan_s - busy_until, 0.0)
        found[place_name(device)] = idle
    return found


def spread_of(path: Sequence[Span], deviations: dict[tuple[str, int, str], float], kinds: Sequence[str]) -> float:
    """Return by how many seconds the end of a path may differ: tasks vary by themselves, copies by a tenth together."""
    variance, together = 0.0, 0.0
    for span in path:
        if is_copy(span):
            together += 0.1 * (span.end_s - span.start_s)
        else:
            variance += deviations.get((span.name, span.nbytes, kinds[span.device + 1]), 0.0) ** 2
    return math.sqrt(variance) + together
