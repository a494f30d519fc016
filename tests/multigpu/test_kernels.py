"""Kernels in Python over both GPUs: each has its part of an index space, or of a hierarchy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import on_stand_in

import stf
from stf import con, mem, par

pytest.importorskip("numba.cuda")
if on_stand_in():
    pytest.skip("the stand-in for CUDA runs no kernels that are compiled", allow_module_level=True)

PARTITIONS = [stf.blocked_partition(), stf.tiled_partition(3), stf.cyclic_partition()]
ODD = stf.exec_place.grid([stf.exec_place.device(i % 2) for i in range(3)])


def mark(x, y, where, value):
    x[where] += 1
    y[where] = value
    return value


@pytest.mark.parametrize("grid", [None, ODD], ids=["both", "odd"])
@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (100_003,), (301, 257), (5, 64, 33)])
def test_each_element_once_and_sums(ctx, grid, partition, shape):
    grid = ctx.devices if grid is None else grid
    x, y = ctx.logical_data_zeros(shape, np.int64), ctx.logical_data_empty(shape, np.int64)
    total = ctx.logical_data_empty((), np.int64)
    bodies = {
        1: lambda i, x, y: mark(x, y, (i,), i),
        2: lambda i, j, x, y: mark(x, y, (i, j), i + 2 * j),
        3: lambda i, j, k, x, y: mark(x, y, (i, j, k), i + 2 * j + k),
    }
    run = ctx.parallel_for(grid, partition, x.shape, x.rw(), y.write(), total.reduce(stf.reducer.sum))
    run(bodies[len(shape)])
    axes = np.indices(shape)
    expected = sum(weight * axis for weight, axis in zip((1, 2, 1), axes, strict=False))
    assert (x.numpy() == 1).all()
    if math.prod(shape):
        assert np.array_equal(y.numpy(), expected)
    assert ctx.wait(total) == expected.sum()


def test_parts_that_only_read_run_on_both(ctx):
    x = ctx.logical_data(np.arange(1000.0))
    total = ctx.logical_data_full((), 0.5)
    run = ctx.parallel_for(ctx.devices, x.shape, x.read(), total.reduce(stf.reducer.sum, accumulate=True))
    run(lambda i, x: x[i])
    assert ctx.wait(total) == 0.5 + 999 * 500


@pytest.mark.parametrize("partition", [None, *PARTITIONS], ids=repr)
def test_groups_are_shared(ctx, partition):
    grid = ctx.devices if partition is None else ctx.devices.with_partition(partition)
    x = ctx.logical_data(np.ones(10_000))
    sums = ctx.logical_data_zeros(37)

    @ctx.launch(par(37, con(64, mem(64 * 8))), grid, x.read(), sums.rw())
    def add_up(th, x, sums):
        mine = th.storage(1, np.float64)
        mine[th.rank(1)] = 0
        for i in range(th.rank(), x.size, th.size()):
            mine[th.rank(1)] += x[i]
        th.sync(1)
        if th.rank(1) == 0:
            for i in range(64):
                sums[th.rank(0)] += mine[i]

    found = sums.numpy()
    assert found.sum() == 10_000
    assert found.min() >= 64 * (10_000 // (37 * 64))


def test_an_automatic_width_is_for_both(ctx):
    x, size = ctx.logical_data(np.zeros(1 << 20)), ctx.logical_data_zeros((), np.int64)

    @ctx.launch(par(con(32)), ctx.devices, stf.cyclic_partition(), x.rw(), size.rw())
    def count(th, x, size):
        for i in range(th.rank(), x.size, th.size()):
            x[i] += 1
        if th.rank() == 0:
            size[()] = th.size()

    assert (x.numpy() == 1).all()
    assert ctx.wait(size) > 2 * 32 * 100


def test_a_stencil_by_turns_and_over_both(ctx):
    n = 200
    start = np.random.default_rng(1).random((n, n))
    u, v = ctx.logical_data(start.copy()), ctx.logical_data(start.copy())

    def step(i, j, u, v):
        v[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])

    inner = stf.box[1 : n - 1, 1 : n - 1]
    places = [stf.exec_place.device(0), stf.exec_place.device(1), ctx.devices]
    expected = start.copy()
    for k in range(12):
        ctx.parallel_for(places[k % 3], inner, u.read(), v.rw())(step)
        u, v = v, u
        old = expected.copy()
        expected[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])
    assert np.allclose(u.numpy(), expected, rtol=1e-13)
