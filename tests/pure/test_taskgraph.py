"""The task graph that DotRecorder builds from accesses: order, reduction, sections, internal operations."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import SimpleNamespace

import pytest
from dotfile import Picture, parse_dot
from fake_program import ACC, RW, Program, R, W, label, nested_sections, random_accesses

from stf.observe import DotRecorder
from stf.observe.taskgraph import TaskGraph, transitive_reduction


def closure(count: int, edges: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return all pairs joined by a path; edges go from lower to higher numbers."""
    before: list[set[int]] = [set() for _ in range(count)]
    direct: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        assert source < target
        direct[target].append(source)
    for node in range(count):
        for source in direct[node]:
            before[node] |= before[source] | {source}
    return {(source, node) for node in range(count) for source in before[node]}


def conflicts(tasks: Sequence[dict[str, int]]) -> list[tuple[int, int]]:
    """Return all pairs of tasks whose accesses don't commute."""
    return [
        (first, second)
        for second in range(len(tasks))
        for first in range(second)
        if any(
            (tasks[first][data], tasks[second][data]) not in ((R, R), (ACC, ACC))
            for data in tasks[first].keys() & tasks[second].keys()
        )
    ]


# The order


def test_the_four_task_example() -> None:
    program = Program()
    program.task("t1", ("X", RW))
    program.task("t2", ("X", R), ("Y", RW))
    program.task("t3", ("X", R), ("Z", RW))
    program.task("t4", ("Y", R), ("Z", RW))
    assert program.edges() == {("t1", "t2"), ("t1", "t3"), ("t2", "t4"), ("t3", "t4")}


