"""Graphs that callers own, on the stand-in: filled by stf, or made of a recording by its handle."""

# ruff: noqa: F821
from __future__ import annotations

import pytest

PRELUDE = "import os\nfrom graph_tools import *\n"


def test_a_callers_graph_is_filled_and_its_owner_launches_it(run):
    @run
    def body():
        graph, x = Graph(), np.full(4, 64.0)
        device = cupy.asarray(np.ones(4))
        with stf.context(graph=graph) as ctx:
            lx, ly = ctx.logical_data(x), ctx.logical_data(device)
            scale(lx)
            ctx.launch_kernel(axpy, (1, 1), 2.0, ly.read(), lx.rw(), 4)
            with pytest.raises(stf.CaptureError):
                lx.numpy()
        assert x.tolist() == [64] * 4  # nothing ran
        graph.launch()
        assert x.tolist() == [34] * 4
        graph.launch(2)
        assert x.tolist() == [11.5] * 4
        with stf.context(graph=graph.handle, devices="cuda:0,1") as ctx:  # there may be more in it
            other = ctx.logical_data(np.ones(3))
            scale.on(ctx.devices[1])(other)
        graph.launch()
        assert x.tolist() == [7.75] * 4
        graph.destroy()
        with pytest.raises(ValueError, match="is no CUDA graph that can be filled"):
            stf.context(graph=graph)
        with pytest.raises(stf.CaptureError, match="leave resources out"):
            again = Graph()
            stf.context(graph=again, resources=stf.Resources())
        with stf.context(graph=again) as ctx:
            scale(ctx.logical_data(x))
        again.launch()
        assert x.tolist() == [3.875] * 4


def test_contexts_that_fill_a_graph_one_after_the_other(run):
    @run
    def body():
        graph, x, y = Graph(), np.zeros(4), np.zeros(4)
        for k in range(3):
            with stf.context(graph=graph) as ctx:
                lx, ly = ctx.logical_data(x), ctx.logical_data(y)
                for _ in range(2):
                    ctx.host_launch(lx.rw(), args=(k,))(lambda a, k: a.__setitem__(..., a * 2 + k))
                    ctx.host_launch(ly.rw(), args=(k,))(lambda a, k: a.__setitem__(..., a * 3 + k))
        graph.launch(2)
        want = [0, 0]
        for _ in range(2):
            for k in range(3):
                for _ in range(2):
                    want = [want[0] * 2 + k, want[1] * 3 + k]
        assert x.tolist() == [want[0]] * 4 and y.tolist() == [want[1]] * 4
        graph.destroy()


@pytest.mark.parametrize("way", ["plain", "recorded", "captured"])
def test_else_is_decided_by_what_was_computed_before(run, way):
    def body():
        from caller_tools import Captured, new_stream

        @stf.task
        def put(x: stf.Write, n):
            x[...] = n

        @stf.task
        def step(x: stf.ReadWrite):
            x += 1

        def program(ctx):
            def branches():
                for _ in range(2):
                    step(s)
                with ctx.if_(s < 0) as branch:
                    put(x, 5.0)
                with branch.else_():
                    put(y, 7.0)

            x, y, s = (ctx.logical_data(array) for array in arrays)
            if way != "recorded":
                return branches()
            g = ctx.task_graph()
            with g:
                branches()
            g.launch()

        way = os.environ["WAY"]
        arrays = [cupy.asarray(np.zeros(4)), cupy.asarray(np.zeros(4)), cupy.asarray(np.array(0.0))]
        if way == "captured":
            stream = new_stream()
            with Captured(stream, 2) as graph, stf.context(stream=stream, devices="cuda:0") as ctx:
                program(ctx)
        else:
            graph = Graph()
            with stf.context(graph=graph, devices="cuda:0") as ctx:
                program(ctx)
        for _ in range(6):
            arrays[1][...] = 0.0
            cupy.cuda.Stream.null.synchronize()
            graph.launch()
            assert [float(array.get().ravel()[0]) for array in arrays[:2]] == [0, 7]

    run(body, WAY=way, FAKECUDA_SEED="1")


