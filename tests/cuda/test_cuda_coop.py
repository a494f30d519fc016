"""Algorithms of cuda.coop in kernels of Numba, whose launches are tasks.

They are made for the threads of a block, whose number is compiled in. The bodies of `parallel_for` and `launch` run in
blocks that `stf` chooses, so such a body is refused.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import stf

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
THREADS, BLOCKS = 128, 5


@pytest.fixture
def coop():
    pytest.importorskip("numba.cuda")
    for name in ("cuda.coop._experimental", "cuda.coop", "cuda.cccl.cooperative.experimental"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "block"):
            return module
    pytest.skip("no cuda.coop with algorithms for Numba")


def test_the_sum_of_a_block(run, coop):
    from numba import cuda

    total = coop.block.make_sum(np.int32, THREADS)

    @cuda.jit(link=total.files)
    def add_up(x, sums):
        mine = total(x[cuda.grid(1)])
        if cuda.threadIdx.x == 0:
            sums[cuda.blockIdx.x] += mine

    X = np.arange(THREADS * BLOCKS, dtype=np.int32)

    def prepare(ctx):
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(BLOCKS, np.int32)
        return (
            lambda: stf.kernel(add_up)[BLOCKS, THREADS](lX.read(), lS.rw()),
            lambda count: np.testing.assert_array_equal(lS.numpy(), count * X.reshape(BLOCKS, -1).sum(axis=1)),
        )

    run(prepare)


def test_the_scan_of_a_block(run, coop):
    from numba import cuda

    scan = coop.block.make_inclusive_sum(np.int32, THREADS, 2)

    @cuda.jit(link=scan.files)
    def running_sum(x, y):
        mine = cuda.local.array(2, np.int32)
        first = 2 * cuda.grid(1)
        for i in range(2):
            mine[i] = x[first + i]
        scan(mine, mine)
        for i in range(2):
            y[first + i] = mine[i]

    X = np.arange(2 * THREADS * BLOCKS, dtype=np.int32)
    expected = np.cumsum(X.reshape(BLOCKS, -1), axis=1).ravel()

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data_zeros(X.size, np.int32)
        return (
            lambda: stf.kernel(running_sum)[BLOCKS, THREADS](lX.read(), lY.write()),
            lambda count: np.testing.assert_array_equal(lY.numpy(), expected),
        )

    run(prepare)


def test_a_warps_sum(run, coop):
    from numba import cuda, int32

    total = coop.warp.make_sum(int32)  # a type of Numba: the algorithms of warps take no other

    @cuda.jit(link=total.files)
    def add_up(x, sums):
        mine = total(x[cuda.grid(1)])
        if cuda.threadIdx.x == 0:
            sums[cuda.blockIdx.x] = mine

    X = np.arange(32 * BLOCKS, dtype=np.int32)

    def prepare(ctx):
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(BLOCKS, np.int32)
        return (
            lambda: stf.kernel(add_up)[BLOCKS, 32](lX.read(), lS.write()),
            lambda count: np.testing.assert_array_equal(lS.numpy(), X.reshape(BLOCKS, -1).sum(axis=1)),
        )

    run(prepare)


def test_bodies_of_parallel_for_and_launch_refuse_it(coop):
    """Nothing has run, and the context goes on."""
    total = coop.block.make_sum(np.int32, THREADS)
    X = np.arange(THREADS, dtype=np.int32)
    with stf.context(devices="cuda:0") as ctx:
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(THREADS, np.int32)

        def each_element(i, x, s):
            s[i] = total(x[i])

        def each_thread(th, x, s):
            s[th.rank()] = total(x[th.rank()])

        with pytest.raises((TypeError, NotImplementedError)) as refused:
            ctx.parallel_for(lX.shape, lX.read(), lS.write())(each_element)
        assert "cuda.coop" in str(refused.value)
        with pytest.raises((TypeError, NotImplementedError)) as refused:
            ctx.launch(stf.par(1, stf.con(THREADS)), lX.read(), lS.write())(each_thread)
        assert "cuda.coop" in str(refused.value)
        ctx.fill(lS, 3)
        assert lS.numpy().tolist() == [3] * THREADS
