"""Callers' streams that are being captured, on the stand-in: contexts, fences and places in graphs of theirs."""

from __future__ import annotations

import pytest

PRELUDE = "from caller_tools import *\n"

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


@pytest.mark.parametrize("mode", range(3))
def test_a_captured_context_lands_in_the_graph(run, mode):
    def body():
        s = new_stream()
        X, Y, x = np.zeros(100000), np.zeros(10), on_device(np.zeros(8))  # registered, pageable, on the device
        with Captured(s, int(os.environ["MODE"])) as graph, stf.context(stream=s) as ctx:
            lX, lY, lx = ctx.logical_data(X), ctx.logical_data(Y), ctx.logical_data(x)
            lT = ctx.logical_data_empty(8)
            for _ in range(20):
                add(ctx, lX)
                add(ctx, lY)
                add(ctx, lx)
            ctx.launch_kernel(add_one, (1, 1), lT.write(), 0)
        assert (X == 0).all() and (Y == 0).all() and (x.get() == 0).all()
        graph.launch()
        assert (X == 20).all() and (Y == 20).all() and (x.get() == 20).all()
        Y[:] = 100  # which the next launch reads anew
        graph.launch(3)
        assert (X == 80).all() and (Y == 160).all() and (x.get() == 80).all()
        graph.destroy()
        del s, x, lx, graph
        nothing_left()

    run(body, MODE=str(mode), FAKECUDA_SEED="3")


@pytest.mark.parametrize("seed", range(3))
def test_memory_of_a_captured_context_is_the_graphs(run, seed):
    def body():
        s = new_stream()
        x, y = on_device(np.zeros(8)), on_device(np.zeros(8))
        axpy = kernel(b"axpy")
        with Captured(s) as graph, stf.context(stream=s) as ctx:
            lx, ly = ctx.logical_data(x), ctx.logical_data(y)
            for _ in range(10):
                lT = ctx.logical_data(np.ones(8), write_back=False)  # kept by the graph
                add(ctx, lT)
                add(ctx, lx)
                ctx.launch_kernel(axpy, (1, 1), 1.0, lT.read(), ly.rw(), 8)
                del lT
        told = callers.shared.statistics().drivers["cuda:0"]
        assert told.allocations == 0 and set(told.used_bytes.values()) == {0}
        gc.collect()
        for k in range(1, 4):
            graph.launch()
            assert (x.get() == 10 * k).all() and (y.get() == 20 * k).all()
        graph.destroy()
        del s, x, y, lx, ly, graph, ctx
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


def test_many_tasks_are_captured_without_a_look_at_events(run):
    def body():
        s = new_stream()
        x = on_device(np.zeros(8))
        data = [on_device(np.zeros(8)) for _ in range(70)]
        with Captured(s) as graph, stf.context(stream=s) as ctx:
            lx = ctx.logical_data(x)
            for _ in range(1500):
                add(ctx, lx)
            for d in data:
                add(ctx, ctx.logical_data(d))
            fakecuda.reset_calls()
        assert sum(fakecuda.calls(name) for name in ("cuEventQuery", "cuEventSynchronize", "cuStreamSynchronize")) == 0
        graph.launch(2)
        assert (x.get() == 3000).all() and all((d.get() == 2).all() for d in data)
        graph.destroy()
        del s, x, data, d, lx, graph, ctx
        nothing_left()

    run(body)


def test_what_needs_the_host_is_refused_and_the_capture_lives(run):
    def body():
        s = new_stream()
        X = np.zeros(8)
        with Captured(s) as graph, stf.context(stream=s) as ctx:
            lX = ctx.logical_data(X, name="X")
            add(ctx, lX)

            def in_a_block():
                with ctx.task("host", lX.rw(), name="block"):
                    raise AssertionError

            for use, words in (
                (
                    lambda: ctx.wait(lX),
                    "task 'wait' .body.py:.*cannot be captured: it runs on the host; read the data after",
                ),
                (lambda: lX.numpy(), "task 'wait' .body.py:.*cannot be captured"),
                (in_a_block, "task 'block' .body.py:.*it runs on the host; give its body as a function"),
                (ctx.synchronize, "the host waits for work that is being captured"),
                (lambda: ctx.fence().synchronize(), "the host waits for work that is being captured"),
                (lambda: ctx.freeze(lX, data_place=stf.data_place.device(0)).get(), "the host waits for work"),
            ):
                with pytest.raises(stf.CaptureError, match=words):
                    use()
                ctx.check_state()
            assert not ctx.fence().done
        graph.launch(2)
        assert (X == 2).all()
        graph.destroy()
        del s, graph, ctx, lX
        nothing_left()

    run(body)


