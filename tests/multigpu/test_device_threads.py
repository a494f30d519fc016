"""Bodies of two GPUs, each called by a thread of its device (`submit_threads=True`)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
PATIENCE_S = 30
N = 1 << 20


@pytest.fixture
def spread():
    with stf.context(devices="cuda:0,1", submit_threads=True) as ctx:
        yield ctx
        ctx.check_state()


def test_bodies_meet(spread):
    meeting, idents = threading.Barrier(2, timeout=PATIENCE_S), {}

    @stf.task
    def meet(x: stf.ReadWrite, where):
        meeting.wait()  # one thread alone would wait in vain
        assert x.device.id == where == cupy.cuda.Device().id
        idents.setdefault(where, set()).add(threading.get_ident())
        x += where

    data = [spread.logical_data(np.zeros(N)) for _ in range(2)]
    for _ in range(10):
        for where in range(2):
            meet.on(where)(data[where], where)
    assert [float(x.numpy().sum()) for x in data] == [0.0, 10.0 * N]
    assert [len(idents[where]) for where in range(2)] == [1, 1] and not idents[0] & idents[1]


def test_what_goes_from_one_to_the_other(spread):
    """Each task needs what one on the other device has written: its stream waits for an event of another thread's."""

    @stf.task
    def axpy(a, x: stf.Read, y: stf.ReadWrite):
        y += a * x

    rng = np.random.default_rng(5)
    expected = np.arange(4.0)
    data = [spread.logical_data(np.full(N, value)) for value in expected]
    for step in range(400):
        i, j = (int(k) for k in rng.permutation(4)[:2])
        axpy.on(step % 2)(0.125, data[i], data[j])
        expected[j] += 0.125 * expected[i]
        if expected[j] > 1e5:
            spread.fill(data[j], 1.0)
            expected[j] = 1.0
    for x, value in zip(data, expected, strict=True):
        assert np.allclose(x.numpy(), value, rtol=1e-12)


def test_generators_of_random_numbers_are_used_in_order():
    @stf.task
    def draw(x: stf.Write):
        x[:] = cupy.random.random(x.shape)
        cupy.cuda.get_current_stream().synchronize()  # the device's generator has one state for all streams

    drawn = []
    for threads in False, True:
        for device in range(2):
            with cupy.cuda.Device(device):
                cupy.random.seed(7)
        with stf.context(devices="cuda:0,1", submit_threads=threads) as ctx:
            data = [ctx.logical_data_empty(1000) for _ in range(20)]
            for i, x in enumerate(data):
                draw.on(i % 2)(x)
            drawn.append([x.numpy() for x in data])
    assert all((one == two).all() for one, two in zip(*drawn, strict=True))
