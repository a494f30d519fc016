"""The task graph that DotRecorder builds from accesses, its DOT text, and pictures of it."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from stf.observe import DotRecorder, draw
from stf.observe.dotfile import Picture, parse_dot, unescaped
from stf.observe.taskgraph import TaskGraph, transitive_reduction

R, W, RW, ACC = 1, 2, 3, 4

Edges = set[tuple[str, str]]


class Program:
    """Submits fake tasks to a recorder."""

    def __init__(self) -> None:
        self.recorder = DotRecorder()
        self.next_id = 0
        self.data_ids: dict[str, int] = {}

    def data_id(self, name: str) -> int:
        return self.data_ids.setdefault(name, len(self.data_ids))

    def task(self, symbol: str | None, *accesses: tuple[str, int], kind: str = "task", place: str = "device(0)") -> int:
        self.next_id += 1
        device = int(place[7:-1]) if place.startswith("device(") else -1
        named = [SimpleNamespace(data_id=self.data_id(name), data_name=name, mode=mode) for name, mode in accesses]
        self.recorder.task(
            SimpleNamespace(
                id=self.next_id,
                symbol=symbol,
                kind=kind,
                place_name=place,
                device=device,
                accesses=named,
                call_site=f"program.py:{self.next_id}",
            )
        )
        return self.next_id

    def operation(self, kind: str, name: str, source: str, target: str, task_id: int) -> None:
        self.recorder.operation(kind, self.data_id(name), name, source, target, 4096, task_id)

    def picture(self, **options: object) -> Picture:
        return parse_dot(self.recorder.to_dot(**options))

    def edges(self, **options: object) -> Edges:
        return {(source, target) for source, target, _ in self.picture(**options).edges}


def label(picture: Picture, node: str) -> list[str]:
    return unescaped(picture.nodes[node]["label"]).split("\n")


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


def random_accesses(rng: random.Random, count: int) -> list[dict[str, int]]:
    names = [f"X{i}" for i in range(rng.randint(1, 8))]
    return [
        {name: rng.choice((R, R, W, RW, ACC)) for name in rng.sample(names, rng.randint(0, min(3, len(names))))}
        for _ in range(count)
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
    """Return the guide's example: foo holds two bar, each holds t1 and two baz, each holds t2 and t3."""
    program = Program()
    begin, end = program.recorder.section_begin, program.recorder.section_end
    begin("foo")
    for _ in range(2):
        begin("bar")
        program.task("t1", ("A", R), ("B", RW))
        for _ in range(2):
            begin("baz")
            program.task("t2", ("A", R), ("C", RW))
            program.task("t3", ("B", R), ("C", R), ("A", RW))
            end()
        end()
    end()
    return program


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


# Labels, colours, times


def test_data_in_labels_and_without() -> None:
    program = Program()
    program.task("axpy", ("X", R), ("Y", RW), ("Z", W))
    program.task(None, ("S", ACC), kind="host_launch")
    picture = program.picture()
    assert label(picture, "t1") == ["axpy", "X (read), Y (rw), Z (write)"]
    assert label(picture, "t2") == ["host_launch 2", "S (accumulate)"]
    assert picture.nodes["t1"]["tooltip"] == "program.py:1"
    assert label(program.picture(remove_data_deps=True), "t1") == ["axpy"]


def test_long_lists_of_data_are_wrapped_and_cut() -> None:
    program = Program()
    program.task("t", *[(f"tile{i:02}", R) for i in range(30)])
    lines = label(program.picture(), "t1")
    assert lines[1] == "tile00 (read), tile01 (read),"
    assert lines[-1] == "… and 18 more"
    assert len(lines) == 8


def test_color_by_device() -> None:
    program = Program()
    for place in ("device(0)", "device(1)", "device(1)", "host", "grid(device(0), device(1))"):
        program.task("t", place=place)
    picture = program.picture(color_by_device=True)
    colors = [attributes["fillcolor"] for attributes in picture.nodes.values()]
    assert colors[1] == colors[2]
    assert len(set(colors)) == 4
    assert label(picture, "t5") == ["t", "@ grid(device(0), device(1))"]
    assert len({a["fillcolor"] for a in program.picture().nodes.values()}) == 1


@pytest.fixture
def timed() -> Program:
    """Return a diamond whose upper branch is the longer one."""
    program = Program()
    program.recorder.section_begin("s")
    program.task("a", ("X", W))
    program.task("b", ("X", R), ("Y", W))
    program.recorder.section_end()
    program.task("c", ("X", R), ("Z", W))
    program.task("d", ("Y", R), ("Z", R))
    for task_id, duration_us in ((4, 5), (1, 10), (3, 20), (2, 70)):
        program.recorder.ran(task_id, "x", 0, 0, 1000, 1000 + duration_us * 1000, "task")
    program.recorder.ran(3, "copy", 0, 0, 0, 10**9, "copy")
    return program


