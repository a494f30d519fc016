"""Seeing what ran: why a task waited, reports, and what a notebook shows."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import threading
import time

import numpy as np
import pytest
from dotfile import parse_dot, unescaped
from helpers import is_cuda, needs_graphviz, queued, report_content
from ordering import Order

import stf
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf.contexts.context import Context
from stf.contexts.observing import write_pictures
from stf.devices.make import make_driver
from stf.devices.spec import parse_devices
from stf.observe import DotRecorder, Observers, draw, run
from stf.observe.html import fitting_depth, graph_picture, table
from stf.observe.why import waits_of

THIS = "test_seeing.py"


@stf.task
def add(x: stf.ReadWrite, amount=1):
    x += amount


@stf.task
def combine(x: stf.Read, y: stf.Read, z: stf.Write):
    z[:] = x + y


@stf.task
def mix(x: stf.Read, y: stf.ReadWrite):
    y += x[0]


@stf.task
def fail(x: stf.ReadWrite):
    raise ValueError("<no> & never")


def here(offset=0):
    """This file and the line of the caller, as call sites have it."""
    return f"test_seeing.py:{sys._getframe(1).f_lineno + offset}"


def lines(text):
    return [line.strip() for line in text.split("\n")]


# -- why -----------------------------------------------------------------------------------------------------------


def test_why_names_who_was_waited_for_and_because_of_which_data(ctx_factory):
    ctx = ctx_factory(observe="dot")
    x, y = ctx.logical_data(np.zeros(2), name="x"), ctx.logical_data(np.zeros(2), name="y")
    add.named("first")(x)
    first = here(-1)
    with ctx.task(x.read(), y.write(), name="second") as second:
        pass
    middle = here(-2)
    with ctx.task(x.rw(), y.read(), name="third") as third:
        inside = stf.why(third)
    ended = stf.why(third)
    assert lines(stf.why(second))[1:3] == [
        f"reads x: after task 'first' ({first}), which wrote it",
        "writes y: nothing to wait for",
    ]
    assert lines(ended)[:3] == [
        f"task 'third' ({here(-8)}) at device(0)",
        f"reads and writes x: after task 'first' ({first}), which wrote it; after task 'second' ({middle}), which read it",
        f"reads y: after task 'second' ({middle}), which wrote it",
    ]
    assert ("ran for" in ended or is_cuda(ctx)) and "ran for" not in inside  # GPUs are timed for traces
    assert lines(ended)[: len(lines(inside))] == lines(inside)


def test_why_names_copies_and_allocations():
    with stf.context(devices="cpu:1", observe="dot", memory_limit=1 << 13) as ctx:
        x, y = ctx.logical_data(np.zeros(1 << 10), name="x"), ctx.logical_data(np.zeros(1 << 10), name="y")
        with ctx.task(x.rw(), name="a") as a:
            pass
        with ctx.task(y.rw(), name="b") as b:
            pass
    assert lines(stf.why(a))[2:4] == ["allocated x at device(0), 8.00 KiB", "copied x host → device(0), 8.00 KiB"]
    assert lines(stf.why(b))[2:-1] == [
        "copied x device(0) → host, 8.00 KiB",
        "evicted x from device(0), 8.00 KiB",
        "allocated y at device(0), 8.00 KiB",
        "copied y host → device(0), 8.00 KiB",
    ]


def test_why_of_accumulations_and_readers(ctx_factory):
    ctx = ctx_factory(observe="dot")
    x, total = ctx.logical_data(np.ones(2), name="x"), ctx.logical_data(np.zeros(2), name="total")
    for i in range(6):
        with ctx.task(x.read(), total.accumulate(stf.reducer.sum), name=f"part{i}") as part:
            part.arrays()[1][:] += 1
    with ctx.task(x.write(), name="last") as last:
        last.arrays()[0][:] = 0
    assert "accumulates into total: nothing to wait for" in lines(stf.why(part))
    (reason,) = (line for line in lines(stf.why(last)) if line.startswith("writes x"))
    assert reason.startswith("writes x: after tasks 'part0' (") and reason.endswith("and 2 more, which read it")
    assert total.numpy().tolist() == [6, 6]


def test_why_of_a_data_used_twice_and_of_none(ctx_factory):
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    with ctx.task(x.read(), x.write(), name="twice") as twice:
        pass
    with ctx.task(name="none") as none:
        pass
    assert lines(stf.why(twice))[1] == "reads and writes x: nothing to wait for"
    assert lines(stf.why(none))[1] == "uses no data: nothing to wait for"


def test_why_says_that_nothing_was_recorded(ctx):
    x = ctx.logical_data(np.zeros(2))
    with ctx.task(x.rw(), name="t") as t:
        pass
    site = here(-2)
    assert lines(stf.why(t)) == [
        f"task 't' ({site}) at device(0)",
        'what it waited for was not recorded; open the context with observe="dot"',
    ]
    with pytest.raises(RuntimeError, match="observe='dot'"):
        ctx.why("t")


def test_why_before_the_start_and_after_a_start_that_failed(ctx_factory):
    ctx = ctx_factory(observe=True)
    x = ctx.logical_data_empty(2, name="x")
    t = ctx.task(x.read(), name="t")
    assert "it has not started, and waits for nothing yet" in stf.why(t)
    with pytest.raises(stf.UninitializedDataError):
        t.start()
    assert "it has not started" in stf.why(t)
    del t


def test_why_by_name_and_number(ctx_factory):
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    for _ in range(2):
        add(x)
    assert lines(ctx.why("add"))[1].startswith("reads and writes x: after task 'add'")
    assert lines(ctx.why(1))[1] == "reads and writes x: nothing to wait for"
    with pytest.raises(ValueError, match="no task 'sub' was recorded"):
        ctx.why("sub")


def test_why_of_failures(ctx_factory):
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    fail.on(queued(ctx))(x)
    failed = here(-1)
    add.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    raised = f"{THIS}:{fail.fn.__code__.co_firstlineno + 2}"
    assert lines(ctx.why("fail"))[-1] == f"failed with ValueError: <no> & never, raised at {raised}"
    assert lines(ctx.why("add"))[-1] == f"did not run: task 'fail' ({failed}) failed with ValueError: <no> & never"
    y = ctx.logical_data(np.zeros(2), name="y")
    with pytest.raises(KeyError), ctx.task(y.rw(), name="inline") as inline:
        raise KeyError("k")
    assert lines(stf.why(inline))[-1] == f"failed with KeyError: 'k', raised at {here(-1)}"


def test_a_skipped_task_is_told_from_one_of_its_name_and_line_that_failed(ctx_factory):
    ctx = ctx_factory(observe=True)
    x = ctx.logical_data(np.zeros(2), name="x")
    for _ in range(3):
        fail.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    failures = sorted(ctx._dot.failures)
    assert [failure.is_skip for failure in failures] == [False, True, True]
    assert [failure.raised_at != "" for failure in failures] == [True, False, False]
    assert lines(ctx.why("fail"))[-1].startswith("did not run: task 'fail' (test_seeing.py:")


def test_the_line_that_raised_is_the_programs_where_a_library_raised(ctx_factory):
    ctx = ctx_factory(observe="dot")

    def through_a_library(x):
        json.loads("no")

    ctx.host_launch(ctx.logical_data(np.zeros(2)).rw(), fn=through_a_library, name="parse")
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    assert ctx._dot.failures[0].raised_at == f"{THIS}:{through_a_library.__code__.co_firstlineno + 1}"


def test_why_of_data_is_its_history(ctx):
    x = ctx.logical_data(np.zeros(2), name="x")
    add(x)
    assert ctx.why(x) == stf.why(x) == x.history()
    assert f"written by task 'add' at {here(-2)}" in stf.why(x)


@pytest.mark.parametrize("thing", [None, 3.5, np.zeros(2)])
def test_why_of_something_else(thing):
    with pytest.raises(TypeError, match="why takes a task or logical data"):
        stf.why(thing)


@pytest.mark.parametrize("devices", ["cpu", "cpu:3"])
def test_the_recorded_order_is_that_of_the_rule(devices):
    """Tasks, pictures and `why` have the order that accesses ask for, over random programs with copies."""
    rng = np.random.default_rng(5)
    with stf.context(devices=devices, observe="dot") as ctx:
        data = [ctx.logical_data(np.zeros(1), name=f"d{i}") for i in range(5)]
        orders = [Order() for _ in data]
        expected = []
        for index in range(300):
            chosen = rng.choice(5, size=rng.integers(1, 4), replace=False)
            modes = rng.integers(1, 4, size=len(chosen))
            accesses = [
                (None, data[i].read, data[i].write, data[i].rw)[m]() for i, m in zip(chosen, modes, strict=True)
            ]
            with ctx.task(int(rng.integers(len(ctx.devices))), *accesses):
                pass
            waited = (orders[i].take(index, m, "") for i, m in zip(chosen, modes, strict=True))
            expected.append(set().union(*waited) - {index})
        before = []  # of each task, all that come before it
        for waited in expected:
            before.append(waited.union(*(before[number] for number in waited)))
        recorder = ctx._dot
        graph = recorder.graph(keep_redundant=True)
        for index in range(300):
            waits, elsewhere = waits_of(recorder, index)
            found = set(graph.predecessors[index])
            assert expected[index] <= found <= before[index] and not elsewhere
            assert {n for w in waits for n in (*w.writers, *w.readers)} == found
            assert found == expected[index] or devices != "cpu"


class NotingDriver(WrappingDriver):
    """Knows how many bytes it was asked to copy, by the number of the operation."""

    def __init__(self, inner):
        super().__init__(inner)
        self.copied = {}

    def copy(self, stream, target, target_strides, source, source_strides, shape, itemsize, keep, number=0):
        self.copied[number] = math.prod(shape) * itemsize
        return self.inner.copy(stream, target, target_strides, source, source_strides, shape, itemsize, keep, number)


@pytest.mark.parametrize("hostile", [None, 3])
@pytest.mark.parametrize("devices", ["cpu:2", "cpu:4"])
def test_each_copy_is_told_with_its_own_data(devices, hostile, monkeypatch):
    """Of arrays of pairwise different sizes: a span names the data of which the driver copied so many bytes."""
    monkeypatch.setattr(stf.config, "hostile", hostile)
    spec = parse_devices(devices)
    driver = NotingDriver(make_driver(spec))
    with Context(spec, observe=True, driver=driver) as ctx:
        sizes = range(1, 51)
        arrays = [ctx.logical_data(np.zeros(size), name=f"a{size}", write_back=False) for size in sizes]
        rng = np.random.default_rng(7)
        for _ in range(1000):
            one, other = rng.choice(50, size=2, replace=False)
            mix.on(int(rng.integers(spec.count)))(arrays[one], arrays[other])
        ctx.synchronize()
        found, numbers = run.collect(ctx._dot, ctx._trace), [timed.asked.number for timed in ctx._trace.operations]
        events = [event for event in ctx.trace()["traceEvents"] if event.get("cat") == "copy"]
    spans = [span for span in found.spans if span.category == "copy"]
    assert len(spans) == len(events) == len(driver.copied) > 700
    for span in spans:
        operation = found.operations[span.operation]
        nbytes = 8 * int(span.name.removeprefix("copy a"))
        assert nbytes == operation.nbytes == driver.copied[numbers[span.operation]]
        assert found.tasks[operation.task].name == "mix" and operation.target == f"device({span.device})"
    for event in events:
        told = event["args"]
        assert event["name"] == f"copy {told['data']}" == f"copy a{told['bytes'] // 8}"
        assert told["from"] != told["to"] and told["task"] > 0


def test_what_used_the_memory_before_is_waited_for():
    """An array that is registered again, and tiles of one, come after what used the memory, and `why` says so."""
    X, goes_on = np.zeros(4), threading.Event()

    @stf.task
    def slow(x: stf.ReadWrite):
        goes_on.wait(30)
        x += 1

    with stf.context(devices="cpu", observe=True) as ctx:
        x = ctx.logical_data(X, name="x")
        slow(x)
        del x
        y = ctx.logical_data(X, name="y")
        quick = add.named("quick")(y)
        goes_on.set()
        with y.tiles(2) as (low, high):
            add.named("low")(low)
            add.named("high")(high)
        add.named("last")(y)
        ctx.synchronize()
        picture = parse_dot(ctx.dot())
        title = {node: unescaped(label["label"]).split("\n")[0] for node, label in picture.nodes.items()}
        edges = {(title[source], title[target]) for source, target, _ in picture.edges}
        assert edges == {("slow", "quick"), ("quick", "low"), ("quick", "high"), ("low", "last"), ("high", "last")}
        assert "comes after task 'slow' (test_seeing.py:" in ctx.why("quick")
        assert lines(ctx.why(quick)) == lines(ctx.why("quick")) == lines(stf.why(quick))
        assert "which used the same memory" in ctx.why("low") and "#-1" not in ctx.why("last")


# -- reports -------------------------------------------------------------------------------------------------------


@pytest.mark.not_captured("tasks that are nodes of one graph have no times of their own")
def test_report_is_one_page_with_everything(ctx_factory, tmp_path):
    ctx = ctx_factory(observe=True, name="<run>")
    x, y, z = (ctx.logical_data(np.zeros(1 << 10), name=n) for n in "xyz")
    add(x)
    add.on(len(ctx.devices) - 1)(y)
    with ctx.dot_section("outer"), ctx.dot_section("inner"):
        combine(x, y, z)
    site = here(-1)
    with ctx.task("host", z.read(), name="look"):
        pass
    fail.on(queued(ctx))(y)
    add.named("after").on(queued(ctx))(y)
    with pytest.raises(stf.TaskFailedError):
        ctx.finalize()
    path = ctx.report(tmp_path / "run.html")
    page, text = report_content(path), path.read_text(encoding="utf-8")
    assert path == tmp_path / "run.html" and "<title>stf: &lt;run&gt;</title>" in text and "<run>" not in text
    tasks, names = page["tasks"], page["names"]
    assert [names[name] for name in tasks["name"]] == ["add", "add", "combine", "look", "fail", "after"]
    assert page["places"][tasks["place"][3]] == "host"
    source = page["sources"][tasks["source"][2]]
    assert source["site"] == site and source["path"] == __file__
    assert source["lines"][source["line"]].strip() == "combine(x, y, z)"
    assert [page["sections"][tasks["section"][2]][key] for key in ("name", "parent", "depth")] == ["inner", 0, 1]
    counts = tasks["numAccesses"]
    used = [(page["data"]["name"][a >> 3], a & 7) for a in tasks["accesses"][sum(counts[:2]) : sum(counts[:3])]]
    assert used == [("x", 1), ("y", 1), ("z", 2)]
    first = sum(tasks["numBefore"][:2])
    assert sorted(2 - before for before in tasks["before"][first : first + tasks["numBefore"][2]]) == [0, 1]
    assert page["data"]["shape"] == [[1024]] * 3 and page["data"]["nbytes"] == [8192] * 3
    assert page["data"]["dtype"] == ["float64"] * 3
    spans = page["spans"]
    ran = {names[tasks["name"][task]] for task, kind in zip(spans["task"], spans["kind"], strict=True) if not kind}
    assert {"add", "combine", "look"} <= ran
    failed, skipped = page["failures"]
    assert (failed["name"], failed["why"], failed["skipped"]) == ("fail", "ValueError: <no> & never", False)
    assert failed["raised"] == f"{THIS}:{fail.fn.__code__.co_firstlineno + 2}"
    assert skipped["why"].startswith("task 'fail' (test_seeing.py:") and skipped["skipped"] and not skipped["raised"]
    assert dict(page["statistics"]["tasks"])["task"] == 6
    routes = [page["places"][place] for place in page["operations"]["source"]]
    brought = list(zip(page["operations"]["kind"], routes, strict=True)).count(("copy", "host"))
    assert brought == (0 if ctx_factory.shares_host else 2)


@pytest.mark.not_captured("tasks that are nodes of one graph have no times of their own")
def test_report_knows_when_tasks_were_submitted_and_what_was_copied_for_them(ctx_factory, tmp_path):
    ctx = ctx_factory(observe=True)
    x, y = (ctx.logical_data(np.zeros(1 << 10), name=n) for n in "xy")
    for _ in range(3):
        for number in range(len(ctx.devices)):
            add.on(number)(x)
            add.on(number)(y)
    ctx.synchronize()
    page = report_content(ctx.report(tmp_path / "run.html"))
    spans, operations = page["spans"], page["operations"]
    submitted = np.cumsum(page["tasks"]["submitted"])
    starts = np.cumsum(spans["start"])
    assert (np.diff(submitted) > 0).all() and submitted[0] >= 0 and min(starts) >= 0
    copies = [index for index, kind in enumerate(spans["kind"]) if kind == 1]
    assert len(copies) == operations["kind"].count("copy") == sum(ctx.statistics().copies.values())
    assert sorted(spans["operation"][i] for i in copies) == [i for i, k in enumerate(operations["kind"]) if k == "copy"]
    first_start = {}
    for start, task, kind in zip(starts, spans["task"], spans["kind"], strict=True):
        if not kind:
            first_start.setdefault(task, start)
            assert is_cuda(ctx) or start >= submitted[task]
    for index in copies:
        operation = spans["operation"][index]
        task = operations["task"][operation]
        assert spans["task"][index] == task
        assert task >= 0 or ctx_factory.options["use_graph"]  # a graph brings what its first tasks need
        if task >= 0 and not is_cuda(ctx):  # there the clocks of the host and the device differ a little
            assert starts[index] + spans["duration"][index] <= first_start[task]
        name = page["data"]["name"][operations["data"][operation]]
        assert page["names"][spans["name"][index]] == f"copy {name}"


@pytest.mark.parametrize(("observe", "missing"), [(False, "tasks and times"), ("dot", "times"), ("trace", "tasks")])
def test_report_needs_a_recording(ctx_factory, tmp_path, observe, missing):
    ctx = ctx_factory(observe=observe)
    with pytest.raises(stf.TaskStateError, match=f"no {missing} were recorded, .* open the context with observe=True"):
        ctx.report(tmp_path / "run.html")
    assert not (tmp_path / "run.html").exists()


def test_report_of_nothing_and_of_what_has_not_run(ctx_factory, tmp_path):
    ctx = ctx_factory(observe=True)
    page = report_content(ctx.report(tmp_path / "empty.html"))
    assert page["tasks"]["id"] == page["spans"]["task"] == page["failures"] == page["rows"] == []
    gate = threading.Event()

    @stf.task
    def hold(x: stf.ReadWrite):
        assert gate.wait(30)

    x = ctx.logical_data(np.zeros(2))
    hold.on(queued(ctx))(x)
    assert ">1 tasks had not run when this was written" in ctx.report(tmp_path / "early.html").read_text("utf-8")
    gate.set()
    ctx.synchronize()
    assert "had not run when" not in ctx.report(tmp_path / "late.html").read_text("utf-8")


def test_report_without_a_path_is_shown_in_a_notebook(ctx_factory, tmp_path):
    ctx = ctx_factory(observe=True)
    add.named('"><script>alert(1)</script>')(ctx.logical_data(np.zeros(2)))
    ctx.synchronize()
    page = ctx.report()
    shown = page._repr_html_()
    assert shown.startswith("<iframe ") and shown.count("<") == 2 and page.html.startswith("<!DOCTYPE html>")
    written = page.write(tmp_path / "run.html")
    assert written.read_text("utf-8") == page.html
    assert '"><script>alert(1)</script>' in report_content(written)["names"]
    assert "alert(1)" not in page.html


@pytest.mark.parametrize("name", ["run.html", "run.json", "run.pftrace", "run.dot", "run.csv", "run.svg", "run.png"])
def test_an_interrupted_write_leaves_the_file_of_before(ctx_factory, tmp_path, monkeypatch, name):
    if name == "run.svg":
        needs_graphviz()
    if name == "run.png":
        pytest.importorskip("matplotlib")
    ctx = ctx_factory(observe=True)
    add(ctx.logical_data(np.zeros(2), name="x"))
    ctx.synchronize()
    path = tmp_path / name
    monkeypatch.setattr("stf.config.dot_file", str(path))
    monkeypatch.setattr("stf.contexts.observing.written", {})
    write = {
        "run.html": lambda: ctx.report(path),
        "run.dot": lambda: write_pictures(ctx),
        "run.csv": lambda: ctx.dot(stats_file=path),
        "run.svg": lambda: draw.render(ctx.dot(), path),
        "run.png": lambda: draw.timeline(ctx.trace(), path),
    }.get(name, lambda: ctx.trace(path))
    path.write_text("of before")

    def interrupt(*paths):
        assert paths[0].stat().st_size > 30, "all is written when the files are exchanged"
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write()
    assert path.read_text() == "of before" and list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr("stf.contexts.observing.written", {})
    path.chmod(0o640)
    write()
    assert path.stat().st_size > 30 and list(tmp_path.iterdir()) == [path] and path.stat().st_mode & 0o777 == 0o640


def test_a_report_goes_through_links_and_into_what_is_no_plain_file(ctx_factory, tmp_path):
    page, pipe = ctx_factory(observe=True).report(), tmp_path / "pipe"
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    page.write(tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "real.html").read_text("utf-8") == page.html
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text("utf-8")))
    reader.start()
    page.write(pipe)
    reader.join(30)
    assert read == [page.html] and pipe.is_fifo()
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*none to write run.html in; make it first"):
        page.write(tmp_path / "none" / "run.html")
    with pytest.raises(IsADirectoryError, match="is a folder; pass the path of a file in it"):
        page.write(tmp_path)


def test_large_graphs_are_merged_by_section_and_then_cut(ctx_factory):
    pytest.importorskip("matplotlib")
    needs_graphviz()
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    for step in range(3):
        with ctx.dot_section(f"step {step}"):
            for _ in range(2):
                with ctx.dot_section("inner"):
                    for _ in range(4):
                        add(x)
    assert fitting_depth(ctx._dot, 24) == (None, 24)
    assert fitting_depth(ctx._dot, 23) == (1, 6)
    assert fitting_depth(ctx._dot, 5) == (0, 3)
    assert fitting_depth(ctx._dot, 2) == (0, 3)
    assert "more than 1 others" in graph_picture(ctx._dot, 10) and "<img" in graph_picture(ctx._dot, 10)
    assert "A section is one node." in graph_picture(ctx._dot, 4)
    assert "These are the first 2 of 3 nodes" in graph_picture(ctx._dot, 2)
    assert len(ctx._dot.graph(max_nodes=5).nodes) == 5
    assert ctx.dot(max_nodes=2).count('label="add') == 2
    with pytest.raises(ValueError, match="max_nodes is 0"):
        ctx.dot(max_nodes=0)


def test_with_blocks_are_on_the_timeline(ctx_factory):
    ctx = ctx_factory(observe="trace")
    x = ctx.logical_data(np.zeros(2))
    with ctx.task(queued(ctx), x.rw(), name="inline"):
        pass
    with pytest.raises(KeyError), ctx.task(queued(ctx), x.rw(), name="raises"):
        raise KeyError
    handle = ctx.task(queued(ctx), x.write(), name="handle").start()
    handle.end()
    add.on(queued(ctx))(x)
    ctx.synchronize()
    spans = [event for event in ctx.trace()["traceEvents"] if event["ph"] == "X" and event["cat"] == "task"]
    assert sorted(span["name"] for span in spans) == ["add", "handle", "inline", "raises"]
    assert {span["pid"] for span in spans} == {0 if is_cuda(ctx) else 1}  # the host, or the device


# -- notebooks -----------------------------------------------------------------------------------------------------


def test_a_context_shows_its_statistics_and_graph(ctx_factory):
    pytest.importorskip("matplotlib")
    needs_graphviz()
    plain, observed = ctx_factory(), ctx_factory(observe="dot", name="<a>")
    for ctx in (plain, observed):
        add(ctx.logical_data(np.zeros(2), name="x"))
        ctx.synchronize()
    assert "<td>task</td>" in plain._repr_html_() and "<img" not in plain._repr_html_()
    shown = observed._repr_html_()
    assert "&lt;stf.Context &#x27;&lt;a&gt;&#x27;" in shown and "data:image/svg+xml;base64," in shown
    observed.finalize()
    assert "1 tasks" in observed._repr_html_()


def test_a_context_of_many_tasks_shows_its_statistics_alone(ctx_factory, monkeypatch):
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    for _ in range(2_100):
        add(x)
    monkeypatch.setattr(DotRecorder, "_read", lambda recorder: pytest.fail("goes through all that was recorded"))
    shown = ctx._repr_html_()
    monkeypatch.undo()
    assert "<td>task</td>" in shown and "ctx.report()</code> shows them" in shown and "<img" not in shown


def test_why_looks_at_the_times_of_one_task_and_finds_it_at_once(ctx_factory, monkeypatch):
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    tasks = [ctx.task(x.rw(), name=f"t{number}") for number in range(50)]
    for task in tasks:
        with task:
            pass
    ctx.synchronize()
    reads = []
    read = DotRecorder._read
    monkeypatch.setattr(DotRecorder, "_read", lambda recorder: (reads.append(1), read(recorder)))
    monkeypatch.setattr(DotRecorder, "durations", lambda recorder: pytest.fail("looks at all times"))
    assert "after task 't3'" in stf.why(tasks[4]) and "after task 't3'" in ctx.why("t4")
    assert len(reads) < 20, "not for each task"


def test_a_data_shows_its_history(ctx):
    x, token = ctx.logical_data(np.zeros(2), name="<x>"), ctx.token()
    add(x)
    assert "&lt;x&gt;" in x._repr_html_() and "task &#x27;add&#x27;" in x._repr_html_()
    assert "token" in token._repr_html_()
    assert "<table" in ctx.logical_data_empty(3)._repr_html_()
    x.release()
    assert x._repr_html_() is not None


def test_a_task_shows_why(ctx_factory):
    ctx = ctx_factory(observe="dot")
    with ctx.task(ctx.logical_data(np.zeros(2), name="x").rw(), name="<t>") as t:
        assert "reads and writes x" in t._repr_html_()
    assert t._repr_html_().startswith("<pre>task &#x27;&lt;t&gt;&#x27;")


def test_dot_text_shows_the_picture(ctx_factory):
    pytest.importorskip("matplotlib")
    needs_graphviz()
    ctx = ctx_factory(observe="dot")
    add(ctx.logical_data(np.zeros(2), name="x"))
    assert "<svg" in ctx.dot()._repr_svg_()
    assert type(ctx.dot()).__mro__[1] is str and ctx.dot().startswith("digraph")


def test_what_a_notebook_shows_never_raises(ctx_factory, monkeypatch, caplog):
    ctx = ctx_factory(observe="dot")
    x = ctx.logical_data(np.zeros(2), name="x")
    with ctx.task(x.rw()) as t:
        pass

    def broken(*args, **kwargs):
        raise RuntimeError("broken")

    for name in ("to_dot", "graph", "duration_of"):
        monkeypatch.setattr(DotRecorder, name, broken)
    monkeypatch.setattr(draw, "render", broken)
    monkeypatch.setattr(type(x), "history", broken)
    with caplog.at_level(logging.DEBUG, logger="stf"):
        assert ctx._repr_html_() is None
        assert x._repr_html_() is None
        assert t._repr_html_() is None
        assert stf.contexts.observing.DotText("digraph {}")._repr_svg_() is None
    assert sum("could not be shown as HTML" in record.message for record in caplog.records) == 4


def test_an_observer_hears_of_failures_beside_others(ctx_factory):
    ctx = ctx_factory(observe=True)
    assert isinstance(ctx.engine.observer, Observers)
    fail.on(queued(ctx))(ctx.logical_data(np.zeros(2)))
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    assert [failure.description for failure in ctx._dot.failures] == ["ValueError: <no> & never"]


def test_tables_escape_what_they_show():
    shown = table(("<a>", "n"), [("<b>", 3), ("c", 4)])
    assert "<b>" not in shown and "&lt;a&gt;" in shown
    assert shown.count("text-align: right") == 3


def test_why_says_when_a_task_was_ready_and_when_it_started(ctx_factory):
    with ctx_factory(observe=True) as ctx:
        data = [ctx.logical_data(np.zeros(4)) for _ in range(2)]
        for x in data:
            ctx.host_launch(x.rw(), fn=lambda x: time.sleep(0.01), name="first")
        ctx.host_launch(*[x.rw() for x in data], fn=lambda x, y: None, name="second")
        ctx.synchronize()
        told = ctx.why("second")
    assert re.search(r"ready after [\d.]+ ms; the last thing it waited for: task first \(test_seeing.py:\d+\)", told)
    started = re.search(r"started ([\d.]+) (ns|µs|ms) later", told)
    assert started is None or started[2] != "ms" or float(started[1]) < 1000


@pytest.mark.not_captured("tasks that are nodes of one graph have no times of their own")
def test_why_of_a_task_and_of_its_name_say_the_same(ctx_factory):
    with ctx_factory(observe=True) as ctx:
        x = ctx.logical_data(np.zeros(4))
        with ctx.task(x.rw(), name="first"):
            pass
        with ctx.task(x.rw(), name="second") as second:
            pass
        ctx.synchronize()
        assert stf.why(second) == ctx.why(second) == ctx.why("second")
        assert "the last thing it waited for" in stf.why(second)
