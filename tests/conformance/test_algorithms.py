"""Functions that submit tasks, inline, as one task, or as a graph: the same tasks and results in each way."""

from __future__ import annotations

import numpy as np
import pytest

import stf

WAYS = ["inline", "task", "graph", "auto"]


@stf.task
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


def gathers(ctx):
    return ctx.engine.gathering is not None


@pytest.fixture
def inline_everywhere():
    stf.config.algorithm_inline = True
    yield
    stf.config.algorithm_inline = False


@pytest.mark.parametrize("mode", WAYS)
def test_every_way_gives_the_same(ctx, mode):
    runs = []

    @stf.algorithm(mode=mode)
    def steps(a, x, y, z):
        runs.append(a)
        axpy(a, x, y)
        axpy(2.0, y, z)
        axpy(a, z, x)
        return y

    X, Y, Z = np.ones(5), np.zeros(5), np.zeros(5)
    x, y, z = ctx.logical_data_ones(5), ctx.logical_data_zeros(5), ctx.logical_data_zeros(5)
    for k in range(6):
        assert steps(float(k), x, y, z) is y
        Y += k * X
        Z += 2.0 * Y
        X += k * Z
    for data, expected in ((x, X), (y, Y), (z, Z)):
        assert (data.numpy() == expected).all()
    is_inline = mode == "inline" or (mode == "auto" and gathers(ctx))
    assert len(runs) == 6 if is_inline or mode == "task" else len(runs) < 6
    told = steps.explain()
    assert f"{6 * is_inline} calls inline, {6 * (mode == 'task')} as one task" in told
    assert ("launched" in told) == (mode in ("graph", "auto") and not is_inline)
    assert steps.mode == mode and repr(steps) == "<stf.algorithm steps>"
    steps.close()


def test_a_task_runs_whole_or_not_at_all(ctx):
    @stf.algorithm(mode="task")
    def broken(x):
        ctx.fill(x, 7.0)
        raise KeyError("no")

    x = ctx.logical_data_ones(3)
    with pytest.raises(KeyError):
        broken(x)
    assert (x.numpy() == 1).all()


@pytest.mark.parametrize("mode", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_algorithms_in_algorithms_and_recordings(ctx, mode, inner):
    @stf.algorithm(mode=inner)
    def add(x, y):
        axpy(1.0, x, y)

    @stf.algorithm(mode=mode)
    def both(x, y):
        add(x, y)
        add(x, y)

    x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)
    for _ in range(4):
        both(x, y)
    with ctx.task_graph() as g:
        both(x, y)
    g.launch()
    with ctx.repeat(3):
        both(x, y)
    with ctx.graph_scope():
        both(x, y)
    assert (y.numpy() == 2 * (4 + 1 + 3 + 1)).all()
    g.close()


@pytest.mark.parametrize("mode", WAYS)
def test_methods_and_static_numbers(ctx, mode):
    class Solver:
        def __init__(self, rate):
            self.rate = rate

        @stf.algorithm(mode=mode, static=["n"])
        def run(self, x, y, n=2):
            for _ in range(n):
                axpy(self.rate, x, y)

    x, y, solver = ctx.logical_data_ones(4), ctx.logical_data_zeros(4), Solver(2.0)
    for n in (1, 3, 1, 3, 1, 3):
        solver.run(x, y, n=n)
    solver.rate = 10.0
    solver.run(x, y)
    assert (y.numpy() == 2 * 12 + 20).all()


def test_a_setting_runs_all_inline(ctx, inline_everywhere):
    @stf.algorithm(mode="graph")
    def add(x, y):
        axpy(1.0, x, y)

    x, y = ctx.logical_data_ones(4), ctx.logical_data_zeros(4)
    for _ in range(3):
        add(x, y)
    assert (y.numpy() == 3).all() and "3 calls inline" in add.explain()


def test_what_is_refused(ctx):
    with pytest.raises(ValueError, match="mode= is 'auto', 'inline', 'task' or 'graph', got 'fast'"):
        stf.algorithm(mode="fast")
    with pytest.raises(TypeError, match="stf.algorithm decorates a function, got int"):
        stf.algorithm(3)
    with pytest.raises(TypeError, match="'f' has no parameter 'n' to be static"):
        stf.algorithm(f, static="n")
    with pytest.raises(TypeError, match="static= is a list of the names of parameters"):
        stf.algorithm(static=[3])
    with pytest.raises(TypeError, match="was called without logical data, so its context is unknown"):
        stf.algorithm(f)(3)


def f(x):
    pass
