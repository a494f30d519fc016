"""Recorded tasks on a GPU: one CUDA graph per program, temporaries of its own, kernels, torch, loops."""

from __future__ import annotations

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("cuda_device_count")]

SCALE = 'extern "C" __global__ void scale(double *x, double a, int n) { int i = threadIdx.x; if (i < n) x[i] *= a; }'


@pytest.fixture
def ctx():
    with stf.context(devices="cuda:0") as context:
        yield context


@stf.task
def smooth(x: stf.Read, y: stf.ReadWrite):
    wide = cupy.concatenate([x, x * 2, x * 3])  # temporaries, given back when the body ends
    y += wide[x.size : 2 * x.size] + cupy.roll(x, 1) * 0.5


def smooth_on_host(x, y):
    y += x * 2 + np.roll(x, 1) * 0.5


def test_a_program_that_comes_again_is_one_cuda_graph(ctx):
    kernel = cupy.RawKernel(SCALE, "scale")
    x, y = ctx.logical_data(np.arange(32.0)), ctx.logical_data(np.zeros(32))
    g = ctx.task_graph()
    with g:
        smooth(x, y)
        ctx.launch_kernel(kernel, (1, 32), y.rw(), 0.5, np.int32(32))
        with ctx.task(y.rw()) as t:
            (array,) = t.cupy()
            array += 1
    expected = np.zeros(32)
    for launch in range(5):
        g.launch()
        smooth_on_host(np.arange(32.0), expected)
        expected = expected * 0.5 + 1
        assert np.allclose(y.numpy(), expected)
        assert (g._recording.graph.graph is not None) == (launch > 0)
    assert g._recording.graph.refusal is None and g._recording.graph.graph.node_count >= 3


def test_temporaries_of_recorded_bodies_are_the_graphs(ctx):
    x, y = ctx.logical_data(np.arange(1000.0)), ctx.logical_data(np.zeros(1000))
    g = ctx.task_graph()
    with g:
        smooth(x, y)
        smooth(x, y)
    expected = np.zeros(1000)
    for launch in range(6):
        spoil = [cupy.full(size, np.nan) for size in (1000, 3000, 1000, 2000, 8000)]
        g.launch()
        spoil.append(cupy.full(3000, np.nan))
        for _ in range(2):
            smooth_on_host(np.arange(1000.0), expected)
        assert np.allclose(y.numpy(), expected), launch
        del spoil


def test_a_training_step_in_torch_replayed_with_a_changing_learning_rate(ctx):
    torch = pytest.importorskip("torch")
    torch.zeros(1, device="cuda")

    @stf.task(arrays="torch")
    def gradient(w: stf.Read, x: stf.Read, y: stf.Read, g: stf.Write):
        error = (x * w).sum(1) - y
        g.copy_((2 * error[:, None] * x).mean(0))

    @stf.task(arrays="torch")
    def descend(w: stf.ReadWrite, g: stf.Read, rate):
        w -= rate * g

    @stf.replay
    def step(w, x, y, g, rate):
        gradient(w, x, y, g)
        descend(w, g, rate)

    random = np.random.default_rng(0)
    X, W = random.standard_normal((64, 5)), random.standard_normal(5)
    Y = X @ W
    w, x, y = ctx.logical_data(np.zeros(5)), ctx.logical_data(X), ctx.logical_data(Y)
    g, mine = ctx.logical_data_empty(5), np.zeros(5)
    for k in range(30):
        rate = 0.2 / (1 + k / 20)
        step(w, x, y, g, rate)
        mine -= rate * (2 * (X @ mine - Y)[:, None] * X).mean(0)
    assert np.allclose(w.numpy(), mine)
    assert "1 recordings" in step.explain()
    step.close()


def test_host_bodies_in_a_graph(ctx):
    x, seen = ctx.logical_data(np.zeros(8)), []

    @stf.task
    def increment(x: stf.ReadWrite):
        x += 1

    g = ctx.task_graph()
    with g:
        increment(x)
        ctx.host_launch(x.read())(lambda a: seen.append(float(a[0])))
        increment(x)
    for _ in range(4):
        g.launch()
    ctx.synchronize()
    assert seen == [1, 3, 5, 7] and x.numpy().tolist() == [8] * 8


def test_memory_comes_back(ctx):
    x = ctx.logical_data(np.zeros(1 << 16))
    pool, used = cupy.get_default_memory_pool(), []
    for _ in range(30):
        g = ctx.task_graph()
        with g:
            smooth(x, ctx.logical_data_zeros(1 << 16))
        g.launch()
        g.launch()
        g.close()
        del g
        ctx.synchronize()
        ctx.token()  # an entry to the engine: what was dropped is released
        used.append((ctx._driver.live_allocations, pool.used_bytes()))
    assert max(used[10:]) <= max(used[:10])
