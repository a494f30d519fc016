"""The CUDA driver on the stand-in: how many calls it makes, what it does when calls fail, and what it leaves behind.

Each test runs in a process of its own, as those of the stand-in itself do.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821


def test_strided_copies_are_few_calls(run):
    def body():
        whole = np.arange(4.0 * 6 * 8 * 10).reshape(4, 6, 8, 10)
        cases = [
            (whole, 1),
            (whole[1], 1),
            (whole[:, :, :, ::1][0, 0], 1),
            (whole[0, 0, :, :5], 1),  # rows with gaps
            (whole[0, :, :3, :5], 1),  # blocks of them
            (whole[:, :, :3, :5], 1),  # of which two axes are one
            (whole[:, :3, :3, :5], 3),  # as few blocks as can be
            (np.asfortranarray(whole[0, 0]), 1),
            (whole[0, 0].T, 1),
        ]
        for array, expected in cases:
            with stf.context() as ctx:
                lX = ctx.logical_data(array, write_back=False)
                fakecuda.reset_calls()
                with ctx.task(lX.read()) as t:
                    assert (t.arrays()[0].get() == array).all()
                assert calls(*COPIES) == expected, (array.shape, array.strides, calls(*COPIES))
        nothing_left()

    run(body)


def test_write_back_of_strided_arrays(run):
    def body():
        whole = np.zeros((6, 8, 10))
        views = [whole[::2, 1::3, ::-2], whole[1::2, ::3, 1:4], whole[1::2, 2, 5:].T]
        with stf.context() as ctx:
            for k, view in enumerate(views):
                add.on(k % 2)(ctx.logical_data(view), k + 1)
        expected = np.zeros((6, 8, 10))
        expected[::2, 1::3, ::-2] += 1
        expected[1::2, ::3, 1:4] += 2
        expected[1::2, 2, 5:] += 3
        assert (whole == expected).all()
        nothing_left()

    run(body, FAKECUDA_SEED="1")


def test_a_base_array_is_registered_once(run):
    def body():
        X = np.zeros((64, 4096))
        small = np.zeros(10)
        with stf.context() as ctx:
            rows = [ctx.logical_data(X[i : i + 8]) for i in range(0, 64, 8)]
            add(ctx.logical_data(small))
            for k, row in enumerate(rows):
                add.on(k % 2)(row)
            assert calls("cuMemHostRegister") == 1
            del rows, row
            ctx.synchronize()
            again = ctx.logical_data(X)
            add(again)
            assert calls("cuMemHostRegister") == 1  # it was found again
        assert (X == 2).all() and small[0] == 1
        assert calls("cuMemHostUnregister") == 1
        nothing_left()

    run(body)


@pytest.mark.parametrize("place", [None, "host"])
def test_arrays_with_gaps_that_have_no_base(run, place):
    """All of the memory that they reach is registered, and nothing else."""

    def body():
        pitch, place = 4096, PLACE and stf.data_place.host()
        frame = bytearray(200 * pitch)
        pitched = np.ndarray((200, 1000), np.uint8, buffer=frame, strides=(pitch, 1))
        whole = np.zeros((400, 1000))
        address = whole.__array_interface__["data"][0]
        arrays = {
            "pitched": (pitched, pitched),
            "memoryview": (memoryview(whole)[::2], whole[::2]),
            "columns": (stf.view(address, (400, 500), float, (8000, 16), owner=whole), whole[:, ::2]),
            "backwards": (
                stf.view(address + whole.nbytes - 8, (200, 1000), float, (-16000, -8), owner=whole),
                whole[::-2, ::-1],
            ),
        }
        for name, (array, seen) in arrays.items():
            for k in range(2):
                with stf.context(devices="cuda:0") as ctx:
                    x = ctx.logical_data(array)
                    if place is None:
                        add(x)
                    else:
                        with ctx.task(x.rw(place)) as t:
                            t.cupy()[0][...] += 1
                assert (seen == k + 1).all(), name
            whole[...] = 0
        nothing_left()

    run(body, f"PLACE = {place!r}\n")


def test_memory_that_cannot_be_registered_is_used_as_it_is(run):
    def body():
        X = np.zeros(1 << 16)
        with stf.context() as ctx:
            lX = ctx.logical_data(X)
            for k in range(6):
                add.on(k % 2)(lX)
        assert (X == 6).all() and calls("cuMemHostRegister") >= 1 and calls("cuMemHostUnregister") == 0
        nothing_left()

    run(body, FAKECUDA_FAIL="cuMemHostRegister:1+:CUDA_ERROR_OUT_OF_MEMORY", FAKECUDA_SEED="2")


def test_a_full_device_evicts_and_tries_again(run):
    def body():
        n = 1 << 17  # a MiB each, of which three fit
        arrays = [np.full(n, float(k)) for k in range(8)]
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(a) for a in arrays]
            for _ in range(2):
                for l in data:
                    add(l)
            ctx.synchronize()
            assert ctx.statistics().evictions["device(0)"] > 0
        assert [a[0] for a in arrays] == [a[-1] for a in arrays] == [k + 2.0 for k in range(8)]
        nothing_left()

    run(body, FAKECUDA_MEMORY=str(3 << 20), FAKECUDA_SEED="3")


def test_what_copies_need_is_let_go_by_whoever_sees_them_done(run):
    def body():
        import gc
        import weakref

        for timeout in (None, 20.0):
            with stf.context(devices="cuda:0") as ctx:
                X, Y = np.ones(1000), np.zeros(1)
                lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
                add(lX)
                add(lY)
                ctx.synchronize(timeout=timeout)
                gone = weakref.ref(X)
                del lX, X
                ctx.synchronize(timeout=timeout)
                gc.collect()
                assert gone() is None, timeout

    run(body)


def test_what_goes_may_keep_something_itself(run):
    """What a stream keeps may let others run when it goes: they find the list as it is then."""

    def body():
        class Noisy:
            def __init__(self, more):
                self.more = more

            def __del__(self):
                gone.append(self.more)
                if self.more:
                    driver.keep_alive(stream, Noisy(self.more - 1))

        gone = []
        with stf.context(devices="cuda:0") as ctx:
            driver = ctx._driver
            stream = driver.stream_create(0)
            for k in range(3):
                driver.keep_alive(stream, Noisy(k))
            for sequence in range(1, 5):
                driver.record(stream, sequence)
                driver.synchronize(stream, sequence, -1.0)
            assert sorted(gone) == [0, 0, 0, 1, 1, 2], gone
            driver.stream_destroy(stream)

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_a_host_body_between_device_tasks_keeps_its_place(run, seed):
    def body():
        X = np.zeros(100)
        seen = []
        with stf.context() as ctx:
            lX = ctx.logical_data(X)
            for k in range(20):
                add.on(k % 2)(lX)
                ctx.host_launch(lX.rw())(lambda x: (seen.append(x[0]), x.__imul__(2), None)[-1])
                with ctx.task((k + 1) % 2, lX.rw()) as t:
                    t.arrays()[0][:] += 1
            ctx.task("host", lX.read())(lambda x: seen.append(x[-1]))
        value, expected = 0, []
        for _ in range(20):
            expected.append(value + 1)
            value = (value + 1) * 2 + 1
        assert seen == [*expected, value] and (value == X).all()
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


def test_content_is_there_when_the_host_reads_it(run):
    def body():
        with stf.context() as ctx:
            for k in range(300):  # the host's stream has the buffer of the one before to free
                assert ctx.logical_data_full(2, k).numpy().tolist() == [k, k]
        nothing_left()

    run(body, FAKECUDA_SEED="13")


@pytest.mark.parametrize("peer", [0, 1])
def test_devices_exchange_data_with_and_without_peer_access(run, peer):
    def body():
        X, Y = np.zeros((40, 50)), np.ones((40, 25))

        @stf.task
        def mix(x: stf.ReadWrite, y: stf.Read):
            x += y

        with stf.context() as ctx:
            lX, lY = ctx.logical_data(X[:, ::2]), ctx.logical_data(np.asfortranarray(Y))
            for k in range(10):
                mix.on(k % 2)(lX, lY)
                add.on((k + 1) % 2)(lY)
            assert any("host" not in route for route in ctx.statistics().copies)
            assert calls("cuCtxEnablePeerAccess") == 2 * int(os.environ["FAKECUDA_PEER"])
        assert (X[:, ::2] == sum(range(1, 11))).all() and (X[:, 1::2] == 0).all()
        nothing_left()

    run(body, FAKECUDA_PEER=str(peer), FAKECUDA_SEED="5")


def test_more_tasks_than_a_ring_has_events(run):
    def body():
        X, Y = np.zeros(4), np.zeros(4)
        with stf.context() as ctx:
            lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
            fence = None
            for k in range(2000):
                add(lX)
                if k % 500 == 0:
                    add.on(1)(lY)
                    fence = ctx.fence()
            fence.synchronize()
            assert lX.numpy()[0] == 2000
            assert fakecuda.counts()["events"] <= 4 * 512
        assert X.tolist() == [2000] * 4 and Y.tolist() == [4] * 4
        nothing_left()

    run(body)


def test_two_contexts_share_resources(run):
    def body():
        resources = stf.Resources()
        X, Y = np.zeros(1 << 16), np.zeros(1 << 16)
        one, two = stf.context(resources=resources), stf.context(resources=resources)
        lX, lY = one.logical_data(X), two.logical_data(Y)
        for k in range(20):
            add.on(k % 2)(lX)
            add.on((k + 1) % 2)(lY, 2)
        one.finalize()
        assert (X == 20).all()
        two.finalize()
        assert (Y == 40).all()
        streams = fakecuda.counts()["streams"]
        for _ in range(3):
            with stf.context(resources=resources) as again:
                for k in range(20):
                    add.on(k % 2)(again.logical_data(X))
        assert fakecuda.counts()["streams"] <= streams + 4 and (X == 80).all()
        resources.close()
        nothing_left()

    run(body, FAKECUDA_SEED="7")


@pytest.mark.parametrize(
    "call", ["work:20", "cuMemcpyAsync:3", "cuEventRecord:15", "cuMemAllocFromPoolAsync:2", "cuEventCreate:3"]
)
def test_a_sticky_error_loses_the_context_and_nothing_else(run, call):
    def body():
        X, Y = np.full(1 << 16, 3.0), np.full(8, 4.0)
        ctx = stf.context()
        lX, lY = ctx.logical_data(X, name="X"), ctx.logical_data(Y, name="Y")
        told = []
        try:
            for k in range(200):
                add.on(k % 2)(lX)
                with ctx.task(lY.rw()) as t:
                    t.arrays()[0][:] += 1
                ctx.host_launch(lY.read())(lambda y: None)
            ctx.synchronize()
        except BaseException as error:
            told.append(error)
        try:
            ctx.finalize()
        except BaseException as error:
            told.append(error)
        ctx.finalize()
        text = " ".join(f"{type(e).__name__} {e} {e.__cause__!r}" for e in told)
        assert "DriverError" in text and "CUDA_ERROR_ILLEGAL_ADDRESS" in text, text
        assert (X == 3).all() and (Y[0] == Y).all() and 4 <= Y[0] <= 204
        assert ctx._driver.leaks() == (0, 0, 0, 0)
        assert "; in flight there: " in text
        with pytest.raises(stf.Error):
            add(lX)

    run(body, FAKECUDA_FAIL=f"{call}:CUDA_ERROR_ILLEGAL_ADDRESS")


@pytest.mark.parametrize(
    "call",
    ["cuDevicePrimaryCtxRetain:1", "cuMemPoolCreate:1", "cuStreamCreateWithPriority:1", "cuEventCreate:1"],
)
def test_a_first_device_that_cannot_be_opened_costs_nothing(run, call):
    """What had been taken before is given back, and the next context opens it; test_opening.py has the other devices."""

    def body():
        with pytest.raises(stf.DriverError):
            stf.context()
        nothing_left()
        X = np.zeros(8)
        with stf.context() as ctx:
            add(ctx.logical_data(X))
        assert X.tolist() == [1] * 8
        nothing_left()

    run(body, FAKECUDA_FAIL=call)


def test_a_primary_context_is_made_once(run):
    """As in CUDA's runtime it stays to the end of the process, and what others made in it stays with it."""

    def body():
        from cuda.bindings import driver

        def is_active(ordinal):
            return bool(driver.cuDevicePrimaryCtxGetState(ordinal)[2])

        def use():
            X = np.zeros(4)
            with stf.context(devices="cuda:1") as ctx:
                ctx.fill(ctx.logical_data(X), 5.0)
                with ctx.task() as t:
                    t.stream_ptr()  # now the context of the device is current
                    event = driver.cuEventCreate(0)[1]
            assert X.tolist() == [5.0] * 4
            return event

        events = use(), use()
        assert is_active(1) and not is_active(0)
        assert [int(driver.cuEventQuery(event)[0]) for event in events] == [0, 0]

    run(body, FAKECUDA_DEVICES="2")


