"""Places on the stand-in for CUDA: streams and contexts of users, managed memory, data used where they lie."""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the preludes.
# ruff: noqa: F821


def prelude():

    from cuda.bindings import driver

    def ok(result):
        assert int(result[0]) == 0, result
        return result[1] if len(result) == 2 else result[1:]

    ok(driver.cuInit(0))

    def current():
        return int(ok(driver.cuCtxGetCurrent()))

    class Kernel:
        """The stand-in's kernel that adds 1 to n doubles, as cuda.core would give it."""

        def __init__(self):
            ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
            library = ok(driver.cuLibraryLoadData(b"anything", [], [], 0, [], [], 0))
            self.handle = int(ok(driver.cuLibraryGetKernel(library, b"add_one")))

    Kernel.__module__ = "cuda.stand_in"

    class Gate:
        """Holds a host function until it is opened."""

        def __init__(self):
            self.lock = threading.Event()

        def __call__(self, *arrays):
            assert self.lock.wait(20)

        def open(self):
            self.lock.set()

    class OwnContext:
        """A CUDA context that is no device's primary one, as an object with a handle."""

        is_green = True

        def __init__(self, ordinal):
            self.handle = ok(driver.cuCtxCreate(None, 0, ordinal))
            ok(driver.cuCtxPopCurrent())

        def destroy(self):
            ok(driver.cuCtxDestroy(self.handle))


def on_stand_in(run):
    """``run`` with the names of this module's prelude too."""
    return lambda function, **settings: run(function, prelude, **settings)


@pytest.fixture
def program(run):
    return on_stand_in(run)


# -- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_tasks_run_on_a_callers_stream_in_his_order(program, seed):
    def body():
        X = np.arange(1000.0)
        with stf.context() as ctx:
            ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(1))))
            stream = ok(driver.cuStreamCreate(1))
            place = stf.exec_place.cuda_stream(int(stream))
            assert place.index == 1 and place.affine_data_place == stf.data_place.device(1)
            lX = ctx.logical_data(X)
            address = []
            with ctx.task(place, lX.rw()) as t:
                assert t.stream_ptr() == int(stream) and t.place == place
                address.append(t.get_arg(0))
                t.cupy()[0][...] *= 2
            ok(driver.cuMemsetD8Async(address[0], 0, 8, stream))  # his own work, after the task

            @stf.task
            def check(x: stf.ReadWrite, s: stf.Stream):
                assert s.__cuda_stream__() == (0, int(stream))
                assert x.device.id == 1
                x += 1

            check.on(place)(lX)
            for _ in range(3):
                ctx.launch_kernel(Kernel(), (8, 128), lX.rw(), 1000, place=place)
            with place, ctx.task(lX.rw()) as t:
                assert t.stream_ptr() == int(stream)
                t.cupy()[0][...] += 1
            add(lX)  # on device 0, after all of it
            assert ctx.statistics().tasks_by_place[repr(place)] == 6
            assert list(ctx.statistics().copies) == [("host", "device(1)"), ("device(1)", "device(0)")]
        expected = np.arange(1000.0) * 2 + 6
        expected[0] = 6
        assert (expected == X).all(), X
        ok(driver.cuStreamSynchronize(stream))  # it is there still
        ok(driver.cuStreamDestroy(stream))
        nothing_left()

    program(body, FAKECUDA_SEED=str(seed))


def test_work_behind_a_host_function_stays_in_the_callers_order(program):
    def body():
        gate = Gate()
        X = np.zeros(100)
        kernel = Kernel()
        with stf.context() as ctx:
            stream = cupy.cuda.Stream(non_blocking=True)
            place = stf.exec_place.cuda_stream(stream)
            lX = ctx.logical_data(X)
            ctx.prefetch(lX, stf.data_place.device(0))
            ctx.host_launch(lX.rw())(gate)
            opener = threading.Timer(0.2, gate.open)
            opener.start()
            ctx.launch_kernel(kernel, (1, 128), lX.rw(), 100, place=place)  # waits for the gate, here
            assert gate.lock.is_set()
            with ctx.task(place, lX.read()) as t:
                ok(driver.cuMemsetD8Async(t.get_arg(0), 0, 8, stream.ptr))  # his, before the next task
            ctx.fill(lX, 5.0)
            ctx.host_launch(lX.rw())(lambda x: x.__imul__(2))
            with place:
                ctx.fill(lX, 7.0)
            ctx.launch_kernel(kernel, (1, 128), lX.rw(), 100, place=place)
            opener.join()
        assert (X == 8).all(), X
        del place, stream
        nothing_left()

    program(body, FAKECUDA_SEED="4")


