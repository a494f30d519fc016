"""Short loops on a CPU: one piece, with nothing around it that takes longer than the loop."""

from __future__ import annotations

import os

import numpy as np
import pytest
from helpers import QUICK

import stf
from stf.kernels import loop_tasks
from stf.kernels.loop_tasks import LoopTask
from stf.kernels.loops import CompiledLoop

pytest.importorskip("numba")
if QUICK and (stf.config.pure or os.environ.get("STF_TEST_DEVICES")):
    pytest.skip("it is the same uncompiled, and on the host of a GPU; make test-all shows it", allow_module_level=True)

OPERATORS = ["sum", "product", "minval", "maxval"]


@pytest.fixture
def cpu():
    """A context with workers that could take a part of each loop."""
    with stf.context(devices="cpu", workers=2) as ctx:
        yield ctx


@pytest.fixture
def blocks(monkeypatch):
    """Count the reductions that run in blocks, with results of their own."""
    seen = []
    reduce = LoopTask.reduce

    def counted(self, *given):
        seen.append(self)
        return reduce(self, *given)

    monkeypatch.setattr(LoopTask, "reduce", counted)
    return seen


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint32, np.float32, np.float64, np.complex128])
def test_a_short_reduction_gives_the_same_at_once_and_in_blocks(cpu, name, dtype):
    if name in ("minval", "maxval") and np.dtype(dtype).kind == "c":
        pytest.skip("complex numbers have no order")
    X = (np.random.default_rng(1).integers(1, 4, 37) + 0.25).astype(dtype)
    x, s = cpu.logical_data(X), cpu.logical_data_empty((), dtype)
    found = []
    for _ in range(3):
        cpu.parallel_for(x.shape, x.read(), s.reduce(getattr(stf.reducer, name)))(lambda i, x: x[i])
        found.append(np.asarray(cpu.wait(s), dtype).tobytes())
    assert len(set(found)) == 1
    numpy = {"sum": np.sum, "product": np.prod, "minval": np.min, "maxval": np.max}[name]
    assert np.frombuffer(found[0], dtype)[0] == pytest.approx(numpy(X).astype(dtype), rel=1e-5)


def test_only_the_first_short_reduction_runs_in_blocks(cpu, blocks):
    x, s = cpu.logical_data(np.arange(100.0)), cpu.logical_data_empty((), float)
    for _ in range(5):
        cpu.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))(total)
        assert cpu.wait(s) == 4950.0
    assert len(blocks) == 1


def total(i, x):
    return x[i]


def test_two_scalars_and_arguments_between(cpu, blocks):
    x = cpu.logical_data(np.arange(1.0, 6.0))
    s, p = cpu.logical_data_empty((), float), cpu.logical_data_empty((), np.int64)
    for scale in 1.0, 2.0, 3.0:
        cpu.parallel_for(x.shape, s.reduce(stf.reducer.sum), x.rw(), p.reduce(stf.reducer.product), args=(scale,))(both)
        assert cpu.wait(s) == 15.0 * scale and cpu.wait(p) == 120
    assert len(blocks) == 1
    assert (x.numpy() == np.arange(1.0, 6.0)).all()


def both(i, x, scale):
    return x[i] * scale, int(x[i])


def test_what_accumulates_and_what_is_empty(cpu):
    x, s = cpu.logical_data(np.arange(10.0)), cpu.logical_data(np.array(100.0))
    for k in range(3):
        cpu.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum, accumulate=True))(total)
        assert cpu.wait(s) == 100.0 + 45.0 * (k + 1)
    for _ in range(3):
        cpu.parallel_for((0,), x.read(), s.reduce(stf.reducer.sum))(total)
        assert cpu.wait(s) == 0.0


def test_float32_sums_are_added_up_in_float64(cpu, blocks):
    X = np.full(1000, 0.1, np.float32)
    x, s = cpu.logical_data(X), cpu.logical_data_empty((), np.float32)
    for _ in range(3):
        cpu.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))(total)
        assert cpu.wait(s) == np.float32(X.astype(float).sum())
    assert len(blocks) == 3


def test_one_slow_measurement_does_not_cut_a_short_loop():
    loop = CompiledLoop(None, None, None)
    loop.took(4.0)
    loop.took(4000.0)  # another thread had the core
    assert loop.cost_ns == 5.0
    loop.took(3.0)
    assert loop.cost_ns == 3.0
    for _ in range(40):
        loop.took(4000.0)  # it has become slow
    assert loop.cost_ns == 4000.0


def test_a_short_loop_looks_at_the_clock_now_and_then(cpu, monkeypatch):
    looks = []
    clock = loop_tasks.perf_counter_ns
    monkeypatch.setattr(loop_tasks, "perf_counter_ns", lambda: looks.append(0) or clock())
    x = cpu.logical_data_zeros(8)
    for _ in range(320):
        cpu.parallel_for(x.shape, x.rw())(add_one)
    assert (x.numpy() == 320).all()
    assert len(looks) < 320


def add_one(i, x):
    x[i] += 1
