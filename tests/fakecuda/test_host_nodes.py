"""Bodies on the host in graphs that others launch, on the stand-in: CUDA calls them, in every launch."""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
from __future__ import annotations

import pytest

PRELUDE = """
from caller_tools import *
from graph_tools import *
import sys, time
from stf._drivers.cuda import host_nodes

NOT_PERMITTED = 800

def as_exec(pointer):
    (executable,) = handle("exec")
    ok(driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), ctypes.c_void_p(pointer), ctypes.c_ulonglong(0)))
    return executable

def launch(executable, stream, times=1):
    for _ in range(times):
        ok(driver.cuGraphLaunch(executable, ctypes.c_void_p(stream.ptr)))
    stream.synchronize()
    assert fakecuda.describe() == ""

def cuda_says():
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))

@stf.task
def on_host(x: stf.Read, y: stf.ReadWrite, n=1):
    y += x.sum() * n
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_callers_graph_calls_bodies(run, seed):
    def body():
        graph, x, seen = Graph(), np.full(4, 64.0), []
        device, large = cupy.asarray(np.ones(4)), np.ones(100000)
        with stf.context(graph=graph) as ctx:
            lx, ld, ll = ctx.logical_data(x), ctx.logical_data(device), ctx.logical_data(large)
            lt, lu = ctx.logical_data_empty(4), ctx.logical_data_empty(50000)  # of memory that the graph has
            scale(lx)

            @ctx.host_launch(lx.read(), ld.rw(), lt.write(), lu.write(), args=(7,))
            def look(a, d, t, u, n):
                seen.append(a.tolist())
                d += a
                t[:] = u[:] = n

            scale(lx)
            ctx.launch_kernel(axpy, (1, 1), 1.0, lt.read(), ld.rw(), 4)
            on_host.on("host")(lu, ll, n=2)
            del lt, lu
        assert seen == [] and x.tolist() == [64.0] * 4 and host_nodes.count() == 2
        graph.launch()
        assert seen == [[32.0] * 4] and x.tolist() == [16.0] * 4
        assert device.get().tolist() == [1.0 + 32 + 7] * 4 and (large == 1 + 2 * 7 * 50000).all()
        graph.launch(2)
        assert seen == [[32.0] * 4, [8.0] * 4, [2.0] * 4] and device.get().tolist() == [1.0 + 32 + 8 + 2 + 21] * 4
        assert (large == 1 + 3 * 2 * 7 * 50000).all()
        graph.destroy()
        del ctx, lx, ld, ll, device, look
        gc.collect()
        assert host_nodes.count() == 0
        nothing_left()

    run(body, FAKECUDA_SEED=str(seed))


@pytest.mark.parametrize("mode", range(3))
def test_a_captured_stream_calls_bodies(run, mode):
    def body():
        s = new_stream()
        X, Y, x = np.zeros(100000), np.zeros(10), on_device(np.zeros(8))
        threads, codes = set(), []

        def count(y, z):
            threads.add(threading.get_ident())
            codes.append(cuda_says())
            y += 1
            z += y.sum()

        with Captured(s, int(os.environ["MODE"])) as graph, stf.context(stream=s) as ctx:
            lX, lY, lx = ctx.logical_data(X), ctx.logical_data(Y), ctx.logical_data(x)
            for _ in range(3):
                add(ctx, lX)
                ctx.host_launch(lY.rw(), lX.rw(), fn=count)
                add(ctx, lx)
                on_host.on("host")(lx, lX)
        assert codes == []
        want, y, z = np.zeros(100000), 0.0, 0.0
        for _ in range(3):
            graph.launch()
            for _ in range(3):
                y, z = y + 1, z + 1
                want += 1 + 10 * y + 8 * z
            assert (want == X).all() and (y == Y).all() and (x.get() == z).all()
        assert threading.get_ident() not in threads and codes == [NOT_PERMITTED] * 9
        graph.destroy()
        del s, x, lx, lX, lY, graph, ctx
        gc.collect()
        assert host_nodes.count() == 0
        nothing_left()

    run(body, MODE=str(mode), FAKECUDA_SEED="4")


def test_recordings_and_scopes_with_bodies_in_a_callers_graph(run):
    @run
    def body():
        graph, x, seen = Graph(), np.full(4, 1.0), []
        with stf.context(graph=graph, devices="cuda:0,1") as ctx:
            lx = ctx.logical_data(x)
            g = ctx.task_graph()
            factor = g.param("factor", 2.0)
            with g:
                scale(lx, 2.0)
                ctx.host_launch(lx.rw(), args=(factor,))(lambda a, f: (seen.append(f), a.__iadd__(f), None)[-1])
            g.launch()
            g.launch(factor=3.0)
            with ctx.graph_scope():
                scale.on(ctx.devices[1])(lx, 2.0)
                on_host.on("host")(lx, lx2 := ctx.logical_data_zeros(1))
            with ctx.repeat(2):
                on_host.on("host")(lx, lx2)
            ctx.host_launch(lx2.read())(lambda a: seen.append(a[0]))
            flag = ctx.logical_data(np.array(1.0))
            with pytest.raises(
                stf.CaptureError, match="while_loop cannot be part of a graph of yours: it has tasks on"
            ):
                with ctx.while_loop(flag > 0.0):
                    ctx.host_launch(flag.rw())(lambda a: None)
        graph.launch()
        assert x.tolist() == [((1 * 2 + 2) * 2 + 3) * 2] * 4 and seen == [2.0, 3.0, 3 * 4 * 22]
        graph.launch()
        assert seen[3:] == [2.0, 3.0, 3 * 4 * 190], seen
        assert host_nodes.count() == 6, host_nodes.count()
        graph.destroy()


def test_a_reduction_that_the_host_folds_in_a_callers_graph(run):
    @run
    def body():
        @stf.task
        def add_up(x: stf.Read, s: stf.Accumulate[stf.reducer.sum]):
            s += x.sum()

        graph, x, total = Graph(), np.full(4, 1.0), np.array(100.0)
        with stf.context(graph=graph, devices="cuda:0,1") as ctx:
            lx, s = ctx.logical_data(x), ctx.logical_data(total)
            for k in range(4):
                add_up.on(ctx.devices[k % 2])(lx, s)
                add_up.on("host")(lx, s)
            scale(lx, 2.0)
        want = 100.0
        for k in range(3):
            graph.launch()
            want += 8 * 4 * 2**k
            assert total == want and x.tolist() == [2.0 ** (k + 1)] * 4
        graph.destroy()


def test_the_handle_of_a_graph_with_bodies(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, codes = ctx.logical_data(np.full(4, 8.0)), []
            g = ctx.task_graph("halves")
            step = g.param("step", 1.0)
            with g:
                scale(x)
                ctx.host_launch(x.rw(), args=(step,))(lambda a, b: (codes.append(cuda_says()), a.__iadd__(b), None)[-1])
                scale(x)
            n, s = ctypes.c_size_t(), new_stream()
            pointer = g.handle
            assert g.handle == pointer and not driver.cuGraphGetNodes(ctypes.c_void_p(pointer), None, ctypes.byref(n))
            assert n.value == 7  # two kernels, a body, two copies by way of pinned memory, of two nodes each
            g.launch()
            assert x.numpy().tolist() == [2.5] * 4 and codes == [0]  # in pieces: where it may use CUDA
            with ctx.task(x.rw()):  # where launches leave it: on the device alone
                pass
            ctx.synchronize()
            graph, (node,) = Graph(), handle("node")
            ok(driver.cuGraphAddChildGraphNode(ctypes.byref(node), ctypes.c_void_p(graph.handle), None, 0, g.handle))
            executable = as_exec(g.handle)
            launch(executable, s, 3)
            want = 2.5
            for _ in range(3):
                want = (want / 2 + 1) / 2
            assert x.numpy().tolist() == [want] * 4 and codes == [0] + [NOT_PERMITTED] * 3
            with ctx.task(x.rw()):
                pass
            ctx.synchronize()
            graph.launch(2)
            for _ in range(2):
                want = (want / 2 + 1) / 2
            assert x.numpy().tolist() == [want] * 4
            g.launch(step=2.0)
            assert x.numpy().tolist() == [(want / 2 + 2) / 2] * 4 and codes[-1] == 0 and g.handle == pointer
            told = []
            sys.unraisablehook = told.append
            g.close()
            launch(executable, s)
            assert "graph 'halves' was closed, and with it its memory" in str(told[0].exc_value) and len(codes) == 7
            graph.destroy()
            ok(driver.cuGraphExecDestroy(executable))
            ctx.synchronize()
        gc.collect()
        assert host_nodes.count() == 0


def test_a_body_that_raises(run):
    @run
    def body():
        s, told, ran = new_stream(), [], []
        sys.unraisablehook = told.append
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(4), name="x")
            g = ctx.task_graph()

            def breaks(a):
                raise SystemExit("enough")

            with g:
                ctx.host_launch(x.rw(), name="breaks")(breaks)
                ctx.host_launch(x.rw(), name="goes on")(lambda a: ran.append(1))
            executable = as_exec(g.handle)
            launch(executable, s, 3)
            with pytest.raises(stf.TaskFailedError, match="task 'breaks' .*SystemExit: enough$") as caught:
                ctx.check_errors()
            assert caught.value.__cause__.args == ("enough",) and len(ran) == 3  # the first one is told, once
            ctx.check_errors()
            launch(executable, s)
            with pytest.raises(stf.TaskFailedError, match="enough"):
                ctx.synchronize()
            launch(executable, s)
            with pytest.raises(stf.TaskFailedError, match="enough"):
                ctx.finalize()
            assert told == [] and x.core.released
        graph, broken = Graph(), np.zeros(4)
        with stf.context(graph=graph) as ctx:
            ctx.host_launch(ctx.logical_data(broken).rw(), name="late")(breaks)
        del ctx
        graph.launch(2)
        assert len(told) == 2 and "task 'late'" in str(told[0].exc_value)
        assert isinstance(told[0].exc_value, stf.TaskFailedError)


def test_what_a_body_needs_lives_as_long_as_what_may_call_it(run):
    @run
    def body():
        class Thing:
            total = 0

        s, x, thing = new_stream(), np.ones(4), Thing()
        gone = weakref.ref(thing), weakref.ref(x)
        with Captured(s) as graph, stf.context(stream=s) as ctx:
            lt = ctx.logical_data_zeros(30000)

            def body(a, t, thing):
                a += 1
                t += a[0]
                thing.total += t.sum()

            ctx.host_launch(ctx.logical_data(x).rw(), lt.rw(), args=(thing,))(body)

        def total():
            return gone[0]().total

        del ctx, lt, x, thing, body
        gc.collect()
        graph.launch()
        assert total() == 60000 and gone[1]()[0] == 2
        ok(driver.cuGraphDestroy(graph.graph))
        gc.collect()
        graph.launch()
        assert total() == 60000 + 90000 and host_nodes.count() == 1
        ok(driver.cuGraphExecDestroy(graph.exec))
        gc.collect()
        assert gone[0]() is None and host_nodes.count() == 0
        with stf.context(stream=s) as ctx:
            add(ctx, ctx.logical_data(on_device(np.zeros(8))))
        s.synchronize()
        del ctx, s, graph
        nothing_left()
        assert gone[1]() is None


def test_a_body_of_a_capture_that_is_given_up(run):
    @run
    def body():
        s, x = new_stream(), np.ones(4)
        ok(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(s.ptr), 0))
        ctx = stf.context(stream=s)
        on_host.on("host")(ctx.logical_data_zeros(4), ctx.logical_data(x))
        (graph,) = handle("graph")
        assert driver.cuStreamEndCapture(ctypes.c_void_p(s.ptr), ctypes.byref(graph)) != 0
        with pytest.raises(stf.CaptureError, match="was not finalized during the capture"):
            ctx.finalize()
        ctx.finalize()
        del ctx
        gc.collect()
        assert host_nodes.count() == 0


@pytest.mark.parametrize("thread", [0, 1])
@pytest.mark.parametrize("where", ["device", "stream"])
def test_a_body_gets_the_gil_from_who_waits_for_a_full_queue(run, thread, where):
    def body():
        s, other, x = new_stream(), new_stream(), on_device(np.zeros(8))
        seen, stop = [], threading.Event()

        def sleeps(a):
            time.sleep(0.3)  # which the others use to fill their queue
            seen.append(1)

        def spin():
            while not stop.is_set():
                pass

        with Captured(s) as graph, stf.context(stream=s) as ctx:
            ctx.host_launch(ctx.logical_data(np.zeros(4)).rw(), fn=sleeps)
        busy = threading.Thread(target=spin)
        busy.start()
        place = stf.exec_place.cuda_stream(other) if os.environ["WHERE"] == "stream" else stf.exec_place.device(0)
        for _ in range(2):
            ok(driver.cuGraphLaunch(graph.exec, ctypes.c_void_p(s.ptr)))
            with stf.context(stream=s) as ctx:
                lx, ly = ctx.logical_data(x), ctx.logical_data(np.zeros(8))
                for _ in range(30):
                    ctx.launch_kernel(add_one, (1, 1), lx.rw(), 8, place=place)
                    ctx.launch_kernel(add_one, (1, 1), ly.rw(), 8, place=place)
                    ctx.fill(ctx.logical_data_empty(8), 1.0)
        s.synchronize()
        stop.set()
        busy.join()
        assert len(seen) == 2 and (x.get() == 60).all()
        graph.destroy()

    run(body, FAKECUDA_QUEUE="6", STF_SUBMIT_THREAD=str(thread), WHERE=where)


def test_at_exit_bodies_are_not_called_any_more(run):
    def body():
        s, x = new_stream(), np.zeros(4)

        def sleeps(a):
            time.sleep(0.02)
            a += 1

        with Captured(s) as graph, stf.context(stream=s) as ctx:
            ctx.host_launch(ctx.logical_data(x).rw(), fn=sleeps)
        for _ in range(20):
            ok(driver.cuGraphLaunch(graph.exec, ctypes.c_void_p(s.ptr)))
        begun = time.monotonic()
        import atexit

        atexit.register(lambda: print("ran", x[0], time.monotonic() - begun < 10, file=sys.stderr))

    for _ in range(3):
        assert "ran" in run(body)


@pytest.mark.parametrize("call", ["cuLaunchHostFunc", "cuGraphRetainUserObject", "cuUserObjectCreate"])
def test_a_node_that_cuda_refuses_leaves_nothing(run, call):
    def body():
        graph = Graph()
        with stf.context(graph=graph) as ctx:
            lX = ctx.logical_data(np.zeros(4))
            fakecuda.reset_calls(os.environ["REFUSED"] + ":1:CUDA_ERROR_OUT_OF_MEMORY")
            with pytest.raises(stf.DriverError, match="CUDA_ERROR_OUT_OF_MEMORY"):
                ctx.host_launch(lX.rw(), fn=lambda x: None)
            fakecuda.reset_calls("")
            lX.accept()
            ctx.fill(lX, 1.0)
        graph.destroy()
        del ctx, lX
        gc.collect()
        assert host_nodes.count() == 0

    run(body, REFUSED=call)


def test_captures_that_are_given_up_with_bodies_in_them(run):
    @run
    def body():
        stream = new_stream()
        for _ in range(4):
            ok(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.ptr), 0))
            ctx = stf.context(stream=stream)
            ctx.host_launch(ctx.logical_data_zeros(300_000).rw(), fn=lambda x: None)
            (captured,) = handle("graph")
            assert driver.cuStreamEndCapture(ctypes.c_void_p(stream.ptr), ctypes.byref(captured)) == 904  # not joined
            with pytest.raises(stf.CaptureError, match="was not finalized during the capture"):
                ctx.finalize()
            del ctx
            gc.collect()
        with stf.context(stream=stream) as ctx:
            lX = ctx.logical_data(np.zeros(4))
            ctx.fill(lX, 3.0)
        stream.synchronize()
        assert fakecuda.counts()["registrations"] == 0 and host_nodes.count() == 0


def test_a_child_of_a_fork_does_not_wait_for_the_parents_bodies(run):
    @run
    def body():
        started, x, graph = threading.Event(), np.zeros(4), Graph()

        with stf.context(graph=graph) as ctx:

            @ctx.host_launch(ctx.logical_data(x).rw())
            def slow(x):
                started.set()
                time.sleep(1.0)
                x += 1

        executable, stream = as_exec(int(graph.handle)), new_stream()
        ok(driver.cuGraphLaunch(executable, ctypes.c_void_p(stream.ptr)))
        assert started.wait(10)
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0 and time.monotonic() - begin < 3
        stream.synchronize()
        assert x.tolist() == [1.0] * 4