def test_a_callers_graph_has_no_checkpoints(run):
    @run
    def body():
        graph = Graph()
        with stf.context(graph=graph) as ctx:
            x = ctx.logical_data(np.ones(3), name="x")
            for refused in (lambda: ctx.checkpoint("state"), lambda: ctx.restore("state", data=x)):
                with pytest.raises(stf.CaptureError, match="none runs before that is launched"):
                    refused()
        assert not os.path.exists("state")


def test_loops_and_branches_in_a_callers_graph(run):
    @run
    def body():
        graph, sums = Graph(), cupy.asarray(np.array(1e9))
        x, y, z = (cupy.asarray(np.full(4, value)) for value in (64.0, 1.0, 1.0))
        with stf.context(graph=graph) as ctx:
            lx, ly, lz, s = (ctx.logical_data(array) for array in (x, y, z, sums))
            g = ctx.task_graph()
            with g, ctx.if_(s > 1.0) as branch:
                scale(ly, 2.0)
            with ctx.while_loop(s > 1.0, max_iterations=50) as loop:
                scale(lx)
                total(s, lx)
                g.launch()
                with ctx.if_(s > 16.0) as branch:
                    scale(lz, 3.0)
                with branch.else_():
                    scale(lz, 5.0)
            with ctx.while_loop(max_iterations=4) as again:
                scale(lx, 2.0)
                again.continue_while(s > 0.0)
            with ctx.repeat(2):
                scale(lx, 0.5)
            with ctx.while_loop(s > 0.0, max_iterations=0):
                scale(lx, 100.0)
        with stf.context(graph=Graph(), devices="cuda:0,1") as ctx:
            s = ctx.logical_data(sums)
            with pytest.raises(stf.CaptureError, match="while_loop cannot be part of a graph of yours: .* device"):
                with ctx.while_loop(s > 1.0):
                    scale.on(ctx.devices[1])(s)
        assert x.get().tolist() == [64.0] * 4 and float(sums.get()) == 1e9  # nothing ran
        graph.launch()
        assert x.get().tolist() == [1.0] * 4 and float(sums.get()) == 1.0
        assert (loop.iterations, again.iterations) == (8, 4)
        assert y.get().tolist() == [2.0**7] * 4 and z.get().tolist() == [27.0 * 5**5] * 4
        graph.launch()  # the first loop is over before it begins
        assert x.get().tolist() == [4.0] * 4 and (loop.iterations, again.iterations) == (0, 4)
        graph.destroy()


def test_the_handle_of_a_graph(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 8.0))
            g = ctx.task_graph("halves")
            with pytest.raises(stf.TaskStateError, match="graph 'halves' is not recorded"):
                g.handle
            with g:
                scale(x)
                scale(x)
            g.launch()
            ctx.synchronize()
            graph, n = Graph(), ctypes.c_size_t()
            child, parent = ctypes.c_void_p(g.handle), ctypes.c_void_p(graph.handle)
            assert not driver.cuGraphGetNodes(child, None, ctypes.byref(n)) and n.value == 2
            node = ctypes.c_void_p()
            assert not driver.cuGraphAddChildGraphNode(ctypes.byref(node), parent, None, 0, child)
            graph.launch()
            assert x.numpy().tolist() == [0.5] * 4
            g.launch()
            assert x.numpy().tolist() == [0.125] * 4 and g.handle == child.value
            graph.destroy()
            g, s = ctx.task_graph("told"), ctx.logical_data(np.array(2.0))
            with g, ctx.while_loop(s > 1.0):
                ctx.host_launch(s.rw())(lambda a: a.__isub__(1) and None)
            with pytest.raises(stf.CaptureError, match="graph 'told' is no CUDA graph: it has tasks on the host"):
                g.handle
        with stf.context(devices="cpu") as ctx:
            g = ctx.task_graph()
            with g:
                scale(ctx.logical_data(np.ones(3)))
            with pytest.raises(stf.CaptureError, match="is no CUDA graph: its device has no graphs"):
                g.handle