def test_resources_are_not_for_captured_streams(run):
    def body():
        s = new_stream()
        resources = stf.Resources()
        with Captured(s) as graph:
            with pytest.raises(
                stf.CaptureError, match="what a context uses then belongs to the graph, .*; leave resources out"
            ):
                stf.context(stream=s, resources=resources)
        graph.launch()
        graph.destroy()
        resources.close()
        del s, graph
        nothing_left()

    run(body)


def test_streams_come_back_when_the_capture_is_over(run):
    def body():
        s, other = new_stream(), new_stream()
        X, Y = np.zeros(8), np.zeros(8)
        with Captured(s) as graph:
            with stf.context(stream=s) as ctx:
                add(ctx, ctx.logical_data(X))
            with stf.context(stream=other) as ctx:  # not captured, though its driver is shared
                add(ctx, ctx.logical_data(Y))
        streams = fakecuda.counts()["streams"]
        graph.launch()
        assert (X == 1).all()
        with stf.context(stream=other) as ctx:
            add(ctx, ctx.logical_data(Y))
        assert fakecuda.counts()["streams"] <= streams + 1
        other.synchronize()
        assert (Y == 2).all()
        graph.destroy()
        del s, other, graph, ctx
        nothing_left()

    run(body)


def test_two_captures_on_one_stream_one_after_the_other(run):
    def body():
        s = new_stream()
        x = on_device(np.zeros(8))
        graphs = []
        for n in (1, 2, 3):
            with Captured(s) as graph, stf.context(stream=s) as ctx:
                lx = ctx.logical_data(x)
                for _ in range(n):
                    add(ctx, lx)
            graphs.append(graph)
        for graph in graphs:
            graph.launch()
        with stf.context(stream=s) as ctx:
            add(ctx, ctx.logical_data(x))
        for graph in reversed(graphs):
            graph.launch()
            graph.destroy()
        assert (x.get() == 13).all()
        del s, x, lx, graph, graphs, ctx
        nothing_left()

    run(body, FAKECUDA_SEED="5")


@pytest.mark.parametrize("peer", [0, 1])
def test_a_capture_over_two_devices(run, peer):
    def body():
        s = new_stream()
        x = on_device(np.zeros(8))
        with Captured(s) as graph, stf.context(stream=s, devices=[0, 1]) as ctx:
            lx = ctx.logical_data(x)
            for k in range(10):
                ctx.launch_kernel(add_one, (1, 1), lx.rw(), 8, place=k % 2)
        graph.launch(3)
        assert (x.get() == 30).all()
        graph.destroy()
        del s, x, lx, graph, ctx
        nothing_left()

    run(body, FAKECUDA_SEED="6", FAKECUDA_PEER=str(peer))


def test_what_was_gathered_for_a_capture_that_is_over_does_not_run(run):
    """It is told that it was lost; its arrays may be gone by then."""

    def body():
        for relaxed in (0, 2):
            s = new_stream()
            x = on_device(np.zeros(8))
            ok(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(s.ptr), relaxed))
            ctx = stf.context(stream=s, use_graph=True)
            ctx.launch_kernel(add_one, (1, 1), ctx.logical_data(x).rw(), 8)
            (graph,) = handle("graph")
            ok(driver.cuStreamEndCapture(ctypes.c_void_p(s.ptr), ctypes.byref(graph)))
            with pytest.raises(
                stf.CaptureError, match="was not finalized during the capture; .* Nothing was written back"
            ):
                ctx.finalize()
            s.synchronize()
            assert not x.get().any()
            with stf.context(stream=s) as ctx:  # which can be used again
                ctx.launch_kernel(add_one, (1, 1), ctx.logical_data(x).rw(), 8)
            s.synchronize()
            assert x.get().tolist() == [1.0] * 8
            ok(driver.cuGraphDestroy(graph))
        del ctx, s, x
        nothing_left()

    run(body)


def test_a_capture_that_ends_too_early(run):
    def body():
        s = new_stream()
        X = np.zeros(8)
        ok(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(s.ptr), 0))
        ctx = stf.context(stream=s)
        add(ctx, ctx.logical_data(X))
        (graph,) = handle("graph")
        assert driver.cuStreamEndCapture(ctypes.c_void_p(s.ptr), ctypes.byref(graph)) != 0
        with pytest.raises(
            stf.CaptureError, match="was not finalized during the capture; finalize the context before the"
        ):
            ctx.finalize()
        ctx.finalize()
        with stf.context(stream=s) as ctx:
            add(ctx, ctx.logical_data(X))
        s.synchronize()
        assert (X == 1).all()

    run(body)