def test_functions_behind_a_host_function_wait_on_a_callers_stream(program):
    """Also one that runs at each launch, behind the fill of what it adds to."""

    def body():
        import time

        @stf.task
        def add(x: stf.ReadWrite):
            x += 1

        @stf.task
        def total(x: stf.Read, y: stf.Accumulate[stf.reducer.sum]):
            y += float(x.sum())

        X, Y = np.zeros(4), np.zeros(4)
        with stf.context() as ctx:
            stream = cupy.cuda.Stream(non_blocking=True)
            place = stf.exec_place.cuda_stream(stream)
            x, y = ctx.logical_data(X), ctx.logical_data(Y)
            ctx.host_launch(x.rw())(lambda a: time.sleep(0.05))
            add.on(place)(x)
            g = ctx.task_graph()
            with g:
                ctx.host_launch(x.rw())(lambda a: time.sleep(0.05))
                total.on(place)(x, y)
            g.launch()
        assert X.tolist() == [1] * 4 and Y.tolist() == [4] * 4, (X, Y)

    program(body, FAKECUDA_SEED="5")


def test_a_place_is_its_stream(program):
    def body():
        import gc
        import weakref

        one, two = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        places = [stf.exec_place.cuda_stream(s) for s in (one, one.ptr, two)]
        assert places[0] == places[1] != places[2] and len(set(places)) == 2
        assert places[0] != stf.exec_place.device(0) and stf.exec_place.device(0) != places[0]
        assert repr(places[0]) == f"exec_place.cuda_stream({one.ptr:#x})"
        alive = weakref.ref(two)
        del two
        gc.collect()
        assert alive() is not None  # as long as the place
        with stf.context() as ctx:
            for place in places:
                with ctx.task(place) as t:
                    assert t.stream_ptr() == place.handle
            assert len(ctx._more_places) == 2
            outer, inner = ctx.task(places[0]), ctx.task(places[0])
            with outer, inner:  # both are open
                assert outer.stream_ptr() == inner.stream_ptr() == one.ptr
            del places, place, outer, inner, t
            gc.collect()
            assert alive() is not None  # as long as the context
        del ctx
        gc.collect()
        assert alive() is None
        del one
        nothing_left()

    program(body)


@pytest.mark.parametrize("times", [1, 3])
def test_streams_go_back_to_whoever_they_are_of(program, times):
    def body():
        times = int(os.environ["TIMES"])
        own = OwnContext(0)
        stream = cupy.cuda.Stream(non_blocking=True)
        shared = stf.Resources()
        X = np.zeros(10)
        for _ in range(times):
            with stf.context(resources=shared) as ctx:
                lX = ctx.logical_data(X)
                add.on(stf.exec_place.cuda_stream(stream))(lX)
                add.on(stf.exec_place.from_context(own))(lX)
        assert (2 * times == X).all()
        ok(driver.cuCtxSetCurrent(own.handle))
        shared.close()
        own.destroy()
        assert fakecuda.counts()["dropped"] == 0  # nothing of ours was left in it
        del stream
        nothing_left()

    program(body, TIMES=str(times))


# -- contexts ------------------------------------------------------------------------------------------------------