def test_validation_watches_what_is_on_devices(run):
    def tools():
        from graph_tools import axpy

        def check_kernels(ctx):
            """``axpy(a, x, y, n)`` writes n elements of y."""
            lA, lB = ctx.logical_data(np.arange(4.0), name="A"), ctx.logical_data(np.ones(4), name="B")
            ctx.launch_kernel(axpy, (1, 1), 2.0, lA.read(), lB.rw(), 4)
            assert lB.numpy().tolist() == [1, 3, 5, 7]
            with pytest.raises(
                stf.AccessError, match="task 'kernel' changed logical data 'B' .written by task 'kernel'"
            ):
                ctx.launch_kernel(axpy, (1, 1), 2.0, lA.read(), lB.read(), 4)
            with pytest.raises(TypeError, match="has 4 parameters, got 3"):
                ctx.launch_kernel(axpy, (1, 1), 2.0, lA.read(), lB.write())
            with pytest.raises(TypeError, match="parameter 0"):
                ctx.launch_kernel(axpy, (1, 1), None, lA.read(), lB.write(), 4)  # refused before anything is filled
            lC = ctx.logical_data(np.ones(4), name="C")
            with pytest.raises(stf.AccessError, match="'C' with write.. and left .* of 32 bytes untouched"):
                ctx.launch_kernel(axpy, (1, 1), 2.0, lA.read(), lC.write(), 2)
            with pytest.raises(stf.TaskFailedError):
                lC.numpy()
            ctx.fill(lC, 0.0)  # which heals
            with pytest.raises(stf.AccessError, match="changed logical data 'C'"):
                with ctx.cuda_kernel(lA.read(), lC.read()) as k:
                    k.launch(axpy, 1, 1, (1.0, k.get_arg(0), k.get_arg(1), 4))

    def body():
        def told(ctx, name, *accesses):
            def decorate(body):
                with pytest.raises(stf.Error) as caught:
                    ctx.task(*accesses, name=name)(body)
                return f"{caught.value} {caught.value.__cause__}"

            return decorate

        whole = cupy.zeros((6, 4))
        with stf.context(devices="cuda:0") as ctx:
            lX, lY = ctx.logical_data(np.arange(4.0), name="X"), ctx.logical_data_empty(4, name="Y")
            lZ = ctx.logical_data(whole[:, ::2], name="Z")
            ctx.task(lX.read(), lY.write(), name="author")(lambda x, y: np.add(x, 1, out=y) is None or None)
            text = told(ctx, "thief", lY.read())(lambda y: cupy.add(y, 1, out=y) is None or None)
            assert "thief" in text and "changed logical data 'Y'" in text and "written by task 'author'" in text, text
            lW = ctx.logical_data_empty((2, 3), name="W")
            text = told(ctx, "half", lW.write())(lambda w: cupy.add(w[0], 1, out=w[0]) is None or None)
            assert "left 24 of 48 bytes untouched" in text or "left 48 of 48 bytes" in text, text
            with pytest.raises(stf.AccessError, match="changed logical data 'Z'"), ctx.task(lZ.read()) as t:
                t.cupy()[0][1, 1] = 5
            with ctx.task(lX.rw(), lZ.rw()) as t:
                for array in t.cupy():
                    array += 1
            assert lX.numpy().tolist() == [1, 2, 3, 4]
            check_kernels(ctx)
        cupy.get_default_memory_pool()
        del whole, t, array, lX, lY, lZ, lW
        import gc

        gc.collect()
        nothing_left()

    run(body, tools, STF_VALIDATE="1", FAKECUDA_SEED="2")


