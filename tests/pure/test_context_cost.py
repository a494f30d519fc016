"""What opening and ending a context costs: calls of Python functions, and objects, counted and not timed."""

from __future__ import annotations

import collections
import contextvars
import gc
import os
import sys
import threading
import weakref

import numpy as np
import pytest

import stf
from stf._engine import engine

FOLDER = os.path.dirname(stf.__file__) + os.sep
MOST_CALLS = 24  # of functions that are not compiled
compiled = not engine.__file__.endswith(".py")


def open_and_end() -> None:
    with stf.context(devices="cpu"):
        pass


@pytest.mark.skipif(not compiled, reason="what is counted is compiled")
def test_a_context_that_does_nothing_calls_few_functions() -> None:
    """What most contexts never need is looked for in compiled code, or made when it is needed."""
    calls: collections.Counter[str] = collections.Counter()

    def count(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
            calls[frame.f_code.co_qualname] += 1

    open_and_end()
    sys.setprofile(count)
    try:
        open_and_end()
    finally:
        sys.setprofile(None)
    assert sum(calls.values()) <= MOST_CALLS, sorted(calls.items())


def test_a_context_that_has_ended_leaves_nothing() -> None:
    """Neither objects nor work for the garbage collector."""
    for _ in range(3):
        open_and_end()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(8):
            open_and_end()
        assert len(gc.get_objects()) - before < 8
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.skipif(stf.config.pure, reason="uncompiled objects have dictionaries, which are counted too")
def test_what_a_gathered_task_leaves_for_the_collector():
    """Python's collector goes through it again and again: six lists a task were most of what 100,000 tasks took."""

    @stf.task
    def empty(x: stf.ReadWrite):
        pass

    with stf.context(devices="cpu", use_graph=True) as ctx:
        x = ctx.logical_data_zeros(4)
        empty(x)
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            for _ in range(100):
                empty(x)
            assert len(gc.get_objects()) - before <= 100 * 5 + 20
        finally:
            gc.enable()


@pytest.mark.skipif(stf.config.pure, reason="uncompiled objects have dictionaries, which are counted too")
def test_tasks_that_wait_leave_nothing_for_the_collector():
    """One list a task made full collections of a backlog of 16,000 tasks: up to half of the time of submitting it."""
    left = contextvars.Context().run(left_by_tasks_that_wait)  # with variables of pytest's each task would keep a copy
    assert left <= 20


@stf.task
def keep_back(x: stf.ReadWrite, may_go):
    may_go.wait(60)


@stf.task
def own(x: stf.ReadWrite):
    pass


@stf.task
def several(out: stf.Write, *inputs: stf.Read):
    out[:] = inputs[0]


@stf.task
def plus_one(a: stf.Read) -> stf.Like["a"]:  # noqa: F821, UP037
    return a + 1


def left_by_tasks_that_wait() -> int:
    """Return how many more objects the collector has after 300 tasks."""
    may_go = threading.Event()
    with stf.context(devices="cpu") as ctx:
        x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
        ctx.synchronize()
        keep_back(x, may_go)
        several(y, x, x)
        own(x)
        z = plus_one(x)
        gc.collect()
        gc.disable()
        try:
            before = len(gc.get_objects())
            for _ in range(100):
                own(x)
                several(y, x)
                z = plus_one(z)
            return len(gc.get_objects()) - before
        finally:
            gc.enable()
            may_go.set()


@pytest.mark.filterwarnings("ignore")  # which say that it was not finalized
@pytest.mark.parametrize("use_graph", [False, True])
def test_a_context_that_nobody_finalizes_keeps_no_memory(use_graph):
    """The collector does not look into data, so whatever they hold is given up without it."""
    freed: list[int] = []
    array = np.zeros(4).view(Watched)
    weakref.finalize(array, freed.append, 1)
    ctx = stf.context(devices="cpu:2", use_graph=use_graph)
    x, y = ctx.logical_data(array), ctx.logical_data_zeros(4)
    plus_one(plus_one.on(1)(x))
    several(y, x)
    del ctx, x, y, array
    gc.collect()
    assert freed == [1]


def test_what_a_failed_body_had_is_given_up_with_the_context():
    """A failure keeps its traceback, and that the variables of the body: data among them, which know of the failure."""
    freed: list[int] = []

    def submit(ctx):
        x, array = ctx.logical_data_zeros(4), np.zeros(4).view(Watched)
        weakref.finalize(array, freed.append, 1)

        def body(values):
            raise ValueError(array, x)

        ctx.task(x.rw())(body)

    with pytest.raises(stf.TaskFailedError), stf.context(devices="cpu:2") as ctx:
        submit(ctx)
    del ctx
    gc.collect()
    assert freed == [1]


class Watched(np.ndarray):  # type: ignore[type-arg]
    """An array that somebody may watch."""
