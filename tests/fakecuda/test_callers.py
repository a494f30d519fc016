"""Callers' streams on the stand-in: who comes after whom, who waits, and what is left behind.

Each test runs in a process of its own. A caller's stream is *held* where a test must see that the host does not wait
for it: a host function on it waits until the test lets it go.
"""

from __future__ import annotations

import pytest

PRELUDE = "from caller_tools import *\n"

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821, SIM300


# -- contexts on a stream --------------------------------------------------------------------------------------------


def test_work_comes_after_the_stream_and_the_host_waits_for_none(run):
    def body():
        s = new_stream()
        X = np.zeros(1000)
        x = on_device(np.zeros(8))
        held = Held(s)
        with stf.context(stream=s) as ctx:
            lX, lx = ctx.logical_data(X), ctx.logical_data(x)
            for _ in range(50):
                add(ctx, lX)
                add(ctx, lx)
        assert ctx.engine.closed and not is_idle(s) and X[0] == 0
        held.release()
        s.synchronize()
        assert (X == 50).all() and (x.get() == 50).all()
        ctx.check_errors()
        del s, held, x, lX, lx, ctx
        nothing_left()

    run(body, FAKECUDA_SEED="1")


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("how", ["host_launch", "recorded"])
def test_contexts_one_after_the_other_with_bodies_on_the_host(run, how, seed):
    """Streams go from one to the next while the host waits for what the one before has put on them."""

    def body():
        def one(a):
            a += 1

        for _ in range(60):
            s = new_stream()
            arrays = [on_device(np.full(8, 5.0)) for _ in range(3)]
            cupy.cuda.Stream.null.synchronize()
            with stf.context(stream=s, devices="cuda:0") as ctx:
                for k, x in enumerate([ctx.logical_data(a) for a in arrays]):
                    if os.environ["HOW"] == "host_launch" or k == 0:
                        ctx.host_launch(x.rw())(one)
                        continue
                    graph = ctx.task_graph()
                    with graph:
                        ctx.host_launch(x.rw(), uses_cuda=False)(one)
                    graph.launch()
            s.synchronize()
            assert [a.get().tolist() for a in arrays] == [[6.0] * 8] * 3

    run(body, FAKECUDA_SEED=str(seed), HOW=how)


def test_a_worker_waits_for_a_stream_that_goes_back_meanwhile(run):
    """The stream begins anew; what the worker waited for is done."""

    def body():
        add_one, s = kernel(b"add_one"), new_stream()
        x, y = on_device(np.zeros(10)), on_device(np.zeros(10))
        cupy.cuda.Stream.null.synchronize()
        for _ in range(700):
            with stf.context(stream=s) as ctx:
                lX, lY = ctx.logical_data(x), ctx.logical_data(y)
                ctx.launch_kernel(add_one, (1, 1), lX.rw(), 10)
                ctx.host_launch(lX.rw())(lambda v: None)
                for _ in range(60):
                    ctx.launch_kernel(add_one, (1, 1), lY.rw(), 10)
            s.synchronize()
        assert (x.get()[0], y.get()[0]) == (700, 42_000)

    run(body, STF_SUBMIT_THREAD="1")


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_on_the_stream_comes_after_all_work(run, seed):
    def body():
        s = new_stream()
        X, Y = np.zeros(4), np.zeros(4)
        seen = []
        ctx = stf.context(stream=s)
        lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
        for _ in range(20):
            add(ctx, lX)
            add(ctx, lY)
        ctx.finalize()
        after = Held(s, lambda: seen.append((X[0], Y[0])))
        after.release()
        s.synchronize()
        assert seen == [(20, 20)]
        del s
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


def test_contexts_on_one_stream_are_ordered(run):
    def body():
        s = new_stream()
        x = on_device(np.zeros(8))
        held = Held(s)
        for _ in range(5):
            with stf.context(stream=s) as ctx:
                lx = ctx.logical_data(x)
                for _ in range(10):
                    add(ctx, lx)
        held.release()
        s.synchronize()
        assert (x.get() == 50).all()
        del x, lx, s, ctx
        nothing_left()

    run(body, FAKECUDA_SEED="4")