@pytest.mark.parametrize("thread", ["0", "1"])
def test_a_users_device_array_outlives_the_work_on_it(run, thread):
    """It is given up while a kernel still works on it: nobody else may get its memory."""

    def body():
        import ctypes
        import weakref

        from cuda.bindings import driver

        cupy.cuda.Device(0).use()  # which keeps the context of the device when ours is gone
        gate = threading.Event()
        kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda parameters, dimensions: gate.wait())
        fakecuda.add_kernel("slow", "p", ctypes.cast(kernel, ctypes.c_void_p).value)
        with stf.context(devices="cuda:0") as ctx:
            array = cupy.zeros(16)
            alive = weakref.ref(array)
            lX = ctx.logical_data(array)
            with ctx.task(lX.rw()):
                pass
            slow = int(driver.cuModuleGetFunction(driver.cuModuleLoadData(b"x")[1], b"slow")[1])
            ctx.launch_kernel(slow, (1, 1), lX.rw())
            del array, lX
            with ctx.task(ctx.token().rw()):
                pass  # what was dropped is given up
            assert alive() is not None
            gate.set()
            ctx.synchronize()
            with ctx.task(ctx.token().rw()):
                pass
            assert alive() is None
        nothing_left()

    run(body, STF_SUBMIT_THREAD=thread)


