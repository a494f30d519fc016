"""Cancelling: what has not begun does not run, what runs is waited for, and the context works on."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import stf

pytestmark = pytest.mark.at_once("bodies are held back by an event")
COUNT = 20


@stf.task
def add(x: stf.ReadWrite):
    x += 1


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def hold(ctx, x, gate):
    """Submit a body that runs until the gate opens, and as many as `COUNT` after it; return when it runs."""
    runs = threading.Event()

    def first(a):
        runs.set()
        assert gate.wait(30)
        a += 1

    def later(a):
        a += 1

    ctx.host_launch(x.rw())(first)
    for _ in range(COUNT):
        ctx.host_launch(x.rw())(later)
    assert runs.wait(30)


def cancel_beside(ctx, gate):
    """Cancel while a body runs, which then ends; return how many tasks were cancelled."""
    threading.Timer(0.05, gate.set).start()
    return ctx.cancel()


def test_what_has_not_begun_is_cancelled_and_poisons(ctx, gate):
    x, y, other = (ctx.logical_data(np.zeros(2), name=name) for name in "XYZ")
    add(other)
    ctx.synchronize()  # it has begun
    hold(ctx, x, gate)
    ctx.host_launch(x.read(), y.rw())(lambda a, b: np.copyto(b, a))
    assert cancel_beside(ctx, gate) == COUNT + 1
    ctx.check_errors()  # who cancelled knows
    ctx.check_state()
    told = r"'X' .*which is poisoned: task 'later' \(test_cancel.py:\d+\) was cancelled before it began; write the data"
    with pytest.raises(stf.TaskCancelledError, match=told) as caught:
        x.numpy()
    assert caught.value.task == "'later'" and caught.value.__cause__ is None
    with pytest.raises(stf.TaskCancelledError, match="'Y'"):
        y.numpy()
    assert x.accept().numpy().tolist() == [1, 1] and other.numpy().tolist() == [1, 1]
    add(x)
    ctx.fill(y, 5)
    assert x.numpy().tolist() == [2, 2] and y.numpy().tolist() == [5, 5]
    assert ctx.cancel() == 0


def test_an_exception_in_the_block_of_a_context_cancels(ctx_factory, gate):
    home, other = np.zeros(2), np.zeros(2)
    with pytest.raises(KeyError, match="mine") as caught:
        with ctx_factory() as ctx:
            x = ctx.logical_data(home)
            add(ctx.logical_data(other))
            ctx.synchronize()
            hold(ctx, x, gate)
            threading.Timer(0.05, gate.set).start()
            raise KeyError("mine")
    (note,) = caught.value.__notes__
    assert note.startswith("cancelled before they began, since the with-block of their context raised: task 'later' (")
    assert note.endswith(f"), {COUNT} times")
    assert home.max() <= 1 and other.tolist() == [1, 1]


def test_an_exception_does_not_wait_for_the_block_of_a_daemon_thread(ctx_factory, gate):
    inside = threading.Event()

    def block(x):
        with ctx.task(x.rw()):
            inside.set()
            gate.wait(30)

    start = time.monotonic()
    with pytest.raises(KeyError, match="mine"):
        with ctx_factory() as ctx:
            held = threading.Thread(target=block, args=(ctx.logical_data(np.zeros(2)),), daemon=True)
            held.start()
            assert inside.wait(30)
            raise KeyError("mine")
    assert time.monotonic() - start < 10
    gate.set()
    held.join()


def test_cancelled_by_another_thread_while_this_one_waits(ctx, gate):
    x = ctx.logical_data(np.zeros(2))
    hold(ctx, x, gate)
    cancelled = []
    watchdog = threading.Timer(0.05, lambda: cancelled.append(cancel_beside(ctx, gate)))
    watchdog.start()
    with pytest.raises(stf.TaskCancelledError, match="was cancelled before it began"):
        x.numpy()
    watchdog.join()
    assert cancelled == [COUNT]


def test_bodies_of_a_launched_graph_are_cancelled(ctx, gate):
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    graph = ctx.task_graph()
    with graph:
        for _ in range(3):
            ctx.host_launch(y.rw())(lambda a: np.add(a, 1, a))
    hold(ctx, x, gate)
    ctx.host_launch(x.read(), y.rw())(lambda a, b: np.copyto(b, a))
    graph.launch()
    assert cancel_beside(ctx, gate) >= COUNT + 1
    with pytest.raises(stf.TaskCancelledError):
        y.numpy()
    ctx.fill(y, 0)
    graph.launch()
    assert y.numpy().tolist() == [3, 3]


@pytest.mark.not_captured("it gathers by itself")
def test_what_is_gathered_for_a_graph_is_not_launched(ctx_factory):
    home = np.zeros(2)
    with ctx_factory(use_graph=True) as ctx:
        x = ctx.logical_data(home)
        add(x)
        add(x)
        assert ctx.cancel() == 1
        with pytest.raises(stf.TaskCancelledError, match="task 'graph'"):
            x.numpy()
        assert x.accept().numpy().tolist() == [0, 0]
        add(x)
    assert home.tolist() == [1, 1]


def test_partial_results_of_tasks_that_ran_are_kept(ctx, gate):
    x = ctx.logical_data(np.zeros(2))
    total = ctx.logical_data_zeros(2)
    ctx.host_launch(total.accumulate(stf.reducer.sum))(lambda s: np.add(s, 5, s))
    ctx.synchronize()
    hold(ctx, x, gate)
    assert cancel_beside(ctx, gate) == COUNT
    assert total.numpy().tolist() == [5, 5]


def test_not_in_a_body_nor_in_a_block(ctx):
    x = ctx.logical_data(np.zeros(2))
    ctx.host_launch(x.rw())(lambda a: ctx.cancel())
    with pytest.raises(stf.TaskFailedError, match="TaskStateError: cancel inside"):
        ctx.synchronize()
    x.accept()
    with pytest.raises(stf.TaskStateError, match="cancel inside"), ctx.task(x.rw()):
        ctx.cancel()
    x.accept()
    graph = ctx.task_graph()
    with pytest.raises(stf.TaskStateError, match="cancel inside"), graph:
        ctx.cancel()
    add(x)
    ctx.finalize()
    with pytest.raises(stf.ContextClosedError):
        ctx.cancel()
