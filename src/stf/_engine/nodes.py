"""What a recording holds: nodes, each the operations of one slot, in order, after those of other nodes."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

if not cython.compiled:
    LAUNCH, COPY, FILL, CALL, KEEP, CAPTURED, RUN = 0, 1, 2, 3, 4, 5, 6


@cython.final
@cython.cclass
class Node:
    """One slot of a recording. `needs` are the nodes it comes after; `is_last` says that no other needs it."""

    def __init__(self, place, kind):
        self.index = -1
        self.place = place
        self.kind = kind
        self.lane = -1
        self.sequence = 0
        self.needs = []
        self.operations = []
        self.is_last = True

    def need(self, other):
        """Come after another node."""
        if other not in self.needs:
            self.needs.append(other)
            other.is_last = False
        return 0


@cython.final
@cython.cclass
class Program:
    """The nodes of a recording, each after those that it needs.

    Attributes
    ----------
    nodes : list of Node
        What there is to do.
    calls : int
        How many bodies run on the host.
    runs : int
        How many nested programs there are.
    variants : int
        How many captured bodies depend on parameters.
    """

    def __init__(self):
        self.nodes = []
        self.calls = 0
        self.runs = 0
        self.variants = 0

    def add(self, node):
        """Take a node; what it needs is there."""
        node.index = len(self.nodes)
        self.nodes.append(node)
        return 0

    def has_captures(self):
        """Whether bodies were captured."""
        for item in self.nodes:
            node: Node = item
            if any([operation[0] == CAPTURED for operation in node.operations]):
                return True
        return False

    def edges(self):
        """(before, after) by index, for people and tests."""
        return [(before.index, node.index) for node in self.nodes for before in node.needs]

    def kinds(self):
        """The operations of every node by name, for people and tests."""
        names = ("launch", "copy", "fill", "call", "keep", "captured", "run")
        return [[names[operation[0]] for operation in node.operations] for node in self.nodes]