def test_tasks_run_on_streams_of_a_callers_context(program):
    def body():
        own = OwnContext(1)
        place = stf.exec_place.from_context(own)
        assert place == stf.exec_place.from_context(int(own.handle)) == stf.exec_place.green_ctx(own)
        assert place.index == 1 and place.backing_context is own
        kernel = Kernel()
        X = np.arange(100.0)
        before = current()
        with stf.context() as ctx:
            lX = ctx.logical_data(X)
            seen = set()
            for _ in range(4):
                with ctx.task(place, lX.rw()) as t:
                    assert t.stream_ptr() and current() == int(own.handle)
                    assert int(ok(driver.cuStreamGetCtx(t.stream_ptr()))) == int(own.handle)
                    seen.add(t.stream_ptr())
                    x = t.cupy()[0]
                    x += 1
                assert current() == before
            others = [ctx.logical_data_zeros(10) for _ in range(3)]
            tasks = [ctx.task(place, l.rw()) for l in others]
            for t in tasks:
                t.start()
            assert len({t.stream_ptr() for t in tasks}) == 3  # a pool of streams
            for t in reversed(tasks):
                t.end()
            calls_before = calls("cuKernelGetFunction")
            for where in (place, stf.exec_place.device(1), place, stf.exec_place.device(0), place):
                ctx.launch_kernel(kernel, (1, 128), lX.rw(), 100, place=where)
            assert calls("cuKernelGetFunction") == calls_before + 3  # one for each context
            add.on(place)(lX)
        assert (np.arange(100) + 10 == X).all(), X
        assert current() == before
        own.destroy()
        assert fakecuda.counts()["dropped"] == 0
        with pytest.raises(stf.PlaceError, match="no CUDA context that can be used .CUDA_ERROR_INVALID_CONTEXT"):
            stf.exec_place.from_context(own)
        nothing_left()

    program(body, FAKECUDA_SEED="2")


def test_a_thread_without_a_context_is_on_device_0_afterwards_and_not_in_the_users(program):
    def body():
        own = OwnContext(0)
        place = stf.exec_place.from_context(own)
        kernel = Kernel()
        with stf.context() as ctx:
            lX = ctx.logical_data_zeros(10)
            found = []

            def work():
                with ctx.task(place, lX.rw()) as t:
                    t.stream_ptr()
                    found.append(current())
                found.append(current())
                ctx.launch_kernel(kernel, (1, 128), lX.rw(), 10, place=place)
                found.append(current())

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            primary = int(ok(driver.cuDevicePrimaryCtxRetain(0)))
            ok(driver.cuDevicePrimaryCtxRelease(0))
            assert found == [int(own.handle), primary, primary]
        own.destroy()
        nothing_left()

    program(body)


def test_kernels_have_one_function_per_device_whatever_the_context_calls_it(program):
    def body():
        kernel = Kernel()
        for devices in ("cuda:0", "cuda:1", "cuda:1,0", "cuda:0,1"):
            X = np.zeros(10)
            with stf.context(devices=devices) as ctx:
                lX = ctx.logical_data(X)
                for place in ctx.devices:
                    ctx.launch_kernel(kernel, (1, 128), lX.rw(), 10, place=place)
            assert (len(devices.split(",")) == X).all()
        nothing_left()

    program(body)


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_is_no_stream_and_no_context(program):
    def body():
        class Closed:
            handle, is_closed = None, True

        class Old:
            def __cuda_stream__(self):
                return 1, 0

        make = stf.exec_place
        for thing in (True, 1.5, "stream", None, object(), Old(), stf.exec_place.device(0)):
            with pytest.raises(TypeError, match="a stream is an int|version 1"):
                make.cuda_stream(thing)
        for thing in (True, 1.5, "context", None, object(), stf.exec_place.device(0), stf.data_place.device(0)):
            with pytest.raises(TypeError, match="CUDA context"):
                make.from_context(thing)
        for default in (0, 1, np.int64(2), cupy.cuda.Stream.null):
            with pytest.raises(ValueError, match="default streams"):
                make.cuda_stream(default)
        with pytest.raises(ValueError, match="null"):
            make.from_context(0)
        with pytest.raises(ValueError, match="closed"):
            make.from_context(Closed())
        with pytest.raises(stf.PlaceError, match="no CUDA stream that can be used"):
            make.cuda_stream(12345)
        with pytest.raises(TypeError, match="a green context of cuda.core is needed"):
            make.green_ctx(int(OwnContext(0).handle))
        for arguments in ((0,), (True,), (8, 0), (8.5,)):
            with pytest.raises(ValueError, match="positive integer"):
                stf.green_places(*arguments)

    program(body)


def test_a_place_of_another_device_or_driver(program):
    def body():
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(1))))
        place = stf.exec_place.cuda_stream(cupy.cuda.Stream(non_blocking=True))
        for devices in ("cuda:0", "cpu:2"):
            with stf.context(devices=devices) as ctx:
                lX = ctx.logical_data_zeros(4)
                for use in (lambda: ctx.task(place, lX.rw()), lambda: add.on(place)(lX)):
                    with pytest.raises(stf.PlaceError, match=f"is of CUDA device 1, and this context is on {devices}"):
                        use()
                with pytest.raises(stf.PlaceError, match="host_launch runs on the host|is of CUDA device 1"):
                    ctx.host_launch(lX.rw()).on(place)

    program(body)