def test_timing(timed: Program) -> None:
    picture = timed.picture(timing=True)
    assert label(picture, "t2")[-1] == "70.0 µs"
    assert unescaped(picture.attributes["label"]) == "T1 = 105 µs, T∞ = 85.0 µs, parallelism 1.2"
    fills = [attributes["fillcolor"] for attributes in picture.nodes.values()]
    assert len(set(fills)) == 3
    critical = {(a, b) for a, b, attributes in picture.edges if "penwidth" in attributes}
    assert critical == {("t1", "t2"), ("t2", "t4")}
    assert "label" not in timed.picture().attributes


def test_a_section_takes_the_time_of_its_tasks(timed: Program) -> None:
    picture = timed.picture(timing=True, max_depth=0)
    assert label(picture, "s0") == ["s", "2 tasks", "80.0 µs"]
    assert "T∞ = 85.0 µs" in unescaped(picture.attributes["label"])
    assert [edge[:2] for edge in picture.edges] == [("s0", "t3"), ("t3", "t4")]
    edges = timed.picture(timing=True, max_depth=0, keep_redundant=True).edges
    assert {(a, b) for a, b, attributes in edges if "penwidth" in attributes} == {("s0", "t4")}


def test_parts_of_one_task_that_overlap_count_once() -> None:
    program = Program()
    program.task("grid")
    for start, end in ((500, 900), (0, 100), (50, 200)):
        program.recorder.ran(1, "grid", 0, 0, start, end, "task")
    assert program.recorder.graph().nodes[0].duration_ns == 600


def test_timing_with_nothing_measured_is_left_out() -> None:
    program = Program()
    program.task("t")
    picture = program.picture(timing=True)
    assert label(picture, "t1") == ["t"]
    assert "label" not in picture.attributes


def test_statistics_file(timed: Program, tmp_path: Path) -> None:
    timed.recorder.to_dot(stats_file=tmp_path / "stats.csv")
    assert (tmp_path / "stats.csv").read_text() == (
        "edges,vertices,total_work_ms,critical_path_ms\n4,4,0.105000,0.085000\n"
    )


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


# The text

STRANGE = 'a"b\\ c\n<d> {e|f} [g]; -> &lt; \\N é∞ // # \\'


def test_any_name_is_shown_as_it_is() -> None:
    program = Program()
    program.recorder.section_begin(STRANGE)
    program.task(STRANGE, (STRANGE, RW), place=STRANGE)
    picture = program.picture(color_by_device=True)
    assert unescaped(picture.nodes["t1"]["label"]) == f"{STRANGE}\n{STRANGE} (rw)\n@ {STRANGE}"
    assert unescaped(picture.clusters[0].attributes["label"]) == STRANGE


def test_control_characters_are_spelled_out() -> None:
    program = Program()
    program.task("a\0b\tc\udc80\r\nd")
    dot = program.recorder.to_dot()
    dot.encode()
    assert label(parse_dot(dot), "t1") == ["a\\x00b\\x09c\\xdc80", "d"]


def test_graph_is_named() -> None:
    assert DotRecorder('my "graph"').to_dot().startswith('digraph "my \\"graph\\"" {\n')


@pytest.mark.parametrize("text", ["graph { a -- b }", "digraph { a -> ", "digraph { a [label] }", "digraph { ! }", ""])
def test_what_is_no_digraph_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="DOT"):
        parse_dot(text)


def test_parser_reads_dot_written_by_others() -> None:
    picture = parse_dot("""
        // a comment
        strict digraph {
          rankdir = TB; node [shape=box];
          a -> b -> "c d" [color=red, penwidth=2.5]; /* another */
          subgraph cluster_x { label = "x"; e; { f [shape=oval] } }
          a [label="A"]
        }""")
    assert list(picture.nodes) == ["a", "b", "c d", "e", "f"]
    assert [edge[:2] for edge in picture.edges] == [("a", "b"), ("b", "c d")]
    assert picture.edges[1][2] == {"color": "red", "penwidth": "2.5"}
    assert picture.nodes["a"] == {"shape": "box", "label": "A"}
    assert [picture.cluster_of[node] for node in "abef"] == [-1, -1, 0, 0]
    assert picture.nodes["f"]["shape"] == "oval"
    assert picture.attributes == {"rankdir": "TB"}


# Pictures


@pytest.fixture
def without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(draw.shutil, "which", lambda name: None)


