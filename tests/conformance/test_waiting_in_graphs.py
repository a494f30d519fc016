"""A wait in a graph context is one for its data, and not for what was gathered beside or behind them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers import add, increment

import stf

HOST = stf.exec_place.host()


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def hold(gate):
    """A task on the host that ends when the gate is opened."""

    @stf.task
    def held(x: stf.ReadWrite):
        assert gate.wait(5)
        x += 1

    return held.on(HOST)


def look(gate, seen):
    """One that looks at its data when the gate is opened."""

    @stf.task
    def looking(x: stf.Read):
        assert gate.wait(5)
        seen.append(float(np.asarray(x).ravel()[0]))

    return looking.on(HOST)


def test_what_is_beside_is_not_waited_for(ctx, lX, lY, gate):
    increment(lX)
    hold(gate)(lY)
    increment.on(HOST)(lY)
    increment(lX)
    assert lX.numpy().tolist() == [2.0] * 4
    assert not gate.is_set()
    gate.set()
    assert lY.numpy().tolist() == [2.0, 3.0, 4.0, 5.0]


def test_what_is_behind_is_not_waited_for(ctx, lX, lY, gate):
    lZ = ctx.logical_data(np.zeros(4), name="Z")
    increment(lX)
    add(lY, lX)  # of both
    hold(gate)(lY)
    add.on(HOST)(lZ, lY)
    increment(lX)
    assert lX.numpy().tolist() == [2.0] * 4
    increment(lX)
    add(lX, lX)
    assert lX.numpy().tolist() == [6.0] * 4 and not gate.is_set()
    gate.set()
    assert lZ.numpy().tolist() == [2.0, 3.0, 4.0, 5.0] and lY.numpy().tolist() == [2.0, 3.0, 4.0, 5.0]


def test_readers_that_are_left_are_waited_for_by_writers(ctx, lX, gate):
    seen = []
    increment(lX)
    look(gate, seen)(lX)
    assert lX.numpy()[0] == 1 and not seen
    timer = threading.Timer(0.05, gate.set)
    timer.start()
    increment(lX)
    assert lX.numpy()[0] == 2
    timer.join()
    assert seen == [1.0]


def test_data_that_were_brought_elsewhere(ctx, lX, lY, gate):
    """They are there where they were brought, too, when a wait says so."""
    devices = list(ctx.devices)
    increment.on(devices[0])(lX)
    add.on(devices[-1])(lY, lX)
    hold(gate)(lY)
    ctx.prefetch(lX, stf.data_place.host())
    assert lX.numpy().tolist() == [1.0] * 4
    add.on(devices[-1])(lX, lX)
    assert lX.numpy().tolist() == [2.0] * 4 and not gate.is_set()
    gate.set()
    assert lY.numpy().tolist() == [2.0, 3.0, 4.0, 5.0]


def test_several_data_of_one_wait(ctx, lX, lY, gate):
    lZ = ctx.logical_data(np.zeros(4), name="Z")
    increment(lX)
    increment(lY)
    hold(gate)(lZ)
    increment.on(HOST)(lZ)
    both = ctx.task(HOST, lX.read(), lY.read())
    with both as t:
        found = [np.asarray(a).tolist() for a in t.numpy()]
    assert found == [[1.0] * 4, [1.0, 2.0, 3.0, 4.0]]
    assert not gate.is_set()
    gate.set()
    assert lZ.numpy()[0] == 2


def test_tokens(ctx, gate):
    ordered, other = ctx.token(), ctx.token()
    seen = []
    ctx.host_launch(ordered.write())(lambda: seen.append(1))
    ctx.host_launch(other.write())(lambda: seen.append(gate.wait(5)))
    ctx.wait(ordered)
    assert seen == [1]
    gate.set()
    ctx.wait(other)
    assert seen == [1, True]


def test_reductions(ctx, lX, lY, gate):
    total = ctx.logical_data(np.zeros(()), name="total")
    increment(lX)

    for _ in range(3):
        ctx.host_launch(lX.read(), total.accumulate(stf.reducer.sum))(lambda x, t: np.add(t, x[0], out=t))
    hold(gate)(lY)
    assert float(total) == 3 and not gate.is_set()
    gate.set()
    assert lY.numpy()[0] == 1


def test_loops_beside(ctx, lX, lY, gate):
    with ctx.repeat(3):
        increment(lX)
    hold(gate)(lY)
    lS = ctx.logical_data(np.zeros(()), name="S")
    with ctx.while_loop(lS < 4):
        lS.assign(lS + 1)
    assert lX.numpy()[0] == 3 and not gate.is_set()
    assert float(lS) == 4 and not gate.is_set()
    gate.set()
    assert lY.numpy()[0] == 1


def test_failures_beside_are_told_later(ctx, lX, lY, gate):
    @stf.task
    def fails(x: stf.ReadWrite):
        assert gate.wait(5)
        raise ValueError("on purpose")

    increment(lX)
    fails.on(HOST)(lY)
    assert lX.numpy()[0] == 1
    gate.set()
    with pytest.raises(stf.TaskFailedError):
        lY.numpy()
    lY.accept()
    increment(lX)
    assert lX.numpy()[0] == 2


# -- scopes ----------------------------------------------------------------------------------------------------------


def test_sibling_scopes_that_only_read_do_not_wait_for_each_other(ctx, lX, lY, gate):
    seen = []
    increment(lX)
    with ctx.graph_scope():
        look(gate, seen)(lX)
    with ctx.graph_scope():
        add(lY, lX)
        with ctx.graph_scope():
            increment(lY)
    assert lY.numpy().tolist() == [2.0, 3.0, 4.0, 5.0] and not seen
    threading.Timer(0.05, gate.set).start()
    with ctx.graph_scope():  # one that writes waits for both
        increment(lX)
    assert lX.numpy().tolist() == [2.0] * 4 and seen == [1.0]


def test_launches_that_only_read_do_not_wait_for_each_other(ctx, lX, lY, gate):
    seen = []
    g, h = ctx.task_graph("look"), ctx.task_graph("add")
    with g:
        look(gate, seen)(lX)
    with h:
        add(lY, lX)
    g.launch()
    h.launch()
    assert lY.numpy().tolist() == [0.0, 1.0, 2.0, 3.0] and not seen
    gate.set()
    ctx.synchronize()
    assert seen == [0.0]


def test_data_that_are_local_to_a_scope(ctx, lX):
    ctx.synchronize()
    for _ in range(3):
        with ctx.graph_scope():
            local = ctx.logical_data_full(4, 2.0)
            with ctx.graph_scope():
                inner = ctx.logical_data_full(4, 3.0)
                add(local, inner)
            add(lX, local)
            del local, inner
    assert lX.numpy().tolist() == [15.0] * 4
    ctx.synchronize()
    told = ctx.statistics()
    place = next(name for name, count in told.allocations.items() if count)
    assert told.frees[place] >= told.allocations[place] - 2  # of X alone there may be replicas
