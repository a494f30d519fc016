"""Kernels of Warp in bodies, on the task's stream, and its arrays as data."""

from __future__ import annotations

import numpy as np
import pytest

import stf

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
N = 1000


@pytest.fixture(scope="module")
def wp():
    warp = pytest.importorskip("warp")
    warp.init()
    import warp_kernels_of_tests

    warp.load_module(warp_kernels_of_tests, device="cuda:0")  # compiled before anything is captured
    return warp


def as_warp(wp, x):
    """Return the memory of a body's array as an array of Warp's, without a copy."""
    return wp.array(ptr=x.data.ptr, dtype=wp.float32, shape=x.shape, device="cuda:0")


def test_launches_in_a_body(run, wp):
    pytest.importorskip("cupy")
    from warp_kernels_of_tests import add

    @stf.task(arrays="cupy")
    def add_twice(x: stf.Read, y: stf.ReadWrite, stream: stf.Stream):
        mine = wp.Stream("cuda:0", cuda_stream=int(stream))
        for factor in (2.0, 3.0):
            wp.launch(add, dim=x.size, inputs=[factor, as_warp(wp, x), as_warp(wp, y)], stream=mine)

    X = np.arange(N, dtype=np.float32)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N, np.float32))
        return (
            lambda: add_twice(lX, lY),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 1 + 5 * count * X),
        )

    run(prepare)


def test_a_block_by_address(wp):
    from warp_kernels_of_tests import add

    with stf.context(devices="cuda:0") as ctx:
        lX, lY = ctx.logical_data(np.arange(N, dtype=np.float32)), ctx.logical_data(np.ones(N, np.float32))
        with ctx.task(lX.read(), lY.rw()) as t:
            x, y = (wp.array(ptr=t.get_arg(i), dtype=wp.float32, shape=(N,), device="cuda:0") for i in range(2))
            stream = wp.Stream("cuda:0", cuda_stream=int(t.stream_ptr()))
            wp.launch(add, dim=N, inputs=[4.0, x, y], stream=stream)
        assert (lY.numpy() == 1 + 4 * np.arange(N)).all()


def test_arrays_of_warp_are_registered_where_they_lie(wp):
    """What Warp computes on its own stream is waited for by hand, since its arrays name no stream."""
    pytest.importorskip("cupy")
    from warp_kernels_of_tests import add

    x = wp.array(np.arange(N, dtype=np.float32), dtype=wp.float32, device="cuda:0")
    y = wp.zeros(N, dtype=wp.float32, device="cuda:0")
    wp.launch(add, dim=N, inputs=[1.0, x, y], device="cuda:0")
    wp.synchronize_device("cuda:0")

    @stf.task(arrays="cupy")
    def double(y: stf.ReadWrite):
        y *= 2

    with stf.context(devices="cuda:0") as ctx:
        lX, lY = ctx.logical_data(x), ctx.logical_data(y)
        double(lY)
        with ctx.task(lX.read(), lY.read()) as t:
            a, b = t.cupy()
            assert (a.data.ptr, b.data.ptr) == (x.ptr, y.ptr)
        assert (lY.numpy() == 2 * np.arange(N)).all() and (lX.numpy() == np.arange(N)).all()
    assert (y.numpy() == 2 * np.arange(N)).all()
