"""Remote workers of a real Ray and a real Dask cluster on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stf

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(180)]


@pytest.fixture(scope="module", params=["ray", "dask"])
def devices(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip("cloudpickle")
    if request.param == "ray":
        ray = pytest.importorskip("ray")
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
        yield "ray:2"
        ray.shutdown()
        return
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield lambda: stf.remote(client)


@pytest.fixture
def ctx(devices: Any) -> Iterator[stf.Context]:
    with stf.context(devices=devices() if callable(devices) else devices) as context:
        yield context
        context.check_state()


@stf.task
def axpy(a: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += a * x


def test_content_goes_from_worker_to_worker(ctx: stf.Context) -> None:
    x, y = ctx.logical_data(np.arange(5.0)), ctx.logical_data_zeros(5)
    for i in range(20):
        axpy.on(i % 2)(1.0, x, y)
    assert np.array_equal(y.numpy(), 20 * np.arange(5.0))
    assert ctx.statistics().copies["device(0)", "device(1)"] >= 9


def test_large_arrays(ctx: stf.Context) -> None:
    X = np.random.default_rng(0).random(1 << 20)
    x, y = ctx.logical_data(X), ctx.logical_data_zeros(1 << 20)
    axpy.on(0)(1.0, x, y)
    axpy.on(1)(1.0, x, y)
    assert np.array_equal(y.numpy(), 2 * X)


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
    ctx.task(stf.exec_place.device(0), x.read(), y.write())(lambda x, y: os._exit(1))
    start = time.monotonic()
    with pytest.raises(stf.TaskFailedError) as caught:
        y.numpy()
    assert time.monotonic() - start < 5
    assert isinstance(caught.value.__cause__, stf.WorkerLostError)
    while ctx._driver.links[0].lost is not None:
        assert time.monotonic() - start < 60
        time.sleep(0.05)
    axpy.on(0)(2.0, x, z := ctx.logical_data_zeros(3))
    assert z.numpy().tolist() == [2.0] * 3


def test_actors_that_ray_has_no_room_for_are_a_named_error(devices: Any, monkeypatch: Any) -> None:
    if devices != "ray:2":
        pytest.skip("Dask's workers are there before")
    from stf._drivers.remote import ray_actors

    monkeypatch.setattr(ray_actors, "START_S", 0.5)
    monkeypatch.setattr(ray_actors, "WARN_S", 1.0)
    with pytest.raises(stf.WorkerLostError, match="Ray actors have not started in .* each needs a CPU"):
        stf.context(devices="ray:9")


@pytest.fixture
def dask_client(devices: Any) -> Any:
    if devices == "ray:2":
        pytest.skip("calls of Ray's actors are in order, and fail only with the actor")
    return devices().cluster.client


def fail_batches(count: int) -> None:
    """Let a process of Dask's fail so many batches that come from other workers."""
    from stf._drivers.remote import dask_actors

    left = [count]
    run = dask_actors.ActorWorker.run

    def failing(self: Any, sender: int, *rest: Any) -> None:
        if sender and left[0]:
            left[0] -= 1
            raise OSError("for a test")
        run(self, sender, *rest)

    failing.run = run  # type: ignore[attr-defined]
    dask_actors.ActorWorker.run = failing  # type: ignore[method-assign]


def heal() -> None:
    from stf._drivers.remote import dask_actors

    dask_actors.ActorWorker.run = getattr(dask_actors.ActorWorker.run, "run", dask_actors.ActorWorker.run)  # type: ignore[method-assign]


def test_a_batch_that_fails_is_sent_again(dask_client: Any, devices: Any) -> None:
    dask_client.run(fail_batches, 2)
    try:
        with stf.context(devices=devices()) as ctx:
            x, y = ctx.logical_data(np.arange(5.0)), ctx.logical_data_zeros(5)
            for i in range(10):
                axpy.on(i % 2)(1.0, x, y)
            assert np.array_equal(y.numpy(), 10 * np.arange(5.0))
            ctx.check_errors()
    finally:
        dask_client.run(heal)


def test_a_worker_that_others_cannot_reach_is_lost_by_name(dask_client: Any, devices: Any) -> None:
    dask_client.run(fail_batches, 1000)
    try:
        with stf.context(devices=devices()) as ctx:
            x, y = ctx.logical_data_ones(5, name="x"), ctx.logical_data_zeros(5, name="y")
            for i in range(10):
                axpy.on(i % 2)(1.0, x, y)
            with pytest.raises(stf.TaskFailedError) as caught:
                y.numpy()
            assert isinstance(caught.value.__cause__, stf.WorkerLostError)
            with pytest.raises(stf.WorkerLostError, match="cannot reach it"):
                raise caught.value.__cause__
            with contextlib.suppress(stf.TaskFailedError, ExceptionGroup):
                ctx.check_errors()
    finally:
        dask_client.wait_for_workers(2, timeout=60)
        dask_client.run(heal)


SHUT_DOWN = """
import numpy as np, ray, stf

def inc(x):
    x += 1

def start():
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

start()
for again in range(2):  # the actor of the first context has left its CPU
    with stf.context(devices="ray:1") as ctx:
        x = ctx.logical_data(np.zeros(1))
        ctx.task(stf.exec_place.device(0), x.rw())(inc)
        print("found", x.numpy())
ctx = stf.context(devices="ray:1")
x = ctx.logical_data(np.zeros(1))
ctx.task(stf.exec_place.device(0), x.rw())(inc)
ctx.synchronize()
ray.shutdown()
start()
ctx.task(stf.exec_place.device(0), x.rw())(inc)
try:
    x.numpy()
except stf.TaskFailedError as error:
    print("told", error)
try:
    ctx.finalize()
except stf.TaskFailedError as error:
    print("again", error)
with stf.context(devices="ray:1") as ctx:
    x = ctx.logical_data(np.ones(1))
    ctx.task(stf.exec_place.device(0), x.rw())(inc)
    print("found", x.numpy())
"""


def test_ray_that_is_shut_down_under_a_context_is_a_named_error() -> None:
    pytest.importorskip("ray")
    done = subprocess.run([sys.executable, "-c", SHUT_DOWN], capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("found [1.]") == 2 and "found [2.]" in done.stdout, done.stdout
    assert "told" in done.stdout and "Ray was shut down while a context had its actors" in done.stdout


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(TypeError, match=r"client is a distributed\.Client, got str"):
        stf.remote("tcp://127.0.0.1:1")
