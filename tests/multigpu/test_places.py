"""Two GPUs: every construct at either, copies between them, memory of the other used where it lies.

On the stand-in for CUDA's driver: ``LD_LIBRARY_PATH=FOLDER PYTHONPATH=src:tests/fakecuda pytest tests/multigpu``.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from helpers import together

import stf

N = 1 << 16
ZERO, ONE = stf.exec_place.device(0), stf.exec_place.device(1)


def on(index):
    return stf.data_place.device(index)


@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n


@stf.task
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    assert x.device == y.device
    y += a * x


def peers():
    cupy = pytest.importorskip("cupy")
    try:
        return bool(cupy.cuda.runtime.deviceCanAccessPeer(0, 1))
    except AttributeError:  # the stand-in
        return cupy.cuda._reaches(0, 1)


# -- every construct -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [ZERO, ONE], ids=["0", "1"])
def test_every_construct_runs_where_it_is_told(ctx, place):
    X = np.zeros(N)
    lX = ctx.logical_data(X)
    seen = []

    def note(x):
        seen.append(x.device.id)
        x += 1

    add.on(place)(lX)
    with ctx.task(place, lX.rw()) as t:
        assert t.place == place
        note(t.cupy()[0])
    ctx.task(place, lX.rw())(note)
    ctx.task(lX.rw()).on(place)(note)
    with place:
        ctx.task(lX.rw())(note)
    t = ctx.task(lX.rw())
    t.set_exec_place(place).start()
    note(t.cupy()[0])
    t.end()
    with ctx.cuda_kernel(place, lX.rw()) as k:
        assert k.get_arg(0)
    ctx.submit_task(add, lX, place=place)
    assert seen == [place.index] * 5
    assert ctx.statistics().tasks_by_place[f"device({place.index})"] == 8
    assert ctx.statistics().copies == {("host", f"device({place.index})"): 1}
    launch = ctx.host_launch(lX.read())
    with pytest.raises(stf.PlaceError, match="host_launch runs on the host"):
        launch.on(place)
    launch(lambda x: seen.append(x.ctypes.data))
    assert (ctx.wait(lX) == 7).all()


def test_data_of_its_own_at_a_place(ctx):
    lX = ctx.logical_data_full(N, 2.0, where=on(1))
    lY = ctx.logical_data_full(N, 3.0, exec_place=1)
    with ONE:
        ctx.copy(lX, lY)
        ctx.fill(lX, 5.0)
    assert ctx.statistics().total_copies == 0
    assert ctx.statistics().tasks_by_place["device(1)"] == 4
    assert (ctx.wait(lX) == 5).all() and (ctx.wait(lY) == 2).all()
    ctx.prefetch(lY, on(0))
    copies = dict(ctx.statistics().copies)
    add.on(0)(lY)
    assert ctx.statistics().copies == copies  # it was there
    before = ctx.statistics().tasks_by_place["device(1)"]
    add.on(lX)(lX)  # where lX is
    assert ctx.statistics().tasks_by_place["device(1)"] == before + 1


def test_copies_go_from_device_to_device(ctx):
    X = np.arange(float(N))
    lX, lY = ctx.logical_data(X), ctx.logical_data_zeros(N)
    for k in range(6):
        add.on(k % 2)(lX)
        axpy.on(1 - k % 2)(1.0, lX, lY)
    copies = ctx.statistics().copies
    assert copies["host", "device(0)"] == 1 and ("host", "device(1)") not in copies
    assert copies["device(0)", "device(1)"] >= 5 and copies["device(1)", "device(0)"] >= 4
    assert (ctx.wait(lX) == np.arange(N) + 6).all()
    assert (ctx.wait(lY) == 6 * np.arange(N) + 21).all()


@pytest.mark.parametrize("index", [np.s_[::2, 1:5], np.s_[1::3, ::-2], np.s_[:, 3]], ids=str)
def test_strided_arrays_of_either_device(ctx, index):
    cupy = pytest.importorskip("cupy")
    for home in (0, 1):
        with cupy.cuda.Device(home):
            X = cupy.arange(48.0).reshape(8, 6)
            expected = X.get()
            cupy.cuda.get_current_stream().synchronize()
        lX = ctx.logical_data(X[index])
        assert f"valid on device({home})" in repr(lX)
        add.on(1 - home)(lX)
        lX.release()
        ctx.synchronize()
        expected[index] += 1
        with cupy.cuda.Device(home):
            assert (X.get() == expected).all()


def test_tiles_over_two_devices(ctx):
    X = np.zeros((8, 8))
    tiles = ctx.logical_data(X).tiles((4, 4))
    for i in range(2):
        for j in range(2):
            add.on((i + j) % 2)(tiles[i, j], 10 * i + j)
    del tiles
    ctx.synchronize()
    used = ctx.statistics().tasks_by_place
    assert used["device(0)"] == used["device(1)"] == 2
    ctx.finalize()
    assert (np.kron([[0, 1], [10, 11]], np.ones((4, 4))) == X).all()


def test_partial_results_on_two_devices(ctx):
    @stf.task
    def count(s: stf.Accumulate[stf.reducer.sum], n):
        s += n

    lS = ctx.logical_data_full(4, 100.0)
    for k in range(10):
        count.on(k % 2)(lS, k)
    assert (ctx.wait(lS) == 145).all()


def test_frozen_data_and_copies_at_either(ctx):
    lX = ctx.logical_data_full(N, 4.0)
    for place in (on(1), on(0)):
        with ctx.freeze(lX, "read", place) as frozen:
            x = frozen.get()
            assert x.device.id == place.index and float(x.sum()) == 4.0 * N
        y = ctx.wait(lX, data_place=place, arrays="cupy")
        assert y.device.id == place.index
        with y.device:
            assert float(y.sum()) == 4.0 * N


def test_grids_of_devices(ctx):
    assert [p.index for p in ctx.devices] == [0, 1] and len(ctx.devices) == 2
    lX = ctx.logical_data_zeros(4)
    with ctx:
        places = stf.exec_place.all_devices()
        assert list(places) == [ZERO, ONE]
        for place in places:
            add.on(place)(lX)
    with pytest.raises(stf.ContextClosedError):
        add(lX)


def test_outside_the_context():
    with stf.context(devices="cuda:1") as ctx:
        lX = ctx.logical_data_zeros(4)
        assert ctx.devices[0] == ONE
        for place in (0, ZERO, on(0)):
            with pytest.raises((stf.PlaceError, TypeError), match="device"):
                ctx.task(place, lX.rw())
        with pytest.raises(stf.PlaceError, match=r"data_place.device\(0\) is not in this context"):
            lX.read(on(0))


# -- memory of the other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_memory_of_a_peer_is_used_where_it_lies(ctx, library):
    pytest.importorskip(library)
    if not peers():
        pytest.skip("the devices have no access to each other")
    lX, lY = ctx.logical_data_full(N, 1.0, where=on(1)), ctx.logical_data_zeros(N)
    with ctx.task(ZERO, lX.rw(on(1)), lY.rw()) as t:
        x, y = t.arrays(library)
        assert str(x.device) == str(y.device)
        y += x
        x += 1
    assert ctx.statistics().total_copies == 0
    assert (ctx.wait(lX) == 2).all() and (ctx.wait(lY) == 1).all()


def test_memory_of_a_peer_out_of_reach(ctx):
    if peers():
        pytest.skip("the devices have access to each other")
    lX = ctx.logical_data_full(N, 1.0, where=on(1))
    with pytest.raises(stf.PlaceError, match="there is no access"), ctx.task(ZERO, lX.rw(on(1))) as t:
        t.cupy()
    add.on(0)(lX)
    assert (ctx.wait(lX) == 2).all()


def test_host_and_managed_memory_for_both(ctx):
    X = np.zeros(6)
    lX = ctx.logical_data(X)
    for where in (stf.data_place.host(), stf.data_place.managed()):
        for place in (ZERO, ONE):
            with ctx.task(place, lX.rw(where)) as t:
                (x,) = t.cupy()
                assert x.device.id == place.index
                x += 1
    assert (ctx.wait(lX) == 4).all()


def test_the_current_device_is_the_default_place(ctx):
    import cupy

    lX = ctx.logical_data_zeros(4)
    step = stf.replay(lambda x: add(x))
    for index, place in ((1, ONE), (0, ZERO), (1, ONE)):
        with cupy.cuda.Device(index):
            with ctx.task(lX.rw()) as t:
                assert t.place == place
            add(lX)
            step(lX)
            with stf.exec_place.device(1 - index), ctx.task(lX.rw()) as t:
                assert t.place == stf.exec_place.device(1 - index)
            with stf.context(devices="cuda:0") as other, other.task(other.logical_data_zeros(2).rw()) as t:
                assert t.place == ZERO
    assert (ctx.wait(lX) == 6).all()


def test_a_thread_stays_on_the_device_that_it_was_on(ctx):
    """Where none is current, the first one is, and nothing of ours makes it another; CUDA's runtime may, in a body."""
    import threading

    import cupy

    seen = []

    def work(device):
        if device is not None:
            cupy.cuda.Device(device).use()
        with stf.context(devices="cuda:1") as other:
            lX = other.logical_data(np.zeros(4))
            if device is not None:
                add(lX)
            other.fill(lX, 3.0)
            other.prefetch(lX, on(1))
            with other.task(lX.rw()) as t:
                t.stream_ptr()
            assert (lX.numpy() == 3).all()
        seen.append(cupy.cuda.Device().id)

    for device in (None, 0, 1):
        thread = threading.Thread(target=work, args=(device,))
        thread.start()
        thread.join(60)
    assert seen == [0, 0, 1]


