"""Seeing what a context did: statistics, the task graph's picture, traces."""

from __future__ import annotations

import json

import numpy as np
import pytest
from dotfile import parse_dot
from helpers import queued

import stf
from stf.observe import Observer, Observers
from stf.observe.observer import nobody_hears


def sections_of_the_guide(ctx):
    """The nested sections of the C++ guide, with its tasks t1, t2, t3 on tokens A, B, C."""
    lA, lB, lC = (ctx.logical_token().set_symbol(s) for s in "ABC")
    foo = ctx.dot_section("foo")
    for _ in range(2):
        with ctx.dot_section("bar"):
            with ctx.task(lA.read(), lB.rw()).set_symbol("t1"):
                pass
            for _ in range(2):
                with ctx.dot_section("baz"):
                    with ctx.task(lA.read(), lC.rw()).set_symbol("t2"):
                        pass
                    with ctx.task(lB.read(), lC.read(), lA.rw()).set_symbol("t3"):
                        pass
    foo.end()
    foo.end()


@pytest.fixture
def shown(ctx_factory):
    """(labels of the nodes, labels of the dashed boxes, number of edges) at a depth."""
    ctx = ctx_factory(observe="dot")
    sections_of_the_guide(ctx)

    def show(**options):
        picture = parse_dot(ctx.dot(**options))
        boxes = [c.attributes["label"] for c in picture.clusters]
        assert all("dashed" in c.attributes["style"] for c in picture.clusters)
        return sorted(first_line(n) for n in picture.nodes.values()), sorted(boxes), len(picture.edges)

    return show


def first_line(node):
    return node["label"].replace("\\n", "\n").splitlines()[0]


def test_sections_at_unlimited_depth(shown):
    nodes, boxes, _ = shown()
    assert nodes == ["t1"] * 2 + ["t2"] * 4 + ["t3"] * 4
    assert boxes == ["bar"] * 2 + ["baz"] * 4 + ["foo"]


def test_sections_at_depth_2_show_baz_collapsed(shown):
    assert shown(max_depth=2) == (["baz"] * 4 + ["t1"] * 2, ["bar", "bar", "foo"], 5)


def test_sections_at_depth_1_show_bar_collapsed(shown):
    assert shown(max_depth=1) == (["bar", "bar"], ["foo"], 1)


def test_sections_at_depth_0_show_foo_only(shown):
    assert shown(max_depth=0) == (["foo"], [], 0)


def test_edges_are_the_dependencies(ctx_factory):
    ctx = ctx_factory(observe="dot")
    lX, lY, lZ = (ctx.logical_data(np.zeros(2), name=n) for n in "XYZ")
    for name, accesses in (
        ("T1", (lX.rw(),)),
        ("T2", (lX.read(), lY.rw())),
        ("T3", (lX.read(), lZ.rw())),
        ("T4", (lY.read(), lZ.rw())),
    ):
        with ctx.task(*accesses, name=name):
            pass
    picture = parse_dot(ctx.dot())
    label = {name: first_line(node) for name, node in picture.nodes.items()}
    assert {(label[a], label[b]) for a, b, _ in picture.edges} == {
        ("T1", "T2"),
        ("T1", "T3"),
        ("T2", "T4"),
        ("T3", "T4"),
    }


def test_pictures_can_be_asked_at_any_time(ctx_factory):
    ctx = ctx_factory(observe=True, name="two")
    lX = ctx.logical_data(np.zeros(2))
    assert "->" not in ctx.dot()
    with ctx.dot_section("open"):
        with ctx.task(lX.rw(), name="in"):
            assert "in" in ctx.dot()
    ctx.finalize()
    assert "in" in ctx.dot() and ctx.trace()


def test_not_observed_is_said():
    with stf.context(devices="cpu") as ctx:
        with pytest.raises(
            stf.TaskStateError, match="no task graph was recorded; open the context with observe='dot', or set STF_DOT"
        ):
            ctx.dot()
        with pytest.raises(stf.TaskStateError, match="no trace was recorded; open the context with observe='trace'"):
            ctx.trace()
        ctx.dot_section("ignored").end()
    with pytest.raises(ValueError, match="observe is 'dot', 'trace', 'durations', 'cupti', True or False, got 'all'"):
        stf.context(devices="cpu", observe="all")
    with pytest.raises(
        ValueError, match="observe='cupti' is for CUDA devices, and this context has none; pass observe"
    ):
        stf.context(devices="cpu", observe="cupti")


def test_trace_has_every_body(ctx_factory):
    ctx = ctx_factory(observe="trace")
    lX = ctx.logical_data(np.zeros(2))
    for k in range(3):
        ctx.task(queued(ctx, k % len(ctx.devices)), lX.rw(), name=f"body{k}")(lambda x: None)
    ctx.synchronize()
    text = json.dumps(ctx.trace())
    assert all(f"body{k}" in text for k in range(3))


def test_trace_is_written_in_the_format_that_the_suffix_says(ctx_factory, tmp_path):
    ctx = ctx_factory(observe=True)
    ctx.task(queued(ctx), ctx.logical_data(np.zeros(2)).rw(), name="written")(lambda x: None)
    ctx.synchronize()
    path = ctx.trace(tmp_path / "run.json")
    assert path == tmp_path / "run.json" and json.loads(path.read_text()) == ctx.trace()
    with pytest.raises(ValueError, match=r"cannot write a trace as '.html'; pass a path that ends in .pftrace, or"):
        ctx.trace(tmp_path / "run.html")
    assert b"written" in ctx.trace(str(tmp_path / "run.pftrace")).read_bytes()


