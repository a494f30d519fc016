"""Launches and recordings in bodies, and beside the loops and tasks of other threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from helpers import increment

import stf
from stf._engine import thread_turns


class Box:
    """Data that a body submits tasks for; a closure over them would be refused."""

    z: list[stf.LogicalData]


def recorded(ctx, data):
    graph = ctx.task_graph()
    with graph:
        increment(data)
    return graph


def test_a_body_launches_a_graph_in_a_loop_that_the_host_drives(ctx, lX, lY):
    graph, count = recorded(ctx, lX), ctx.logical_data(np.zeros(()))
    with ctx.while_loop(count < 3):
        increment(count)
        ctx.host_launch(lY.rw())(lambda _: graph.launch())
    assert lX.numpy().tolist() == [3.0] * 4


def test_a_body_replays_a_function_in_a_loop_that_the_host_drives(ctx, lX, lY):
    step, box, count = stf.replay(increment), Box(), ctx.logical_data(np.zeros(()))
    box.z = [lX]
    for _ in range(3):
        step(lX)
    with ctx.while_loop(count < 3):
        increment(count)
        ctx.host_launch(lY.rw())(lambda _: step(box.z[0]))
    assert lX.numpy().tolist() == [6.0] * 4


def test_a_thread_with_an_open_task_launches_while_another_launch_waits_for_it(ctx, lX, lY):
    mine, others = recorded(ctx, lX), recorded(ctx, lY)
    ready, waits, refused = threading.Event(), threading.Event(), []

    def hold():
        with ctx.task(lX.rw()):
            ready.set()
            waits.wait(0.2)  # the other thread comes to its launch
            for launch in (others.launch, repeat):
                try:
                    launch()
                except stf.TaskStateError as error:
                    refused.append(str(error))

    def repeat():
        with ctx.repeat(2):
            increment(lY)

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(5)
    mine.launch()
    thread.join(10)
    assert not thread.is_alive()
    assert lX.numpy().tolist() == [1.0] * 4
    assert "is open; end it first" in refused[-1]
    assert lY.numpy().tolist() == [0.0 + 2 - len(refused), 3 - len(refused), 4 - len(refused), 5 - len(refused)]


def test_a_body_of_a_blocking_context_launches(monkeypatch, ctx_factory):
    monkeypatch.setenv("STF_BLOCKING", "1")
    with ctx_factory() as ctx:
        x, y, box, refused = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4)), Box(), []
        graph = recorded(ctx, x)
        box.z = [ctx.logical_data(np.zeros(4))]

        def body(_):
            graph.launch()
            try:
                with ctx.repeat(2):
                    increment(box.z[0])
            except stf.TaskStateError as error:
                refused.append(str(error))

        ctx.host_launch(y.read())(body)
        ctx.synchronize()
        assert x.numpy().tolist() == [1.0] * 4
        assert all("STF_BLOCKING" in description for description in refused)


def test_bodies_record_one_after_the_other(ctx):
    data, ys, errors, box = [ctx.logical_data(np.zeros(4)) for _ in range(8)], [], [], Box()
    ys = [ctx.logical_data(np.zeros(4)) for _ in range(8)]
    box.z = data

    def body(_, k):
        try:
            with ctx.repeat(20):
                increment(box.z[k])
            with ctx.graph_scope():
                increment(box.z[k])
        except BaseException as error:
            errors.append(error)

    for _ in range(4):
        for k in range(8):
            ctx.host_launch(ys[k].rw(), args=(k,))(body)
    ctx.synchronize()
    assert not errors
    assert [d.numpy()[0] for d in data] == [84.0] * 8


def test_a_body_that_a_loop_waits_for_cannot_record(ctx, lX, lY):
    count, box, refused = ctx.logical_data(np.zeros(())), Box(), []
    box.z = [lX]

    def body(_):
        for block in (lambda: ctx.repeat(2), ctx.graph_scope):
            try:
                with block():
                    increment(box.z[0])
            except stf.TaskStateError as error:
                refused.append(str(error))

    with ctx.while_loop(count < 1):
        increment(count)
        ctx.host_launch(lY.rw())(body)
    assert lX.numpy().tolist() == [0.0] * 4
    assert "repeat cannot be opened in a body" in refused[0] and "graph_scope cannot be opened" in refused[-1]


def test_others_record_after_a_loop_that_takes_its_time(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(thread_turns, "PATIENCE_S", 0.2)
    count, inside, go_on = ctx.logical_data(np.zeros(())), threading.Event(), threading.Event()

    def body(_):
        inside.set()
        assert go_on.wait(10)

    def drive():
        with ctx.while_loop(count < 1):
            increment(count)
            ctx.host_launch(lX.rw())(body)

    thread = threading.Thread(target=drive)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.6, go_on.set).start()
    with ctx.repeat(2):
        increment(lY)
    thread.join(10)
    assert lY.numpy().tolist() == [2.0, 3.0, 4.0, 5.0]


def test_a_function_is_called_as_it_is_while_its_thread_has_a_task_open(ctx, lX, lY):
    step = stf.replay(increment)
    for _ in range(3):
        with ctx.task(lX.rw()):
            try:
                step(lY)
            except stf.TaskStateError as error:
                assert "the graph of this context cannot be launched" in str(error)  # which lX's task is a part of
                lY = None
                break
    assert lY is None or lY.numpy().tolist() == [3.0, 4.0, 5.0, 6.0]


def test_what_no_run_of_a_branch_has_written_is_zero(ctx):
    s = ctx.logical_data(np.array(0.0))
    with ctx.while_loop(s > 1):
        made = ctx.logical_data_zeros(4)
        increment(made)
    with ctx.if_(s > 1):
        filled = ctx.logical_data_empty(4)
        ctx.fill(filled, 7.0)
    assert made.numpy().tolist() == filled.numpy().tolist() == [0.0] * 4
    graph = ctx.task_graph()
    with graph, ctx.if_(s > 1):
        kept = ctx.logical_data_empty(4)
        ctx.fill(kept, 7.0)
    graph.launch()
    assert kept.numpy().tolist() == [0.0] * 4
    increment(kept)
    graph.launch()
    assert kept.numpy().tolist() == [1.0] * 4


def test_blocks_that_nothing_has_ended_go_with_an_exception(ctx_factory):
    content = np.zeros(4)
    with pytest.raises(KeyError) as caught, ctx_factory() as ctx:
        x = ctx.logical_data(content)
        increment(x)
        ctx.synchronize()
        block = ctx.repeat(2)
        block.__enter__()
        increment(x)
        raise KeyError("meant")
    assert content.tolist() == [1.0] * 4 and not getattr(caught.value, "__notes__", ())
    with ctx_factory() as ctx:
        x, block = ctx.logical_data(content), ctx.repeat(2)
        block.__enter__()
        increment(x)
        with pytest.raises(stf.TaskStateError, match="finalize inside repeat: nothing of it has run yet"):
            ctx.finalize()
        block.__exit__(None, None, None)
    assert content.tolist() == [3.0] * 4


def test_a_body_does_not_wait_long_for_a_task_that_waits_for_it(ctx, lX, lY):
    box, refused = Box(), []
    box.z = [lX]
    begun = threading.Event()

    def body(_):
        begun.wait(0.3)  # another thread comes to its task, which waits for this body
        start = time.monotonic()
        for block in (lambda: ctx.repeat(2), ctx.graph_scope):
            try:
                with block():
                    increment(box.z[0])
            except stf.TaskStateError as error:
                refused.append(str(error))
        assert time.monotonic() - start < 10

    ctx.host_launch(lY.rw())(body)
    ctx.submit()
    with ctx.task(stf.exec_place.host(), lY.rw()) as t:
        t.arrays()
    ctx.synchronize()
    assert all("let it end first" in description for description in refused)
    assert lX.numpy().tolist() == [3.0] * 4 if not refused else lX.numpy()[0] < 3.0


def test_else_while_another_thread_records(ctx, lX, lY):
    condition = ctx.logical_data(np.array(0.0))
    inside, go_on = threading.Event(), threading.Event()

    def record():
        with ctx.repeat(2):
            increment(lY)
            inside.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=record)
    with ctx.if_(condition > 0) as branch:
        increment(lX)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.2, go_on.set).start()
    with branch.else_():
        increment(lX)
        increment(lX)
    thread.join(10)
    assert lX.numpy().tolist() == [2.0] * 4 and lY.numpy().tolist() == [2.0, 3.0, 4.0, 5.0]