def test_streams_and_events_go_from_context_to_context(run):
    def body():
        s = new_stream()
        x = on_device(np.zeros(8))

        def one():
            with stf.context(stream=s) as ctx:
                add(ctx, ctx.logical_data(x))

        told = []
        for _ in range(61):
            one()
            s.synchronize()
            told.append(fakecuda.counts())
        assert {(now["streams"], now["allocations"]) for now in told} == {(told[0]["streams"], told[0]["allocations"])}
        events = [now["events"] for now in told]  # some are of the context before, where its streams linger
        assert max(events[31:]) <= max(events[:31]) + 4, events
        assert (x.get() == 61).all()
        assert callers.shared.statistics().drivers["cuda:0"].streams == 0
        del x, s
        nothing_left()

    run(body)


def test_more_work_than_a_ring_has_events_while_the_stream_lingers(run):
    def body():
        s = new_stream()
        x, y = on_device(np.zeros(2)), on_device(np.zeros(2))
        with stf.context(stream=s) as ctx:
            lx = ctx.logical_data(x)
            for _ in range(400):
                add(ctx, lx)
        for _ in range(3):  # the streams of the first still work, or not
            with stf.context(stream=s) as ctx:
                lx, ly = ctx.logical_data(x), ctx.logical_data(y)
                for _ in range(700):
                    add(ctx, lx)
                    add(ctx, ly)
        s.synchronize()
        assert (x.get() == 2500).all() and (y.get() == 2100).all()
        del x, y, lx, ly, s, ctx
        nothing_left()

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_bodies_on_the_host_are_waited_for_and_devices_are_not(run, seed):
    def body():
        s = new_stream()
        X, Y = np.zeros(10), np.zeros(10)
        with stf.context(stream=s) as ctx:
            lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
            for _ in range(5):
                add(ctx, lX)
                ctx.host_launch(lX.read(), lY.rw())(lambda x, y: x + y)
                add(ctx, lY)
        s.synchronize()
        expected = 0
        for k in range(5):
            expected += k + 1
            expected += 1
        assert (X == 5).all() and (Y == expected).all(), (X, Y)
        s2 = new_stream()
        held = Held(s2)  # nobody waits for this one
        with stf.context(stream=s) as ctx:
            lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
            ctx.host_launch(lX.rw())(lambda x: x + 1)
            later = stf.context(stream=s2)
            l = later.logical_data(on_device(np.zeros(3)))
            add(later, l)
            later.finalize()
        s.synchronize()
        assert not is_idle(s2) and (X == 6).all()
        held.release()
        s2.synchronize()
        del s, s2, l
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


def test_the_device_is_that_of_the_stream(run):
    def body():
        s = new_stream(1)
        with stf.context(stream=s) as ctx:
            assert [place.index for place in ctx.devices] == [1]
        with stf.context(stream=s, devices=[0, 1]) as ctx:
            lX = ctx.logical_data_zeros(3)
            with ctx.task(lX.read()) as t:
                assert t.place == stf.exec_place.device(1)
            with ctx.task(0, lX.read()) as t:
                assert t.place == stf.exec_place.device(0)
        with pytest.raises(
            stf.PlaceError, match=r"stream= is a stream of device\(1\), and devices=\[0\] does not name it"
        ):
            stf.context(stream=s, devices=[0])
        cupy.cuda.Device(1).use()
        for default in (0, cupy.cuda.Stream.null, 1, 2):
            X = np.zeros(4)
            with stf.context(stream=default) as ctx:
                assert [place.index for place in ctx.devices] == [1]
                with ctx.task(ctx.logical_data(X).rw()) as t:
                    t.arrays()[0][:] += 1
            cupy.cuda.Device(1).synchronize()
            assert (X == 1).all()
        del s
        nothing_left()

    run(body)


