"""Devices are opened when they are used for the first time: what a program does not use it has nothing on."""

from __future__ import annotations

import functools

import pytest

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821

PRELUDE = """
import threading
import numpy as np
import pytest
import fakecuda, stf
from cuda.bindings import driver

def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]

ok(driver.cuInit(0))

def active():
    return [i for i in range(4) if ok(driver.cuDevicePrimaryCtxGetState(i))[1]]

def on(i):
    return stf.exec_place.device(i)
"""


@pytest.fixture
def program(run):
    return functools.partial(run, FAKECUDA_DEVICES="4")


def test_a_context_opens_the_devices_that_it_uses(program):
    def body():
        ctx = stf.context()
        assert len(ctx.devices) == 4 and active() == [0]
        lX = ctx.logical_data(np.zeros(1000))
        with ctx.task(lX.rw()) as t:
            t.stream_ptr()
        assert active() == [0]
        with ctx.task(on(2), lX.rw()) as t:
            t.stream_ptr()
        assert active() == [0, 2]
        with ctx.task(lX.rw(stf.data_place.device(3))) as t:  # a kernel on one device reads the memory of another
            t.stream_ptr()
        assert active() == [0, 2, 3]
        lX.numpy()
        assert active() == [0, 2, 3]
        ctx.finalize()
        assert fakecuda.leaks() == {}, fakecuda.leaks()

    program(body)


@pytest.mark.parametrize("settings", [{"STF_PURE": "1"}, {"WITHOUT": "the module"}], ids=str)
def test_devices_that_cannot_be_driven_are_told(program, settings):
    """Where what drives CUDA cannot be imported, nothing runs on the CPU in silence."""

    def body():
        import os
        import sys

        from stf import config

        if "WITHOUT" in os.environ:
            sys.modules["stf._drivers.cuda.devices"] = None
        config.reload({})
        for devices in (None, "cuda", "cuda:0"):
            with pytest.raises(stf.PlaceError) as caught:
                stf.context(devices=devices)
            assert "this machine has 4 CUDA devices, and stf cannot use them: " in str(caught.value), caught.value
            assert "set STF_DEVICES=cpu to run without them" in str(caught.value)
            assert isinstance(caught.value.__cause__, ImportError)
        with stf.context(devices="cpu") as ctx:
            assert ctx.logical_data(np.ones(2)).numpy().tolist() == [1.0, 1.0]

    program(body, **settings)


def test_the_one_that_is_current_is_the_first(program):
    """Processes that share a machine, with a device each, have nothing on the others' devices."""

    def body():
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(2))))
        with stf.context() as ctx:
            X = np.arange(1000.0)
            lX, scalar = ctx.logical_data(X), ctx.logical_data(np.array(1.0))
            with ctx.task(lX.rw()) as t:
                t.stream_ptr()
            scalar.assign(scalar + 1)
            assert float(scalar) == 2.0
            with ctx.task("host", lX.rw()) as t:
                pass
            lX.numpy()
            with ctx.task("host", lX.rw(stf.data_place.managed())) as t:
                pass
        assert active() == [2]
        with stf.context(use_graph=True) as ctx, ctx.graph_scope():
            lX = ctx.logical_data(X)
            with ctx.task(lX.rw()) as t:
                t.stream_ptr()
        assert active() == [2]

    program(body)


def test_devices_reach_each_other_in_whatever_order_they_are_opened(program):
    """A copy between two of them is one call, in each direction."""

    def body():
        for order in ([3, 1, 2, 0], [0, 2, 3, 1]):
            with stf.context(devices="cuda:0,1,2,3") as ctx:
                lX = ctx.logical_data_zeros((64, 1 << 12), np.float64)
                for i in order:
                    with ctx.task(on(i), lX.rw()) as t:
                        t.stream_ptr()
                fakecuda.reset_calls()
                for i in order[::-1]:
                    with ctx.task(on(i), lX.rw()) as t:
                        t.stream_ptr()
                ctx.synchronize()
                assert fakecuda.calls("cuMemcpyPeerAsync") + fakecuda.calls("cuMemcpyAsync") == 3
            assert fakecuda.describe() == ""

    program(body)


def test_a_device_that_cannot_be_opened_is_told_by_the_task_that_needs_it(program):
    """The context goes on with its other devices, and opens it when that is possible."""

    def body():
        ctx = stf.context()
        X = np.ones(1000)
        lX = ctx.logical_data(X)
        for failing in ("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuCtxEnablePeerAccess", "cuMemPoolSetAccess"):
            fakecuda.reset_calls(f"{failing}:1+:CUDA_ERROR_OUT_OF_MEMORY")
            with pytest.raises(stf.DriverError) as caught, ctx.task(on(1), lX.rw()) as t:
                t.stream_ptr()
            assert "OUT_OF_MEMORY" in str(caught.value), caught.value
            fakecuda.reset_calls()
            with ctx.task(on(0), lX.read()) as t:
                t.stream_ptr()
        with ctx.task(on(1), lX.rw()) as t:
            t.stream_ptr()
        assert active() == [0, 1] and lX.numpy().tolist() == [1.0] * 1000
        ctx.finalize()
        assert fakecuda.leaks() == {}, fakecuda.leaks()

    program(body)


def test_threads_that_come_to_a_device_at_once_open_it_once(program):
    def body():
        ctx = stf.context()
        data = [ctx.logical_data(np.zeros(100)) for _ in range(8)]
        fakecuda.reset_calls()
        gate = threading.Barrier(8)

        def work(mine):
            gate.wait()
            for i in (3, 1, 2):
                with ctx.task(on(i), mine.rw()) as t:
                    t.stream_ptr()

        threads = [threading.Thread(target=work, args=(mine,)) for mine in data]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        ctx.synchronize()
        assert fakecuda.calls("cuMemPoolCreate") == 3 and fakecuda.calls("cuCtxEnablePeerAccess") == 12
        ctx.finalize()
        assert fakecuda.leaks() == {}, fakecuda.leaks()

    program(body)


@pytest.mark.parametrize("mode", ["RELAXED", "THREAD_LOCAL", "GLOBAL"])
def test_a_device_is_opened_beside_a_capture(program, mode):
    """Of a caller's stream on this thread, in whatever mode; what it captures is not spoilt."""

    def body():
        import cupy

        with stf.context() as ctx:
            lX = ctx.logical_data(np.zeros(1000))
            s = cupy.cuda.Stream(non_blocking=True)
            ok(
                driver.cuStreamBeginCapture(
                    s.ptr, getattr(driver.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{MODE}")
                )
            )
            with ctx.task(on(1), lX.rw()) as t:
                t.stream_ptr()
            graph = ok(driver.cuStreamEndCapture(s.ptr))
            assert active() == [0, 1]
            ok(driver.cuGraphInstantiate(graph, 0))

    program(body, f"MODE = {mode!r}\n")
