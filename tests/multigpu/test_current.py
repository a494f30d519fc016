"""Which device, and which of CuPy's streams, are current in a thread after tasks on two devices."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")


@pytest.fixture
def ctx():
    cupy.cuda.Device(0).use()
    with stf.context(devices="cuda:0,1") as ctx:
        yield ctx
        ctx.check_state()
    cupy.cuda.Device(0).use()


def on(index):
    return stf.data_place.device(index)


def streams():
    return [cupy.cuda.get_current_stream(i).ptr for i in range(2)]


@pytest.mark.parametrize("how", ["use", "with"])
def test_a_body_that_uses_the_stream_that_was_current_leaves_it_so(ctx, how):
    mine = cupy.cuda.Stream(non_blocking=True)

    @stf.task
    def uses(x: stf.ReadWrite):
        x += 1
        mine.use()

    lX = ctx.logical_data(np.zeros(4))
    with mine if how == "with" else contextlib.nullcontext():
        mine.use()
        with ctx.task(lX.rw()) as t:
            t.cupy()[0][...] += 1
            mine.use()
        assert streams() == [mine.ptr, 0]
        uses(lX)
        assert streams() == [mine.ptr, 0]
        with ctx.task(lX.rw()) as t:
            mine.use()
            t.cupy()[0][...] += 1
            assert streams() == [t.stream_ptr(), 0]
        assert streams() == [mine.ptr, 0]
    cupy.cuda.Stream.null.use()
    assert lX.numpy().tolist() == [3.0] * 4


def test_tasks_on_the_host_and_on_devices_overlap_in_any_order(ctx):
    kinds = [(0, on(0)), (1, on(1)), ("host", on(0)), ("host", on(1))]
    data = [ctx.logical_data(np.zeros(4)) for _ in range(2)]
    for before in (0, 1):
        cupy.cuda.Device(before).use()
        for first in kinds:
            for second in kinds:
                for order in ((0, 1), (1, 0)):
                    tasks = [ctx.task(p, x.rw(d)) for x, (p, d) in zip(data, (first, second), strict=True)]
                    for task in tasks:
                        task.start().cupy()
                    for i in order:
                        tasks[i].end()
                    assert cupy.cuda.Device().id == before and streams() == [0, 0], (first, second, order)
        with ctx.task("host", data[0].rw(on(1))) as t:
            t.cupy()
            cupy.cuda.Device(1 - before).use()
        assert cupy.cuda.Device().id == before


def test_a_dropped_task_on_several_places_leaves_no_stream_current(ctx):
    lX = ctx.logical_data(np.zeros(4))
    task = ctx.task(ctx.devices, lX.rw(on(1))).start()
    task.arrays()
    del task
    with pytest.raises(ExceptionGroup, match="3 tasks failed"):
        ctx.synchronize()
    lX.accept()
    assert cupy.cuda.Device().id == 0 and streams() == [0, 0]


def test_who_ends_the_task_of_a_thread_that_is_gone_stays_on_its_device(ctx):
    """The operating system gives the new thread the number of the old one."""
    seen, box = [], []
    lX = ctx.logical_data(np.zeros(4))

    def starts():
        cupy.cuda.Device(1).use()
        box.append(ctx.task(stf.exec_place.device(0), lX.rw()).start())
        box[0].cupy()

    def ends():
        cupy.cuda.Device(0).use()
        box.pop().end()
        seen.append(cupy.cuda.Device().id)

    for _ in range(5):
        for work in (starts, ends):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert seen == [0] * 5


def test_the_first_place_of_a_grid_is_current_in_its_task(ctx):
    lX = ctx.logical_data(np.zeros(4))
    for grid in (ctx.devices, stf.exec_place.grid([ctx.devices[1], ctx.devices[0]])):
        first = grid.places[0].index
        with ctx.task(grid, lX.rw(on(first))) as t:
            assert cupy.cuda.Device().id == first
            t.arrays()[0][...] += 1  # no warning that it lies elsewhere
    assert cupy.cuda.Device().id == 0
    assert lX.numpy().tolist() == [2.0] * 4
