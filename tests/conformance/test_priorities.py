"""Priorities of tasks: what is accepted, and which tasks come first."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from helpers import is_cuda, library, put, runs_kernels

import stf


@stf.task
def inc(x: stf.ReadWrite):
    put(x, (x if library(x) is np else x.get()) + 1)


class Steps:
    def __init__(self, value):
        self.value = value

    @stf.task
    def step(self, x: stf.ReadWrite):
        put(x, (x if library(x) is np else x.get()) + self.value)


def test_a_device_has_priorities(ctx):
    for device in ctx.devices:
        lowest, highest = device.priorities
        assert lowest >= 0 >= highest
        again = pickle.loads(pickle.dumps(device))
        assert again == copy.copy(device) == device
    with pytest.raises(stf.PlaceError, match=r"ask ctx.devices\[0\].priorities"):
        _ = stf.exec_place.device(0).priorities


@pytest.mark.not_captured("the body copies to the host")
@pytest.mark.parametrize("priority", [-1, 0, 3, -100, 10**30, np.int32(-2)])
def test_values_do_not_depend_on_priorities(ctx, priority):
    x = ctx.logical_data(np.zeros(4))
    for device in ctx.devices:
        inc.with_priority(priority).on(device)(x)
        inc.on(device).with_priority(priority)(x)
        Steps(2.0).step.with_priority(priority)(x)
        ctx.task(device, x.rw(), priority=priority)(inc.fn)
        if runs_kernels(ctx):

            def add_one(i, x):
                x[i] += 1

            ctx.parallel_for(device, x.shape, x.rw(), priority=priority)(add_one)
        else:
            inc(x)
    assert x.numpy().tolist() == [6.0 * len(ctx.devices)] * 4


@pytest.mark.parametrize("priority", ["high", 1.5, None, True])
def test_a_priority_is_an_integer(ctx, priority):
    x = ctx.logical_data(np.zeros(4))
    for use in (
        lambda: ctx.task(x.rw(), priority=priority),
        lambda: inc.with_priority(priority),
        lambda: ctx.parallel_for(x.shape, x.rw(), priority=priority),
    ):
        with pytest.raises(TypeError, match="priority is an integer"):
            use()
    inc(x)


def test_tasks_of_a_priority_have_streams_of_their_own(ctx_factory):
    ctx = ctx_factory()
    if ctx.devices[0].priorities == (0, 0) or ctx.engine.gathering is not None:
        pytest.skip("no priorities here")
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
    inc.with_priority(-2)(x)
    inc(y)
    inc.with_priority(-99)(x)
    inc.with_priority(99)(x)
    ctx.synchronize()
    lowest, highest = ctx.devices[0].priorities
    used = {lane.priority for lane in ctx.engine.root.lanes if lane.kind == 0}
    assert used == {max(-2, highest), 0, highest, lowest}


@pytest.mark.at_once("bodies of a graph run in its order")
def test_workers_take_higher_priorities_first():
    order, opened = [], threading.Event()
    with stf.context(devices="cpu", workers=1) as ctx:
        gate = ctx.logical_data(np.zeros(1))
        data = [ctx.logical_data(np.zeros(1)) for _ in range(6)]
        ctx.task(gate.rw())(lambda gate: opened.wait(30) and None)
        for number, (x, priority) in enumerate(zip(data, [0, -1, -5, 0, -5, -3], strict=True)):
            ctx.task(x.rw(), priority=priority)(lambda x, number=number: order.append(number))
        opened.set()
        ctx.synchronize()
    assert order == [2, 4, 5, 1, 0, 3]


def test_streams_of_cuda_have_the_priority(ctx_factory):
    ctx = ctx_factory()
    if not is_cuda(ctx) or ctx.engine.gathering is not None:
        pytest.skip("no CUDA here")
    x = ctx.logical_data(np.zeros(4))
    _, highest = ctx.devices[0].priorities
    with ctx.task(x.rw(), priority=highest) as t:
        assert priority_of(t.stream_ptr()) == highest
    with ctx.task(x.rw(), priority=0) as t:
        assert priority_of(t.stream_ptr()) == 0


def priority_of(pointer):
    from cuda.bindings import driver

    code, priority = driver.cuStreamGetPriority(int(pointer))
    assert code == driver.CUresult.CUDA_SUCCESS
    return priority