def test_other_threads_captures_do_not_meet_ours(run):
    def body():
        s, other = new_stream(), new_stream()
        X, Y = np.zeros(100000), np.zeros(100000)
        with Captured(other) as graph, stf.context(stream=other) as outer:
            add(outer, outer.logical_data(Y))

            def work():
                for _ in range(5):
                    with stf.context(stream=s) as ctx:
                        add(ctx, ctx.logical_data(X))

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        graph.launch()
        s.synchronize()
        assert (X == 5).all() and (Y == 1).all()
        graph.destroy()
        del s, other, graph, outer
        nothing_left()

    run(body)


def test_a_fence_in_a_capture(run):
    def body():
        s, side = new_stream(), new_stream()
        x, y = on_device(np.zeros(8)), on_device(np.zeros(8))
        with Captured(s) as graph, stf.context(stream=s) as ctx:
            add(ctx, ctx.logical_data(x))
            fence = ctx.fence()
            # what is enqueued on the fence's own stream is captured, and joined
            ok(
                driver.cuMemcpyDtoDAsync_v2(
                    ctypes.c_uint64(y.data.ptr), ctypes.c_uint64(x.data.ptr), 64, ctypes.c_void_p(fence.ptr)
                )
            )
        graph.launch(2)
        assert (x.get() == 2).all() and (y.get() == 2).all()
        graph.destroy()
        del s, side, x, y, graph, ctx, fence
        nothing_left()

    run(body)


def test_places_of_the_callers_and_fills_in_a_capture(run):
    def body():
        from cuda.bindings import driver as cuda

        s, other = new_stream(), new_stream()
        code, own = cuda.cuCtxCreate(None, 0, 0)
        assert not code and not cuda.cuCtxPopCurrent()[0]
        places = [stf.exec_place.cuda_stream(other), stf.exec_place.from_context(int(own)), stf.exec_place.device(0)]
        x, y = on_device(np.zeros(8)), on_device(np.zeros(8))
        with Captured(s) as captured, stf.context(stream=s) as ctx:
            lx, ly, lz = ctx.logical_data(x), ctx.logical_data(y), ctx.logical_data_full((8,), 3.0)
            for place in places:
                ctx.launch_kernel(add_one, (1, 1), lx.rw(), 8, place=place)
                ctx.launch_kernel(add_one, (1, 1), lz.rw(), 8, place=place)
            ctx.copy(lz, ly)
        assert (x.get() == 0).all() and (y.get() == 0).all()
        captured.launch(2)
        assert (x.get() == 6).all() and (y.get() == 6).all()
        captured.destroy()
        with stf.context(stream=s) as after:  # streams of the capture come back
            add(after, after.logical_data(x))
        s.synchronize()
        assert (x.get() == 7).all()
        del x, y, lx, ly, lz, ctx, after
        gc.collect()
        callers.shared.close()
        assert not cuda.cuCtxDestroy(own)[0]
        del s, other, places, place, captured
        nothing_left()

    run(body)


def test_a_context_on_the_stream_of_a_recorded_task_is_refused(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, graph = ctx.logical_data(np.zeros(4)), ctx.task_graph()
            with pytest.raises(stf.CaptureError, match="stream= is the stream of a task that is being recorded"):
                with graph, ctx.task(x.rw()) as t:
                    stf.context(stream=t.stream_ptr())
            with ctx.task(x.rw()) as t:  # a stream that is not captured is one like any other
                with stf.context(stream=t.stream_ptr()) as inner:
                    inner.launch_kernel(add_one, (1, 1), inner.logical_data_zeros(4).rw(), 4)
            assert x.numpy().tolist() == [0.0] * 4
            del t
        del ctx, x, graph, inner
        nothing_left()

    run(body)


def test_a_context_that_nobody_finalized_asks_nothing_of_a_stream_that_is_gone(run):
    def body():
        for captured in (False, True):
            s = new_stream()
            X = np.zeros(8)
            if captured:
                ok(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(s.ptr), 2))
            ctx = stf.context(stream=s.ptr)
            add(ctx, ctx.logical_data(X))
            if captured:
                (graph,) = handle("graph")
                driver.cuStreamEndCapture(ctypes.c_void_p(s.ptr), ctypes.byref(graph))
            del s  # and with it the stream
            with pytest.warns(ResourceWarning, match="was dropped without finalize"):
                del ctx
            assert set(X) == {0.0 if captured else 1.0}
        from stf._engine import lifetime

        lifetime._unheard.clear()  # the error of the second, with which the program would end

    run(body)