def test_statistics_count_tasks_copies_and_memory(ctx_factory):
    ctx = ctx_factory()
    last = len(ctx.devices) - 1
    X = np.zeros(100)
    lX, lT = ctx.logical_data(X), ctx.logical_data_empty(50)
    ctx.fill(lT, 1)
    with ctx.task(last, lX.rw()):
        pass
    with ctx.task("host", lX.read()):
        pass
    ctx.host_launch(lX.read())(lambda x: None)
    ctx.copy(lX, lX.empty_like())
    ctx.fence().synchronize()
    ctx.wait(lT)
    s = ctx.statistics()
    assert s.tasks == {"task": 2, "fill": 1, "host_launch": 1, "copy": 1, "fence": 1, "wait": 1}
    assert s.total_tasks == 7 and s.pending == 0
    assert s.tasks_by_place["host"] == 3 and sum(s.tasks_by_place.values()) == 6
    if not ctx_factory.shares_host:
        there = f"device({last})"
        assert s.copies[("host", there)] == 1 and s.copies[(there, "host")] == (1 if last else 2)
        assert s.copied_bytes[("host", there)] == 800
        assert s.copies[("device(0)", "host")] == (1 if last else 2)
        assert s.allocations["device(0)"] == 3 and s.peak_bytes[there] == (800 if last else 2000)
    else:
        assert s.total_copies == s.total_copied_bytes == 0
    assert s.evictions == dict.fromkeys(s.evictions, 0)
    ctx.finalize()
    after = ctx.statistics()
    assert after.frees == after.allocations and "tasks: 7" in str(after)


def test_order_passes_through_tiles(ctx_factory):
    ctx = ctx_factory(observe="dot")
    y = ctx.logical_data(np.zeros(4), name="y")
    with ctx.task(y.rw(), name="before"):
        pass
    tiles = y.tiles(2)
    for i, tile in enumerate(tiles):
        with ctx.task(tile.rw(), name=f"on tile {i}"):
            pass
    del tile, tiles
    with ctx.task(y.rw(), name="after"):
        pass
    picture = parse_dot(ctx.dot())
    label = {name: first_line(node) for name, node in picture.nodes.items()}
    assert {(label[a], label[b]) for a, b, _ in picture.edges} == {
        ("before", "on tile 0"),
        ("before", "on tile 1"),
        ("on tile 0", "after"),
        ("on tile 1", "after"),
    }


def test_freezes_are_shown_when_asked_for(ctx_factory):
    ctx = ctx_factory(observe="dot")
    y = ctx.logical_data(np.zeros(4), name="y")
    with ctx.task(y.rw(), name="before"):
        pass
    with ctx.freeze(y) as frozen:
        frozen.get()
    with ctx.task(y.rw(), name="after"):
        pass

    def edges(**options):
        picture = parse_dot(ctx.dot(**options))
        label = {name: first_line(node) for name, node in picture.nodes.items()}
        return {(label[a], label[b]) for a, b, _ in picture.edges}

    assert edges() == {("before", "after")}
    assert edges(keep_freeze=True) == {
        ("before", "freeze y"),
        ("freeze y", "unfreeze y"),
        ("unfreeze y", "after"),
    }


def test_lines_become_text_when_somebody_looks(ctx_factory, monkeypatch):
    """A task costs a tuple; each line is worked out once, and what comes later is read the next time."""
    from stf.observe import dot

    asked = []
    text = dot.site_text
    monkeypatch.setattr(dot, "site_text", lambda *site: asked.append(site) or text(*site))
    ctx = ctx_factory(observe="dot")
    lX = ctx.logical_data(np.zeros(2), name="early")

    def submit(count):
        for _ in range(count):
            with ctx.task(lX.rw(), name="step"):
                pass

    submit(5)
    lX.set_symbol("late")
    submit(1)
    assert asked == []
    for count in (6, 9):
        assert ctx.dot().count('label="step\\nlate (rw)"') == count and len(asked) == count // 3 - 1
        submit(3)


def test_observers_are_told_what_they_do_something_about(ctx_factory):
    class Told(Observer):
        def __init__(self):
            self.names = []

        def task(self, task):
            self.names.append(task.symbol)

    told, silent = Told(), Observer()
    both = Observers(told, silent)
    ctx = ctx_factory()
    ctx.engine.observe(both)
    with ctx.task(name="one"):
        pass
    both.detach(told)
    both.attach(told)
    with ctx.task(name="two"):
        pass
    assert told.names == ["one", "two"] and len(both) == 2


@pytest.fixture
def observed_on_cpu():
    with stf.context(devices="cpu", observe=True) as ctx:
        yield ctx


def test_a_body_is_told_once_to_a_trace_and_its_durations(observed_on_cpu):
    """Each listener takes a share of a microsecond for each task: the graph reads times from the trace."""
    ctx = observed_on_cpu
    observer = ctx.engine.observer
    assert observer.began is nobody_hears and observer.ended is nobody_hears
    x = ctx.logical_data_zeros(4)
    for _ in range(3):
        ctx.task(x.rw())(lambda x: None)
    ctx.synchronize()
    told = [span for span in ctx._trace._spans if span[6] == "task"]
    assert len(told) >= 3 and not ctx._dot._spans
    assert ctx._dot.durations() == {span[0]: span[5] - span[4] for span in told}
