"""`stackable_context` and `task_graph`: scopes, loops, graphs that are launched again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf
import stf.compat.cuda_stf as cuda_stf


def test_scopes_nest(work: Any, add_one: Any) -> None:
    X = np.zeros(1)
    with cuda_stf.stackable_context() as ctx:
        lX = ctx.logical_data(X)
        with ctx.graph_scope():
            add_one(ctx, lX)
            with ctx.graph_scope(), ctx.task(lX.rw()) as t, work(t) as (x,):
                x *= 10
            lY = ctx.logical_data_empty((1,), no_export=True)
            with ctx.task(lX.read(), lY.write()) as t, work(t) as (x, y):
                y[...] = x + 1
            with ctx.task(lX.write(), lY.read()) as t, work(t) as (x, y):
                x[...] = 2 * y
        with ctx.repeat(3):
            add_one(ctx, lX)
        with ctx.repeat(0):
            add_one(ctx, lX)
    assert X.tolist() == [25]


@pytest.mark.parametrize("form", ["expression", "three values", "any", "negated"])
def test_a_loop_runs_until_its_condition_fails(form: str, add_one: Any) -> None:
    X = np.zeros(1)
    with cuda_stf.stackable_context() as ctx:
        lX = ctx.logical_data(X)
        with ctx.while_loop() as loop:
            add_one(ctx, lX)
            if form == "three values":
                loop.continue_while(lX, "<", 5)
            else:
                conditions = {"expression": (lX < 5) & (lX >= 0), "any": (lX < 5) | (lX > 99), "negated": ~(lX >= 5)}
                loop.continue_while(conditions[form])
    assert X.tolist() == [5]


def test_conditions(stackable: Any, ctx: Any) -> None:
    lX, cond = stackable.logical_data(np.zeros(1)), cuda_stf.cond
    assert isinstance(lX > 0.5, cond)
    assert isinstance(np.float64(0.5) <= lX, cond)
    assert lX == lX  # whether they are the same object
    with pytest.raises(ValueError, match="comparison operator"):
        cond(lX, "==", 1)
    with pytest.raises(TypeError, match="stackable logical_data"):
        cond(ctx.logical_data(np.zeros(1)), ">", 1)
    with pytest.raises(TypeError, match="real scalar"):
        assert lX > "1"
    with pytest.raises(TypeError, match="comparing two logical data"):
        assert lX > lX
    with pytest.raises(TypeError, match="truth value"):
        bool(lX > 1)
    with pytest.raises(NotImplementedError, match="mixed"):
        (lX > 1) & (lX > 2) | (lX > 3)
    with pytest.raises(ValueError, match="Unsupported dtype"):
        cond(stackable.logical_data(np.zeros(1, np.int8)), ">", 1)
    eight = lX > 0
    for _ in range(7):
        eight = eight & (lX > 0)
    with pytest.raises(ValueError, match="at most 8"):
        eight & (lX > 0)


def test_misuse_of_a_loop(add_one: Any) -> None:
    with cuda_stf.stackable_context() as ctx, cuda_stf.stackable_context() as other:
        lX, lY = ctx.logical_data(np.zeros(1)), other.logical_data(np.zeros(1))
        with ctx.while_loop() as loop:
            add_one(ctx, lX)
            with pytest.raises(TypeError):
                loop.continue_while(True)
            with pytest.raises(ValueError):
                loop.continue_while(lX, "<")
            with pytest.raises(ValueError, match="different"):
                loop.continue_while(lY < 1)
            with pytest.raises(NotImplementedError, match="continue_while"):
                loop.cond_handle
            loop.continue_while(lX < 1)
        with pytest.raises((ValueError, OverflowError)):
            ctx.repeat(-1)


def test_push_and_pop(work: Any, add_one: Any) -> None:
    X = np.zeros(1)
    with cuda_stf.stackable_context() as ctx:
        lX = ctx.logical_data(X)
        ctx.push()
        add_one(ctx, lX)
        with ctx.task(lX.rw()) as t, work(t) as (x,):  # on a CPU it runs where it stands
            x *= 10
        add_one(ctx, lX)
        with pytest.raises(RuntimeError, match="open scope"):
            ctx.finalize()
        with pytest.raises(RuntimeError, match="open scope"):
            ctx.fence()
        ctx.pop()
        with pytest.raises(RuntimeError, match="without push"):
            ctx.pop()
    assert X.tolist() == [11]


def test_graphs_that_are_launched_again(add_one: Any) -> None:
    X, Y = np.zeros(1), np.zeros(1)
    with cuda_stf.stackable_context() as ctx:
        lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
        graphs = []
        for data, amount in ((lX, 1.0), (lY, 2.0)):
            ctx.push()
            add_one(ctx, data, amount)
            graphs.append(ctx.pop_prologue_shared())
        for _ in range(3):
            for graph in graphs:
                assert graph.valid
                graph.launch()
        with pytest.raises(RuntimeError, match="open scope"):
            ctx.finalize()
        with graphs[0]:
            pass
        graphs[1].reset()
        graphs[1].reset()
        assert not graphs[1].valid
        with pytest.raises(RuntimeError, match="has been reset"):
            graphs[1].launch()
        with ctx.launchable_graph_scope() as scope:
            add_one(ctx, lX)
            for _ in range(2):
                scope.launch()
        with ctx.launchable_graph_scope():
            add_one(ctx, lX)  # never launched
        ctx.push()
        add_one(ctx, lX)
        del graphs
        ctx.pop_prologue_shared()  # dropped at once
    assert (X.tolist(), Y.tolist()) == ([5], [6])


@pytest.mark.skipif(ON_CUDA, reason="a device's with-blocks are recorded")
def test_what_ran_in_place_is_no_graph(work: Any) -> None:
    with cuda_stf.stackable_context() as ctx:
        lX = ctx.logical_data(np.zeros(1))
        ctx.push()
        with ctx.task(lX.rw()) as t, work(t) as (x,):
            x += 1
        with pytest.raises(stf.CaptureError, match="host_launch"):
            ctx.pop_prologue_shared()
        ctx.pop()


def test_a_task_graph(add_one: Any) -> None:
    X = np.zeros(1)
    graph = cuda_stf.task_graph()
    assert isinstance(graph, cuda_stf.TaskGraph)
    lX = graph.context.logical_data(X)
    graph.reset()
    with pytest.raises(RuntimeError, match="only valid while"):
        graph.context.task(lX.rw())
    with pytest.raises(RuntimeError, match="no recorded graph"):
        graph.launch()
    with graph as value:
        assert value is None
        add_one(graph.context, lX)
        for call in (graph.launch, graph.reset, graph.finalize, graph.__enter__):
            with pytest.raises(RuntimeError, match="record"):
                call()
    with pytest.raises(RuntimeError, match="already been recorded"), graph:
        pass
    for _ in range(4):
        graph.launch()
    assert isinstance(graph.raw, cuda_stf.LaunchableGraph)
    graph.reset()
    graph.reset()
    with pytest.raises(RuntimeError, match="reset"):
        graph.launch()
    graph.context.finalize()
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        graph.launch()
    assert X.tolist() == [4]


def test_a_recording_that_raised() -> None:
    graph = cuda_stf.task_graph()
    with pytest.raises(ZeroDivisionError), graph:
        1 / 0
    with pytest.raises(RuntimeError, match="failed"):
        graph.launch()
    graph.reset()
    graph.finalize()
    graph.finalize()


def test_handles_of_a_graph(add_one: Any) -> None:
    with cuda_stf.stackable_context() as ctx:
        lX = ctx.logical_data_full((1,), 0.0)
        ctx.push()
        ctx.task(lX.rw())(lambda x: x + 1)
        graph = ctx.pop_prologue_shared()
        if ON_CUDA:
            assert graph.graph
        else:
            for name in ("graph", "exec_graph", "stream"):
                with pytest.raises(stf.PlaceError, match="CPU"):
                    getattr(graph, name)
        graph.reset()
