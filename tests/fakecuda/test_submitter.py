"""The thread that gives bursts of work to CUDA: the same calls in the same order, and none asked about too early."""

from __future__ import annotations

import pytest

PRELUDE = """
import os, threading
import numpy as np
import pytest
import cupy, fakecuda, stf
from cuda.bindings import driver

def function(name):
    _, module = driver.cuModuleLoadData(b"x")
    return int(driver.cuModuleGetFunction(module, name)[1])

def calls(*names):
    return sum(fakecuda.calls(name) for name in names)
"""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


@pytest.mark.parametrize("thread", ["0", "1"])
def test_a_burst_is_the_same_calls_with_and_without_the_thread(run, thread):
    def body():
        n = 5000  # several times what the ring holds
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(8))
            add_one = function(b"add_one")
            ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
            ctx.synchronize()
            fakecuda.reset_calls()
            for _ in range(n):
                ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
            ctx.synchronize()
            assert calls("cuLaunchKernel") == n and n // 64 <= calls("cuEventRecord") <= n // 64 + 3
            assert ctx._driver.submitter.running == (os.environ["STF_SUBMIT_THREAD"] == "1")
            assert ctx._driver.submitter.pending() == 0
            assert x.numpy().tolist() == [n + 1.0] * 8
        assert fakecuda.leaks() == {}

    run(body, STF_SUBMIT_THREAD=thread)


@pytest.mark.thorough
def test_waits_between_streams_keep_their_order(run):
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            data = [ctx.logical_data(np.full(4, float(i))) for i in range(6)]
            axpy = function(b"axpy")
            expected = [float(i) for i in range(6)]
            rng = np.random.default_rng(int(os.environ["FAKECUDA_SEED"]))
            for step in range(2000):
                i, j = (int(k) for k in rng.permutation(6)[:2])
                where = stf.exec_place.device(int(rng.integers(2)))
                ctx.launch_kernel(axpy, (1, 4), 0.5, data[i].read(), data[j].rw(), np.uint64(4), place=where)
                expected[j] += 0.5 * expected[i]
                if step % 100 == 99:
                    ctx.fill(data[j], 1.0)
                    expected[j] = 1.0
            assert np.allclose([x.numpy()[3] for x in data], expected, rtol=1e-12)

    for seed in "12":
        run(body, STF_SUBMIT_THREAD="1", FAKECUDA_SEED=seed)


def test_it_wakes_after_a_rest(run):
    """The second burst comes when the thread has long gone to sleep."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            token = ctx.token()
            for _ in range(3):
                for _ in range(200):
                    with ctx.task(token.rw()):
                        pass
                ctx.synchronize()
                while not ctx._driver.submitter.sleeps:
                    pass

    run(body, STF_SUBMIT_THREAD="1")


def test_a_launch_that_cuda_refuses_raises_where_it_is_asked_for(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(8))
            add_one = function(b"add_one")
            for _ in range(50):
                ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
            with pytest.raises(stf.DriverError, match="cuLaunchKernel"):
                ctx.launch_kernel(add_one, (1, 4096), x.rw(), np.uint64(8))
            assert x.numpy().tolist() == [50.0] * 8

    run(body, STF_SUBMIT_THREAD="1")


def test_what_fails_in_the_thread_is_heard(run):
    def body():
        X = np.zeros(8)
        ctx = stf.context(devices="cuda:0")
        x = ctx.logical_data(X)
        add_one = function(b"add_one")
        ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
        ctx.synchronize()
        fakecuda.reset_calls("cuLaunchKernel:5:CUDA_ERROR_ILLEGAL_ADDRESS")
        with pytest.raises(stf.DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            for _ in range(2000):
                ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
            ctx.synchronize()
        with pytest.raises(stf.DriverError):
            ctx.finalize()
        assert (X == 0).all()

    run(body, STF_SUBMIT_THREAD="1")


def test_bodies_get_the_stream_after_what_was_submitted(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(8))
            add_one = function(b"add_one")
            for i in range(300):
                ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
                if i % 3 == 0:
                    with ctx.task(x.rw()) as t:
                        t.cupy()[0][:] *= 2
                        t.cupy()[0][:] -= 1
                if i % 7 == 0:
                    ctx.host_launch(x.rw())(lambda a: np.minimum(a, 5, out=a))
            value = 0.0
            for i in range(300):
                value += 1
                value = 2 * value - 1 if i % 3 == 0 else value
                value = min(value, 5) if i % 7 == 0 else value
            assert x.numpy().tolist() == [value] * 8

    run(body, STF_SUBMIT_THREAD="1")


def test_what_is_on_its_way_when_the_last_host_node_goes_stays_first(run):
    """While graphs have bodies on the host, all goes through the ring; what follows keeps behind that."""

    def body():
        from stf._drivers.cuda import host_nodes

        n = 700
        with stf.context(devices="cuda:0,1") as ctx:
            add_one, axpy = function(b"add_one"), function(b"axpy")
            for turn in range(12):
                x, y = ctx.logical_data_zeros(8), ctx.logical_data_zeros(8)
                ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
                ctx.synchronize()
                node = host_nodes.OwnNode(print)
                for _ in range(n):
                    ctx.launch_kernel(add_one, (1, 8), x.rw(), np.uint64(8))
                del node
                where = stf.exec_place.device(1)
                ctx.launch_kernel(axpy, (1, 8), 1.0, x.read(), y.rw(), np.uint64(8), place=where)
                assert y.numpy().tolist() == [n + 1.0] * 8, (turn, y.numpy())

    for thread in "01":
        run(body, STF_SUBMIT_THREAD=thread)
    run(body)


def test_kernels_behind_a_slow_body_on_the_host_are_submitted_at_once(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(8)), ctx.logical_data(np.zeros(8))
            add_one, axpy = function(b"add_one"), function(b"axpy")
            go = threading.Event()

            def wait(x):
                go.wait(60)

            for data in (x, y):
                ctx.launch_kernel(add_one, (1, 8), data.rw(), np.uint64(8))
                ctx.host_launch(data.rw())(wait)
            for _ in range(60):  # whether they run depends on both bodies, along 2 ** 60 ways
                ctx.launch_kernel(axpy, (1, 8), np.float64(0.5), x.rw(), y.rw(), np.uint64(8))
                ctx.launch_kernel(axpy, (1, 8), np.float64(-0.5), y.rw(), x.rw(), np.uint64(8))
            go.set()
            expected = np.ones((2, 8))
            for _ in range(60):
                expected[1] += 0.5 * expected[0]
                expected[0] -= 0.5 * expected[1]
            assert np.allclose([ctx.wait(x), ctx.wait(y)], expected)
        assert fakecuda.leaks() == {}

    run(body)