# -- managed memory ------------------------------------------------------------------------------------------------


def test_managed_memory_is_a_place_of_its_own(program):
    def body():
        managed = stf.data_place.managed()
        X = np.arange(50.0)
        with stf.context() as ctx:
            lX = ctx.logical_data(X)
            addresses = []
            for place in (stf.exec_place.device(0), stf.exec_place.device(1)):
                with ctx.task(place, lX.rw(managed)) as t:
                    x = t.cupy()[0]
                    addresses.append(x.data.ptr)
                    assert x.device.id == place.index  # an array of the device where the task runs
                    x += 1
            assert addresses[0] == addresses[1] and calls("cuMemAllocManaged") == 1
            ctx.launch_kernel(Kernel(), (1, 64), lX.rw(managed), 50)

            @ctx.host_launch(lX.rw(managed))
            def double(x):
                assert type(x) is np.ndarray and x.ctypes.data == addresses[0]
                x *= 2

            assert ctx.statistics().copies == {("host", "managed"): 1}
            with ctx.freeze(lX, "read", managed) as frozen:
                assert frozen.get()[0] == 6.0
            ctx.prefetch(lX, managed)
            lY = ctx.logical_data_full(7, 3.0, where=managed)
            assert (ctx.wait(lY) == 3).all()
            add.on(lX)(lX)
        assert (2 * (np.arange(50) + 3) + 1 == X).all(), X
        assert calls("cuMemFree") >= 2
        nothing_left()

    program(body, FAKECUDA_SEED="7")


def test_managed_memory_of_the_users(program):
    def body():
        managed = stf.data_place.managed()
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
        address = int(ok(driver.cuMemAllocManaged(80, 1)))
        X = stf.view(address, 10, np.float64)
        X[:] = 1
        with stf.context() as ctx:
            lX = ctx.logical_data(X, managed)
            with ctx.task(lX.rw(managed)) as t:
                assert t.get_arg(0) == address
                t.cupy()[0][...] += 1
            add.on(1)(lX)
            assert ctx.statistics().copies == {("managed", "device(1)"): 1}
            wrong = [np.zeros(4), cupy.zeros(4)]
            while wrong:
                with pytest.raises(ValueError, match="registered as managed memory, and its memory is not"):
                    ctx.logical_data(wrong.pop(), managed)
            assert ctx.logical_data(np.zeros((0, 3)), managed).shape == (0, 3)
        assert (X == 3).all()
        ok(driver.cuMemFree(address))
        with stf.context(devices="cpu:2") as ctx:
            assert ctx.wait(ctx.logical_data(np.ones(3), managed)).sum() == 3
        nothing_left()

    program(body)


def test_data_that_lie_elsewhere_than_the_user_says(program):
    def body():
        class Freed:
            __cuda_array_interface__ = {
                "shape": (4,),
                "typestr": "<f8",
                "data": (0x1000, False),
                "version": 3,
                "strides": None,
            }

        with stf.context() as ctx:
            with pytest.raises(stf.PlaceError, match=r"ndarray lies on device\(0\), not on data_place.device\(1\)"):
                ctx.logical_data(cupy.zeros(4), stf.data_place.device(1))
            with pytest.raises(stf.PlaceError, match=r"ndarray lies on device\(0\), not on data_place.host\(\)"):
                ctx.logical_data(cupy.zeros(4), stf.data_place.host())
            with pytest.raises(stf.PlaceError, match="which is no address of CUDA's memory: it is pageable memory"):
                ctx.logical_data(Freed())
            assert ctx.logical_data(cupy.zeros(4), stf.data_place.device(0)).shape == (4,)

    program(body)


# -- data used where they lie --------------------------------------------------------------------------------------


