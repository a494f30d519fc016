"""Algorithms of cuda.coop in kernels of Numba, and in bodies of `launch`.

They are made for the threads of a block, whose number is compiled in: of a kernel, or of a group of `launch`. Elements
of `parallel_for` have no groups, so such a body is refused.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import stf
from stf import con, par

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


def adding(total):
    """Return a body that stores the sum of each group, and calls `total` by its closure."""

    def add_up(th, x, sums):
        mine = total(x[th.rank()])
        if th.inner().rank() == 0:
            sums[th.rank() // th.inner().size()] += mine

    return add_up


@pytest.mark.parametrize("threads", [32, 64, 128, 256])
def test_the_sum_of_a_group_of_launch(run, coop, threads):
    """The innermost groups are blocks then, whatever a block would have without."""
    total = coop.block.make_sum(np.int32, threads)
    X = np.arange(threads * BLOCKS, dtype=np.int32)

    def prepare(ctx):
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(BLOCKS, np.int32)
        return (
            lambda: ctx.launch(par(BLOCKS, con(threads)), lX.read(), lS.rw())(adding(total)),
            lambda count: np.testing.assert_array_equal(lS.numpy(), count * X.reshape(BLOCKS, -1).sum(axis=1)),
        )

    run(prepare)


def test_a_function_given_as_an_argument(run, coop):
    total = coop.block.make_sum(np.int32, THREADS)
    X = np.arange(THREADS * BLOCKS, dtype=np.int32)

    def add_up(th, x, sums, function):
        mine = function(x[th.rank()])
        if th.inner().rank() == 0:
            sums[th.rank() // THREADS] = mine

    def prepare(ctx):
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(BLOCKS, np.int32)
        return (
            lambda: ctx.launch(par(BLOCKS, con(THREADS)), lX.read(), lS.write(), args=(total,))(add_up),
            lambda count: np.testing.assert_array_equal(lS.numpy(), X.reshape(BLOCKS, -1).sum(axis=1)),
        )

    run(prepare)


def test_groups_in_groups_that_wait(run, coop):
    """The outer groups are several blocks then, which wait for each other."""
    total = coop.block.make_sum(np.int32, THREADS)
    X = np.arange(2 * THREADS * BLOCKS, dtype=np.int32)

    def add_up(th, x, sums):
        mine = total(x[th.rank()])
        if th.inner().inner().rank() == 0:
            sums[th.rank() // THREADS] = mine
        th.inner().sync()
        if th.inner().rank() == 0:
            first = th.rank() // THREADS
            sums[first] += sums[first + 1]

    def prepare(ctx):
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(2 * BLOCKS, np.int32)
        return (
            lambda: ctx.launch(par(BLOCKS, con(2, con(THREADS))), lX.read(), lS.rw())(add_up),
            lambda count: np.testing.assert_array_equal(lS.numpy()[::2], X.reshape(BLOCKS, -1).sum(axis=1)),
        )

    run(prepare)


def test_a_warps_sum_and_a_scan_in_launch(run, coop):
    """By a function of the user's, and by global variables of it."""
    from numba import cuda, int32

    total, scan = coop.warp.make_sum(int32), coop.block.make_inclusive_sum(np.int32, THREADS, 2)
    X = np.arange(2 * THREADS * BLOCKS, dtype=np.int32)

    def helper(value):
        return total(value)

    def sums_and_scans(th, x, y, sums):
        mine = cuda.local.array(2, np.int32)
        first = 2 * th.rank()
        for i in range(2):
            mine[i] = x[first + i]
        scan(mine, mine)
        for i in range(2):
            y[first + i] = mine[i]
        of_warp = helper(x[first])
        if th.rank() % 32 == 0:
            sums[th.rank() // 32] = of_warp

    scans = np.cumsum(X.reshape(BLOCKS, -1), axis=1).ravel()
    firsts = X[::2].reshape(-1, 32).sum(axis=1)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data_zeros(X.size, np.int32)
        lS = ctx.logical_data_zeros(firsts.size, np.int32)
        return (
            lambda: ctx.launch(par(BLOCKS, con(THREADS)), lX.read(), lY.write(), lS.write())(sums_and_scans),
            lambda count: [
                np.testing.assert_array_equal(lY.numpy(), scans),
                np.testing.assert_array_equal(lS.numpy(), firsts),
            ],
        )

    run(prepare)


def test_bodies_without_such_groups_are_refused(coop):
    """Nothing has run, and the context goes on."""
    total = coop.block.make_sum(np.int32, THREADS)
    X = np.arange(THREADS, dtype=np.int32)
    with stf.context(devices="cuda:0") as ctx:
        lX, lS = ctx.logical_data(X), ctx.logical_data_zeros(THREADS, np.int32)

        def each_element(i, x, s):
            s[i] = total(x[i])

        def each_thread(th, x, s):
            s[th.rank()] = total(x[th.rank()])

        with pytest.raises(TypeError, match="elements of parallel_for do not have"):
            ctx.parallel_for(lX.shape, lX.read(), lS.write())(each_element)
        with pytest.raises(TypeError, match=f"blocks of {THREADS} threads, .* groups have 64"):
            ctx.launch(par(2, con(64)), lX.read(), lS.write())(each_thread)
        flat = coop.block.make_sum(np.int32, (16, 8))
        with pytest.raises(TypeError, match="several dimensions"):
            ctx.launch(par(8, con(16)), lX.read(), lS.write())(adding(flat))
        for spec in (con(2, par(64)), con(), par(THREADS)):
            with pytest.raises(TypeError, match="the innermost level has to be one of groups|groups have"):
                ctx.launch(spec, lX.read(), lS.write())(each_thread)
        with pytest.raises(TypeError, match="code is for GPUs"):
            ctx.launch(par(1, con(THREADS)), stf.exec_place.host(), lX.read(), lS.write())(each_thread)
        ctx.fill(lS, 3)
        assert lS.numpy().tolist() == [3] * THREADS
