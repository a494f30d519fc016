"""Windows of tasks that come again are replayed (``replay="auto"``), and nothing else changes."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
from helpers import is_cuda, runs_kernels

import stf

RATE, TABLE = 0.5, {"rate": 0.5}


@stf.task(pure=True)
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


@stf.task(pure=True)
def scale(a, x: stf.ReadWrite):
    x *= a


@stf.task(pure=True)
def drift(x: stf.ReadWrite):
    x += RATE


@stf.task(pure=True)
def drift_by_table(x: stf.ReadWrite):
    x += TABLE["rate"]


@stf.task(pure=True)
def times(a, x: stf.Read) -> stf.New["(n)->(n)"]:  # noqa: F722
    return a * x


@stf.task(pure=True)
def checked(limit, x: stf.ReadWrite):
    if limit < 0:
        raise ValueError("below zero")
    x += 1.0


@pytest.fixture
def auto(ctx_factory, monkeypatch):
    """A context that replays, whose tasks the program alone releases; graph contexts gather tasks, and replay nothing."""
    monkeypatch.setattr("stf.tasks.window.IDLE_S", 3600.0)
    return lambda **options: ctx_factory(replay="auto", **options)


def replayed(ctx):
    words = ctx.explain().split()
    return int(words[1]) if words[0].startswith("replay=") else 0


def is_replayed(ctx, least):
    """Whether so many tasks were replayed, where windows are."""
    return ctx.finder is None or replayed(ctx) >= least


def step(ctx, x, y, z, a=0.25, b=0.5):
    axpy(a, x, y)
    scale(b, y)
    axpy(0.125, y, z)
    ctx.copy(z, x)
    scale(0.5, x)


def data_of(ctx, count=3, size=4):
    return [ctx.logical_data(np.arange(size) + float(i)) for i in range(count)]


def expected(turns, numbers=lambda k: (0.25, 0.5), size=4, swap=False):
    x, y, z = (np.arange(size) + float(i) for i in range(3))
    for k in range(turns):
        a, b = numbers(k)
        y += a * x
        y *= b
        z += 0.125 * y
        x[...] = z
        x *= 0.5
        if swap:
            x, y = y, x
    return [x, y, z]


def same(data, arrays):
    return all(np.array_equal(d.numpy(), a) for d, a in zip(data, arrays, strict=True))


def test_a_loop_is_recorded_at_the_third_time(auto):
    ctx = auto()
    data = data_of(ctx)
    for _ in range(20):
        step(ctx, *data)
    assert same(data, expected(20))
    assert is_replayed(ctx, 18 * 5)
    if ctx.finder is not None:
        assert "5 tasks from test_auto_replay.py:" in ctx.explain()
        assert "launched 18 times" in ctx.explain()
    ctx.check_state()


def test_a_wait_in_each_turn_bounds_the_windows(auto):
    ctx = auto()
    data = data_of(ctx)
    for k in range(12):
        step(ctx, *data)
        assert np.array_equal(data[2].numpy(), expected(k + 1)[2])
    assert is_replayed(ctx, 9 * 5)


def test_a_window_that_a_wait_cuts_begins_behind_it(auto):
    ctx = auto()
    x, y, z = data_of(ctx)
    scale(0.5, x)
    axpy(0.25, x, y)  # the period is found in the middle of the loop
    for k in range(60):
        step(ctx, x, y, z)
        if k % 10 == 9:
            z.numpy()
    assert is_replayed(ctx, 50 * 5)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("numbers", [lambda k: (k / 8, 0.5), lambda k: (0.25, 0.5 if k < 9 else 0.75)])
def test_numbers_and_data_may_be_others_in_each_turn(auto, numbers, swap):
    ctx = auto()
    data = data_of(ctx)
    for k in range(20):
        step(ctx, *data, *numbers(k))
        if swap:
            data[:2] = data[1], data[0]
    assert same(data, expected(20, numbers, swap=swap))
    assert is_replayed(ctx, 50)


def test_data_that_are_made_anew_in_each_turn(auto):
    ctx = auto()
    x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
    for k in range(24):
        made = times(0.5, x)
        again = times(0.25, made)
        axpy(1.0, made, y)
        axpy(k / 4, again, y)
        del made, again
    assert np.array_equal(y.numpy(), np.full(4, 24 * 0.5 + sum(k / 4 for k in range(24)) / 8))
    assert is_replayed(ctx, 40)


def test_data_of_another_shape_are_not_replayed(auto):
    ctx = auto()
    for size in (4, 6, 4):
        data = data_of(ctx, size=size)
        for _ in range(7):
            step(ctx, *data)
        assert same(data, expected(7, size=size))


def test_what_a_body_reads_is_compared(auto, monkeypatch):
    ctx = auto()
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    total = 0.0
    for k in range(24):
        if k == 14:
            monkeypatch.setattr(sys.modules[__name__], "RATE", 4.0)
            monkeypatch.setitem(TABLE, "rate", 4.0)
        bound = 1.0 if k < 9 else 2.0

        @stf.task(pure=True)
        def by_closure(x: stf.ReadWrite):
            x += bound

        drift(x)
        drift_by_table(y)
        by_closure(x)
        scale(1.0, y)
        if k == 13 and not is_cuda(ctx):
            ctx.synchronize()  # bodies read `TABLE` when they run
        total += RATE
    assert np.array_equal(x.numpy(), np.full(2, total + 9 + 2 * 15))
    assert np.array_equal(y.numpy(), np.full(2, total))


def test_a_function_that_is_not_pure_runs_in_each_turn(auto):
    ctx = auto()
    x, counted = ctx.logical_data(np.zeros(2)), []

    @stf.task
    def count(x: stf.ReadWrite):
        counted.append(1)
        x += 1.0

    for _ in range(20):
        count(x)
        for _ in range(5):
            scale(1.0, x)
    assert x.numpy()[0] == 20
    if not (ctx.finder is None and is_cuda(ctx)):  # a graph context captures it
        assert len(counted) == 20


def test_arguments_that_change_in_place_are_not_replayed(auto):
    ctx = auto()
    x, steps = ctx.logical_data(np.zeros(2)), [0.0]

    @stf.task(pure=True)
    def add(given, x: stf.ReadWrite):
        x += given[0]

    for k in range(20):
        steps[0] = float(k)
        for _ in range(5):
            add(steps, x)
        ctx.synchronize()
    assert x.numpy()[0] == 5 * sum(range(20))


# -- failures and handles ------------------------------------------------------------------------------------------


@pytest.mark.at_once("its own failures are told when it is launched")
def test_a_task_that_fails_in_a_window_names_its_call(auto):
    ctx = auto()
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    handle = None
    with pytest.raises(stf.TaskFailedError, match=r"'checked' \(test_auto_replay.py:\d+\) failed with ValueError"):
        for k in range(20):
            scale(1.0, x)
            handle = checked(1 if k < 12 else -1, x)
            line = sys._getframe().f_lineno - 1
            scale(1.0, y)
            axpy(1.0, x, y)
        ctx.synchronize()
    assert handle is not None
    with pytest.raises(stf.TaskFailedError) as told:
        x.numpy()
    assert f":{line})" in str(told.value)
    ctx.fill(x, 0.0)
    ctx.fill(y, 0.0)
    for _ in range(10):
        scale(1.0, x)
        checked(1, x)
        scale(1.0, y)
        axpy(1.0, x, y)
    assert (x.numpy()[0], y.numpy()[0]) == (10, 55)
    ctx.check_state()


@pytest.mark.at_once("handles of what is gathered are of one graph")
def test_handles_of_tasks_in_windows(auto):
    ctx = auto()
    data = data_of(ctx)
    handles = []
    for _ in range(10):
        handles.append(axpy(0.25, data[0], data[1]))
        for _ in range(4):
            handles.append(scale(0.5, data[1]))
    handles.append(axpy(0.25, data[0], data[1]))  # held, and then asked
    handles[-1].result()
    ctx.synchronize()
    assert all(handle.done() and handle.exception() is None and not handle.cancel() for handle in handles)
    assert all(handle.label() and ":" in handle.call_site for handle in handles)


def test_what_nobody_wrote_is_an_error_that_names_the_call(auto):
    ctx = auto()
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    for _ in range(8):
        for data in (x, y, x, y):
            axpy(1.0, data, y)
    empty = ctx.logical_data_empty(2)
    with pytest.raises(stf.UninitializedDataError, match="axpy"):
        for _ in range(8):
            for data in (x, y, empty, y):
                axpy(1.0, data, y)
        ctx.synchronize()


@pytest.mark.at_once("a graph context launches at its end")
def test_an_exception_cancels_what_is_held(ctx_factory):
    array = np.zeros(2)
    with pytest.raises(ZeroDivisionError), ctx_factory(replay="auto") as ctx:
        x = ctx.logical_data(array)
        for _ in range(10):
            for _ in range(5):
                scale(1.0, x)
        axpy(1.0, ctx.logical_data(np.ones(2)), x)
        1 / 0


def test_cancel_and_events_and_freeze_see_what_is_held(auto):
    ctx = auto()
    data = data_of(ctx)
    for k in range(12):
        step(ctx, *data)
        if k == 8:
            scale(1.0, data[0])
            assert sum(ctx.statistics().tasks.values()) > 0
        if k == 9:
            scale(1.0, data[0])
            with ctx.freeze(data[0]) as frozen:
                assert frozen is not None
        if k == 10:
            scale(1.0, data[0])
            ctx.fence().synchronize()
    assert same(data, expected(12))


def test_data_are_dropped_while_their_tasks_are_held(auto):
    ctx = auto()
    y = ctx.logical_data(np.zeros(4))
    for _ in range(12):
        x = ctx.logical_data(np.ones(4))
        for _ in range(5):
            axpy(1.0, x, y)
        del x
    assert y.numpy()[0] == 60
    ctx.check_state()


# -- who releases --------------------------------------------------------------------------------------------------


def test_held_tasks_begin_when_nothing_comes(ctx_factory):
    ctx = ctx_factory(replay="auto")
    if ctx.finder is None:
        pytest.skip("nothing is held")
    data = data_of(ctx)
    for _ in range(6):
        step(ctx, *data)
    scale(1.0, data[0])
    axpy(0.25, data[0], data[1])
    deadline = time.monotonic() + 20
    while ctx.finder.held and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not ctx.finder.held
    assert np.array_equal(data[1].numpy(), (lambda r: r[1] + 0.25 * r[0])(expected(6)))


def test_threads_that_submit_together(ctx_factory):
    ctx = ctx_factory(replay="auto")
    mine, its = data_of(ctx), data_of(ctx)
    shared = ctx.logical_data(np.zeros(4))
    one = ctx.logical_data(np.ones(4))

    def run(data):
        for _ in range(30):
            step(ctx, *data)
            axpy(1.0, one, shared)

    other = threading.Thread(target=run, args=(its,))
    other.start()
    run(mine)
    other.join()
    assert same(mine, expected(30))
    assert same(its, expected(30))
    assert shared.numpy()[0] == 60
    ctx.check_state()


def test_another_thread_goes_on_with_the_windows(auto):
    ctx = auto()
    data = data_of(ctx)
    for _ in range(5):
        step(ctx, *data)

    def run():
        for _ in range(20):
            step(ctx, *data)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert same(data, expected(25))


# -- what else is known --------------------------------------------------------------------------------------------


def test_kernels_fills_and_assignments(auto):
    ctx = auto()
    x, y = ctx.logical_data(np.arange(4.0)), ctx.logical_data(np.zeros(4))
    s, t = ctx.logical_data(np.array(0.0)), ctx.logical_data(np.array(1.0))
    for k in range(16):
        a = k / 4
        loop = ctx.parallel_for(x.shape, x.read(), y.rw())
        total = ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))
        if not runs_kernels(ctx):
            loop, total = loop.on("host"), total.on("host")
        loop(kernel_of(a))
        total(lambda i, x: x[i])
        t.assign(t + s)
        ctx.fill(s, a)
    assert np.array_equal(y.numpy(), np.arange(4.0) * sum(k / 4 for k in range(16)))
    assert float(t.numpy()) == 1 + 16 * 6
    assert float(s.numpy()) == 15 / 4
    assert is_replayed(ctx, 40)


def kernel_of(a):
    def add(i, x, y):
        y[i] += a * x[i]

    return add


@pytest.mark.at_once("it gathers tasks")
def test_no_more_than_sixteen_recordings(auto):
    ctx = auto()
    x = ctx.logical_data(np.zeros(2))
    count = 0
    for loop in range(20):
        for _ in range(6):
            for _ in range(4 + loop):
                scale(1.0, x)
            drift(x)
            count += 1
        ctx.synchronize()
    assert x.numpy()[0] == count * RATE
    keeper = ctx.finder.keeper
    assert sum(window.graph is not None for window in keeper.windows) <= 16


def test_observed_contexts_and_watched_bodies_replay_nothing(ctx_factory):
    ctx = ctx_factory(replay="auto", observe="dot")
    data = data_of(ctx)
    for _ in range(10):
        step(ctx, *data)
    assert same(data, expected(10))
    assert replayed(ctx) == 0
    assert ctx.dot().count("axpy") >= 20


def test_random_numbers_are_other_ones_in_each_turn(ctx_factory):
    found = []
    for replay in (None, "auto"):
        ctx = ctx_factory(replay=replay)
        if not runs_kernels(ctx):
            pytest.skip("a device fills data at random by a kernel")
        rng = ctx.random(7, name="noise")
        x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
        for _ in range(12):
            rng.uniform(x)
            axpy(1.0, x, y)
            scale(0.5, y)
            axpy(1.0, x, y)
        found.append(y.numpy())
    assert np.array_equal(*found)


def test_a_context_says_what_replay_may_be():
    with pytest.raises(ValueError, match="replay is 'auto' or None, got 'yes'"):
        stf.context(devices="cpu", replay="yes")
    with pytest.raises(ValueError, match="use one of them"):
        stf.context(devices="cpu:2", replay="auto", placement=stf.placement.planned())
    with pytest.raises(TypeError, match="pure is True or False"):
        stf.task(pure="yes")
    with stf.context(devices="cpu") as ctx:
        assert "replay='auto'" in ctx.explain()