def test_host_memory_is_used_where_it_lies(program):
    def body():
        host = stf.data_place.host()
        X = np.arange(6.0)  # small, and pageable
        with stf.context() as ctx:
            lX, lY = ctx.logical_data(X), ctx.logical_data_zeros(6)
            with ctx.task(lX.rw(host), lY.rw()) as t:
                x, y = t.cupy()
                assert (x.data.ptr, x.device.id) == (X.ctypes.data, 0)
                y += x
                x += 1
            assert calls("cuMemHostRegister") == 1
            with ctx.task(stf.exec_place.device(1), lX.rw(host)) as t:
                assert t.get_arg(0) == X.ctypes.data and t[0].device.id == 1
                t[0][...] += 1
            ctx.launch_kernel(Kernel(), (1, 64), lX.rw(host), 6)
            with ctx.task(lX.rw(host)) as t:
                assert type(t.numpy()[0]) is np.ndarray and t.numpy()[0][0] == 3
                assert t.get_arg_cai(0).__cuda_array_interface__["data"][0] == X.ctypes.data
            ctx.fill(lY, 1)
            with ctx.task(lY.rw(host)) as t:  # a replica on the host
                t.cupy()[0][...] += 1
            assert ctx.statistics().copies == {("device(0)", "host"): 1}
            assert (ctx.wait(lY) == 2).all()
        assert (np.arange(6) + 3 == X).all(), X
        nothing_left()

    program(body, FAKECUDA_SEED="3")


def test_a_function_works_on_host_memory(program):
    def body():
        @stf.task
        def scale(x: stf.ReadWrite, factor):
            assert isinstance(x, cupy.ndarray)
            x *= factor

        X = np.ones(100_000)
        with stf.context() as ctx:
            lX = ctx.logical_data(X)
            scale(lX.rw(stf.data_place.host()), 3.0)
            ctx.task(lX.rw(stf.data_place.host()))(lambda x: x.__iadd__(1))
            assert ctx.statistics().total_copies == 0
        assert (X == 4).all()
        nothing_left()

    program(body)


def test_host_memory_that_cuda_does_not_pin(program):
    def body():
        host = stf.data_place.host()
        X = np.arange(6.0)
        with stf.context() as ctx:
            lX = ctx.logical_data(X, name="X")
            with pytest.raises(stf.PlaceError, match="'X'.* where it is: CUDA cannot pin that host memory; leave"):
                with ctx.task(lX.read(host)) as t:
                    t.cupy()
            for use in (lambda t: t.get_arg(0), lambda t: t.get_arg_cai(0), lambda t: t[0]):
                with pytest.raises(stf.PlaceError, match="cannot pin"), ctx.task(lX.read(host)) as t:
                    use(t)
            with pytest.raises(stf.PlaceError, match="cannot pin"):
                ctx.launch_kernel(Kernel(), (1, 64), lX.read(host), 6)
            with ctx.task(lX.rw(host)) as t:
                t.numpy()[0][...] += 1  # the host itself may
            add(lX)
        assert (np.arange(6) + 2 == X).all(), X
        nothing_left()

    program(body, FAKECUDA_FAIL="cuMemHostRegister:1+:CUDA_ERROR_NOT_SUPPORTED")


@pytest.mark.parametrize("peer", [0, 1])
def test_memory_of_a_peer_is_used_where_it_lies(program, peer):
    def body():
        there = stf.data_place.device(1)
        X = np.arange(6.0)
        with stf.context() as ctx:
            lX = ctx.logical_data(X, name="X")
            add.on(1)(lX)
            if os.environ["FAKECUDA_PEER"] == "0":
                with pytest.raises(stf.PlaceError, match=r"no access from device\(0\) to the memory of device\(1\)"):
                    with ctx.task(lX.read(there)) as t:
                        t.cupy()
                for _ in range(2):
                    add(lX)  # by copies
            else:
                with ctx.task(lX.rw(there)) as t:
                    x = t.cupy()[0]
                    assert x.device.id == 0 and x.data.ptr == t.get_arg(0)
                    x += 1
                ctx.launch_kernel(Kernel(), (1, 64), lX.rw(there), 6)
                assert ctx.statistics().copies == {("host", "device(1)"): 1}
        assert (np.arange(6) + 3 == X).all(), X
        nothing_left()

    program(body, FAKECUDA_PEER=str(peer))


