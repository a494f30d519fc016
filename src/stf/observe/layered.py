"""Layered drawing of one acyclic graph (Sugiyama's method): ranks, order in each rank, coordinates.

1. Ranks: the longest path from a source; sources then move down to their first successor.
2. Edges over several ranks get a bend point in each rank between.
3. Order: sweeps that sort each rank by the mean of its neighbours, keeping the order with the fewest
   crossings.
4. Coordinates: sweeps that move each rank as near as possible to its neighbours. With the order fixed
   that is a least-squares problem with minimum distances, which isotonic regression solves exactly.

Sources: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures"
(1981); Gansner et al., "A technique for drawing directed graphs" (1993), for ranks and weights.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]

_GAP = 16.0  # between neighbours in a rank
_BEND_GAP = 9.0
_RANK_GAP = 30.0
_ORDER_SWEEPS = 24
_PLACE_SWEEPS = 96
_STRAIGHTNESS = (1.0, 3.0, 10.0)  # weight of a piece of an edge with 0, 1, 2 bend points as its ends


@dataclass
class Item:
    """What is drawn as one box. `pin` is -1 to keep it in the first rank, 1 in the last.

    With `spread`, links choose where along its border they start and end.
    """

    width: float
    height: float
    pin: int = 0
    spread: bool = True
    x: float = 0.0
    y: float = 0.0


@dataclass
class Link:
    """An edge between items, which leaves and enters at an offset from their centres."""

    source: int
    target: int
    source_dx: float = 0.0
    target_dx: float = 0.0
    route: list[Point] = field(default_factory=list)


@dataclass
class Layered:
    """Place items and route links; the drawing spans (0, 0) to (width, height), y downwards."""

    items: list[Item]
    links: list[Link]
    width: float = 0.0
    height: float = 0.0

    def run(self) -> Layered:
        """Set the centres of all items and the routes of all links."""
        if not self.items:
            return self
        self._ranks = _ranks(self.items, self.links)
        self._add_bends()
        self._order()
        self._place_x()
        self._place_y()
        self._route()
        return self

    def _add_bends(self) -> None:
        """Split long links; `_pieces` are (upper, lower, upper dx, lower dx) over adjacent ranks."""
        self._widths = [item.width for item in self.items]
        self._rank_of = list(self._ranks)
        self._bends: list[list[int]] = []
        self._pieces: list[tuple[int, int, float, float]] = []
        for link in self.links:
            bends = []
            for rank in range(self._ranks[link.source] + 1, self._ranks[link.target]):
                bends.append(len(self._rank_of))
                self._rank_of.append(rank)
                self._widths.append(1.0)
            chain = [link.source, *bends, link.target]
            for upper, lower in pairwise(chain):
                upper_dx = link.source_dx if upper == link.source else 0.0
                lower_dx = link.target_dx if lower == link.target else 0.0
                self._pieces.append((upper, lower, upper_dx, lower_dx))
            self._bends.append(bends)
        self._neighbours()

    def _neighbours(self) -> None:
        """List for each vertex what is above and below: (vertex, its dx, own dx, weight)."""
        count, real = len(self._rank_of), len(self.items)
        self._above: list[list[tuple[int, float, float, float]]] = [[] for _ in range(count)]
        self._below: list[list[tuple[int, float, float, float]]] = [[] for _ in range(count)]
        for upper, lower, upper_dx, lower_dx in self._pieces:
            weight = _STRAIGHTNESS[(upper >= real) + (lower >= real)]
            self._above[lower].append((upper, upper_dx, lower_dx, weight))
            self._below[upper].append((lower, lower_dx, upper_dx, weight))

    # Order

    def _order(self) -> None:
        rows: list[list[int]] = [[] for _ in range(max(self._rank_of) + 1)]
        for vertex in self._depth_first():
            rows[self._rank_of[vertex]].append(vertex)
        self._rows = rows
        best, fewest = [list(row) for row in rows], self._crossings()
        sweeps = _ORDER_SWEEPS if len(self._rank_of) < 3000 else _ORDER_SWEEPS // 4
        for sweep in range(sweeps):
            if not fewest:
                break
            self._sweep(down=sweep % 2 == 0)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in rows], crossings
        self._rows = best

    def _depth_first(self) -> list[int]:
        """Return all vertices so that what belongs together is near."""
        seen, order = [False] * len(self._rank_of), []
        for root in sorted(range(len(self._rank_of)), key=self._rank_of.__getitem__):
            stack = [root]
            while stack:
                vertex = stack.pop()
                if not seen[vertex]:
                    seen[vertex] = True
                    order.append(vertex)
                    stack.extend(near[0] for near in reversed(self._below[vertex]))
        return order

    def _sweep(self, down: bool) -> None:
        rows = self._rows if down else self._rows[::-1]
        near = self._above if down else self._below
        for fixed, row in pairwise(rows):
            position = {vertex: float(index) for index, vertex in enumerate(fixed)}
            span = max(len(fixed) - 1, 1) / max(len(row) - 1, 1)
            keys = {}
            for index, vertex in enumerate(row):
                seats = [position[other] + self._fraction(other, dx) for other, dx, _, _ in near[vertex]]
                keys[vertex] = sum(seats) / len(seats) if seats else index * span
            row.sort(key=keys.__getitem__)

    def _fraction(self, vertex: int, dx: float) -> float:
        """Return how far from a vertex's centre, in seats, a link at `dx` is."""
        return 0.9 * dx / self._widths[vertex]

    def _crossings(self) -> int:
        return sum(self._crossings_below(row, below) for row, below in pairwise(self._rows))

    def _crossings_below(self, row: list[int], below: list[int]) -> int:
        seat = {vertex: index for index, vertex in enumerate(below)}
        seen: list[float] = []
        crossings = 0
        for vertex in row:
            links = sorted(
                (own_dx, seat[other] + self._fraction(other, dx)) for other, dx, own_dx, _ in self._below[vertex]
            )
            for _, end in links:
                crossings += len(seen) - bisect_right(seen, end)
                insort(seen, end)
        return crossings

    # Coordinates

    def _place_x(self) -> None:
        x = [0.0] * len(self._rank_of)
        gaps = [self._row_gaps(row) for row in self._rows]
        for row, gap in zip(self._rows, gaps, strict=True):
            start = -sum(gap) / 2
            for vertex, step in zip(row, [0.0, *gap], strict=True):
                start += step
                x[vertex] = start
        ranks = range(len(self._rows))
        sweeps = _PLACE_SWEEPS if len(x) < 1500 else _PLACE_SWEEPS // 4
        for sweep in range(sweeps):
            near = (self._above, self._below)[sweep % 2]
            sides = (near,) if sweep < sweeps // 4 else (self._above, self._below)
            for rank in ranks if sweep % 2 == 0 else reversed(ranks):
                self._place_row(x, self._rows[rank], gaps[rank], sides)
        left = min(x[vertex] - self._widths[vertex] / 2 for vertex in range(len(x)))
        self._x = [value - left for value in x]
        self.width = max(self._x[vertex] + self._widths[vertex] / 2 for vertex in range(len(x)))

    def _row_gaps(self, row: list[int]) -> list[float]:
        real = len(self.items)
        return [
            (self._widths[a] + self._widths[b]) / 2 + (_GAP if a < real and b < real else _BEND_GAP)
            for a, b in pairwise(row)
        ]

    def _place_row(
        self,
        x: list[float],
        row: list[int],
        gaps: list[float],
        sides: tuple[list[list[tuple[int, float, float, float]]], ...],
    ) -> None:
        wanted, weights = [], []
        for vertex in row:
            pull, total = 0.01 * x[vertex], 0.01
            for near in sides:
                for other, dx, own_dx, weight in near[vertex]:
                    pull += weight * (x[other] + dx - own_dx)
                    total += weight
            wanted.append(pull / total)
            weights.append(total)
        for vertex, value in zip(row, _spaced(wanted, weights, gaps), strict=True):
            x[vertex] = value

    def _place_y(self) -> None:
        heights = [0.0] * len(self._rows)
        for item, rank in zip(self.items, self._ranks, strict=True):
            heights[rank] = max(heights[rank], item.height)
        self._tops: list[float] = []
        self._heights = heights
        y = 0.0
        for rank, height in enumerate(heights):
            self._tops.append(y)
            y += height + (self._gap_below(rank) if rank + 1 < len(heights) else 0.0)
        self.height = y
        for index, item in enumerate(self.items):
            item.x = self._x[index]
            item.y = self._tops[self._ranks[index]] + heights[self._ranks[index]] / 2

    def _gap_below(self, rank: int) -> float:
        """Return more room where links run far sideways, so that they don't lie flat."""
        base = _RANK_GAP if self._heights[rank] and self._heights[rank + 1] else _RANK_GAP / 3
        spans = [
            abs(self._x[lower] + lower_dx - self._x[upper] - own_dx)
            for upper in self._rows[rank]
            for lower, lower_dx, own_dx, _ in self._below[upper]
        ]
        return base + min(0.08 * max(spans, default=0.0), 3 * _RANK_GAP)

    def _spread(self) -> None:
        """Let the links of an item start and end side by side instead of all in the middle."""
        ins: list[list[tuple[float, Link]]] = [[] for _ in self.items]
        outs: list[list[tuple[float, Link]]] = [[] for _ in self.items]
        for link, bends in zip(self.links, self._bends, strict=True):
            chain = [link.source, *bends, link.target]
            ins[link.target].append((self._x[chain[-2]], link))
            outs[link.source].append((self._x[chain[1]], link))
        for index, item in enumerate(self.items):
            if item.spread:
                for dx, link in _side_by_side(ins[index], item.width):
                    link.target_dx = dx
                for dx, link in _side_by_side(outs[index], item.width):
                    link.source_dx = dx

    def _route(self) -> None:
        self._spread()
        for link, bends in zip(self.links, self._bends, strict=True):
            source, target = self.items[link.source], self.items[link.target]
            link.route = [(source.x + link.source_dx, source.y + source.height / 2)]
            for bend in bends:
                top, height = self._tops[self._rank_of[bend]], self._heights[self._rank_of[bend]]
                link.route += [(self._x[bend], top), (self._x[bend], top + height)]
            link.route.append((target.x + link.target_dx, target.y - target.height / 2))


