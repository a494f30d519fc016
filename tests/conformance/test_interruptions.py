"""Exceptions out of nowhere, such as Ctrl-C, wherever a block is entered or left; and contexts that end beside threads."""

from __future__ import annotations

import gc
import linecache
import pathlib
import sys
import threading
import time
import types

import numpy as np
import pytest
from helpers import QUICK, add, increment

import stf
from stf.errors import GraphClosedError

PACKAGE = str(pathlib.Path(stf.__file__).parent)


def is_in_finalizer(frame):
    """What is raised there reaches nobody."""
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "<lambda>") and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


class Interruption:
    """Raises KeyboardInterrupt at the n-th line of ours that this thread comes to."""

    def __init__(self, n):
        self.left = n

    def __enter__(self):
        sys.settrace(self.call)
        return self

    def __exit__(self, kind, error, trace):
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def call(self, frame, event, _):
        return self.line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def line(self, frame, event, _):
        if event == "line" and self.left > 0 and not is_in_finalizer(frame):
            if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
                return self.line  # also told before it is left, where Python looks for no signals
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.line


def repeat(ctx, x, s):
    with ctx.repeat(2):
        increment(x)


def while_loop(ctx, x, s):
    with ctx.while_loop(s < 2) as loop:
        increment(s)
    del loop


def branches(ctx, x, s):
    with ctx.if_(s > 0) as branch:
        increment(x)
    with branch.else_():
        increment(s)


def scope(ctx, x, s):
    with ctx.graph_scope():
        increment(x)


def graph(ctx, x, s):
    g = ctx.task_graph()
    with g:
        increment(x)
    g.launch()
    g.close()


def replay(ctx, x, s):
    @stf.replay
    def step(x):
        increment(x)

    for _ in range(3):
        step(x)
    step.close()


def nested(ctx, x, s):
    with ctx.graph_scope(), ctx.repeat(2), ctx.if_(s < 1):
        increment(x)


@pytest.mark.skipif(stf.config.pure, reason="uncompiled, the engine itself is interrupted too")
@pytest.mark.parametrize("program", [repeat, while_loop, branches, scope, graph, replay, nested])
def test_an_interruption_leaves_the_context_usable(request, ctx_factory, program):
    step = 223 if QUICK else 60 if "cuda" in request.node.name else 13
    n = 1
    while True:
        contents = np.zeros(4), np.zeros(())
        ctx = ctx_factory()
        x, s = ctx.logical_data(contents[0], name="x"), ctx.logical_data(contents[1], name="s")
        increment(x)
        interruption = Interruption(n)
        with interruption:
            program(ctx, x, s)
        if interruption.left:
            ctx.finalize()
            break
        gc.collect()
        for data in (x, s):
            try:
                data.numpy()
            except stf.TaskFailedError:  # its launch had begun
                data.accept()
        before = x.numpy()[0]
        increment(x)
        assert x.numpy().tolist() == [before + 1] * 4, interruption.where
        ctx.finalize()
        assert contents[0].tolist() == [before + 1] * 4, interruption.where
        n += step
    assert n > 60


@pytest.mark.skipif(stf.config.pure, reason="uncompiled, the engine itself is interrupted too")
def test_an_interrupted_freeze_lends_nothing(ctx):
    x = ctx.logical_data(np.zeros(4), name="x")
    n = 1
    while True:
        lent, interruption = None, Interruption(n)
        with interruption:
            lent = ctx.freeze(x)
        if lent is not None:
            lent.unfreeze()
        if interruption.left:
            break
        try:
            increment(x)
        except stf.TaskFailedError:  # what was gathered was not launched, and that is told
            x.accept()
            increment(x)
        ctx.submit()
        n += 1
    assert n > 10


@pytest.mark.skipif(stf.config.pure, reason="uncompiled, the engine itself is interrupted too")
def test_what_is_gathered_is_launched_or_told(ctx_factory):
    """Wherever an interruption comes: no task is lost in silence, and the context goes on."""
    n = 1
    while True:
        content = np.zeros(4)
        with ctx_factory() as ctx:
            x = ctx.logical_data(content, name="x")
            increment(x)
            increment(x)
            interruption = Interruption(n)
            with interruption:
                ctx.submit()
            try:
                increment(x)
                assert x.numpy().tolist() == [3.0] * 4, interruption.where
            except stf.TaskFailedError:
                x.accept()
                increment(x)
                assert x.numpy()[0] in (1.0, 3.0), interruption.where
        if interruption.left:
            break
        n += 1


def submit(ctx, x, g):
    increment(x)


def record(ctx, x, g):
    with ctx.task_graph() as made:
        increment(x)
    made.launch()
    made.close()


def gather(ctx, x, g):
    with ctx.graph_scope():
        increment(x)


def loop(ctx, x, g):
    with ctx.repeat(1):
        increment(x)


def launch(ctx, x, g):
    g.launch()