def test_a_copy_comes_from_the_nearest_device(program):
    def body():
        X = np.arange(6.0)
        with stf.context() as ctx:
            lX = ctx.logical_data(X)
            for ordinal in (0, 2, 3):
                ctx.prefetch(lX, stf.data_place.device(ordinal))
        # 2 is no nearer to 0 than any other peer is to the host; 3 is next to 2
        assert ctx.statistics().copies == {
            ("host", "device(0)"): 1,
            ("device(0)", "device(2)"): 1,
            ("device(2)", "device(3)"): 1,
        }
        nothing_left()

    program(body, FAKECUDA_DEVICES="4")


# -- several places ------------------------------------------------------------------------------------------------


def test_the_streams_of_a_grid_are_current_once_it_gives_its_arrays(program):
    def body():
        def streams():
            return [cupy.cuda.get_current_stream(i).ptr for i in range(2)]

        outside = streams()
        with stf.context(devices="cuda:0,1") as ctx:
            places = [stf.data_place.device(i) for i in range(2)]
            halves = [ctx.logical_data(np.zeros(1000), name=f"half {i}") for i in range(2)]
            for _ in range(50):
                with ctx.task(ctx.devices, *(h.rw(p) for h, p in zip(halves, places, strict=True))) as t:
                    arrays = t.arrays()
                    assert streams() == t.stream_ptrs()
                    for i, x in enumerate(arrays):
                        with cupy.cuda.Device(i):
                            x += 1 + i  # on the task's stream there
                assert streams() == outside
                for i, h in enumerate(halves):
                    add.on(1 - i)(h)
            twice = stf.exec_place.grid([ctx.devices[1], ctx.devices[1]])
            with ctx.task(twice, halves[1].rw(places[1])) as t:
                t.arrays()
                assert streams() == [outside[0], t.stream_ptrs()[0]]  # that of the first place on a device
            with pytest.raises(ZeroDivisionError), ctx.task(ctx.devices, halves[0].rw(places[0])) as t:
                t.arrays()
                1 / 0
            assert streams() == outside
            halves[0].accept()
            got = [ctx.wait(h)[0] for h in halves]
            assert got == [100, 150], got
        nothing_left()

    program(body, FAKECUDA_SEED="4")


def test_a_task_that_ends_leaves_another_one_on_its_device_as_it_is(program):
    def body():
        cupy.cuda.Device(1).use()
        with stf.context(devices="cuda:0,1") as ctx:
            for _ in range(20):
                lX, lY = (ctx.logical_data(np.zeros(4)) for _ in range(2))
                first = ctx.task(stf.exec_place.device(0), lX.rw()).start()
                first.arrays()
                second = ctx.task(stf.exec_place.device(0), lY.rw()).start()
                (y,) = second.arrays()
                first.end()
                assert cupy.cuda.Device().id == 0 and cupy.cuda.get_current_stream().ptr == second.stream_ptr()
                for _ in range(5):
                    y += 1
                second.end()
                assert cupy.cuda.Device().id == 1
                assert lY.numpy().tolist() == [5.0] * 4

    program(body, FAKECUDA_SEED="5")


def test_streams_after_bodies_that_end_badly_elsewhere(program):
    """A body on a device that is not the current one is interrupted; a task there is dropped while it is open."""

    def body():
        def streams():
            return [cupy.cuda.get_current_stream(i).ptr for i in range(2)]

        @stf.task
        def interrupted(x: stf.ReadWrite):
            raise KeyboardInterrupt

        cupy.cuda.Device(0).use()
        mine = cupy.cuda.Stream(non_blocking=True)
        mine.use()
        before = streams()
        with stf.context(devices="cuda:0,1") as ctx:
            lX, lY = (ctx.logical_data(np.zeros(4)) for _ in range(2))
            with pytest.raises(KeyboardInterrupt):
                interrupted.on(1)(lX)
            assert streams() == before and cupy.cuda.Device().id == 0
            with pytest.raises(stf.TaskFailedError), ctx.task_graph(), pytest.raises(KeyboardInterrupt):
                interrupted.on(1)(lY)
            assert streams() == before and cupy.cuda.Device().id == 0
            task = ctx.task(stf.exec_place.device(1), lY.write()).start()
            task.arrays()
            del task
            ctx.token()
            with pytest.raises(stf.Error):
                ctx.synchronize()
            assert streams() == before and cupy.cuda.Device().id == 0
            lX.accept(), lY.accept()

    program(body)