def test_every_kind_of_stream(run):
    def body():
        s = new_stream()
        X = np.zeros(4)

        class Protocol:
            def __cuda_stream__(self):
                return (0, s.ptr)

        class Torch:
            cuda_stream = s.ptr

        class CuPy:
            ptr = s.ptr

        for kind in (s, s.ptr, np.int64(s.ptr), Protocol(), Torch(), CuPy()):
            with stf.context(stream=kind) as ctx:
                add(ctx, ctx.logical_data(X))
        s.synchronize()
        assert (X == 6).all()

        class Odd:
            def __init__(self, told):
                self.told = told

            def __cuda_stream__(self):
                return self.told

        for wrong in (True, 1.0, "0", object(), Odd(None), Odd((1, s.ptr)), Odd((0, "x")), Odd((0,)), Odd((0, True))):
            with pytest.raises(TypeError, match="stream"):
                stf.context(stream=wrong)
        with pytest.raises(ValueError, match="a stream is an address from 0 on, of 64 bits, got -1"):
            stf.context(stream=-1)
        with pytest.raises(
            stf.DriverError, match="cuStreamGetCtx failed on stream 0x12340 with CUDA_ERROR_INVALID_HANDLE"
        ):
            stf.context(stream=0x12340)
        with pytest.raises(stf.PlaceError, match="this context runs on the CPU; leave it out, or use devices='cuda'"):
            stf.context(stream=s, devices="cpu:2")
        del s
        nothing_left()

    run(body)


def test_what_fails_later_is_heard_by_check_errors(run):
    def body():
        s = new_stream()
        x = on_device(np.zeros(2))
        trap = kernel(b"trap")
        held = Held(s)
        with stf.context(stream=s) as ctx:
            ctx.launch_kernel(trap, (1, 1))
            add(ctx, ctx.logical_data(x))
        ctx.check_errors()
        held.release()
        driver.cuStreamSynchronize(ctypes.c_void_p(s.ptr))
        with pytest.raises(stf.DriverError, match="CUDA_ERROR_LAUNCH_FAILED"):
            ctx.check_errors()
        os._exit(0)  # nothing of CUDA can be given back any more

    run(body)


def test_arrays_live_until_the_work_is_done(run):
    def body():
        s = new_stream()
        held = Held(s)
        X = np.zeros(1000)

        class Mine(np.ndarray):
            pass

        X = X.view(Mine)
        alive = weakref.ref(X)
        with stf.context(stream=s) as ctx:
            lX = ctx.logical_data(X)
            add(ctx, lX)
        del X, lX, ctx
        gc.collect()
        assert alive() is not None
        held.release()
        s.synchronize()
        for _ in range(200):  # the last event of a lane is done some time after what the stream waits for
            stf.context(stream=s).finalize()  # which looks who is done
            s.synchronize()
            gc.collect()
            if alive() is None:
                break
            time.sleep(0.01)
        assert alive() is None
        del s
        nothing_left()

    run(body)


def test_a_context_that_is_dropped_or_left_open_is_handed_over(run):
    def body():
        s = new_stream()
        X = np.zeros(8)
        ctx = stf.context(stream=s)
        add(ctx, ctx.logical_data(X))
        with pytest.warns(ResourceWarning, match="dropped without finalize"):
            del ctx
            gc.collect()
        s.synchronize()
        assert (X == 1).all()
        del s
        nothing_left()

    run(body)


def test_left_to_the_end_of_the_program(run):
    def body():
        import atexit

        s = new_stream()
        X = np.zeros(2)
        held = Held(s)
        ctx = stf.context(stream=s)
        add(ctx, ctx.logical_data(X))
        ctx.finalize()
        assert X[0] == 0
        held.release()
        atexit._run_exitfuncs()
        assert X.tolist() == [1, 1] and fakecuda.leaks() == {"streams": 1}  # which is s

    run(body)