@pytest.mark.parametrize("program", [submit, record, gather, loop, launch])
def test_a_context_ends_while_another_thread_submits(ctx_factory, program):
    """What that thread has submitted is done, and nothing of what was done before is lost."""
    for _ in range(3):
        content, other = np.zeros(4), np.zeros(4)
        with ctx_factory() as ctx:
            x, y = ctx.logical_data(content), ctx.logical_data(other)
            increment(y)
            with ctx.task_graph() as g:
                increment(x)
            done, told = [0], []

            def work():
                try:
                    while True:
                        program(ctx, x, g)
                        done[0] += 1
                except Exception as error:
                    told.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            while done[0] < 3 and not told:
                time.sleep(0.001)
        thread.join(20)
        assert not thread.is_alive()
        assert isinstance(told[0], stf.ContextClosedError | GraphClosedError), told
        assert other.tolist() == [1.0] * 4
        assert content[0] - done[0] in (0, 1) and done[0] >= 3, (content, done)


def test_a_block_that_is_open_in_a_thread_that_is_gone(ctx, lX):
    def work():
        block = ctx.repeat(2)
        block.__enter__()
        increment(lX)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    start = time.monotonic()
    increment(lX)
    assert lX.numpy()[0] == 1 and time.monotonic() - start < 10


@pytest.mark.parametrize("verb", ["release", "freeze", "tiles", "accept"])
@pytest.mark.parametrize("block", ["repeat", "graph_scope"])
def test_a_block_that_nobody_ended_is_forgotten_by_who_moves_data(ctx, lX, block, verb):
    lY = ctx.logical_data(np.zeros(4))
    left = ctx.repeat(2) if block == "repeat" else ctx.graph_scope()
    left.__enter__()
    increment(lX)
    del left
    start = time.monotonic()
    if verb == "freeze":
        ctx.freeze(lY).unfreeze()
    elif verb == "tiles":
        lY.tiles((2,))
    else:
        getattr(lY, verb)()
    assert time.monotonic() - start < 10
    assert lX.numpy()[0] == 0


def test_a_context_waits_for_a_task_that_another_thread_has_open(ctx_factory):
    content = np.zeros(4)
    begun = threading.Event()
    with ctx_factory() as ctx:
        x = ctx.logical_data(content)

        def work():
            with ctx.task(stf.exec_place.host(), x.rw()) as t:
                begun.set()
                time.sleep(0.3)
                t.numpy()[0][...] += 5

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait(10)
    thread.join()
    assert content.tolist() == [5.0] * 4


def test_resources_that_a_context_uses_stay_open():
    shared, content = stf.Resources(), np.zeros(4)
    with stf.context(devices="cpu:2", resources=shared) as ctx:
        x = ctx.logical_data(content)
        increment(x)
        with pytest.raises(stf.TaskStateError, match="resources cannot be closed while .* uses them"):
            shared.close()
        increment(x)
    assert content.tolist() == [2.0] * 4
    shared.close()


@pytest.mark.parametrize("kind", ["repeat", "while_loop", "if_", "graph_scope", "task_graph"])
def test_a_block_that_is_left_twice(ctx, lX, kind):
    s = ctx.logical_data(np.ones(()))
    block = {
        "repeat": lambda: ctx.repeat(1),
        "while_loop": lambda: ctx.while_loop(s < 1),
        "if_": lambda: ctx.if_(s > 0),
        "graph_scope": ctx.graph_scope,
        "task_graph": ctx.task_graph,
    }[kind]()
    with block:
        increment(lX)
    block.__exit__(None, None, None)
    increment(lX)
    assert lX.numpy()[0] == {"while_loop": 1, "task_graph": 1}.get(kind, 2)


def test_values_of_parameters_that_change_in_place(ctx, lX):
    """A launch takes what is in them then."""

    @stf.task
    def add_first(x: stf.ReadWrite, items):
        x += float(items[0])

    for made in (lambda k: [k], lambda k: np.array([k]), lambda k: {0: k}):
        items, want = made(1.0), lX.numpy()[0]
        g = ctx.task_graph()
        p = g.param("items", items)
        with g:
            add_first(lX, p)
        for k in (1.0, 10.0, 100.0, 100.0, 3.0):
            items[0] = k
            g.launch(items=items)
            want += k
            assert lX.numpy()[0] == want
        g.close()


def test_data_of_a_replayed_function_are_split_and_released(ctx, lX, lY):
    @stf.replay
    def step(x, y):
        add(x, y, 1.0)

    for _ in range(4):
        step(lX, lY)
    tiles = lX.tiles((2,))
    assert len(tiles) == 2 and "given up" in step.explain()
    del tiles
    for _ in range(4):
        step(lX, lY)
    lY.release()
    assert lX.numpy()[1] == 8
    with pytest.raises(stf.AccessError, match="was released"):
        step(lX, lY)


def test_no_python_code_runs_when_the_collector_calls(ctx):
    found = [callback for callback in gc.callbacks if getattr(callback, "__module__", None) not in (None, "builtins")]
    mine = [callback for callback in found if callback.__module__.startswith("stf.")]
    assert not any(isinstance(callback, (types.FunctionType, types.MethodType)) for callback in mine)
