"""Two GPUs in one recorded graph: kernels and bodies on both, copies between them, parameters and other data."""

from __future__ import annotations

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")

SCALE = 'extern "C" __global__ void scale(double *x, double a, int n) { int i = threadIdx.x; if (i < n) x[i] *= a; }'
N = 256


@stf.task
def add(x: stf.Read, y: stf.ReadWrite, a=1.0):
    assert x.device == y.device
    y += a * x


def test_fork_and_join_in_one_graph_with_ever_other_data(ctx):
    kernel, (one, other) = cupy.RawKernel(SCALE, "scale"), ctx.devices
    model = [[np.full(N, float(10 * i + k)) for k in range(3)] for i in range(9)]
    data = [[ctx.logical_data(array.copy()) for array in row] for row in model]
    x, y, z = data[0]
    g = ctx.task_graph("fork and join")
    a = g.param("a", 1.0)
    with g:
        add.on(one)(x, y, a)
        add.on(other)(x, z)
        ctx.launch_kernel(kernel, (1, N), y.rw(), a, np.int32(N), place=one)
        ctx.launch_kernel(kernel, (1, N), z.rw(), 2.0, np.int32(N), place=other)
        add.on(other)(y, z)
        add.on(one)(z, x)
    for i in [*range(9), 3, 8, 0, 5]:
        value = float(1 + i % 3)
        g.launch(dict(zip(data[0], data[i], strict=True)), a=value)
        mine = model[i]
        mine[1] += value * mine[0]
        mine[2] += mine[0]
        mine[1] *= value
        mine[2] *= 2
        mine[2] += mine[1]
        mine[0] += mine[2]
        assert all(np.array_equal(known.numpy(), array) for known, array in zip(data[i], mine, strict=True)), i
    assert g._recording.graph.refusal is None


def test_nodes_on_both_are_changed_for_other_data(ctx):
    """After some, one by one, and no graph is made: kernels, copies, fills and bodies on each device."""
    kernel = cupy.RawKernel(SCALE, "scale")
    model = [[np.full(N, float(10 * i + k)) for k in range(2)] for i in range(9)]
    data = [[ctx.logical_data(array.copy()) for array in row] for row in model]
    still = [ctx.logical_data(np.full(N, 2.0)) for _ in range(2)]
    room = [ctx.logical_data(np.zeros(N)) for _ in range(2)]
    g, made = ctx.task_graph(), []
    a = g.param("a", 1.0)
    with g:
        for place, x, mine, other in zip(ctx.devices, data[0], still, room, strict=True):
            with place:
                ctx.launch_kernel(kernel, (1, N), x.rw(), a, np.int32(N))
                add(mine, x, a)
                ctx.copy(x, other)
                ctx.fill(x, 7.0)
                ctx.copy(other, x)
    for i in [*range(1, 9), 3, 8, 1, 5]:
        value = float(1 + i % 3)
        g.launch(dict(zip(data[0], data[i], strict=True)), a=value)
        for known, array in zip(data[i], model[i], strict=True):
            array *= value
            array += value * 2
            assert np.array_equal(known.numpy(), array), i
        made.append(ctx._driver.graphs.statistics()[:2])
    assert g._recording.graph.refusal is None and made[4] == made[-1], made


def test_a_replayed_function_on_two(ctx):
    one, other = ctx.devices
    rows = [np.full(N, 1.0) for _ in range(2)]
    x, y = (ctx.logical_data(row.copy()) for row in rows)

    @stf.replay
    def step(x, y, a):
        add.on(one)(x, y, a)
        add.on(other)(y, x, 0.5)

    for i in range(12):
        a = float(i % 4 + 1)
        step(x, y, a)
        rows[1] += a * rows[0]
        rows[0] += 0.5 * rows[1]
        assert np.array_equal(x.numpy(), rows[0]) and np.array_equal(y.numpy(), rows[1]), i
    assert "launched 1" in step.explain()
