"""The edges of recorded programs order all that touches the same memory: random programs, and one with an edge less."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

import stf
from stf._recording.rebinding import all_parts
from stf._recording.segments import Piece, cut

sys.path.insert(0, str(Path(__file__).parent))

from graph_programs import Emitter, Pair, tree

COPY, FILL, CALL, RUN = 1, 2, 3, 6


def touched(operation):
    """(address, whether it is written) of the memory that an operation touches."""
    kind = operation[0]
    if kind == COPY:
        return [(operation[1].address, True), (operation[2].address, False)]
    if kind == FILL:
        return [(operation[1].address, True)]
    if kind == RUN:
        found = []
        for use in operation[1].uses:
            places = dict.fromkeys(use.entries, False) | dict.fromkeys(use.finals or (), True)
            for replica in use.data.version.replicas:
                if replica.place in places:
                    found.append((replica.address, places[replica.place]))
        return found
    assert kind == CALL, operation
    body = operation[1]
    if hasattr(body, "make"):
        if body.make is not None:
            return [(body.make.target.address, True), *((part.address, False) for part in body.make.sources)]
        return [(replica.address, writes) for _, replica, writes, *_ in body.argument_sources]
    raise AssertionError(body)


def unordered(program, edges):
    """Pairs of nodes that touch the same memory, one of them writing, and that no path of edges orders."""
    before = [0] * program.count  # bits: the nodes that come before a node
    for first, then in sorted(edges, key=lambda edge: edge[1]):
        before[then] |= before[first] | 1 << first
    writers, readers, found = {}, {}, []
    for node in range(program.count):
        for address, writes in {pair for operation in program.work_of(node) for pair in touched(operation)}:
            others = writers.get(address, []) + (readers.get(address, []) if writes else [])
            found += [(other, node) for other in others if other != node and not before[node] >> other & 1]
            (writers if writes else readers).setdefault(address, []).append(node)
    return found


def recorded(seed, devices):
    """A random program, recorded in a graph; the context and the graph."""
    rng = random.Random(seed)
    ctx = stf.context(devices=devices)
    data = [ctx.logical_data(np.arange(4) * (n + 1)) for n in range(4)]
    scalars = [ctx.logical_data_zeros((), np.int64) for _ in range(3)]
    pairs = [ctx.logical_data(Pair(np.arange(4) + q, np.arange(4))) for q in range(2)]
    emitter = Emitter(ctx, data, pairs, scalars, True)
    graph = ctx.task_graph()
    with graph:
        for _ in range(3):
            emitter.do(tree(rng, 4, 3, 2, frozenset(), True))
    return ctx, graph


@pytest.mark.parametrize("devices", ["cpu", "cpu:3"])
def test_all_conflicts_are_ordered(devices):
    conflicts = 0
    for seed in range(80):
        ctx, graph = recorded(seed, devices)
        with ctx:
            for part in all_parts(graph._recording):
                edges = part.program.edges()
                assert unordered(part.program, edges) == [], (seed, part.description)
                conflicts += len(unordered(part.program, []))
            graph.close()
    assert conflicts > 4000  # that would be there without edges


@pytest.mark.parametrize("share", [0.03, 0.3])
def test_pieces_keep_that_order(share):
    """Whatever nodes the host does, the others in pieces are done once, and after what they need.

    What somebody waits for is behind nothing that is not before it.
    """
    rng, cuts, joined, apart = random.Random(1), 0, 0, 0
    for seed in range(60):
        ctx, graph = recorded(seed, "cpu:3")
        with ctx:
            for part in all_parts(graph._recording):
                program = part.program
                hosts = {node for node in range(program.count) if rng.random() < share}
                awaited = sorted(rng.sample(range(program.count), min(2, program.count))) if seed % 3 else None
                outline, pieces, place_of = cut(part, [[] for _ in range(program.count)], hosts, 1, awaited)
                numbers = {id(program.work_of(node)[0]): node for node in range(program.count) if program.work_of(node)}
                done, edges = [], []
                for number in range(outline.count):
                    done.append(nodes_in(outline, number, numbers, edges))
                edges += [(a, b) for first, then in outline.edges() for a in done[first] for b in done[then]]
                assert sorted(node for nodes in done for node in nodes) == sorted(numbers.values())
                assert unordered(program, edges) == [], (seed, part.description)
                if awaited:
                    needed = up_to(program.edges(), set(awaited))
                    asked = up_to(outline.edges(), {place_of[node] for node in awaited})
                    assert {node for node in place_of if place_of[node] in asked} == needed, seed
                    apart += len(needed) < program.count
                cuts, joined = cuts + (len(pieces) > 1), joined + max(map(len, done), default=0)
            graph.close()
    assert cuts > 50 and joined > 500 and apart > 30


def up_to(edges, nodes):
    """Nodes, and all that is before them."""
    found = set(nodes)
    for first, then in sorted(edges, key=lambda edge: -edge[1]):
        if then in found:
            found.add(first)
    return found


def nodes_in(outline, number, numbers, edges):
    """The nodes of a program, by `numbers`, in a node of its outline; the edges inside of a piece are added."""
    (operation, *_) = outline.work_of(number) or [None]
    if operation is None:
        return []
    if operation[0] != RUN or not isinstance(operation[1], Piece):
        return [numbers[id(operation)]]
    piece = operation[1].program
    mine = [numbers[id(piece.work_of(node)[0])] if piece.work_of(node) else None for node in range(piece.count)]
    edges += [(mine[a], mine[b]) for a, b in piece.edges() if mine[a] is not None and mine[b] is not None]
    return [node for node in mine if node is not None]


def test_an_edge_that_lacks_is_found():
    rng = random.Random(0)
    found = tried = 0
    for seed in range(40):
        ctx, graph = recorded(seed, "cpu:3")
        with ctx:
            program = graph._recording.program
            edges = program.edges()
            if edges:
                edges.remove(rng.choice(edges))
                tried += 1
                found += bool(unordered(program, edges))
            graph.close()
    assert 2 * found > tried  # of the others the node only orders, or touches other memory