def test_resources_of_the_users_serve_contexts_of_both_kinds(run):
    def body():
        s = new_stream()
        resources = stf.Resources()
        X, Y = np.zeros(100000), np.zeros(8)
        held = Held(s)
        with stf.context(stream=s, resources=resources) as one:
            add(one, one.logical_data(Y))
        assert not is_idle(s)
        held.release()
        with stf.context(resources=resources, devices="cuda:0") as two:
            add(two, two.logical_data(X))
        assert (X == 1).all()
        s.synchronize()
        assert (Y == 1).all()
        resources.close()
        del s
        nothing_left()

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_contexts_that_share_resources_overlap(run, seed):
    def body():
        resources = stf.Resources()
        arrays = [np.zeros(1000) for _ in range(2)]
        contexts = [stf.context(resources=resources) for _ in arrays]
        for ctx, array in zip(contexts, arrays, strict=True):
            data = ctx.logical_data(array)
            for _ in range(30):
                add(ctx, data)
        for ctx in contexts:
            ctx.submit()
        told = resources.statistics().drivers["cuda:0,1"]
        assert told.streams >= 4 and told.allocations == 2 and told.used_bytes["device(0)"] == 16000
        for ctx in contexts:
            ctx.finalize()
        assert all((array == 30).all() for array in arrays)
        told = resources.statistics().drivers["cuda:0,1"]
        assert told.streams == 0 and told.allocations == 0 and set(told.used_bytes.values()) == {0}
        resources.close()
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


# -- loans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_frozen_data_on_a_callers_stream(run, seed):
    def body():
        s = new_stream()
        X = np.zeros(8)
        place = stf.data_place.device(0)
        with stf.context(devices="cuda:0") as ctx:
            lX = ctx.logical_data(X, name="X")
            add(ctx, lX)
            frozen = ctx.freeze(lX, data_place=place)
            x = frozen.get(stream=s)
            seen = np.zeros(8)
            held = Held(s)
            assert not is_idle(s)
            ok(driver.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(seen.ctypes.data), ctypes.c_uint64(x.data.ptr), 0, None))
            frozen.unfreeze(s)
            add(ctx, lX)  # comes after what is on s
            fence = ctx.fence()
            assert not fence.done
            held.release()
            fence.synchronize()
            with ctx.freeze(lX, "rw", place) as frozen:  # unfrozen after the stream that `get` was given
                x = frozen.get(stream=s)
                ok(driver.cuMemsetD32Async(ctypes.c_uint64(x.data.ptr), 0, 16, ctypes.c_void_p(s.ptr)))
            add(ctx, lX)
            assert lX.numpy().tolist() == [1.0] * 8
        del s, x, held
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


def test_a_loan_does_not_wait_for_devices(run):
    def body():
        s, t = new_stream(), new_stream()
        x = on_device(np.zeros(8))
        held = Held(s)
        with stf.context(stream=s) as ctx:
            lx = ctx.logical_data(x)
            add(ctx, lx)
            with ctx.freeze(lx, data_place=stf.data_place.device(0)) as frozen:
                view = frozen.get(stream=t)
                after = Held(t, lambda: None)
                assert not is_idle(s) and view.data.ptr == x.data.ptr
            add(ctx, lx)
        assert not is_idle(s)
        held.release()
        after.release()
        s.synchronize()
        assert (x.get() == 2).all()
        del s, t, x, lx, view, ctx, frozen
        nothing_left()

    run(body)