def test_tiles_and_reversed_views_are_pinned_as_one_array(run):
    def body():
        whole = np.arange(64.0).reshape(8, 8)
        with stf.context(devices="cuda:0") as ctx:
            lX = ctx.logical_data(whole[::-1, ::-1])
            tiles = lX.tiles((3, 3)).ravel().tolist()
            fakecuda.reset_calls()
            for tile in tiles:
                with ctx.task(tile.read(stf.data_place.host())) as t:
                    t.get_arg(0)
            assert calls("cuMemHostRegister") == 1
            del tiles, tile, t
        nothing_left()

    run(body)


def test_streams_of_tasks_that_overlap(run):
    """Each view makes its task's stream current; whoever ends last, the caller's stream is current in the end."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y, z = (ctx.logical_data(np.zeros(4)) for _ in range(3))

            def current():
                return cupy.cuda.get_current_stream().ptr

            for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)):
                tasks = [ctx.task(d.rw()).start() for d in (x, y, z)]
                pointers = [t.stream_ptr() for t in tasks]
                assert len(set(pointers)) == 3 and current() == 0
                for k in (0, 1, 2, 0):
                    tasks[k].cupy()[0][:] += 1
                    assert current() == pointers[k]
                for k in order:
                    tasks[k].cupy()[0][:] *= 2
                    assert current() == pointers[k]
                    tasks[k].end()
                assert current() == 0
            with ctx.task(x.rw()) as outer:
                outer.cupy()
                with ctx.task(y.rw()) as inner:
                    inner.cupy()
                    assert current() == inner.stream_ptr()
                assert current() == outer.stream_ptr()
            assert current() == 0
            assert x.numpy()[0] == 2 * (2 * (2 * (2 * 2 + 2) + 2) + 2)

    run(body)


def test_the_callers_stream_comes_back_whatever_the_body_did(run):
    def body():
        current = cupy.cuda.get_current_stream

        @stf.task
        def looks(x: stf.ReadWrite, t: stf.Task):
            t.arrays()[0][:] += 1

        @stf.task
        def raises(x: stf.ReadWrite, t: stf.Task):
            t.arrays()
            raise ValueError

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4), write_back=False)
            looks(x)
            assert current().ptr == 0
            with pytest.raises(stf.TaskFailedError):
                raises(y)
            assert current().ptr == 0
            y = ctx.logical_data_zeros(4)
            task = ctx.task(y.rw()).start()
            task.cupy()
            del task
            looks(x)  # what was never ended is found now
            ctx.task_fence()
            assert current().ptr == 0
            with pytest.raises(stf.TaskFailedError, match="dropped while it was open"):
                ctx.synchronize()

    run(body)


def test_registering_a_device_array_is_few_calls(run):
    """One to know what its maker's stream has so far; nothing when it goes unused."""

    def body():
        with stf.context() as ctx:
            array = cupy.zeros(64)
            for _ in range(600):  # a lane makes its events once
                ctx.logical_data(array)
            fakecuda.reset_calls()
            for _ in range(100):
                ctx.logical_data(array)
            assert calls("cuEventRecord") == 100 and calls("cuStreamWaitEvent") == 0
            assert calls("cuCtxGetCurrent") == 100  # the default stream is that of the current context
            assert calls("cuEventCreate", "cuEventQuery", "cuEventSynchronize", "cuStreamSynchronize") <= 10
            lX = ctx.logical_data(array)  # and what was used is waited for
            add(lX)
            del lX
            again = ctx.logical_data(array)
            add(again)
            assert (again.numpy() == 2).all()
        del array
        nothing_left()

    run(body, before="@stf.task\ndef add(x: stf.ReadWrite):\n    x += 1\n")