def test_accumulations_commute_and_reads_do_not_wait_for_reads() -> None:
    program = Program()
    program.task("init", ("S", W))
    program.task("a", ("S", ACC))
    program.task("b", ("S", ACC))
    program.task("r1", ("S", R))
    program.task("r2", ("S", R))
    program.task("c", ("S", ACC))
    assert program.edges() == {
        ("t1", "t2"), ("t1", "t3"), ("t2", "t4"), ("t3", "t4"), ("t2", "t5"), ("t3", "t5"), ("t4", "t6"), ("t5", "t6"),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_order_is_that_of_all_conflicts(seed: int) -> None:
    rng = random.Random(seed)
    tasks = random_accesses(rng, rng.randint(0, 40))
    program = Program()
    for accesses in tasks:
        program.task(None, *accesses.items())
    expected = closure(len(tasks), conflicts(tasks))
    for keep_redundant in (False, True):
        edges = [(int(a[1:]) - 1, int(b[1:]) - 1) for a, b in program.edges(keep_redundant=keep_redundant)]
        assert closure(len(tasks), edges) == expected
        if not keep_redundant:
            assert is_reduced(len(tasks), edges)


def is_reduced(count: int, edges: Sequence[tuple[int, int]]) -> bool:
    whole = closure(count, edges)
    return all(closure(count, [other for other in edges if other != edge]) < whole for edge in edges)


@pytest.mark.parametrize("seed", range(30))
def test_hidden_tasks_still_order_others(seed: int) -> None:
    rng = random.Random(seed)
    tasks = random_accesses(rng, 30)
    hidden = {index for index in range(30) if rng.random() < 0.3}
    program = Program()
    for index, accesses in enumerate(tasks):
        program.task(None, *accesses.items(), kind="freeze" if index in hidden else "task")
    edges = [(int(a[1:]) - 1, int(b[1:]) - 1) for a, b in program.edges()]
    expected = {pair for pair in closure(30, conflicts(tasks)) if not hidden & set(pair)}
    assert closure(30, edges) == expected
    assert len(program.picture().nodes) == 30 - len(hidden)
    assert len(program.picture(keep_freeze=True).nodes) == 30


def test_same_data_twice_in_a_task_makes_no_self_edge() -> None:
    program = Program()
    program.task("t", ("X", R), ("X", RW))
    assert program.edges() == set()


def test_removed_data_leave_no_order_for_the_next_with_that_id() -> None:
    program = Program()
    program.task("t1", ("X", W))
    program.recorder.data_removed(program.data_id("X"))
    program.operation("free", "X", "device(0)", "device(0)", 0)
    program.orders.clear()
    program.task("t2", ("X", W))
    assert program.edges() == set()
    assert program.edges(ignore_prereqs=False) == {("t1", "o1")}


def test_names_given_after_the_first_use_are_shown() -> None:
    recorder = DotRecorder()
    for number, name in enumerate(("data1", "X"), start=1):
        access = SimpleNamespace(data_id=1, data_name=name, mode=R)
        recorder.task(
            SimpleNamespace(
                id=number,
                symbol=None,
                kind="task",
                place_name="host",
                device=-1,
                accesses=[access],
                call_site="",
                waits_for=(),
            )
        )
    picture = parse_dot(recorder.to_dot())
    assert label(picture, "t1") == ["task 1", "X (read)"]


def test_fence_waits_for_all_work_and_nothing_waits_for_it() -> None:
    program = Program()
    program.task("a", ("X", W))
    program.task("b", ("Y", W))
    program.task(None, kind="fence")
    program.task("c", ("X", RW))
    assert program.edges() == {("t1", "t4")}
    assert program.edges(show_fence=True) == {("t1", "t3"), ("t2", "t3"), ("t1", "t4")}


# Reduction


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("block", [1, 3, 8192])
def test_reduction_keeps_the_closure(seed: int, block: int) -> None:
    rng = random.Random(seed)
    count = 40
    before = [sorted(rng.sample(range(node), min(node, rng.randint(0, 4)))) for node in range(count)]
    edges = [(source, node) for node in range(count) for source in before[node]]
    reduced = transitive_reduction(before, block)
    kept = [(source, node) for node in range(count) for source in reduced[node]]
    assert set(kept) <= set(edges)
    assert closure(count, kept) == closure(count, edges)
    assert block < count or is_reduced(count, kept)


def test_reduction_sees_a_source_that_every_step_reads() -> None:
    # x[k + 1] = A x[k]: the edges from A's writer are longer than the window, and redundant.
    before = [[]] + [sorted({0, node - 1}) for node in range(1, 200)]
    assert transitive_reduction(before, block=8) == [[]] + [[node - 1] for node in range(1, 200)]


def test_a_large_program_is_written_in_seconds() -> None:
    program = Program()
    for step in range(1000):
        for cell in range(50):
            old, new = step % 2, 1 - step % 2
            near = [(f"u{old}_{other}", R) for other in (cell - 1, cell, cell + 1) if 0 <= other < 50]
            program.task("step", *near, (f"u{new}_{cell}", W))
    graph = program.recorder.graph()
    assert len(graph.nodes) == 50_000
    assert graph.num_edges == 999 * (50 * 3 - 2)


# Sections


@pytest.fixture
def nested() -> Program:
    return nested_sections()


def tree(picture: Picture) -> list[tuple[str, ...]]:
    """Return for each node its first line, after the labels of the clusters around it."""
    found = []
    for node in picture.nodes:
        path, cluster = [label(picture, node)[0]], picture.cluster_of[node]
        while cluster >= 0:
            path.insert(0, picture.clusters[cluster].attributes["label"])
            cluster = picture.clusters[cluster].parent
        found.append(tuple(path))
    return found


BAR = [("foo", "bar", "t1"), *[("foo", "bar", "baz", "t2"), ("foo", "bar", "baz", "t3")] * 2]


@pytest.mark.parametrize(
    ("max_depth", "expected", "num_clusters"),
    [
        (0, [("foo",)], 0),
        (1, [("foo", "bar")] * 2, 1),
        (2, [("foo", "bar", "t1"), ("foo", "bar", "baz"), ("foo", "bar", "baz")] * 2, 3),
        (3, BAR * 2, 7),
        (None, BAR * 2, 7),
    ],
)
def test_nested_sections(
    nested: Program, max_depth: int | None, expected: list[tuple[str, ...]], num_clusters: int
) -> None:
    picture = nested.picture(max_depth=max_depth)
    assert tree(picture) == expected
    assert len(picture.clusters) == num_clusters
    assert all("dashed" in cluster.attributes["style"] for cluster in picture.clusters)


def test_edges_of_nested_sections(nested: Program) -> None:
    assert nested.edges(max_depth=0) == set()
    assert nested.edges(max_depth=1) == {("s1", "s4")}
    chain = ["t1", "s2", "s3", "t6", "s5", "s6"]
    assert nested.edges(max_depth=2) == set(pairwise(chain))
    assert nested.edges() == nested.edges(max_depth=7) == {
        ("t1", "t3"), ("t2", "t3"), ("t3", "t4"), ("t4", "t5"), ("t5", "t6"), ("t5", "t7"), ("t6", "t8"),
        ("t7", "t8"), ("t8", "t9"), ("t9", "t10"),
    }  # fmt: skip


def test_tasks_in_no_section_stay_at_depth_0(nested: Program) -> None:
    nested.task("last", ("A", R))
    assert tree(nested.picture(max_depth=0)) == [("foo",), ("last",)]
    assert nested.edges(max_depth=0) == {("s0", "t11")}


def test_collapsed_edges_are_deduplicated() -> None:
    program = Program()
    for name in ("first", "second"):
        program.recorder.section_begin(name)
        for data in "XYZ":
            program.task(data, (data, RW))
        program.recorder.section_end()
    picture = program.picture(max_depth=0, keep_redundant=True)
    assert [edge[:2] for edge in picture.edges] == [("s0", "s1")]


@pytest.mark.parametrize("seed", range(20))
def test_collapsed_graph_is_the_quotient(seed: int) -> None:
    rng = random.Random(seed)
    program, depth = Program(), 0
    for accesses in random_accesses(rng, 40):
        if rng.random() < 0.3:
            program.recorder.section_begin("s")
            depth += 1
        if depth and rng.random() < 0.3:
            program.recorder.section_end()
            depth -= 1
        program.task(None, *accesses.items())
    whole, max_depth = program.recorder.graph(), rng.randint(0, 2)
    merged = program.recorder.graph(max_depth=max_depth)
    index = {node.name: number for number, node in enumerate(merged.nodes)}
    stands_for = [index[representative(whole, node, max_depth)] for node in range(len(whole.nodes))]
    edges = {(stands_for[a], stands_for[b]) for a, b in whole.edges()}
    expected = closure(len(merged.nodes), {(a, b) for a, b in edges if a != b})
    assert closure(len(merged.nodes), merged.edges()) == expected


def representative(graph: TaskGraph, node: int, max_depth: int) -> str:
    path = graph.path(graph.nodes[node].section)
    return f"s{path[max_depth]}" if len(path) > max_depth else graph.nodes[node].name


def test_unbalanced_section_ends_and_empty_sections_are_harmless() -> None:
    program = Program()
    program.recorder.section_end()
    program.recorder.section_begin("empty")
    program.recorder.section_end()
    program.task("t", ("X", W))
    assert tree(program.picture()) == tree(program.picture(max_depth=0)) == [("t",)]


def test_negative_depth_is_refused() -> None:
    with pytest.raises(ValueError, match="max_depth is -1; pass 0 or more"):
        DotRecorder().to_dot(max_depth=-1)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="depth"):
        DotRecorder().to_dot(depth=1)


