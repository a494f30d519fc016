"""How launches are done changes nothing of what they do: `backend=` of graphs and replays, on all devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stf

BACKENDS = ["auto", "persistent", "graph", "play"]


@stf.task
def shift(x: stf.ReadWrite, by: float) -> None:
    x += by


@pytest.mark.parametrize("backend", BACKENDS)
def test_graphs_give_the_same_by_each_backend(ctx: Any, lX: Any, lY: Any, backend: str) -> None:
    g = ctx.task_graph("steps", backend=backend)
    a = g.param("a", 1.0)
    with g:
        ctx.copy(lY, lX)
        shift(lX, a)
        ctx.fill(lY, a)
        with ctx.repeat(3):
            shift(lY, 1.0)
    wanted = np.arange(4.0)
    for k in range(4):
        g.launch(a=float(k))
        assert np.array_equal(lX.numpy(), wanted + k)
        wanted = np.full(4, k + 3.0)
        assert np.array_equal(lY.numpy(), wanted)
    assert g.explain().startswith(f"steps: {g.nodes} nodes, launched 4 times, backend {backend}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_give_the_same_by_each_backend(ctx: Any, loop: Any, lX: Any, lY: Any, backend: str) -> None:
    @stf.replay(backend=backend)
    def steps(x: Any, y: Any, rate: float) -> None:
        for _ in range(3):

            @loop(x.shape, x.rw(), y.read(), args=(rate,))
            def add(i, x, y, rate):
                x[i] += rate * y[i]

    wanted = np.zeros(4)
    for k in range(6):
        steps(lX, lY, 0.5 * k)
        wanted += 3 * 0.5 * k * np.arange(4.0)
        assert np.array_equal(lX.numpy(), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_is_told_by_each_backend(ctx: Any, lX: Any, backend: str) -> None:
    g = ctx.task_graph(backend=backend)
    limit = g.param("limit", 1.0)

    def check(x: Any, limit: float) -> None:
        if limit < 0:
            raise ValueError("below zero")

    with g:
        ctx.fill(lX, 2.0)
        ctx.host_launch(lX.rw(), args=(limit,))(check)
    g.launch()
    g.launch(limit=-1.0)
    with pytest.raises(stf.TaskFailedError, match="below zero"):
        ctx.synchronize()
    g.launch(limit=3.0)
    assert np.all(lX.numpy() == 2.0)