@pytest.mark.parametrize("seed", range(3))
def test_the_host_waits_for_every_stream_that_a_body_needs(run, seed):
    """Several streams of two devices, some of them twice; what is done already is not waited for."""

    def body():
        with stf.context() as ctx:
            data = [ctx.logical_data(np.full(1000, float(k))) for k in range(9)]
            seen = []
            for turn in range(4):
                for k, item in enumerate(data):
                    for _ in range(1 + (k + turn) % 3):
                        add.on((k + turn) % 2)(item)
                read = [item.read() for item in data[turn:]] + [item.rw() for item in data[:turn]]
                ctx.host_launch(*read)(lambda *arrays: seen.append([float(a[0]) for a in arrays + arrays[-1:]]))
                if turn % 2:
                    ctx.synchronize()
        values = [float(k) for k in range(9)]
        for turn, found in enumerate(seen):
            values = [value + 1 + (k + turn) % 3 for k, value in enumerate(values)]
            expected = values[turn:] + values[:turn]
            assert found == expected + expected[-1:], (turn, found, expected)
        assert len(seen) == 4
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


def test_programs_that_failed_once(run):
    """122912: what an eviction freed came after the very body that was to wait for it."""

    def body():
        import sys

        sys.path[:0] = os.environ["STF_TEST_FOLDERS"].split(os.pathsep)
        from programs import run_program

        for seed in (122912,):
            run_program(seed)

    folders = [str(TESTS / name) for name in ("properties", "")]
    run(body, STF_TEST_DEVICES="cuda:0", STF_TEST_FOLDERS=os.pathsep.join(folders))
