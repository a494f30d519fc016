"""Tasks on both GPUs: a stream per place, in one task."""

from __future__ import annotations

import numpy as np
import pytest

import stf

N = 1 << 16


def test_a_stream_per_place_within_one_task(ctx):
    driver = pytest.importorskip("cuda.bindings.driver")
    cupy = pytest.importorskip("cupy")
    halves = [ctx.logical_data_full(N, 1.0, where=stf.data_place.device(i)) for i in range(2)]
    token = ctx.token()
    before = int(driver.cuCtxGetCurrent()[1])
    for k in range(3):
        places = [half.rw(stf.data_place.device(i)) for i, half in enumerate(halves)]
        with ctx.task(ctx.devices, *places, token.rw(), name="both") as t:
            assert t.place == ctx.devices and t.stream_ptrs() == [s.__cuda_stream__()[1] for s in t.streams]
            assert len(set(t.stream_ptrs())) == 2
            for i, (x, stream) in enumerate(zip(t.arrays(), t.streams, strict=True)):
                assert x.device.id == i and x.data.ptr == t.get_arg(i)
                with cupy.cuda.Device(i), cupy.cuda.Stream.from_external(stream):
                    x *= 2
                    x += k
        assert int(driver.cuCtxGetCurrent()[1]) == before
    assert ctx.statistics().total_copies == 0
    for half in halves:
        assert (ctx.wait(half) == 12).all()


def test_a_body_that_fails_on_a_grid(ctx):
    lX = ctx.logical_data_full(4, 1.0)
    with pytest.raises(ValueError, match="no"), ctx.task(ctx.devices, lX.rw(stf.data_place.device(0))) as t:
        assert len(t.streams) == 2
        raise ValueError("no")
    with pytest.raises(stf.TaskStateError, match="has ended"):
        t.streams
    with pytest.raises(stf.TaskFailedError):
        ctx.wait(lX)
    lX.accept()


def test_what_a_grid_does_not_take(ctx):
    lX = ctx.logical_data(np.zeros(4))
    with pytest.raises(stf.PlaceError, match="runs on 2 places, and .* has no data place; give it one"):
        ctx.task(ctx.devices, lX.rw())
    with pytest.raises(stf.PlaceError, match="one place, got a grid"):
        ctx.cuda_kernel(ctx.devices, lX.rw())
