"""Blocks of loops and branches: how often they are entered, what they keep alive, and what failures leave to them."""

from __future__ import annotations

import contextlib
import gc

import numpy as np
import pytest
from helpers import add, increment, is_cuda

import stf


def test_a_block_is_not_entered_inside_of_itself(ctx, lX):
    s = ctx.logical_data_zeros(())
    for make in (lambda: ctx.repeat(2), lambda: ctx.if_(s < 1), lambda: ctx.while_loop(s < 1)):
        block = make()
        with pytest.raises(stf.TaskStateError, match="is entered already; make another one"), block, block:
            pass
    with ctx.repeat(2):
        add(lX, s)
    assert lX.numpy().tolist() == [0] * 4


def test_loops_are_entered_again(ctx, lX):
    """A loop of which each run is another launch."""
    s, one = ctx.logical_data_zeros(()), ctx.logical_data_ones(())
    loop = ctx.while_loop()
    for bound in (2, 5):
        with loop:
            add(lX, one)
            s.assign(s + 1)
            loop.continue_while(s < bound)
        assert float(s) == bound and lX.numpy().tolist() == [bound] * 4


def test_blocks_do_not_keep_the_data_of_their_conditions(ctx):
    """A variable of a loop or a branch, and a recording of one, is no handle."""
    S, T = np.zeros(()), np.zeros(())
    lS, lT = ctx.logical_data(S), ctx.logical_data(T)
    with ctx.while_loop(lS < 3) as loop:
        increment(lS)
    with ctx.if_(lT < 1) as branch:
        increment(lT)
    with branch.else_():
        increment(lT)
    g = ctx.task_graph()
    with g, ctx.if_(lT > 5) as other:
        increment(lS)
    gc.disable()
    try:
        g.close()
        del lS, lT
        ctx.synchronize()
        assert float(S) == 3.0 and float(T) == 1.0
        g = None
        ctx.synchronize()
        left = [data.name for data in ctx.engine.coherency.data.values()]
        assert not [name for name in left if name not in ("condition", "iterations")]
        del branch, other
        ctx.synchronize()
        left = [data.name for data in ctx.engine.coherency.data.values()]
        assert sorted(left) in (["condition"], ["condition", "iterations"])  # of the loop
    finally:
        gc.enable()
    for block in (loop, ctx.if_(ctx.logical_data(S) > 5)):
        if block is not loop:
            with block:
                pass
        with pytest.raises(stf.TaskStateError, match="was left; make another one"), block:
            pass


@pytest.mark.parametrize("around", ["repeat", "task_graph", "if_"])
def test_an_else_is_entered_once_where_its_branch_is(ctx, lX, around):
    """In what may not run it belongs there; and a block that was left records nothing more."""
    s = ctx.logical_data(np.zeros(()))
    with {"repeat": lambda: ctx.repeat(2), "task_graph": ctx.task_graph, "if_": lambda: ctx.if_(s > 5)}[around]():
        with ctx.if_(s > 0) as branch:
            add(lX, lX)
        other = branch.else_()
    with pytest.raises(stf.TaskStateError, match="else_ is entered once, in the same recording"), other:
        add(lX, lX)
    with ctx.if_(s > 0) as branch:
        add(lX, lX)
    other = branch.else_()
    with other:
        pass
    with pytest.raises(stf.TaskStateError, match="else_ is entered once, in the same recording"), other:
        add(lX, lX)


@pytest.mark.parametrize("around", ["repeat", "while_loop", "if_", "graph_scope", "scope in repeat"])
def test_what_a_failure_spoilt_is_overwritten_in_a_loop(ctx, around):
    """Data that are written before they are read need no content, neither the user's nor a recording's own."""
    if is_cuda(ctx):
        pytest.skip("a body on a device is recorded once: it raises then")
    fails = []

    @stf.task(arrays="numpy")
    def may_fail(x: stf.ReadWrite):
        if fails:
            raise RuntimeError("meant")

    x, y, s = (ctx.logical_data(np.zeros(3)) for _ in range(3))
    n = ctx.logical_data(np.zeros(()))
    with ctx.task_graph() as inner:
        z = ctx.logical_data_full(3, 1.0)
        add(z, y)
        add(x, z)
        del z

    def run():
        if around == "repeat":
            with ctx.repeat(2):
                ctx.fill(s, 2.0)
                inner.launch()
                add(x, s)
        elif around == "while_loop":
            with ctx.while_loop(n < 2):
                inner.launch()
                n.assign(n + 1)
        elif around == "if_":
            with ctx.if_(n < 2):
                inner.launch()
        elif around == "graph_scope":
            with ctx.graph_scope():
                ctx.fill(s, 2.0)
                inner.launch()
        else:
            with ctx.repeat(2), ctx.graph_scope():
                inner.launch()

    run()
    ctx.synchronize()
    fails.append(1)
    for data in (y, s):
        may_fail(data)
        with contextlib.suppress(stf.TaskFailedError):
            ctx.synchronize()
    with contextlib.suppress(stf.TaskFailedError):
        run()
    with contextlib.suppress(stf.TaskFailedError):
        ctx.synchronize()
    fails.clear()
    for data in (x, y, n):
        ctx.fill(data, 0.0)
    run()
    times, more = {"repeat": (2, 4.0), "while_loop": (2, 0.0), "scope in repeat": (2, 0.0)}.get(around, (1, 0.0))
    assert x.numpy().tolist() == [times * 1.0 + more] * 3


def test_else_belongs_to_the_recording_of_its_branch(ctx, lX):
    s = ctx.logical_data_zeros(())
    with ctx.task_graph() as g, ctx.if_(s < 1) as branch:
        add(lX, lX)
    with pytest.raises(stf.TaskStateError, match="in the same recording"), branch.else_():
        add(lX, lX)
    g.launch()
