"""What a copy costs between two data places: a record for each link, in one table that a driver fills.

The records are of static classes until somebody measures. A static record says no more than the class of a link:
copies within a place cost less than those between peers, which cost less than those to and from the host. Links of one
class have the same record, so their costs are equal to the last bit: `coherency.cheapest` takes turns among them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]


class Link(NamedTuple):
    """A way between two data places: a copy takes `latency_s`, and a second for each `bytes_per_s`."""

    latency_s: float
    bytes_per_s: float

    def cost_s(self, nbytes: int) -> float:
        """Return how long a copy of so many bytes takes where nothing else uses the link."""
        return self.latency_s + nbytes / self.bytes_per_s


SAME_PLACE = Link(0.0, math.inf)
MEMORY = Link(2e-6, 8e9)  # between two blocks of the host's memory
HOST = Link(10e-6, 50e9)
THROUGH_HOST = Link(25e-6, 20e9)  # between devices that cannot reach each other's memory
BEST_PEER = Link(6e-6, 300e9)
MOST_RANKS = 48


def peer_link(rank: int) -> Link:
    """Return the record of a link between two devices; CUDA's performance rank is 0 for the best one.

    The host's link is worse than that of every rank.
    """
    worse = min(max(rank, 0), MOST_RANKS)
    return Link(BEST_PEER.latency_s + worse * 5e-8, BEST_PEER.bytes_per_s / (1 + worse / 10))


class Links:
    """The links between the data places of a context.

    Parameters
    ----------
    source : object, optional
        A driver: ``link(one, other)`` is the `Link` between two of its devices. Without one all places are alike.
    numbers : sequence of int, optional
        The driver's number of each place; places that come later are added to it.
    """

    def __init__(self, source=None, numbers=None):
        self.source = source
        self.numbers = numbers
        self.known = {}

    def link(self, source, target):
        """Return the link from a data place to another one."""
        pair: cython.longlong = cython.cast(cython.longlong, source) << 32 | target
        found = self.known.get(pair)
        if found is None:
            if self.source is None:
                found = SAME_PLACE if source == target else MEMORY
            else:
                found = self.source.link(self.numbers[source], self.numbers[target])
            self.known[pair] = found
        return found

    def cost_s(self, source, target, nbytes):
        """Return how long a copy takes between two data places where nothing else uses the link."""
        latency_s: cython.double
        bytes_per_s: cython.double
        latency_s, bytes_per_s = self.link(source, target)
        return latency_s + nbytes / bytes_per_s
