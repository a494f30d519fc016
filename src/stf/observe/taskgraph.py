"""A task graph as data: nodes in program order, their predecessors, the sections they are in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

TOP = -1  # the section of what is in no section


@dataclass(frozen=True)
class Section:
    """A named part of the program; `depth` is the number of sections around it."""

    name: str
    parent: int
    depth: int


@dataclass
class Node:
    """A task, an internal operation, or a collapsed section.

    Attributes
    ----------
    name
        Unique in the graph: "t12" for task 12, "o3" for an operation, "s1" for a section.
    kind
        The task's or operation's kind, or "section".
    accesses
        Pairs of a data's name and the access mode (1 read, 2 write, 3 both, 4 accumulate).
    duration_ns
        How long the body ran, the sum over a section's tasks; None where nothing was measured.
    """

    name: str
    kind: str
    title: str
    section: int = TOP
    place: str = ""
    device: int = -1
    accesses: tuple[tuple[str, int], ...] = ()
    call_site: str = ""
    detail: str = ""
    duration_ns: int | None = None
    num_tasks: int = 1


@dataclass
class TaskGraph:
    """Nodes in program order; every edge goes from an earlier node to a later one.

    Attributes
    ----------
    predecessors
        For each node the indices of the nodes that it waits for.
    work_ns, critical_ns
        T1, the time of all tasks, and T∞, the time along the longest path.
    critical_edges
        The edges of one longest path.
    """

    nodes: list[Node]
    predecessors: list[list[int]]
    sections: list[Section]
    work_ns: int = 0
    critical_ns: int = 0
    critical_nodes: frozenset[int] = frozenset()
    critical_edges: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    @property
    def num_edges(self) -> int:
        """Return the number of edges."""
        return sum(map(len, self.predecessors))

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield all edges as pairs of node indices, in program order of their targets."""
        for target, sources in enumerate(self.predecessors):
            for source in sources:
                yield source, target

    def path(self, section: int) -> list[int]:
        """Return the sections around and including `section`, outermost first."""
        path = []
        while section != TOP:
            path.append(section)
            section = self.sections[section].parent
        return path[::-1]


def with_critical_path(graph: TaskGraph) -> TaskGraph:
    """Return the graph with `work_ns`, `critical_ns` and one longest path, from its nodes' durations."""
    finish: list[int] = []
    decisive: list[int] = []
    for node, sources in zip(graph.nodes, graph.predecessors, strict=True):
        # Of equally late predecessors the last in program order: such an edge is never redundant.
        last = max(sources, key=lambda source: (finish[source], source), default=-1)
        decisive.append(last)
        finish.append((finish[last] if last >= 0 else 0) + (node.duration_ns or 0))
    work_ns = sum(node.duration_ns or 0 for node in graph.nodes)
    if not work_ns:
        return graph
    index = max(range(len(finish)), key=finish.__getitem__)
    critical_ns, path = finish[index], []
    while index >= 0:
        path.append(index)
        index = decisive[index]
    return replace(
        graph,
        work_ns=work_ns,
        critical_ns=critical_ns,
        critical_nodes=frozenset(path),
        critical_edges=frozenset(zip(path[1:], path[:-1], strict=True)),
    )


def collapsed(graph: TaskGraph, max_depth: int) -> TaskGraph:
    """Return the graph with everything nested deeper than `max_depth` merged into its section's node.

    A section in no other has depth 0, and so has a task in no section. A section is a contiguous part
    of the program, so merging it keeps every edge pointing forward.
    """
    nodes: list[Node] = []
    merged: dict[int, int] = {}  # section → its node
    new_index: list[int] = []
    for node in graph.nodes:
        section = _shown_section(graph, node.section, max_depth)
        if section is None:
            new_index.append(len(nodes))
            nodes.append(node)
        else:
            if section not in merged:
                known = graph.sections[section]
                merged[section] = len(nodes)
                nodes.append(Node(f"s{section}", "section", known.name, known.parent, num_tasks=0))
            new_index.append(merged[section])
            _add_to_section(nodes[merged[section]], node)
    edges = _renamed(graph.edges(), new_index)
    predecessors: list[set[int]] = [set() for _ in nodes]
    for source, target in edges:
        predecessors[target].add(source)
    return replace(
        graph,
        nodes=nodes,
        predecessors=[sorted(sources) for sources in predecessors],
        critical_nodes=frozenset(new_index[index] for index in graph.critical_nodes),
        critical_edges=frozenset(_renamed(graph.critical_edges, new_index)),
    )


def shortened(graph: TaskGraph, max_nodes: int) -> TaskGraph:
    """Return the graph of the first `max_nodes` nodes; its times stay those of the whole."""
    return replace(
        graph,
        nodes=graph.nodes[:max_nodes],
        predecessors=graph.predecessors[:max_nodes],
        critical_nodes=frozenset(node for node in graph.critical_nodes if node < max_nodes),
        critical_edges=frozenset(edge for edge in graph.critical_edges if edge[1] < max_nodes),
    )


def _shown_section(graph: TaskGraph, section: int, max_depth: int) -> int | None:
    """Return the section whose node stands for what is in `section`, or None if that is shown itself."""
    if section == TOP or graph.sections[section].depth < max_depth:
        return None
    while graph.sections[section].depth > max_depth:
        section = graph.sections[section].parent
    return section


def _add_to_section(section: Node, node: Node) -> None:
    section.num_tasks += node.num_tasks
    if node.duration_ns is not None:
        section.duration_ns = (section.duration_ns or 0) + node.duration_ns


def _renamed(edges: Iterable[tuple[int, int]], new_index: Sequence[int]) -> Iterator[tuple[int, int]]:
    for source, target in edges:
        if new_index[source] != new_index[target]:
            yield new_index[source], new_index[target]


def transitive_reduction(predecessors: Sequence[Sequence[int]], block: int = 8192) -> list[list[int]]:
    """Return the predecessors of each node without those that another predecessor already implies.

    The ancestors of a node are a bit set in an integer. Keeping all of them costs memory and time that
    grow with the square of the graph, so only a window of the last one to two blocks of nodes is kept.
    Exact up to two blocks; beyond, of the edges longer than the window only those are found redundant
    whose source has another successor inside the window. An edge is never dropped wrongly.

    Parameters
    ----------
    predecessors
        For each node the indices of earlier nodes.
    block
        Nodes by which the window moves.
    """
    reduced: list[list[int]] = []
    window: list[int] = []  # for each node from `base` on: itself and its ancestors, bit i is node base + i
    base = 0
    successors: defaultdict[int, list[int]] = defaultdict(list)
    for node, sources in enumerate(predecessors):
        if node - base == 2 * block:
            window = [ancestors >> block for ancestors in window[block:]]
            base += block
        reached, kept = 0, []
        for source in sorted(sources, reverse=True):
            if source >= base:
                redundant = reached >> (source - base) & 1
                reached |= window[source - base]
            else:
                redundant = _enters(successors[source], reached, base)
            if not redundant:
                kept.append(source)
            successors[source].append(node)
        window.append(reached | 1 << (node - base))
        reduced.append(kept[::-1])
    return reduced


def _enters(successors: list[int], reached: int, base: int) -> bool:
    """Tell whether one of the latest `successors` is among the nodes `reached`."""
    recent = (node for node in successors[-64:] if node >= base)
    return any(reached >> (node - base) & 1 for node in recent)