def _ranks(items: Sequence[Item], links: Sequence[Link]) -> list[int]:
    after: list[list[int]] = [[] for _ in items]
    waiting = [0] * len(items)
    for link in links:
        after[link.source].append(link.target)
        waiting[link.target] += 1
    first = 1 if any(item.pin < 0 for item in items) else 0
    ranks = [0 if item.pin < 0 else first for item in items]
    sources = [index for index, count in enumerate(waiting) if not count]
    order = list(sources)
    for index in order:
        for target in after[index]:
            ranks[target] = max(ranks[target], ranks[index] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                order.append(target)
    if len(order) < len(items):
        raise ValueError("the graph has a cycle; only task graphs can be drawn without Graphviz")
    for index in sources:
        if not items[index].pin and after[index]:
            ranks[index] = min(ranks[target] for target in after[index]) - 1
    last = max(rank for rank, item in zip(ranks, items, strict=True)) if items else 0
    last += any(item.pin <= 0 and rank == last for rank, item in zip(ranks, items, strict=True))
    return [last if item.pin > 0 else rank for rank, item in zip(ranks, items, strict=True)]


def _side_by_side(links: list[tuple[float, Link]], width: float) -> Iterator[tuple[float, Link]]:
    step = min(8.0, 0.6 * width / max(len(links), 1))
    for seat, (_, link) in enumerate(sorted(links, key=lambda pair: pair[0])):
        yield step * (seat - (len(links) - 1) / 2), link


def _spaced(wanted: list[float], weights: list[float], gaps: list[float]) -> list[float]:
    """Return the positions nearest to those `wanted` (weighted least squares) that keep the gaps.

    With the gaps subtracted the positions must not decrease: pool adjacent violators.
    """
    offsets, offset = [], 0.0
    for gap in [0.0, *gaps][: len(wanted)]:
        offset += gap
        offsets.append(offset)
    blocks: list[list[float]] = []  # mean, weight, number of members
    for value, weight, offset in zip(wanted, weights, offsets, strict=True):
        block = [value - offset, weight, 1.0]
        while blocks and blocks[-1][0] > block[0]:
            mean, mass, members = blocks.pop()
            total = mass + block[1]
            block = [(mean * mass + block[0] * block[1]) / total, total, members + block[2]]
        blocks.append(block)
    means = [mean for mean, _, members in blocks for _ in range(int(members))]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