# -- fences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_other_libraries_wait_for_a_fence(run, seed):
    def body():
        s = new_stream()
        X = np.zeros(8)
        seen = []
        with stf.context(devices="cuda:0") as ctx:
            lX = ctx.logical_data(X)
            out = on_device(np.zeros(8))
            lO = ctx.logical_data(out)
            for _ in range(20):
                add(ctx, lX)
                ctx.host_launch(lX.rw())(lambda x: x + 1)
                add(ctx, lO)
            fence = ctx.fence()
            assert fence.__cuda_stream__() == (0, fence.ptr) and fence.ptr != 0 and fence.handle == fence.ptr
            (event,) = handle("event")
            ok(driver.cuEventCreate(ctypes.byref(event), 2))
            ok(driver.cuEventRecord(event, ctypes.c_void_p(fence.ptr)))
            ok(driver.cuStreamWaitEvent(ctypes.c_void_p(s.ptr), event, 0))
            after = Held(s, lambda: seen.append(ctypes.cast(out.data.ptr, ctypes.POINTER(ctypes.c_double))[0]))
            after.release()
            s.synchronize()
            assert seen == [20] and fence.done
            ok(driver.cuEventDestroy_v2(event))
            add(ctx, lX)
        assert (X == 41).all()
        with pytest.raises(stf.ContextClosedError):
            ctx.fence()
        del s, out, lO
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


# -- waits inside bodies ---------------------------------------------------------------------------------------------


def test_waits_inside_bodies_and_blocks_are_refused(run):
    def body():
        with stf.context() as ctx:
            lX, lY = ctx.logical_data(np.zeros(4), name="X"), ctx.logical_data(np.zeros(4), name="Y")
            frozen = ctx.freeze(lY)
            fence = ctx.fence()
            waits = [
                lambda: ctx.wait(lY),
                ctx.synchronize,
                ctx.finalize,
                ctx.fence,
                lY.numpy,
                lambda: lY.write_back(),
                lambda: lY.accept(),
                frozen.get,
                fence.synchronize,
            ]
            told = []

            @stf.task
            def inline(x: stf.ReadWrite):
                for wait in waits:
                    with pytest.raises(stf.TaskStateError) as caught:
                        wait()
                    told.append(str(caught.value))

            inline(lX)
            assert len(told) == len(waits) and all("inside the body of a task" in text for text in told), told
            with ctx.task(lX.rw(), name="outer"):
                for wait in waits[:6]:
                    with pytest.raises(stf.TaskStateError, match="inside task 'outer'"):
                        wait()
            frozen.get()  # and outside they are not
            fence.synchronize()
            lY.accept()
            frozen.unfreeze()
        nothing_left()

    run(body)


# -- places of the caller's, within such contexts -------------------------------------------------------------------


@pytest.mark.parametrize("thread", ["0", "1"])
def test_places_of_the_callers_in_a_context_that_nobody_waits_for(run, thread):
    def body():
        from cuda.bindings import driver as cuda

        s, other = new_stream(), new_stream()
        code, own = cuda.cuCtxCreate(None, 0, 0)
        assert not code and not cuda.cuCtxPopCurrent()[0]
        stream, context = stf.exec_place.cuda_stream(other), stf.exec_place.from_context(int(own))
        x = on_device(np.zeros(8))
        held = Held(s)
        for _ in range(3):
            with stf.context(stream=s) as ctx:
                lx = ctx.logical_data(x)
                for place in (stf.exec_place.device(0), stream, context) * 5:
                    ctx.launch_kernel(add_one, (1, 1), lx.rw(), 8, place=place)
                ctx.fill(ctx.logical_data_empty((100,)), 3.0)
        assert not is_idle(s) and not is_idle(other)
        with stf.context(stream=new_stream()) as another:
            for _ in range(100):
                with another.task() as t:
                    assert t.stream_ptr() != other.ptr
        held.release()
        s.synchronize()
        assert (x.get() == 45).all() and is_idle(other)
        with stf.context(stream=s) as ctx:
            ctx.launch_kernel(add_one, (1, 1), ctx.logical_data(x).rw(), 8, place=stream)
        s.synchronize()
        assert (x.get() == 46).all()
        del x, lx, ctx, another
        gc.collect()
        callers.shared.close()
        assert not cuda.cuCtxDestroy(own)[0]
        del s, other, stream
        nothing_left()

    run(body, FAKECUDA_SEED="2", STF_SUBMIT_THREAD=thread)
