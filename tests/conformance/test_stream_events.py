"""Events that tasks record on their streams, and the time between them."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
from helpers import is_cuda

import stf


def is_recorded(ctx):
    return is_cuda(ctx) and ctx.engine.gathering is not None


def test_the_time_of_one_task(ctx):
    x = ctx.logical_data(np.ones(1000))
    if is_recorded(ctx):
        with pytest.raises(stf.CaptureError, match="is recorded in a graph, where an event has no time yet"):
            with ctx.task(x.rw()) as t:
                t.record_event()
        return
    with ctx.task(x.rw(), name="first") as t:
        start = t.record_event()
        if not is_cuda(ctx):
            time.sleep(0.01)
        end = t.record_event()
    with ctx.task(x.rw()) as t:
        later = t.stream.record_event()
    later.synchronize()
    assert start.done() and end.done() and later.done()
    assert start.elapsed_time(start) == 0
    assert (10 if not is_cuda(ctx) else 0) <= start.elapsed_time(end) <= start.elapsed_time(later) < 10_000
    assert end.elapsed_time(start) <= 0
    assert (start.handle is None) == (not is_cuda(ctx))
    with pytest.raises(stf.TaskStateError, match="record_event"):
        t.record_event()
    with pytest.raises(TypeError, match=r"elapsed_time takes an event of t.record_event\(\), got int"):
        start.elapsed_time(3)


def test_events_of_two_clocks(ctx):
    if not is_cuda(ctx) or is_recorded(ctx):
        pytest.skip("one clock")
    x = ctx.logical_data(np.ones(10))
    with ctx.task(x.rw()) as t:
        on_device = t.record_event()
    with ctx.task("host", x.rw()) as t:
        on_host = t.record_event()
        callbacks = t.stream.record_event()
    assert on_host.handle is None and callbacks.handle is not None
    with pytest.raises(ValueError, match=r"the events are of cuda:0 and of the host, whose clocks differ"):
        on_device.elapsed_time(on_host)
    assert on_device.elapsed_time(callbacks) >= 0


def test_bodies_that_take_their_stream(ctx):
    took_ms = []

    @stf.task
    def double(x: stf.ReadWrite, stream: stf.Stream | None = None):
        start = stream.record_event()
        x *= 2
        took_ms.append(start.elapsed_time(stream.record_event()))

    x = ctx.logical_data(np.ones(10))
    if is_recorded(ctx):
        return
    double(x)
    double.on("host")(x)
    assert x.numpy().tolist() == [4.0] * 10
    assert len(took_ms) == 2 and all(0 <= ms < 10_000 for ms in took_ms)


def test_events_outlive_their_context(ctx_factory):
    with ctx_factory() as ctx:
        if is_recorded(ctx):
            return
        with ctx.task(ctx.logical_data(np.ones(10)).rw()) as t:
            events = [t.record_event() for _ in range(3)]
    assert events[0].elapsed_time(events[-1]) >= 0
    del events, t
    gc.collect()
