"""Values on a GPU: random numbers with the bits of a CPU, tasks that run alone, NaN that the device finds itself."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf.contexts.rerun import rerun
from stf.tasks import validation


def filled(devices, kind, dtype, shape):
    with stf.context(devices=devices) as ctx:
        x = ctx.logical_data_empty(shape, dtype)
        getattr(ctx.random(42), kind)(x)
        return x.numpy().copy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(100_000,), (100, 200), (7, 11, 13), (3, 5, 7, 9), ()])
def test_random_numbers_have_the_bits_of_a_cpu(kind, dtype, shape):
    pytest.importorskip("numba_cuda")
    one, other = filled("cpu", kind, dtype, shape), filled("cuda:0", kind, dtype, shape)
    assert one.tobytes() == other.tobytes()


def test_replayed_kernels_have_the_numbers_of_the_program():
    pytest.importorskip("numba_cuda")

    def program(wrap, devices):
        with stf.context(devices=devices) as ctx:
            rng, x = ctx.random(3), ctx.logical_data_zeros(1000)
            found = []

            @wrap
            def step(x, rng):
                @ctx.parallel_for(x.shape, x.rw(), rng)
                def walk(i, x, g):
                    x[i] = x[i] + g.normal(i)

                rng.uniform(y)

            y = ctx.logical_data_zeros(10)
            for _ in range(6):
                step(x, rng)
                found.append(np.concatenate([x.numpy(), y.numpy()]))
            return np.array(found)

    plain = program(lambda fn: fn, "cuda:0")
    assert (program(stf.replay, "cuda:0") == plain).all()
    assert (program(lambda fn: fn, "cpu") == plain).all()


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_generators_of_libraries(library):
    pytest.importorskip(library)

    @stf.task(arrays=library)
    def noise(x: stf.Write, g: stf.Random):
        if library == "torch":
            x.normal_(generator=g)
        else:
            x[...] = g.standard_normal(x.size)

    def program(wrap):
        with stf.context(devices="cuda:0") as ctx:
            rng, x = ctx.random(3), ctx.logical_data_empty(100)
            step, found = wrap(lambda x, rng: noise(x, rng)), []
            for _ in range(4):
                step(x, rng)
                found.append(x.numpy().copy())
            return np.array(found)

    plain = program(lambda fn: fn)
    assert len(np.unique(plain)) == plain.size
    assert (program(lambda fn: fn) == plain).all()
    assert (program(stf.replay) == plain).all()


def test_a_task_of_the_gpu_runs_alone(tmp_path):
    pytest.importorskip("cupy")

    @stf.task
    def scale(a, x: stf.ReadWrite):
        x *= a

    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(np.arange(3.0), name="x")
        ctx.capsule(scale, tmp_path / "one.stf")
        scale(2.0, x)
    for devices in "cuda:0", "cpu":
        assert rerun(tmp_path / "one.stf", devices)["x"].tolist() == [0.0, 2.0, 4.0]


def test_finite_data_stay_on_the_device(monkeypatch):
    cupy = pytest.importorskip("cupy")
    copies = []
    content = validation.OnDevice.content
    monkeypatch.setattr(validation.OnDevice, "content", lambda self: copies.append(self) or content(self))

    @stf.task
    def divide(x: stf.Read, y: stf.ReadWrite):
        cupy.divide(y, x, out=y)

    with stf.context(devices="cuda:0", nan="error") as ctx:
        x, y = ctx.logical_data(np.ones(1 << 20), name="x"), ctx.logical_data(np.ones(1 << 20), name="y")
        divide(x, y)
        assert not copies
        ctx.fill(x, 0.0)
        with pytest.raises(stf.TaskFailedError, match="wrote inf at 0 in 'y', the first of 1048576 values"):
            divide(x, y)
        y.accept()


def test_the_cpu_and_the_gpu_compute_the_same():
    @stf.task
    def double(x: stf.ReadWrite):
        x *= 2

    def program(ctx):
        x = ctx.logical_data(np.arange(5.0), name="x")
        for _ in range(3):
            double(x)

    pytest.importorskip("cupy")
    assert stf.diff(program, {"devices": "cpu"}, {"devices": "cuda:0"}) is None
