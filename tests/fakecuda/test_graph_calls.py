"""Bodies on the host that use no CUDA, on the stand-in: nodes of the graphs that are launched here."""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
from __future__ import annotations

import pytest

PRELUDE = """
from graph_tools import *
import os, threading, time
from stf._drivers.cuda import host_nodes

NOT_PERMITTED = 800

def cuda_says():
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))

def launches():
    return fakecuda.calls("cuGraphLaunch"), fakecuda.calls("cuLaunchKernel"), fakecuda.calls("cuLaunchHostFunc")

def grow(a, n):
    a += n

@stf.task(uses_cuda=False)
def shift(x: stf.ReadWrite, y: stf.Read, n=1.0):
    x += y * n
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_with_bodies_is_launched_as_one(run, seed):
    def body():
        told, codes, threads = Told(), [], set()
        X, Y = np.full(4, 8.0), np.ones(100000)
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(Y)
            g = ctx.task_graph("calls")
            step = g.param("step", 1.0)
            with g:
                scale(x)

                @ctx.host_launch(x.rw(), args=(step,), uses_cuda=False)
                def add_step(a, b):
                    codes.append(cuda_says())
                    threads.add(threading.get_ident())
                    a += b

                scale(y, 2.0)
                shift.on("host")(x, ctx.logical_data(np.ones(4)), n=step)
                scale(x)
            want, other = 8.0, 1.0
            for k in range(6):
                if k == 2:
                    ctx.synchronize()
                    fakecuda.reset_calls()
                g.launch(step=float(k + 1))  # none waits for the ones before
                want = (want / 2 + 2 * (k + 1)) / 2
                other *= 2
            assert x.numpy().tolist() == [want] * 4 and (y.numpy() == other).all()
            assert launches() == (4, 0, 0), launches()
            assert codes == [NOT_PERMITTED] * 6 and threading.get_ident() not in threads
            assert host_nodes.count() == 2
            g.close()
            ctx.synchronize()
        gc.collect()
        assert host_nodes.count() == 0 and X.tolist() == [want] * 4
        assert not any("in pieces" in line or "driven from the host" in line for line in told.lines), told.lines
        assert fakecuda.leaks() == {}, fakecuda.leaks()

    run(body, FAKECUDA_SEED=str(seed))


def test_graph_contexts_and_scopes_have_bodies_as_nodes(run):
    @run
    def body():
        X, seen = np.full(4, 64.0), []
        with stf.context(devices="cuda:0", use_graph=True) as ctx:
            x = ctx.logical_data(X)
            for k in range(5):
                scale(x)
                ctx.host_launch(x.rw(), args=(k,), uses_cuda=False)(grow)
                scale(x)
                ctx.synchronize()
            assert fakecuda.calls("cuGraphLaunch") == 5
            assert ctx._driver.graphs.statistics()[1] == 4
        want = 64.0
        for k in range(5):
            want = (want / 2 + k) / 2
        assert X.tolist() == [want] * 4
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(X)
            with ctx.graph_scope():
                scale(x, 2.0)
                shift.on("host")(x, ctx.logical_data(np.ones(4)))
                with ctx.graph_scope():
                    ctx.host_launch(x.read(), uses_cuda=False)(lambda a: seen.append((cuda_says(), a[0])))
                scale(x, 2.0)
        assert seen == [(NOT_PERMITTED, 2 * want + 1)] and X.tolist() == [4 * want + 2] * 4
        gc.collect()
        assert host_nodes.count() == 0


def test_a_recording_in_a_graph_that_is_launched_once(run):
    @run
    def body():
        seen = []
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 64.0))
            g = ctx.task_graph("inner")
            n = g.param("n", 1.0)
            with g:
                scale(x)
                ctx.host_launch(x.rw(), args=(n,), uses_cuda=False, fn=grow)
                ctx.host_launch(x.read(), uses_cuda=False)(lambda a: seen.append(cuda_says()))
            want = 64.0
            for k in range(3):
                with ctx.graph_scope():
                    scale(x)
                    g.launch(n=float(k))
                    g.launch()
                want = ((want / 2) / 2 + k) / 2 + 1
            assert x.numpy().tolist() == [want] * 4
            ctx.synchronize()
            assert seen == [NOT_PERMITTED] * 6, seen


def test_what_cannot_be_a_node_is_a_step_between_graphs(run):
    @run
    def body():
        told, seen = Told(), []
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.full(4, 64.0)), ctx.logical_data(np.ones(4))
            g = ctx.task_graph("both")
            with g:
                scale(x)
                shift.on("host")(x, y)
                scale(x)
                ctx.host_launch(x.read())(lambda a: seen.append((cuda_says(), float(a[0]))))
                scale(x)
                shift.on("host")(x, y, 2.0)
                scale(x)
            want, values = 64.0, []
            for _ in range(4):
                g.launch()
                values.append((0, (want / 2 + 1) / 2))
                want = (values[-1][1] / 2 + 2) / 2
            assert x.numpy().tolist() == [want] * 4 and seen == values
            (line,) = [line for line in told.lines if line.startswith("graph 'both'") and "in pieces" in line]
            assert line.endswith(") is, in pieces, 2 graphs of the device's and 1 step of the host")
            with ctx.repeat(3000):  # a loop of the device's takes no bodies
                shift.on("host")(x, y)
            assert x.numpy().tolist() == [want + 3000] * 4


def test_a_body_that_fails_spoils_its_launch_and_no_other(run):
    @run
    def body():
        N = 1 << 14  # memory that is pinned: CUDA launches a graph that writes other memory only when that is written
        seen, gate = [], threading.Event()

        def check(a, k):
            seen.append(k)
            if k < 0:
                assert gate.wait(30)
                raise ValueError(f"no {k}")
            a += k

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(N)), ctx.logical_data(np.zeros(N))
            g = ctx.task_graph("checked")
            k = g.param("k", 1.0)
            with g:
                ctx.fill(x, 0.0)
                ctx.host_launch(x.rw(), args=(k,), uses_cuda=False, name="check")(check)
                ctx.host_launch(x.rw(), args=(k,), uses_cuda=False, name="again")(check)
                scale(x, 2.0)
            for value in (1.0, 2.0):
                g.launch(k=value)
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), N)
            ctx.synchronize()
            assert seen == [1.0, 1.0, 2.0, 2.0] and x.numpy().tolist() == [8.0] * N
            for value in (3.0, -1.0):
                g.launch(k=value)
            ctx.launch_kernel(axpy, (1, 1), 1.0, y.read(), x.rw(), N)  # runs behind the graph, on what nobody may read
            gate.set()
            with pytest.raises(stf.TaskFailedError, match="no -1") as caught:
                ctx.synchronize()
            assert isinstance(caught.value.__cause__, ValueError) and seen[4:] == [3.0, 3.0, -1.0]
            with pytest.raises(stf.TaskFailedError, match="x|data"):
                x.numpy()
            for value in (5.0, 6.0):
                g.launch(k=value)  # which writes it anew
            assert x.numpy().tolist() == [24.0] * N and seen[7:] == [5.0, 5.0, 6.0, 6.0]
            ctx.host_launch(y.rw())(lambda a: 1 / 0)  # an input that failed
            h = ctx.task_graph("reader")
            with h:
                ctx.host_launch(y.read(), x.rw(), args=(7.0,), uses_cuda=False)(lambda b, a, k: check(a, k))
                scale(x)
            with pytest.raises(stf.TaskFailedError, match="division by zero"):
                for _ in range(3):
                    h.launch()
                ctx.synchronize()
            assert 7.0 not in seen
            y.accept()
            x.accept()
            before = x.numpy().tolist()
            for _ in range(2):
                h.launch()
            ctx.synchronize()
            assert seen[11:] == [7.0, 7.0]
            assert x.numpy().tolist() == [((before[0] + 7) / 2 + 7) / 2] * N


def test_other_data_and_others_graphs(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y, z = (ctx.logical_data(np.full(4, float(k))) for k in (1, 2, 3))
            g = ctx.task_graph("rebound")
            n = g.param("n", 1.0)
            with g:
                scale(x, 2.0)
                shift.on("host")(x, y, n)
            fakecuda.reset_calls()
            want = [1.0, 2.0, 3.0]
            for k in range(8):
                g.launch({x: z} if k % 2 else {}, n=float(k))
                want[2 if k % 2 else 0] = want[2 if k % 2 else 0] * 2 + 2 * k
            assert [d.numpy()[0] for d in (x, y, z)] == want
            for d in (x, y):
                with ctx.task(d.rw()):
                    pass
            ctx.synchronize()
            before = host_nodes.count()
            pointer = g.handle
            assert host_nodes.count() == before + 1 and g.handle == pointer
            g.launch(n=1.0)
            g.close()
            ctx.synchronize()
        gc.collect()
        assert host_nodes.count() == 0


def test_a_replayed_function_with_a_body_is_one_launch(run):
    @run
    def body():
        X, seen = np.full(4, 64.0), []

        @stf.replay
        def step(x, factor):
            scale(x, factor)
            ctx.host_launch(x.read(), uses_cuda=False)(lambda a: seen.append(float(a[0])))
            scale(x, 2.0)

        with stf.context(devices="cuda:0") as ctx:
            x, want, values = ctx.logical_data(X), 64.0, []
            for k in range(9):
                if k == 6:
                    ctx.synchronize()
                    fakecuda.reset_calls()
                step(x, 1.0 + k)
                values.append(want * (1.0 + k))
                want = values[-1] * 2
            ctx.synchronize()
            assert launches()[::2] == (3, 0) and seen == values and x.numpy().tolist() == [want] * 4


def test_contexts_that_are_open_at_exit_have_their_bodies_called(run):
    out = run(at_exit)
    assert [line for line in out.splitlines() if line.startswith("called")] == [
        "called 65.0",
        "called 33.5",
        "called 17.75",
    ]


def at_exit():
    X = np.full(4, 64.0)
    ctx = stf.context(devices="cuda:0")
    x = ctx.logical_data(X)
    g = ctx.task_graph("late")
    with g:

        @ctx.host_launch(x.rw(), uses_cuda=False)
        def tell(a):
            time.sleep(0.2)
            a += 1
            print("called", a[0])

        scale(x)
    for _ in range(3):
        g.launch()


def test_python_goes_on_beside_bodies(run):
    """Neither who has the GIL nor a full queue hold up what waits for a body."""

    @run
    def body():
        stop, count = threading.Event(), [0]

        def spin():
            while not stop.is_set():
                count[0] += 1

        busy = threading.Thread(target=spin)
        busy.start()
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph("often")
            with g:
                shift.on("host")(x, y)
                scale(y)
            for _ in range(300):
                g.launch()
                scale(y)
            ctx.synchronize()
        stop.set()
        busy.join()
        assert count[0] > 0


def test_what_a_body_writes_is_there_for_copies_behind_the_graph(run):
    """CUDA reads memory that is not pinned when it is told to copy it; the body may not have run then."""

    @run
    def body():
        def slow(a, n):
            time.sleep(0.05)
            a[...] = n

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(40000))
            g = ctx.task_graph("slow")
            n = g.param("n", 1.0)
            with g:
                ctx.host_launch(x.write(), args=(n,), uses_cuda=False)(slow)
                ctx.host_launch(y.write(), args=(n,), uses_cuda=False)(slow)
            for k in range(4):
                g.launch(n=float(k))
                scale(x, 2.0)
                scale(y, 2.0)
                assert x.numpy().tolist() == [2.0 * k] * 4 and (y.numpy() == 2.0 * k).all()


def test_a_body_has_the_values_of_its_launch_while_the_next_piece_is_captured(run):
    @run
    def body():
        seen = []

        @stf.task
        def slow(x: stf.ReadWrite):
            time.sleep(0.3)
            x += 1

        with stf.context(devices="cuda:0") as ctx:
            y, z = (ctx.logical_data(np.zeros(4)) for _ in range(2))
            g = ctx.task_graph("pieces")
            n = g.param("n", 1.0)
            with g:
                ctx.host_launch(y.rw(), uses_cuda=False)(lambda a: time.sleep(0.1))
                ctx.host_launch(y.rw(), args=(n,), uses_cuda=False)(lambda a, n: seen.append(n))
                ctx.host_launch(z.rw())(lambda a: None)
                slow(z)
                scale(z)
            y2, z2 = (ctx.logical_data(np.zeros(4)) for _ in range(2))
            g.launch({y: y2, z: z2}, n=7.0)  # whose pieces are captured now
            g.launch({y: y2, z: z2}, n=8.0)
            ctx.synchronize()
            assert seen == [7.0, 8.0]


@pytest.mark.parametrize("thread", ["0", "1"])
@pytest.mark.parametrize("call", ["work:20", "work:35", "cuGraphLaunch:1", "cuGraphLaunch:4", "cuLaunchHostFunc:1"])
def test_a_device_that_is_lost_calls_no_bodies(run, call, thread):
    def body():
        told, seen = [], []
        ctx = stf.context(devices="cuda:0")
        x = ctx.logical_data(np.zeros(1 << 14))
        g = ctx.task_graph("lost")
        try:
            with g:
                scale(x)
                ctx.host_launch(x.rw(), uses_cuda=False)(lambda a: seen.append(a[0]))
                scale(x)
            for _ in range(12):
                g.launch()
            ctx.synchronize()
        except BaseException as error:
            told.append(error)
        for _ in range(2):
            try:
                ctx.finalize()
            except BaseException as error:
                told.append(error)
        text = " ".join(f"{type(e).__name__} {e} {e.__cause__!r}" for e in told)
        assert "DriverError" in text and "CUDA_ERROR_ILLEGAL_ADDRESS" in text, (text, seen)
        assert len(seen) < 13 and ctx._driver.leaks()[:2] == (0, 0)
        del ctx, x, g, told
        gc.collect()
        assert host_nodes.count() == 0

    run(body, FAKECUDA_FAIL=f"{call}:CUDA_ERROR_ILLEGAL_ADDRESS", STF_SUBMIT_THREAD=thread)


def test_threads_that_capture_at_once_keep_their_bodies(run):
    @run
    def body():
        import sys

        sys.setswitchinterval(1e-6)
        lock, barrier, wrong = threading.Lock(), threading.Barrier(2), []

        def work(ctx):
            x = ctx.logical_data(np.zeros(4))
            for k in range(60):
                g = ctx.task_graph()
                with lock, g:
                    scale(x, 1.0)
                    ctx.host_launch(x.rw(), args=(1.0,), uses_cuda=False)(lambda a, n: grow(a, n))
                    scale(x, 1.0)
                barrier.wait()
                for _ in range(3):
                    g.launch()
                if x.numpy().tolist() != [3.0 * (k + 1)] * 4:
                    wrong.append((k, x.numpy().tolist()))
                barrier.wait()
                g.close()

        with stf.context(devices="cuda:0") as ctx:
            threads = [threading.Thread(target=work, args=(ctx,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        gc.collect()
        assert not wrong and host_nodes.count() == 0


def test_a_value_that_cannot_be_computed_is_told_before_the_launch(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 64.0))
            g = ctx.task_graph("inner")
            m = g.param("m", 1.0)
            with g:
                ctx.host_launch(x.rw(), args=(m,), uses_cuda=False, fn=grow)
                scale(x, 1.0)
            o = ctx.task_graph("outer")
            n = o.param("n", 1.0)
            with o:
                scale(x, 1.0)
                g.launch(m=1.0 / n)
            for value in (1.0, 2.0, 4.0):
                o.launch(n=value)
            assert x.numpy().tolist() == [65.75] * 4
            with pytest.raises(ZeroDivisionError):
                o.launch(n=0.0)
            ctx.synchronize()
            assert ctx.engine.pending() == 0
            o.launch(n=2.0)
            assert x.numpy().tolist() == [66.25] * 4


def test_a_graph_launched_at_a_stream_of_the_callers_is_played(run):
    @run
    def body():
        told, s = Told(), cupy.cuda.Stream(non_blocking=True)
        with stf.context(devices="cuda:0") as ctx:
            x, place = ctx.logical_data(np.ones(4)), stf.exec_place.cuda_stream(s.ptr)
            with place:
                scale(x, 2.0)
                g = ctx.task_graph("there")
                with g:
                    scale(x, 2.0)
                for _ in range(3):
                    g.launch()
            h = ctx.task_graph("here")
            with h:
                scale(x, 2.0)
                scale.on(place)(x, 0.5)
            for _ in range(3):
                h.launch()
            assert x.numpy().tolist() == [16.0] * 4
        assert any("'here' (" in line and "a stream, or in a context, of yours" in line for line in told.lines)


@pytest.mark.parametrize("whose", ["ours", "callers"])
def test_small_arrays_with_gaps_in_a_graph_with_bodies(run, whose):
    """What is copied from and to them goes by way of pinned memory, and what is between their items stays."""

    def body():
        whose = os.environ["WHOSE"]
        wholes = [np.full((6, 8), 3.0), np.full((6, 8), 3.0), np.full((4, 3, 5), 3.0), np.array(3.0)]
        views = [wholes[0][::2, ::-3], wholes[1].T[1:5], wholes[2][::-1, 1, ::2], wholes[3]]
        model, graph = [view.copy() for view in views], Graph()
        with stf.context(**({"graph": graph} if whose == "callers" else {"devices": "cuda:0"})) as ctx:
            data = [ctx.logical_data(view) for view in views]

            def program():
                for k, item in enumerate(data):
                    scale(item, 2.0)
                    ctx.host_launch(item.rw(), args=(k + 1,), uses_cuda=False)(grow)
                    scale(item, 3.0)
                    shift.on("host")(item, item)

            if whose == "callers":
                program()
            else:
                g = ctx.task_graph()
                with g:
                    program()
                for _ in range(3):
                    g.launch()
        if whose == "callers":
            graph.launch(3)
        for _ in range(3):
            for k, array in enumerate(model):
                array[...] = (array * 2 + k + 1) * 3 * 2
        for view, array, whole in zip(views, model, wholes, strict=True):
            assert (view == array).all(), (view, array)
            view[...] = 3.0
            assert (whole == 3.0).all()
        graph.destroy()

    run(body, WHOSE=whose)


@pytest.mark.parametrize("use_graph", [False, True])
def test_captured_blocks_are_none_of_the_collectors(run, use_graph):
    """Else it walks through all of them again and again, and each costs the more the more there are."""

    def body():
        with stf.context(devices="cuda:0", use_graph=os.environ["GRAPH"] == "True") as ctx:
            x = ctx.logical_data(np.ones(8))
            g = ctx.task_graph()

            def blocks(n):
                for _ in range(n):
                    with ctx.task(x.rw()) as t:
                        (a,) = t.cupy()
                        driver.cuMemsetD8Async(ctypes.c_void_p(a.data.ptr), 0, 8, ctypes.c_void_p(t.stream.handle))

            with g:
                blocks(10)
                gc.collect()
                before = len(gc.get_objects())
                blocks(500)
                gc.collect()
                assert len(gc.get_objects()) - before < 50
            for _ in range(3):
                g.launch()
            assert x.numpy().tolist() == [0.0] + [1.0] * 7
            g.close()

    run(body, GRAPH=str(use_graph))


def test_the_stand_in_reads_memory_that_is_not_pinned_as_cuda_does(run):
    lines = [line for line in run(pageable_node).splitlines() if "bytes, " in line]
    assert len(lines) == 12
    assert ["copied 3" in line for line in lines] == ["pageable source" in line for line in lines]


def pageable_node():
    import runpy

    runpy.run_path(os.environ["PYTHONPATH"].split(os.pathsep)[0] + "/../cuda/pageable_node.py", run_name="__main__")