def cholesky(num_tiles: int) -> Program:
    program = Program()

    def tile(i: int, j: int, mode: int) -> tuple[str, int]:
        return f"A{i:02}{j:02}", mode

    for k in range(num_tiles):
        program.task(f"potrf({k})", tile(k, k, RW))
        for i in range(k + 1, num_tiles):
            program.task(f"trsm({i}, {k})", tile(k, k, R), tile(i, k, RW), place=f"device({i % 4})")
        for i in range(k + 1, num_tiles):
            program.task(f"syrk({i}, {k})", tile(i, k, R), tile(i, i, RW), place=f"device({i % 4})")
            for j in range(k + 1, i):
                program.task(f"gemm({i}, {j}, {k})", tile(i, k, R), tile(j, k, R), tile(i, j, RW))
    return program


MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.usefixtures("without_graphviz")
@pytest.mark.parametrize("suffix", MAGIC)
def test_cholesky_is_drawn_without_graphviz(suffix: str, tmp_path: Path) -> None:
    path = draw.render(cholesky(5).recorder.to_dot(color_by_device=True), tmp_path / f"graph{suffix}")
    assert path.read_bytes().startswith(MAGIC[suffix])


@pytest.mark.usefixtures("without_graphviz")
@pytest.mark.parametrize("options", [{}, {"max_depth": 1}, {"timing": True}, {"ignore_prereqs": False}])
def test_sections_are_drawn_without_graphviz(nested: Program, options: dict[str, object], tmp_path: Path) -> None:
    nested.recorder.ran(1, "t1", 0, 0, 0, 100, "task")
    nested.operation("copy", "A", "host", "device(0)", 2)
    path = draw.render(nested.recorder.to_dot(**options), str(tmp_path / "nested.svg"))
    assert b"<svg" in path.read_bytes()


@pytest.mark.usefixtures("without_graphviz")
def test_an_empty_graph_is_drawn(tmp_path: Path) -> None:
    assert draw.render(DotRecorder().to_dot(), tmp_path / "empty.png").stat().st_size


@pytest.mark.usefixtures("without_graphviz")
def test_nothing_overlaps_and_edges_run_down(nested: Program) -> None:
    pictures = [nested.picture(), cholesky(5).picture()]
    for picture in pictures:
        drawing = draw._Drawing(picture)
        layout, names = drawing._layout, list(picture.nodes)
        boxes = [layout.node(number) for number in range(len(names))]
        for number, box in enumerate(boxes):
            assert not any(overlap(box, other) for other in boxes[:number])
            cluster = picture.cluster_of[names[number]]
            if cluster >= 0:
                assert is_inside(box, layout.cluster(cluster))
        for number, cluster in enumerate(picture.clusters):
            if cluster.parent >= 0:
                assert is_inside(layout.cluster(number), layout.cluster(cluster.parent))
        for number, (source, target, _) in enumerate(picture.edges):
            route = layout.route(number)
            heights = [y for _, y in route]
            assert heights == sorted(heights)
            assert touches(boxes[names.index(source)], route[0])
            assert touches(boxes[names.index(target)], route[-1])


def overlap(a: draw.Box, b: draw.Box) -> bool:
    return 2 * abs(a.x - b.x) < a.width + b.width and 2 * abs(a.y - b.y) < a.height + b.height


def is_inside(inner: draw.Box, outer: draw.Box) -> bool:
    return (
        2 * abs(inner.x - outer.x) + inner.width <= outer.width
        and 2 * abs(inner.y - outer.y) + inner.height <= outer.height
    )


def touches(box: draw.Box, point: tuple[float, float]) -> bool:
    return abs(point[0] - box.x) <= box.width / 2 + 1e-6 and abs(abs(point[1] - box.y) - box.height / 2) < 1e-6


@pytest.mark.usefixtures("without_graphviz")
def test_too_large_a_graph_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(draw, "_MAX_NODES", 10)
    with pytest.raises(ValueError, match=r"35 nodes.*dot_section and max_depth"):
        draw.render(cholesky(5).recorder.to_dot(), tmp_path / "graph.png")


@pytest.mark.usefixtures("without_graphviz")
def test_a_cycle_is_refused_not_looped_over(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cycle"):
        draw.render("digraph { a -> b; b -> a; }", tmp_path / "graph.png")


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'.gif'; .*\.svg, \.png or \.pdf"):
        draw.render("digraph {}", tmp_path / "graph.gif")


@pytest.mark.parametrize("returncode", [0, 1])
def test_graphviz_is_used_where_it_is(returncode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = []

    def run(command: list[str], input: bytes, **_: object) -> subprocess.CompletedProcess[bytes]:
        commands.append((command, input))
        return subprocess.CompletedProcess(command, returncode, b"", b"syntax error")

    monkeypatch.setattr(draw.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(draw.subprocess, "run", run)
    path = tmp_path / "graph.pdf"
    if returncode:
        with pytest.raises(RuntimeError, match="Graphviz failed with 1: syntax error"):
            draw.render("digraph {}", path)
    else:
        assert draw.render("digraph {}", path) == path
    assert commands == [(["/bin/dot", "-Tpdf", "-o", str(path)], b"digraph {}")]
