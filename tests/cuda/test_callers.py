"""Callers' streams on a GPU: CuPy's, torch's and captured ones; loans and fences that other libraries wait for."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import stf
from stf.contexts import callers

N = 1000


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    gc.collect()
    for driver in list(callers.shared._drivers.values()):
        driver.look()
        assert driver.live_allocations == 0 and driver.errors == [] and driver.lost is None
    callers.shared.close()


@stf.task(arrays="cupy")
def add(x: stf.ReadWrite, n=1):
    x += n


@stf.task(arrays="torch")
def add_torch(x: stf.ReadWrite, n=1):
    x.add_(n)


def busy_kernel(cupy, milliseconds=200):
    """Keep the current stream busy."""
    code = r"""
    extern "C" __global__ void spin(long long cycles) {
        long long start = clock64();
        while (clock64() - start < cycles) {}
    }"""
    cupy.RawKernel(code, "spin")((1,), (1,), (np.int64(milliseconds * 1_500_000),))


# -- contexts on a stream --------------------------------------------------------------------------------------------


def test_work_comes_after_the_stream_and_the_host_waits_for_none():
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros(N)
    X = np.zeros(N)  # pageable
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stf.context(stream=stream) as ctx:  # what is made once
        add(ctx.logical_data(x))
        add(ctx.logical_data(X))
    stream.synchronize()
    assert (x.get() == 1).all() and (X == 1).all()
    with stream:
        busy_kernel(cupy)
        x += 1
    with stf.context(stream=stream) as ctx:
        lx, lX = ctx.logical_data(x), ctx.logical_data(X)
        for _ in range(10):
            add(lx)
            add(lX)
    assert not stream.done  # the host is here, and the stream is not
    with stream:
        x *= 2
    stream.synchronize()
    assert (x.get() == 24).all() and (X == 11).all()
    ctx.check_errors()


def test_contexts_on_one_stream_are_ordered():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    X, big = np.zeros(N), np.zeros(1 << 18)
    with stream:
        busy_kernel(cupy, 50)
    for _ in range(50):
        with stf.context(stream=stream) as ctx:
            lX, lB = ctx.logical_data(X), ctx.logical_data(big)
            for _ in range(10):
                add(lX)
                add(lB, 2)
    stream.synchronize()
    assert (X == 500).all() and (big == 1000).all()


def test_bodies_on_the_host_are_waited_for():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    X = np.zeros(N)
    with stf.context(stream=stream) as ctx:
        lX = ctx.logical_data(X)
        for _ in range(10):
            add(lX)
            ctx.host_launch(lX.rw())(lambda x: 2 * x)
    stream.synchronize()
    assert (X == 2046).all()


def test_torch_streams():
    torch = pytest.importorskip("torch")
    pytest.importorskip("cupy")
    x = torch.zeros(N, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x.add_(1)
    with stf.context(stream=stream) as ctx:
        lx = ctx.logical_data(x)
        for _ in range(20):
            add_torch(lx)
            add(lx)
    with torch.cuda.stream(stream):
        x.mul_(2)
    stream.synchronize()
    assert (x == 82).all()


@pytest.mark.parametrize("pointer", [0, 1, 2])
def test_default_streams(pointer):
    cupy = pytest.importorskip("cupy")
    X = np.zeros(N)
    with stf.context(stream=pointer) as ctx:
        add(ctx.logical_data(X))
    cupy.cuda.Device().synchronize()
    assert (X == 1).all()


def test_streams_of_cuda_core():
    core = pytest.importorskip("cuda.core")
    pytest.importorskip("cupy")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    X = np.zeros(N)
    with stf.context(stream=stream) as ctx:
        add(ctx.logical_data(X))
    stream.sync()
    assert (X == 1).all()


def test_shared_resources_overlap_and_are_given_back():
    pytest.importorskip("cupy")
    resources = stf.Resources()
    arrays = [np.zeros(1 << 17) for _ in range(2)]
    contexts = [stf.context(devices="cuda:0", resources=resources) for _ in arrays]
    for ctx, array in zip(contexts, arrays, strict=True):
        data = ctx.logical_data(array)
        for _ in range(100):
            add(data)
        ctx.submit()
    assert resources.statistics().drivers["cuda:0"].allocations == 2
    for ctx in contexts:
        ctx.finalize()
    assert all((array == 100).all() for array in arrays)
    told = resources.statistics().drivers["cuda:0"]
    assert told.streams == 0 and told.allocations == 0
    resources.close()


# -- streams that are being captured ---------------------------------------------------------------------------------


def test_a_captured_context_is_replayed_with_cupy():
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(
        'extern "C" __global__ void axpy(double a, const double* x, double* y, long long n) {'
        " long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }",
        "axpy",
    )
    n = 1 << 18
    x, X, Y = cupy.zeros(n), np.zeros(n), np.zeros(N)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stf.context(stream=stream) as ctx:  # what is loaded once
        ctx.launch_kernel(kernel, (1, 1), 1.0, ctx.logical_data(x).read(), ctx.logical_data_zeros(n).rw(), 0)
        add(ctx.logical_data(Y), 0)
    stream.synchronize()
    stream.begin_capture()
    with stf.context(stream=stream) as ctx:
        lx, lX, lY = ctx.logical_data(x), ctx.logical_data(X), ctx.logical_data(Y)
        for _ in range(10):
            lT = ctx.logical_data_empty(n)
            with ctx.task(lT.write()) as t:
                t.cupy()[0].fill(1.0)
            ctx.launch_kernel(kernel, (n // 256, 256), 1.0, lT.read(), lx.rw(), n)
            ctx.launch_kernel(kernel, (n // 256, 256), 2.0, lT.read(), lX.rw(), n)
            add(lY)
            del lT
        with pytest.raises(
            stf.CaptureError, match="task 'wait' .test_callers.py:.* cannot be captured: it runs on the host"
        ):
            ctx.wait(lX)
        told = []
        ctx.host_launch(lX.read(), lY.read())(lambda X, Y: told.append((X[-1], Y[-1])))
    graph = stream.end_capture()
    assert (X == 0).all() and (Y == 0).all()
    for k in range(1, 6):
        graph.launch(stream)
        stream.synchronize()
        assert (x.get() == k * 10).all() and (k * 20 == X).all() and (k * 10 == Y).all()
    Y[:] = 5
    graph.launch(stream)
    stream.synchronize()
    assert (Y == 15).all()
    assert told == [(k * 20, k * 10) for k in range(1, 6)] + [(120, 15)]
    del graph


def test_a_captured_context_is_replayed_with_torch():
    torch = pytest.importorskip("torch")
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    with stf.context(stream=torch.cuda.current_stream()) as ctx:
        add_torch(ctx.logical_data(x), 0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.add_(1)
        with stf.context(stream=torch.cuda.current_stream()) as ctx:
            lx, ly = ctx.logical_data(x), ctx.logical_data(y)
            for _ in range(30):
                add_torch(lx)
                add_torch(ly, 2)
        x.mul_(2)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    expected = 0
    for _ in range(3):
        expected = (expected + 30) * 2
    assert (x == expected).all() and (y == 183).all()
    graph.reset()


def test_more_tasks_than_a_ring_in_a_capture():
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros(N)
    x += 0
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    stream.begin_capture()
    with stf.context(stream=stream) as ctx:
        lx = ctx.logical_data(x)
        for _ in range(1200):
            add(lx)
    graph = stream.end_capture()
    graph.launch(stream)
    graph.launch(stream)
    stream.synchronize()
    assert (x.get() == 2400).all()
    with stf.context(stream=stream) as ctx:  # the streams are usable again
        add(ctx.logical_data(x))
    stream.synchronize()
    assert (x.get() == 2401).all()


def test_a_graph_keeps_the_arrays_that_it_uses():
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros(N)
    x += 0
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    stream.begin_capture()
    with stf.context(stream=stream) as ctx:
        lx, lT = ctx.logical_data(x), ctx.logical_data(np.full(N, 3.0), write_back=False)

        @stf.task(arrays="cupy")
        def both(t: stf.Read, y: stf.ReadWrite):
            cupy.add(y, t, out=y)

        both(lT, lx)
        del lT
    graph = stream.end_capture()
    gc.collect()
    for _ in range(4):
        graph.launch(stream)
    stream.synchronize()
    assert (x.get() == 12).all()


# -- loans and fences ------------------------------------------------------------------------------------------------


def test_frozen_data_on_a_callers_stream():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stf.context(devices="cuda:0") as ctx:
        lX = ctx.logical_data(np.zeros(N))
        add(lX)
        with ctx.freeze(lX, data_place=stf.data_place.device(0)) as frozen:
            x = frozen.get(stream=stream)
            with stream:
                busy_kernel(cupy, 50)
                total = x.sum()
        add(lX)  # after what is on the stream
        with ctx.freeze(lX, "rw", stf.data_place.device(0)) as frozen, stream:
            x = frozen.get(stream=stream)
            busy_kernel(cupy, 50)
            x *= 10
        add(lX)
        assert lX.numpy().tolist() == [21.0] * N
        assert float(total) == N


def test_other_libraries_wait_for_a_fence():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stf.context(devices="cuda:0") as ctx:
        x = cupy.zeros(N)
        lx, lX = ctx.logical_data(x), ctx.logical_data(np.zeros(N))
        for _ in range(50):
            add(lx)
            ctx.host_launch(lX.rw())(lambda a: a + 1)
        fence = ctx.fence()
        event = cupy.cuda.Event()
        event.record(cupy.cuda.Stream.from_external(fence))
        stream.wait_event(event)
        with stream:
            copy = x.copy()
        stream.synchronize()
        assert (copy.get() == 50).all() and fence.done


def test_waits_inside_bodies_are_refused():
    pytest.importorskip("cupy")
    with stf.context(devices="cuda:0") as ctx:
        lX, lY = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
        frozen, fence = ctx.freeze(lY), ctx.fence()
        told = []
        waits = (lY.numpy, ctx.synchronize, ctx.finalize, frozen.get, fence.synchronize, lY.accept)

        @stf.task(arrays="cupy")
        def body(x: stf.ReadWrite):
            for wait in waits:
                with pytest.raises(stf.TaskStateError, match="inside the body of a task"):
                    wait()
                told.append(wait)

        body(lX)
        assert len(told) == 6
        frozen.unfreeze()