# Internal operations


def test_prerequisites_are_nodes_between_tasks() -> None:
    program = Program()
    program.task("init", ("X", W), place="host")
    program.operation("alloc", "X", "device(0)", "device(0)", 2)  # told before their task
    program.operation("copy", "X", "host", "device(0)", 2)
    program.task("use", ("X", R))
    program.task("again", ("X", R))
    program.task("next", ("X", W), place="host")
    program.operation("write_back", "X", "device(0)", "host", 0)
    picture = program.picture(ignore_prereqs=False)
    assert [(node, label(picture, node)[0]) for node in picture.nodes] == [
        ("t1", "init"), ("o1", "alloc X"), ("o2", "copy X"), ("t2", "use"), ("t3", "again"), ("t4", "next"),
        ("o6", "write back X"),
    ]  # fmt: skip
    assert label(picture, "o2")[1] == "host → device(0), 4.00 KiB"
    assert program.edges(ignore_prereqs=False) == {
        ("t1", "o2"), ("o1", "o2"), ("o2", "t2"), ("o2", "t3"), ("t2", "t4"), ("t3", "t4"), ("t4", "o6"),
    }  # fmt: skip
    assert program.edges() == {("t1", "t2"), ("t1", "t3"), ("t2", "t4"), ("t3", "t4")}


def test_evictions_wait_for_users_and_make_room() -> None:
    program = Program()
    program.task("old", ("X", RW))
    program.operation("evict", "X", "device(0)", "host", 2)
    program.task("new", ("Y", W))
    assert program.edges(ignore_prereqs=False) == {("t1", "o1"), ("o1", "t2")}


@pytest.mark.parametrize("seed", range(20))
def test_prerequisites_lose_no_order(seed: int) -> None:
    rng = random.Random(seed)
    tasks = random_accesses(rng, 30)
    program = Program()
    for index, accesses in enumerate(tasks):
        for name in accesses:
            kind = rng.choice(("alloc", "copy", "free", "evict", "write_back"))
            places = rng.choices(("host", "device(0)", "device(1)"), k=2)
            program.operation(kind, name, *places, rng.choice((0, index + 1, index + 2, 99)))
        program.task(None, *accesses.items(), place=rng.choice(("host", "device(0)", "device(1)")))
    graph = program.recorder.graph(ignore_prereqs=False)
    index = {node.name: number for number, node in enumerate(graph.nodes)}
    found = closure(len(graph.nodes), graph.edges())
    for first, second in conflicts(tasks):
        assert (index[f"t{first + 1}"], index[f"t{second + 1}"]) in found
    parse_dot(program.recorder.to_dot(ignore_prereqs=False, max_depth=0))
