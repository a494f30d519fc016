"""Threads beside recordings: they take turns, nobody waits for what waits for it, and nothing is lost."""

from __future__ import annotations

import random
import sys
import threading
import time

import numpy as np
import pytest
from helpers import add, increment

import stf
from stf._engine import thread_turns
from stf.graphs import replay


def in_threads(count, work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_threads_replay_and_record_in_one_context(ctx):
    """Each with data of its own; recordings wait for the others' tasks, and they for recordings."""
    data = [ctx.logical_data(np.zeros(4), name=f"D{i}") for i in range(3)]

    @stf.replay
    def step(x, k):
        increment(x)
        add(x, x, k)

    def work(number):
        x = data[number]
        for i in range(40):
            step(x, float(number))
            increment(x)
            if i % 10 == 5:
                x.numpy()
            if i % 13 == 7:
                step.close()

    in_threads(3, work)
    for number, x in enumerate(data):
        expected = 0.0
        for _ in range(40):
            expected = (expected + 1) * (1 + number) + 1
        assert x.numpy()[0] == expected


def test_a_recording_waits_for_a_task_of_another_thread(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(replay, "PATIENCE_S", 10.0)
    opened, seen = threading.Event(), []

    @stf.replay
    def step(x):
        seen.append(ended.is_set())
        increment(x)

    ended = threading.Event()
    step(lX)

    def hold():
        with ctx.task(stf.exec_place.host(), lY.rw()):
            opened.set()
            recorder.start()
            recorder.join(0.2)
            ended.set()

    recorder = threading.Thread(target=lambda: step(lX))
    holder = threading.Thread(target=hold)
    holder.start()
    holder.join(30)
    recorder.join(30)
    assert seen == [False, True] and lX.numpy()[0] == 2


def test_a_call_that_gets_no_turn_runs_as_it_is(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(replay, "PATIENCE_S", 0.05)
    calls = []

    @stf.replay
    def step(x):
        calls.append(1)
        increment(x)

    step(lX)
    with ctx.task(stf.exec_place.host(), lY.rw()):
        in_threads(1, lambda _: step(lX))
    assert len(calls) == 2 and "0 recordings" in step.explain()
    step(lX)  # it rests
    assert len(calls) == 3 and "0 recordings" in step.explain()
    monkeypatch.setattr(step, "_rests_until", 0.0)
    step(lX)
    step(lX)
    assert len(calls) == 4 and "1 recordings" in step.explain() and lX.numpy()[0] == 5


def test_who_waits_too_long_for_another_thread_is_told(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(thread_turns, "PATIENCE_S", 0.05)
    descriptions = []

    def record():
        try:
            with ctx.repeat(2):
                increment(lX)
        except stf.TaskStateError as error:
            descriptions.append(str(error))

    with ctx.task(stf.exec_place.host(), lY.rw()):
        in_threads(1, lambda _: record())
    assert "repeat could not be opened for 0.05 s" in descriptions[0] and "let it end first" in descriptions[0]
    record()
    assert lX.numpy()[0] == 2


WAITING = {
    "wait": lambda ctx, x: ctx.wait(x),
    "wait at a place": lambda ctx, x: ctx.wait(x, data_place=stf.data_place.host()),
    "function task": lambda ctx, x: ctx.task(stf.exec_place.host(), x.read())(lambda x: None),
    "synchronize": lambda ctx, x: ctx.synchronize(),
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("who", ["a thread", "a body"])
def test_who_waits_keeps_nobody_from_recording(ctx, lX, lY, name, who):
    """A loop is recorded while the main thread waits for what that thread, or body, ends only then."""
    go, recorded_in_time = threading.Event(), []

    def record():
        go.wait(30)
        time.sleep(0.05)  # the main thread waits now, or comes too late to be in the way
        repeated(ctx, lY)
        recorded_in_time.append(not done.is_set())

    done = threading.Event()
    thread = threading.Thread(target=record)

    def body(x):
        if who == "a body":
            record()
        else:
            thread.start()
            thread.join(20)
        done.set()
        x += 1

    ctx.host_launch(lX.rw())(body)
    go.set()
    WAITING[name](ctx, lX)
    assert lX.numpy()[0] == 1 and recorded_in_time == [True]
    assert lY.numpy().tolist() == [2, 3, 4, 5]


BESIDE = {
    "add": lambda ctx, y: add(y, y),
    "wait": lambda ctx, y: y.numpy(),
    "synchronize": lambda ctx, y: ctx.synchronize(),
    "fence": lambda ctx, y: ctx.fence().synchronize(),
    "fill": lambda ctx, y: ctx.fill(y, 1.0),
    "write back": lambda ctx, y: y.write_back(),
    "freeze": lambda ctx, y: ctx.freeze(y).unfreeze(),
    "repeat": lambda ctx, y: repeated(ctx, y),
    "if": lambda ctx, y: branched(ctx, y),
    "graph": lambda ctx, y: recorded(ctx, y),
    "scope": lambda ctx, y: gathered(ctx, y),
    "tiles": lambda ctx, y: increment(y.tiles(2)[0]),
}


def repeated(ctx, y):
    with ctx.repeat(2):
        increment(y)


def branched(ctx, y):
    with ctx.if_(ctx.logical_data_full((), 1.0) > 0):
        increment(y)


def recorded(ctx, y):
    g = ctx.task_graph("mine")
    with g:
        increment(y)
    g.launch()


def gathered(ctx, y):
    with ctx.graph_scope():
        increment(y)


@pytest.mark.parametrize("name", BESIDE)
def test_what_others_do_while_a_thread_records(ctx, lX, lY, name):
    started = threading.Event()

    @stf.replay
    def step(x):
        if step_is_recorded[0]:
            started.set()
            time.sleep(0.1)
        increment(x)

    step_is_recorded = [False]
    step(lX)
    expected, lZ = ctx.logical_data(np.arange(4.0)), ctx.logical_data(np.zeros(4))
    BESIDE[name](ctx, expected)

    def work(number):
        if number:
            assert started.wait(30)
            BESIDE[name](ctx, lY)
        else:
            step_is_recorded[0] = True
            step(lX)

    in_threads(2, work)
    increment(lZ)
    assert lX.numpy()[0] == 2 and lZ.numpy()[0] == 1
    assert lY.numpy().tolist() == expected.numpy().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_of_threads(ctx, seed, monkeypatch):
    """Each on data of its own and on shared data: replays, tasks, loops and waits, at a fast switch of threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    data = [ctx.logical_data(np.zeros(4), name=f"D{i}") for i in range(4)]
    shared, counts = ctx.logical_data(np.zeros(4), name="shared"), [0] * 4

    @stf.replay
    def step(x, common, k):
        set_sum(x, k)
        increment(common)

    @stf.replay
    def loop(x):
        with ctx.repeat(3):
            increment(x)

    def work(number):
        rng, x, expected = random.Random(10 * seed + number), data[number], 0
        for _ in range(25):
            kind = rng.choice(("step", "step", "loop", "task", "wait", "shared", "repeat", "synchronize"))
            if kind == "step":
                k = rng.randint(1, 6)
                step(x, shared, k)
                expected = expected * 2 + k
                counts[number] += 1
            elif kind == "loop":
                loop(x)
                expected += 3
            elif kind == "task":
                add(x, x)
                expected *= 2
            elif kind == "wait":
                assert x.numpy()[0] == expected
            elif kind == "shared":
                increment(shared)
                counts[number] += 1
            elif kind == "repeat":
                repeated(ctx, x)
                expected += 2
            else:
                ctx.synchronize()
        assert x.numpy()[0] == expected

    try:
        in_threads(4, work)
    finally:
        sys.setswitchinterval(before)
    assert shared.numpy()[0] == sum(counts)


@stf.task
def set_sum(x: stf.ReadWrite, k):
    x *= 2
    x += k
