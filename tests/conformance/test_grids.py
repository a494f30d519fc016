"""Tasks on a grid of places whose data lie where none of these places is."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf import data_place

N = 1 << 17


@pytest.fixture
def grid(ctx):
    if len(ctx.devices) < 2:
        pytest.skip("one place is no grid")
    if ctx.engine.epoch is not None:
        pytest.skip("the body looks at memory of the host, which no graph waits for")
    return ctx.devices


@pytest.mark.parametrize("place", [data_place.host(), data_place.managed()], ids=str)
def test_data_of_the_host_are_there_when_the_body_asks_for_them(ctx, grid, place):
    @stf.task
    def add(x: stf.ReadWrite):
        x += 1

    y = ctx.logical_data_zeros(N)
    for k in range(5):
        add.on(grid[k % 2])(y)
        with ctx.task(grid, y.rw(place)) as t:
            (a,) = t.arrays()
            assert isinstance(a, np.ndarray) and (a == 11 * k + 1).all()
            a += 10
    assert (y.numpy() == 55).all()


def test_what_a_task_reads_is_not_writeable(ctx, grid):
    X = np.zeros(3)
    x, y = ctx.logical_data(X, readonly=True), ctx.logical_data(np.zeros(3))
    with ctx.task(grid, x.read(data_place.host()), y.rw(data_place.host())) as t:
        a, b = t.numpy()
        with pytest.raises(ValueError, match="read-only"):
            a[:] = 9
        b += 1
    assert y.numpy().tolist() == [1] * 3 and X.tolist() == [0] * 3


def test_what_a_body_returns_is_stored(ctx, grid):
    x, y = ctx.logical_data(np.arange(3.0)), ctx.logical_data(np.zeros(3))
    ctx.task(grid, x.read(data_place.host()), y.rw(data_place.host()))(lambda x, y: x + 2)
    assert y.numpy().tolist() == [2, 3, 4]
    with pytest.raises(TypeError, match="writes nothing"):
        ctx.task(grid, x.read(data_place.host()))(lambda x: x)