@pytest.mark.parametrize("how", ["block", "function", "recorded"])
@pytest.mark.parametrize("devices", [None, "cuda:0,1", "cuda:1"])
def test_a_body_where_nothing_was_current_leaves_nothing_half_set(ctx, devices, how):
    """CuPy sets the device in a body, and CUDA's runtime notes it: the context that is current after it must agree."""
    import cupy
    from cuda.bindings import driver

    @stf.task
    def on_its_device(x: stf.ReadWrite):
        with x.device:
            x += 1

    def work():
        with stf.context(devices=devices) if devices else contextlib.nullcontext(ctx) as other:
            lX = other.logical_data(np.zeros(4))
            for _ in range(2):
                if how == "block":
                    with other.task(ONE, lX.rw()) as t:
                        on_its_device.fn(*t.cupy())
                elif how == "function":
                    on_its_device.on(ONE)(lX)
                else:
                    with other.task_graph() as graph:
                        on_its_device.on(ONE)(lX)
                    graph.launch()
                assert cupy.cuda.Device().id == 0  # which this process uses
                with cupy.cuda.Device(1):
                    mine = cupy.zeros(4)
                    mine += 39
                    assert mine.device.id == 1 and int(driver.cuCtxGetDevice()[1]) == 1
                assert (mine.get() == 39).all()
            assert (lX.numpy() == 2).all()

    together(work)
