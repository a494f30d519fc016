"""Ranges of NVTX around tasks, launches and sections, in the thread that runs them."""

from __future__ import annotations

import sys
import threading
import types

import numpy as np
import pytest

import stf
from stf._support import profilers
from stf.observe import Observer


class Ranges:
    """In place of the package `nvtx`: what is open in each thread, and all that was opened, with what was around it."""

    def __init__(self):
        self.open = {}
        self.all = []

    def push_range(self, name):
        mine = self.open.setdefault(threading.get_ident(), [])
        self.all.append((*mine, name))
        mine.append(name)

    def pop_range(self):
        self.open[threading.get_ident()].pop()

    def around(self):
        return list(self.open.get(threading.get_ident(), ()))


@pytest.fixture
def ranges(monkeypatch):
    found = Ranges()
    module = types.SimpleNamespace(push_range=found.push_range, pop_range=found.pop_range)
    monkeypatch.setitem(sys.modules, "nvtx", module)
    monkeypatch.setattr(stf.config, "nvtx", True)
    yield found
    assert not any(found.open.values())


def test_a_body_is_in_a_range_of_its_name(ranges, ctx_factory):
    ctx = ctx_factory()
    x, seen = ctx.logical_data(np.zeros(3)), []

    @ctx.task(x.rw(), symbol="scale")
    def body(x):
        seen.append(ranges.around())
        x *= 2

    ctx.host_launch(x.read(), fn=lambda x: seen.append(ranges.around()), symbol="look")
    x.numpy()
    ctx.finalize()
    assert sorted(names[-1] for names in seen) == ["look", "scale"]
    assert len([names for names in ranges.all if names[-1] == "scale"]) == 1


def test_the_thread_that_runs_a_queued_body_says_so(ctx):
    heard, submitted = [], threading.Event()

    class Listener(Observer):
        def task(self, task):
            heard.append(("task", task.symbol, task.runs_later, threading.get_ident()))

        def began(self, task_id, name):
            heard.append(("began", name, threading.get_ident()))

        def ended(self, task_id):
            heard.append(("ended", threading.get_ident()))

    def waits(x):
        submitted.wait(30)

    x = ctx.logical_data(np.zeros(3))
    ctx.engine.observe(Listener())
    ctx.host_launch(x.rw(), fn=waits, symbol="waits")
    here = threading.get_ident()
    is_queued = heard[0][2]
    before = [] if is_queued else [("ended", here)]  # as one that was recorded
    assert [one for one in heard if one[-1] == here] == [("task", "waits", is_queued, here), *before]
    submitted.set()
    ctx.synchronize()
    ctx.engine.observe(None)
    there = [one for one in heard if one[-1] != here]
    assert [one[:-1] for one in there] == ([("began", "waits"), ("ended",)] if there else [])
    assert there or not is_queued


def test_with_blocks_and_sections_are_ranges_that_nest(ranges, ctx_factory):
    ctx = ctx_factory()
    x = ctx.logical_data(np.zeros(3))
    with ctx.dot_section("outer"), ctx.dot_section("inner"), ctx.task(x.rw(), symbol="block"):
        assert ranges.around() == ["outer", "inner", "block"]
    assert ranges.around() == []
    ctx.finalize()


def test_what_ends_before_what_was_opened_later(ranges, ctx_factory):
    ctx = ctx_factory()
    x, y = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3))
    first, second = ctx.task(x.rw(), symbol="first").start(), ctx.task(y.rw(), symbol="second").start()
    first.end()
    assert ranges.around() == ["first", "second"]
    second.end()
    assert ranges.around() == []
    third = ctx.task(x.rw(), symbol="third").start()
    thread = threading.Thread(target=third.end)
    thread.start()
    thread.join()
    with ctx.task(x.rw(), symbol="fourth"):
        assert ranges.around() == ["fourth"]
    ctx.finalize()


def test_a_body_that_raises_closes_its_range(ranges, ctx_factory):
    ctx = ctx_factory()
    x = ctx.logical_data(np.zeros(3))
    with pytest.raises(ZeroDivisionError), ctx.task(x.rw(), symbol="fails"):
        _ = 1 // 0
    assert ranges.around() == []
    x.accept()
    ctx.finalize()


def test_compiled_kernels_are_in_ranges(ranges, ctx_factory):
    ctx = ctx_factory()
    x = ctx.logical_data(np.zeros(3))

    @ctx.parallel_for(x.shape, x.rw()).on("host").set_symbol("updateA")
    def body(i, x):
        x[i] = 2 * i + 1

    assert x.numpy().tolist() == [1, 3, 5]
    ctx.finalize()
    assert [names for names in ranges.all if names[-1] == "updateA"] == [("updateA",)]


def test_without_a_profiler_the_package_is_not_loaded(run_python):
    pytest.importorskip("nvtx")
    code = "import sys, stf; stf.context(devices='cpu').finalize(); print('nvtx' in sys.modules)"
    assert run_python(code, NVTX_INJECTION64_PATH="").stdout.strip() == "False"
    assert run_python(code, NVTX_INJECTION64_PATH="/a/profiler.so").stdout.strip() == "True"
    assert run_python(code, NVTX_INJECTION64_PATH="/a/profiler.so", STF_NVTX="0").stdout.strip() == "False"


def test_a_missing_package_is_named_where_it_was_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(stf.config, "nvtx", True)
    with pytest.raises(ImportError, match="pip install nvtx"):
        stf.context(devices="cpu")
    monkeypatch.setattr(stf.config, "nvtx", None)
    monkeypatch.setattr(profilers, "is_listening", True)
    stf.context(devices="cpu").finalize()


@pytest.mark.parametrize("name", ["push_range", "pop_range"])
def test_the_package_has_what_is_called(name):
    nvtx = pytest.importorskip("nvtx")
    assert callable(getattr(nvtx, name))
