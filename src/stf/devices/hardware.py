"""What is known of devices that are not here: memory, bandwidth, links; and the model that a simulated driver asks.

The figures are the vendors' own peaks but for the links: these are what copies reach between two devices of one host.
Measure your machine with `Context.calibrate` where a figure matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from stf._port.links import BEST_PEER, HOST, MEMORY, Link
from stf.observe.durations import Duration, Key, size_class

SUBMIT_S = 2e-6  # what a task costs the thread that submits it
GUESS_S = 20e-6  # what a body takes beyond its bytes, where nothing is known
EFFICIENCY = 0.7  # of the peak bandwidth
LATENCY_S = 2e-6  # of a copy within a device


class Hardware(NamedTuple):
    """A kind of device: bytes of memory, their bandwidth, single-precision peak, links to its peers and to the host."""

    memory_bytes: int
    bytes_per_s: float
    flops: float
    peer: Link = BEST_PEER
    host: Link = HOST
    uses_workers: bool = False


GIB = 1 << 30
PCIE4, PCIE5, GRACE = Link(10e-6, 25e9), HOST, Link(8e-6, 350e9)
KINDS = {
    "A100": Hardware(80 * GIB, 2.04e12, 19.5e12, Link(7e-6, 250e9), PCIE4),
    "B200": Hardware(180 * GIB, 8.0e12, 75e12, Link(6e-6, 750e9), PCIE5),
    "GH200": Hardware(96 * GIB, 4.0e12, 67e12, BEST_PEER, GRACE),
    "H100": Hardware(80 * GIB, 3.35e12, 67e12, BEST_PEER, PCIE5),
    "H200": Hardware(141 * GIB, 4.8e12, 67e12, BEST_PEER, PCIE5),
    "L40S": Hardware(48 * GIB, 0.864e12, 91.6e12, Link(15e-6, 22e9), PCIE4),
    "V100": Hardware(32 * GIB, 0.9e12, 15.7e12, Link(8e-6, 130e9), Link(12e-6, 12e9)),
    "cpu": Hardware(0, 20e9, 1e12, MEMORY, MEMORY, True),
}


class Model:
    """How long bodies and copies take on devices of some kinds.

    Parameters
    ----------
    durations : mapping, optional
        What tasks took, by (function, size class, kind).
    links : mapping, optional
        What was measured between places of two kinds, by (kind, other).
    submit_s : float, optional
        What a task costs the thread that submits it.
    like : str, optional
        The kind whose times stand for those of kinds that have none, in proportion to the peaks.

    Attributes
    ----------
    guessed : set
        (name, bytes, kind) of bodies of which nothing was known.
    scaled : set
        Those whose time is of another size class, or of another kind.
    """

    def __init__(
        self,
        durations: Mapping[Key, Duration] | None = None,
        links: Mapping[tuple[str, str], Link] | None = None,
        submit_s: float = SUBMIT_S,
        like: str | None = None,
    ) -> None:
        self.durations, self.links = dict(durations or {}), dict(links or {})
        self.submit_s, self.like = submit_s, like
        self.guessed: set[Key] = set()
        self.scaled: set[Key] = set()
        self.deviations: dict[Key, float] = {}
        self._by_function: dict[tuple[str, str], list[tuple[int, Duration]]] = {}
        for (function, large, kind), duration in sorted(self.durations.items()):
            self._by_function.setdefault((function, kind), []).append((large, duration))

    def hardware(self, kind: str) -> Hardware:
        """Return what is known of a kind; of one that stands for another, what is known of that."""
        return KINDS.get(kind) or KINDS[self.like or "H100"]

    def uses_workers(self, kind: str) -> bool:
        """Return whether bodies on devices of a kind run on the workers of the host."""
        return self.hardware(kind).uses_workers

    def duration_s(self, name: str, nbytes: int, kind: str) -> float:
        """Return what a body takes: as measured, or in proportion, or a guess by the bytes of its data."""
        key = (name, nbytes, kind)
        found = self._found(name, size_class(nbytes), kind)
        if found is not None:
            duration, factor, is_exact = found
            if not is_exact:
                self.scaled.add(key)
            self.deviations[key] = max(duration.p90_s - duration.median_s, 0.0) / 1.28 * factor
            return duration.mean_s * factor
        self.guessed.add(key)
        bandwidth = 20e9 if kind == "host" else self.hardware(kind).bytes_per_s
        guess = GUESS_S + nbytes / (EFFICIENCY * bandwidth)
        self.deviations[key] = guess / 2
        return guess

    def known_s(self, name: str, large: int, kind: str) -> float | None:
        """Return what a body takes whose data are of a size class, as measured or in proportion; None if none was."""
        found = self._found(name, large, kind)
        return None if found is None else found[0].mean_s * found[1]

    def _found(self, name: str, large: int, kind: str) -> tuple[Duration, float, bool] | None:
        """Return the nearest duration of a function, by what it is multiplied, and whether it is of this very key."""
        exact = self.durations.get((name, large, kind))
        if exact is not None:
            return exact, 1.0, True
        for other, factor in ((kind, 1.0), (self.like, self._speed(kind))):
            known = self._by_function.get((name, other or ""))
            if known:
                nearest, duration = min(known, key=lambda item: abs(item[0] - large))
                return duration, factor * math.ldexp(1.0, large - nearest), False
        return None

    def _speed(self, kind: str) -> float:
        """Return by how much a body takes longer than on the kind that stands for this one."""
        if self.like is None or kind == "host" or kind not in KINDS:
            return 1.0
        return KINDS[self.like].flops / KINDS[kind].flops

    def link(self, kind: str, other: str) -> Link:
        """Return the link of two places by its class, by which the engine chooses the source of a copy."""
        if all(one == "host" or self.uses_workers(one) for one in (kind, other)):  # both are the host's memory
            return MEMORY
        return HOST if "host" in (kind, other) else BEST_PEER

    def timed_link(self, kind: str, other: str) -> Link:
        """Return the link of two places as it was measured, or as the vendor has it."""
        known = self.links.get((kind, other))
        if known is not None:
            return known
        device = self.hardware(other if kind == "host" else kind)
        return device.host if "host" in (kind, other) else device.peer

    def memory_link(self, kind: str) -> Link:
        """Return what a copy within the memory of a device takes: every byte is read and written."""
        bandwidth = 20e9 if kind == "host" else self.hardware(kind).bytes_per_s
        return Link(LATENCY_S, EFFICIENCY * bandwidth / 2)
