"""Kernels of cuda.tile as tasks: launched by `stf.kernel`, and by ``ct.launch`` in a body."""

from __future__ import annotations

import numpy as np
import pytest

import stf

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
N, SIZE = 1024, 128


@pytest.fixture
def tile():
    pytest.importorskip("cupy")
    module = pytest.importorskip("cuda.tile")
    from cuda.tile import _compile

    try:
        _compile._find_compiler_bin()
    except FileNotFoundError as error:
        pytest.skip(f"cuda.tile has no compiler: {error}")
    return module


def test_stf_kernel(run, tile):
    from tile_kernels_of_tests import add

    X = np.arange(N, dtype=np.float32)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N, np.float32))
        return (
            lambda: stf.kernel(add)[(N // SIZE,)](lX.read(), lY.rw(), SIZE),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 1 + count * X),
        )

    run(prepare)


def test_ct_launch_in_a_body(run, tile):
    """It takes the address of a stream, which is the task's; several launches of a body come one after the other."""
    from tile_kernels_of_tests import add

    X = np.arange(N, dtype=np.float32)

    @stf.task(arrays="cupy")
    def add_twice(x: stf.Read, y: stf.ReadWrite, stream: stf.Stream):
        for _ in range(2):
            tile.launch(int(stream), (N // SIZE,), add, (x, y, SIZE))

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N, np.float32))
        return (
            lambda: add_twice(lX, lY),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 1 + 2 * count * X),
        )

    run(prepare)


def test_other_data_in_a_recorded_launch(tile):
    from tile_kernels_of_tests import add

    X = np.arange(N, dtype=np.float32)
    with stf.context(devices="cuda:0") as ctx:
        data, lY = [ctx.logical_data(X), ctx.logical_data(2 * X)], ctx.logical_data(np.ones(N, np.float32))
        stf.kernel(add)[(N // SIZE,)](data[0].read(), lY.rw(), SIZE)
        g = ctx.task_graph()
        with g:
            stf.kernel(add)[(N // SIZE,)](data[0].read(), lY.rw(), SIZE)
        g.launch()
        g.launch({data[0]: data[1]})
        assert (lY.numpy() == 1 + 4 * X).all()