def test_the_handle_has_the_default_values_and_launches_have_theirs(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            for order in ("launched", "asked"):
                ctx.fill(y, 0.0)
                g = ctx.task_graph()
                a = g.param("a", 1.0)
                with g:
                    ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), 4)
                if order == "launched":
                    g.launch(a=5.0)
                    g.launch(a=5.0)
                graph, node = Graph(), ctypes.c_void_p()
                child = ctypes.c_void_p(g.handle)
                parent = ctypes.c_void_p(graph.handle)
                assert not driver.cuGraphAddChildGraphNode(ctypes.byref(node), parent, None, 0, child)
                before = y.numpy()[0]
                with ctx.task(y.rw()):  # where launches leave it: on the device alone
                    pass
                ctx.synchronize()
                graph.launch()
                assert y.numpy()[0] == before + 1
                g.launch(a=7.0)
                assert y.numpy()[0] == before + 8
                graph.destroy()


def test_what_a_callers_graph_refuses_leaves_nothing(run):
    @run
    def body():
        import gc

        def refused(way):
            graph = Graph()
            with pytest.raises(stf.CaptureError, match="cannot be part of a graph of yours"):
                with stf.context(graph=graph, devices="cuda:0") as ctx:
                    x, s = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.array(0.0))
                    with ctx.while_loop(s < 3) if way == "loop" else ctx.if_(s < 3):
                        scale(s)
                        ctx.host_launch(x.rw())(lambda a: None)
            graph.destroy()

        def left():
            gc.collect()
            cupy.get_default_memory_pool().free_all_blocks()
            for _ in range(2):  # who makes a context looks which graphs are gone
                graph = Graph()
                with stf.context(graph=graph, devices="cuda:0") as ctx:
                    scale(ctx.logical_data(np.zeros(4)))
                graph.destroy()
                gc.collect()
            return [fakecuda.counts().get(kind, 0) for kind in ("graphs", "allocations")]

        for way in ("loop", "branch"):
            refused(way)
            before = left()
            for _ in range(10):
                refused(way)
            assert left() == before


@pytest.mark.parametrize("settings", [{"STF_VALIDATE": "1"}, {"STF_BLOCKING": "1"}, {}])
def test_settings_that_look_at_tasks_let_a_callers_graph_be(run, settings):
    """Nothing in it has run yet."""

    def body():
        @stf.task
        def add(x: stf.ReadWrite, y: stf.Read):
            x += y

        X, Y, graph = np.zeros(4), np.ones(4), Graph()
        with stf.context(graph=graph, devices="cuda:0") as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(Y)
            add(x, y)
            with ctx.task(x.rw(), y.read()) as t:
                a, b = t.cupy()
                a += b
        for launch in (1, 2):
            graph.launch()
            assert X.tolist() == [2 * launch] * 4
        graph.destroy()

    run(body, **settings)


def test_frozen_data_cannot_be_had_on_the_host_in_a_capture(run):
    def body():
        X, graph = np.zeros(4), Graph()
        with stf.context(graph=graph, devices="cuda:0") as ctx:
            x = ctx.logical_data(X, name="X")
            scale(x)
            with ctx.freeze(x) as frozen, pytest.raises(stf.CaptureError, match="'X'.* is frozen, cannot be had at"):
                frozen.get(stf.data_place.host())
            scale(x)
        graph.launch()
        graph.destroy()

    run(body)


@pytest.mark.parametrize("own", [False, True])
def test_a_wait_for_an_array_is_refused_and_joins_nothing(run, own):
    def body():
        X, graph = np.zeros(4), Graph()
        mine = cupy.cuda.Stream(non_blocking=True) if os.environ["OWN"] == "1" else cupy.cuda.Stream.null
        with mine, stf.context(graph=graph, devices="cuda:0") as ctx:
            x = ctx.logical_data(X)
            scale(x)
            with pytest.raises(stf.CaptureError, match="read the data after the graph was launched"):
                ctx.wait(x, arrays="cupy")
            mine.synchronize()
            with ctx.task(x.rw()) as t:
                t.cupy()[0][:] += 1
        graph.launch()
        assert X.tolist() == [1] * 4
        graph.destroy()

    run(body, OWN=str(int(own)))
