"""The DOT text of a task graph: labels, colours, times, any name; and pictures of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dotfile import parse_dot, unescaped
from fake_program import ACC, RW, Program, R, W, label, nested_sections

from stf.observe import DotRecorder, draw

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


def test_a_critical_path_through_all_nodes_is_not_marked() -> None:
    program = Program()
    for task_id in range(1, 21):
        program.task("step", ("X" if task_id > 2 else "Y", R | W))
        program.recorder.ran(task_id, "step", 0, 0, 0, 1000, "task")
    chain = program.picture(timing=True)  # two of twenty are not on it
    assert sum("penwidth" in attributes for *_, attributes in chain.edges) == 17
    program.task("step", ("X", R | W))
    program.recorder.ran(21, "step", 0, 0, 0, 1000, "task")
    longer = program.picture(timing=True)
    assert not any("penwidth" in attributes for *_, attributes in longer.edges)
    assert not any("penwidth" in attributes for attributes in longer.nodes.values())
    assert "T∞ = 19.0 µs" in unescaped(longer.attributes["label"])


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
def nested() -> Program:
    return nested_sections()


@pytest.fixture
def without_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphviz is not installed; pygraphviz may be."""
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


@pytest.mark.usefixtures("without_program")
@pytest.mark.parametrize("suffix", MAGIC)
def test_cholesky_is_drawn(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    path = draw.render(cholesky(5).recorder.to_dot(color_by_device=True), tmp_path / f"graph{suffix}")
    assert path.read_bytes().startswith(MAGIC[suffix])


@pytest.mark.usefixtures("without_program")
@pytest.mark.parametrize("options", [{}, {"max_depth": 1}, {"timing": True}, {"ignore_prereqs": False}])
def test_sections_are_drawn(nested: Program, options: dict[str, object], tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    nested.recorder.ran(1, "t1", 0, 0, 0, 100, "task")
    nested.operation("copy", "A", "host", "device(0)", 2)
    path = draw.render(nested.recorder.to_dot(**options), str(tmp_path / "nested.svg"))
    assert b"<svg" in path.read_bytes()


@pytest.mark.usefixtures("without_program")
def test_an_empty_graph_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    assert draw.render(DotRecorder().to_dot(), tmp_path / "empty.png").stat().st_size


@pytest.mark.usefixtures("without_program")
def test_text_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    with pytest.raises(RuntimeError, match="Graphviz failed"):
        draw.render("digraph { a -> ", tmp_path / "graph.png")


@pytest.mark.usefixtures("without_program")
def test_without_graphviz_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    with pytest.raises(ImportError, match=r"pip install pygraphviz"):
        draw.render("digraph { a }", tmp_path / "graph.png")


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'.gif'; .*\.svg, \.png or \.pdf"):
        draw.render("digraph {}", tmp_path / "graph.gif")


@pytest.mark.parametrize("returncode", [0, 1])
def test_graphviz_is_used_where_it_is(returncode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = []

    def run(command: list[str], input: bytes, **_: object) -> subprocess.CompletedProcess[bytes]:
        commands.append((command, input))
        Path(command[-1]).write_bytes(b"a picture")
        return subprocess.CompletedProcess(command, returncode, b"", b"syntax error")

    monkeypatch.setattr(draw.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(draw.subprocess, "run", run)
    path = tmp_path / "graph.pdf"
    if returncode:
        with pytest.raises(RuntimeError, match="Graphviz failed with 1: syntax error"):
            draw.render("digraph {}", path)
    else:
        assert draw.render("digraph {}", path) == path and path.read_bytes() == b"a picture"
    (([*command, beside], text),) = commands
    assert (command, text) == (["/bin/dot", "-Tpdf", "-o"], b"digraph {}")
    assert Path(beside).parent == tmp_path and beside.endswith(".pdf")
    assert list(tmp_path.iterdir()) == ([] if returncode else [path])
