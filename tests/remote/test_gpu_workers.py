"""Workers with a GPU each: real ones, or those of the stand-in for CUDA, in processes of this machine.

Without a GPU: ``LD_LIBRARY_PATH=build/fakecuda PYTHONPATH=src:tests/fakecuda`` before the command.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from helpers import on_stand_in

import stf
from stf.devices.make import cuda_devices

pytest.importorskip("cloudpickle")
pytest.importorskip("cupy")
pytestmark = pytest.mark.skipif(cuda_devices() <= 0, reason="there is no GPU, and no stand-in for one")
FACTOR = 3.0


@stf.task
def axpy(a: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += a * x


@stf.task
def scale(y: stf.ReadWrite) -> None:
    y *= FACTOR


@pytest.fixture
def ctx() -> Any:
    with stf.context(devices="loopback:2xgpu") as context:
        yield context
        context.check_state()


def wait_for(condition: Any, timeout_s: float = 20.0) -> None:
    """Wait until something outside of this process has happened."""
    end = time.monotonic() + timeout_s
    done = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it took longer"
        done.wait(0.005)


def test_bodies_get_arrays_of_their_gpu(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(3)

    @stf.task
    def look(x: stf.ReadWrite) -> None:
        import cupy

        if not isinstance(x, cupy.ndarray):
            raise TypeError(f"it is a {type(x).__name__}")
        x += 1

    look.on(0)(x)
    look.on(1)(x)
    assert x.numpy().tolist() == [2.0] * 3


def test_content_goes_from_worker_to_worker(ctx: stf.Context) -> None:
    X, Y = np.arange(5.0), np.ones(5)
    x, y = ctx.logical_data(X), ctx.logical_data(Y)
    for i in range(20):
        axpy.on(i % 2)(1.0, x, y)
    axpy.on("auto")(1.0, x, y)
    assert np.array_equal(y.numpy(), 1 + 21 * np.arange(5.0))


def test_results_that_are_returned(ctx: stf.Context) -> None:
    y = ctx.logical_data_ones(3)
    ctx.task(stf.exec_place.device(1), y.rw())(lambda y: y + 1)
    assert y.numpy().tolist() == [2.0] * 3


def test_data_are_filled(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_empty((2, 3)), ctx.logical_data_zeros(3, np.complex128)
    ctx.fill(x, 2.5)
    scale.on(1)(x)
    scale.on(0)(y)
    assert x.numpy().tolist() == [[7.5] * 3] * 2 and y.numpy().tolist() == [0.0] * 3


def test_strided_arrays_are_copied(ctx: stf.Context) -> None:
    whole = np.arange(24.0).reshape(4, 6)
    x = ctx.logical_data(whole[::-2, 1::2])
    expected = whole[::-2, 1::2] * 3
    scale.on(1)(x)
    assert np.array_equal(x.numpy(), expected)


def test_accumulation(ctx: stf.Context) -> None:
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_zeros(4)
    for place in (0, 1, 0):
        ctx.task(stf.exec_place.device(place), x.read(), total.accumulate(stf.reducer.sum))(add_to)
    assert total.numpy().tolist() == [0.0, 3.0, 6.0, 9.0]


def add_to(x: Any, total: Any) -> None:
    total += x


def test_a_recording_is_kept(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)

    @stf.replay
    def step(x: Any, y: Any) -> None:
        axpy.on(0)(1.0, x, y)
        axpy.on(1)(1.0, x, y)

    for _ in range(6):
        step(x, y)
    assert y.numpy().tolist() == [12.0] * 3
    assert all(link.parcels for link in ctx._driver.links)


def test_a_failure_poisons_across_workers(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_zeros(3, name="x"), ctx.logical_data_zeros(3, name="y")

    @ctx.task(stf.exec_place.device(0), x.rw())
    def fails(x: Any) -> None:
        raise ZeroDivisionError("of a worker")

    axpy.on(1)(1.0, x, y)
    with pytest.raises(stf.TaskFailedError, match=r"'fails'.*ZeroDivisionError: of a worker"):
        y.numpy()


def test_a_worker_that_dies_is_named_and_used_again(ctx: stf.Context) -> None:
    x, y = ctx.logical_data(np.ones(3)), ctx.logical_data_empty(3, name="y")
    pid = ctx._driver.transport.processes[0]
    ctx.task(stf.exec_place.device(0), x.read(), y.write())(lambda x, y: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(stf.TaskFailedError) as caught:
        y.numpy()
    assert isinstance(caught.value.__cause__, stf.WorkerLostError)
    with contextlib.suppress(stf.TaskFailedError):
        ctx.check_errors()
    wait_for(lambda: ctx._driver.links[0].lost is None)
    assert ctx._driver.transport.processes[0] != pid
    axpy.on(0)(2.0, x, z := ctx.logical_data_zeros(3))
    assert z.numpy().tolist() == [2.0] * 3


def test_a_fault_of_the_gpu_is_a_lost_worker(ctx: stf.Context) -> None:
    if not hasattr(pytest.importorskip("fakecuda"), "reset_calls"):
        pytest.skip("a real GPU")
    x, y = ctx.logical_data_ones(3, name="x"), ctx.logical_data_zeros(3, name="y")

    def breaks(x: Any) -> None:
        import fakecuda

        fakecuda.reset_calls("work:1+:CUDA_ERROR_ILLEGAL_ADDRESS")
        x += 1

    ctx.task(stf.exec_place.device(0), x.rw())(breaks)
    axpy.on(1)(1.0, x, y)
    with pytest.raises(stf.TaskFailedError) as caught:
        y.numpy()
    assert isinstance(caught.value.__cause__, stf.WorkerLostError)
    with contextlib.suppress(stf.TaskFailedError):
        ctx.check_errors()


@pytest.mark.thorough
@pytest.mark.timeout(180)
@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_gpus_of_a_cluster(engine: str) -> None:
    with contextlib.ExitStack() as stack:
        devices: Any = "ray:2xgpu"
        if engine == "ray":
            ray = pytest.importorskip("ray")
            ray.init(num_cpus=3, num_gpus=2, include_dashboard=False, log_to_driver=False)
            stack.callback(ray.shutdown)
        else:
            distributed = pytest.importorskip("distributed")
            cluster = distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0")
            client = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
            devices = stf.remote(client, gpus=True)
        ctx = stack.enter_context(stf.context(devices=devices))
        x, y = ctx.logical_data(np.arange(5.0)), ctx.logical_data_zeros(5)
        for i in range(6):
            axpy.on(i % 2)(1.0, x, y)
        ctx.task(stf.exec_place.device(1), y.rw())(is_of_cupy)
        assert np.array_equal(y.numpy(), 6 * np.arange(5.0))


def is_of_cupy(y: Any) -> None:
    if type(y).__module__.partition(".")[0] != "cupy":
        raise TypeError(f"it is a {type(y).__name__}")


@pytest.fixture
def gpus(ctx: stf.Context) -> stf.Context:
    """The context, if the workers can compile kernels."""
    if on_stand_in() or importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no kernels there")
    return ctx


def test_a_loop_runs_on_the_gpu_of_a_worker(gpus: stf.Context) -> None:
    """It is compiled there; numbers around the body are as they are at each call."""
    ctx, factor = gpus, 2.0
    x, y, total = ctx.logical_data(np.arange(1000.0)), ctx.logical_data_zeros(1000), ctx.logical_data_empty(())

    def add(i: Any, x: Any, y: Any, more: Any) -> None:
        y[i] += factor * x[i] + more

    expected = np.zeros(1000)
    for n in range(4):
        factor = float(n)
        ctx.parallel_for(stf.exec_place.device(n % 2), x.shape, x.read(), y.rw(), args=(1,))(add)
        expected += factor * np.arange(1000.0) + 1
    ctx.parallel_for(stf.exec_place.device(1), x.shape, y.read(), total.reduce(stf.reducer.sum))(lambda i, y: y[i])
    assert np.array_equal(y.numpy(), expected)
    assert total.numpy() == pytest.approx(expected.sum())


def test_threads_run_on_the_gpu_of_a_worker(gpus: stf.Context) -> None:
    ctx, X = gpus, np.arange(1000.0)
    x, sums = ctx.logical_data(X), ctx.logical_data_zeros(4)

    def add_up(th: Any, x: Any, sums: Any) -> None:
        mine = th.storage(1, np.float64)
        total = 0.0
        for i in range(th.rank(), x.size, th.size()):
            total += x[i]
        mine[th.rank(1)] = total
        th.sync(1)
        if th.rank(1) == 0:
            for i in range(1, th.size(1)):
                total += mine[i]
            sums[th.rank(0)] = total

    hierarchy = stf.par(4, stf.con(16, stf.mem(16 * 8)))
    ctx.launch(hierarchy, stf.exec_place.device(1), x.read(), sums.write())(add_up)
    assert sums.numpy().sum() == X.sum()


def test_a_loop_that_cannot_be_compiled_there_fails_its_task(ctx: stf.Context) -> None:
    y = ctx.logical_data_zeros(3, name="y")
    with pytest.raises(TypeError, match="parallel_for"):  # what can be seen here is told here
        ctx.parallel_for(stf.exec_place.device(0), (3,), y.rw())(lambda i, j, k, y: None)
    ctx.parallel_for(stf.exec_place.device(0), (3,), y.rw())(wrong)
    with pytest.raises(stf.TaskFailedError, match="wrong"):
        y.numpy()


def wrong(i: Any, y: Any) -> None:
    y[i] = np.linalg.no_such_function(y)
