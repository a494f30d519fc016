"""Kernels of ``cupyx.jit``: a body calls them as usual, on the current stream, which is the task's."""

from __future__ import annotations

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
N = 1000
X = np.arange(float(N))


@pytest.fixture(scope="module")
def add():
    jit = pytest.importorskip("cupyx.jit")

    @jit.rawkernel()
    def add(x, y, a):
        i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        if i < x.shape[0]:
            y[i] = y[i] + a * x[i]

    return add


def test_a_launch_in_a_body(run, add):
    @stf.task(arrays="cupy")
    def add_twice(x: stf.Read, y: stf.ReadWrite):
        add[8, 128](x, y, cupy.float64(2))
        add((8,), (128,), (x, y, cupy.float64(3)))

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N))
        return (
            lambda: add_twice(lX, lY),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 1 + 5 * count * X),
        )

    run(prepare)


def test_its_kernel_is_no_kernel_of_ours(add):
    """It is compiled when it is called: the message says where it runs."""
    with stf.context(devices="cuda:0") as ctx:
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N))
        with pytest.raises(TypeError, match=r"cupyx\.jit.* call it in the body of a task"):
            stf.kernel(add)[8, 128](lX.read(), lY.rw(), 2.0)
        assert (lY.numpy() == 1).all()


def test_elementwise_kernels_and_fusion(run):
    scaled = cupy.ElementwiseKernel("float64 x, float64 a", "float64 y", "y = a * x", "scaled")
    norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "squares")

    @cupy.fuse()
    def fused(x, y):
        return x + 2 * y

    @stf.task(arrays="cupy")
    def step(x: stf.Read, y: stf.ReadWrite, s: stf.Write):
        scaled(x, 2.0, y)
        y[...] = fused(x, y)
        s[...] = norm(y)

    def prepare(ctx):
        lX, lY, lS = ctx.logical_data(X), ctx.logical_data_zeros(N), ctx.logical_data_empty(())

        def check(count):
            np.testing.assert_allclose(lY.numpy(), 5 * X)
            np.testing.assert_allclose(lS.numpy(), 25 * (X * X).sum())

        return lambda: step(lX, lY, lS), check

    run(prepare)
