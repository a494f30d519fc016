"""No more stack, and no more memory, anywhere in a call: it raises, and the context works on."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import stf

DEPTHS = 250


@stf.task
def add(x: stf.ReadWrite):
    x += 1


@stf.replay
def add_again(x):
    add(x)


def block(ctx, x):
    with ctx.task(x.rw()):
        pass


def graph(ctx, x):
    g = ctx.task_graph()
    with g:
        add(x)
    g.launch()


def scope(ctx, x):
    with ctx.graph_scope():
        add(x)


def freeze(ctx, x):
    with ctx.freeze(x) as frozen:
        frozen.get()


def tiles(ctx, x):
    for tile in x.tiles((2,)):
        add(tile)


def register(ctx, x):
    with stf.context(devices=str(ctx._spec)) as other:
        other.logical_data(np.ones(4)).numpy()


CALLS = {
    "function": lambda ctx, x: add(x),
    "with-block": block,
    "builder": lambda ctx, x: ctx.task(x.rw())(lambda x: None),
    "on the host": lambda ctx, x: ctx.host_launch(x.rw())(lambda x: None),
    "graph": graph,
    "scope": scope,
    "replay": lambda ctx, x: add_again(x),
    "freeze": freeze,
    "copy": lambda ctx, x: ctx.copy(x, x.empty_like()),
    "fill": lambda ctx, x: ctx.fill(x, 1),
    "wait": lambda ctx, x: x.numpy(),
    "tiles": tiles,
    "synchronize": lambda ctx, x: ctx.synchronize(),
    "logical_data": lambda ctx, x: ctx.logical_data(np.ones(4)).numpy(),
    "finalize": register,
}


def deep(calls, action):
    return action() if calls == 0 else deep(calls - 1, action)


def must_work(ctx, x):
    """The context does all that is asked; what failed before is told first, if it poisoned anything."""
    try:
        ctx.synchronize()
    except stf.TaskFailedError:
        x.accept()
    ctx.fill(x, 7)
    add(x)
    assert x.numpy().tolist() == [8.0] * 4
    ctx.check_errors()
    ctx.check_state()


@pytest.mark.not_captured("it waits, again and again")
@pytest.mark.filterwarnings("ignore:.*was dropped without finalize", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_at_any_depth_of_the_stack(ctx_factory, call):
    ctx, home = ctx_factory(), np.zeros(4)
    x = ctx.logical_data(home)
    CALLS[call](ctx, x)
    must_work(ctx, x)
    before, here = sys.getrecursionlimit(), 0
    frame = sys._getframe()
    while frame is not None:
        frame, here = frame.f_back, here + 1
    succeeded, depth = 0, DEPTHS
    while succeeded < 10:
        sys.setrecursionlimit(here + DEPTHS + 10)
        try:
            deep(depth, lambda: CALLS[call](ctx, x))
            succeeded += 1
        except RecursionError:
            succeeded = 0
        finally:
            sys.setrecursionlimit(before)
        must_work(ctx, x)
        depth -= 1
    assert depth > 0
    ctx.finalize()
    assert home.tolist() == [8.0] * 4
