"""Layered drawing of a graph with nested clusters.

Each cluster is laid out alone, innermost first, and is then one box of the cluster around it; so boxes
never overlap. A link that crosses the border of a cluster passes a port there, an item of no height that is
kept in the first or the last rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .layered import Item, Layered, Link, Point

TOP = -1
_PADDING = 9.0


@dataclass(frozen=True)
class Box:
    """A rectangle by its centre and size."""

    x: float
    y: float
    width: float
    height: float


_Key = tuple[str, int]  # of an item: ("node", n), ("cluster", c), ("in", n), ("out", n)
_End = tuple[_Key, int]  # where a link ends: the item, and the node that it stands for


@dataclass
class _Level:
    """The inside of one cluster, or the whole drawing."""

    label_width: float = 0.0
    label_height: float = 0.0
    items: list[Item] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    item_of: dict[_Key, int] = field(default_factory=dict)
    link_of: dict[tuple[_End, _End], int] = field(default_factory=dict)
    origin: Point = (0.0, 0.0)

    def item(self, key: _Key, make: Item | None = None) -> int:
        """Return the index of an item; a new one is a port unless given."""
        if key not in self.item_of:
            self.item_of[key] = len(self.items)
            self.items.append(make or Item(1.0, 0.0, spread=False))
        return self.item_of[key]

    def link(self, source: _End, target: _End) -> int:
        key = (source, target)
        if key not in self.link_of:
            self.link_of[key] = len(self.links)
            self.links.append(Link(self.item(source[0]), self.item(target[0])))
        return self.link_of[key]


class NestedLayout:
    """Place nodes and clusters and route edges.

    Parameters
    ----------
    sizes
        Width and height of each node.
    cluster_of
        For each node its cluster, or -1.
    parents, label_sizes
        For each cluster the one around it, or -1; the width and height of its label. A cluster comes
        after its parent.
    edges
        Pairs of nodes.
    """

    def __init__(
        self,
        sizes: Sequence[tuple[float, float]],
        cluster_of: Sequence[int],
        parents: Sequence[int],
        label_sizes: Sequence[tuple[float, float]],
        edges: Sequence[tuple[int, int]],
    ) -> None:
        self._cluster_of, self._parents, self._edges = cluster_of, parents, edges
        self._levels = [_Level(*size) for size in label_sizes] + [_Level()]  # [-1] is the whole
        for node, size in enumerate(sizes):
            self._levels[cluster_of[node]].item(("node", node), Item(*size))
        for cluster, parent in enumerate(parents):
            self._levels[parent].item(("cluster", cluster), Item(0.0, 0.0, spread=False))
        self._segments = [self._split(source, target) for source, target in edges]
        for cluster in reversed(range(len(parents))):
            self._lay_out(cluster)
        whole = Layered(self._levels[TOP].items, self._levels[TOP].links).run()
        self.width, self.height = whole.width, whole.height
        for cluster in range(len(parents)):
            self._move(cluster)

    def node(self, node: int) -> Box:
        """Return where a node is."""
        level = self._levels[self._cluster_of[node]]
        return _absolute(level, level.items[level.item_of["node", node]])

    def cluster(self, cluster: int) -> Box:
        """Return the frame of a cluster."""
        level = self._levels[self._parents[cluster]]
        return _absolute(level, level.items[level.item_of["cluster", cluster]])

    def route(self, edge: int) -> list[Point]:
        """Return the points that an edge goes through, downwards."""
        points: list[Point] = []
        for cluster, link in self._segments[edge]:
            level = self._levels[cluster]
            points += [(x + level.origin[0], y + level.origin[1]) for x, y in level.links[link].route]
        return points

    def _split(self, source: int, target: int) -> list[tuple[int, int]]:
        """Cut an edge at the borders it crosses; return pairs of a level and a link in it."""
        up, down = self._around(source), self._around(target)
        while up and down and up[-1] == down[-1]:
            up.pop()
            down.pop()
        segments = []
        for cluster in up:
            port = self._port(cluster, "out", source)
            segments.append((cluster, self._levels[cluster].link(self._end(cluster, source), port)))
        outermost = up[-1:] or down[-1:]
        common = self._parents[outermost[0]] if outermost else self._cluster_of[source]
        link = self._levels[common].link(self._end(common, source), self._end(common, target))
        segments.append((common, link))
        for cluster in reversed(down):
            port = self._port(cluster, "in", target)
            segments.append((cluster, self._levels[cluster].link(port, self._end(cluster, target))))
        return segments

    def _around(self, node: int) -> list[int]:
        """Return the clusters around a node, innermost first."""
        around, cluster = [], self._cluster_of[node]
        while cluster != TOP:
            around.append(cluster)
            cluster = self._parents[cluster]
        return around

    def _end(self, cluster: int, node: int) -> _End:
        """Return what stands for a node at one level: itself or the cluster it is in."""
        inner = self._cluster_of[node]
        if inner == cluster:
            return ("node", node), node
        while self._parents[inner] != cluster:
            inner = self._parents[inner]
        return ("cluster", inner), node

    def _port(self, cluster: int, side: str, node: int) -> _End:
        level = self._levels[cluster]
        level.items[level.item((side, node))].pin = -1 if side == "in" else 1
        return (side, node), node

    def _lay_out(self, cluster: int) -> None:
        """Lay out the inside of a cluster; give its box in the level around it a size and offsets."""
        level, outer = self._levels[cluster], self._levels[self._parents[cluster]]
        inside = Layered(level.items, level.links).run()
        box = outer.items[outer.item_of["cluster", cluster]]
        box.width = max(inside.width, level.label_width) + 2 * _PADDING
        box.height = inside.height + level.label_height + 2 * _PADDING
        left = (box.width - inside.width) / 2
        level.origin = (left - box.width / 2, _PADDING + level.label_height - box.height / 2)
        for (source, target), index in outer.link_of.items():
            link = outer.links[index]
            if source[0] == ("cluster", cluster):
                link.source_dx = level.items[level.item_of["out", source[1]]].x + level.origin[0]
            if target[0] == ("cluster", cluster):
                link.target_dx = level.items[level.item_of["in", target[1]]].x + level.origin[0]

    def _move(self, cluster: int) -> None:
        """Turn the origin relative to the box into an absolute one; the parent's is absolute already."""
        level, box = self._levels[cluster], self.cluster(cluster)
        level.origin = (box.x + level.origin[0], box.y + level.origin[1])


def _absolute(level: _Level, item: Item) -> Box:
    return Box(item.x + level.origin[0], item.y + level.origin[1], item.width, item.height)
