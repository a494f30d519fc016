"""Recorded tasks on the stand-in: what becomes of them in CUDA's graphs, and how many calls that takes."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = """
import ctypes, gc, logging
import numpy as np
import pytest
import cupy, fakecuda, stf

driver = ctypes.CDLL("libcuda.so.1")

def kernel(name):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cupy.cuda.Device(0).use()
    assert not driver.cuModuleLoadData(ctypes.byref(module), b"x")
    assert not driver.cuModuleGetFunction(ctypes.byref(function), module, name)
    return function.value

axpy = kernel(b"axpy")

@stf.task
def scale(x: stf.ReadWrite, a=0.5):
    x *= a

@stf.task
def total(s: stf.Write, x: stf.Read):
    s[...] = x.sum()

class Told(logging.Handler):
    'What stf logs.'
    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("stf").addHandler(self)
        logging.getLogger("stf").setLevel(logging.INFO)

    def emit(self, record):
        self.lines.append(record.getMessage())

class Graph:
    'A graph of the caller.'
    def __init__(self):
        self.handle = ctypes.c_void_p()
        cupy.cuda.Device(0).use()
        assert not driver.cuGraphCreate(ctypes.byref(self.handle), 0)
        self.handle = self.handle.value

    def launch(self, times=1):
        executable = ctypes.c_void_p()
        graph = ctypes.c_void_p(self.handle)
        cupy.cuda.Device(0).use()
        assert not driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        stream = cupy.cuda.Stream(non_blocking=True)
        for _ in range(times):
            assert not driver.cuGraphLaunch(executable, ctypes.c_void_p(stream.ptr))
        stream.synchronize()
        assert not driver.cuGraphExecDestroy(executable)

    def destroy(self):
        assert not driver.cuGraphDestroy(ctypes.c_void_p(self.handle))

def counts():
    gc.collect()
    return {kind: n for kind, n in fakecuda.counts().items() if kind in ("graphs", "objects", "allocations")}
"""


def test_a_loop_that_one_device_can_do_is_one_launch(run):
    @run
    def body():
        told = Told()
        with stf.context(devices="cuda:0,1") as ctx:
            x, s = ctx.logical_data(np.full(4, 64.0)), ctx.logical_data(np.array(1e9))
            fakecuda.reset_calls()
            with ctx.while_loop(s > 1.0, max_iterations=100) as loop:
                scale(x)
                total(s, x)
            ctx.synchronize()
            assert fakecuda.calls("cuGraphLaunch") == 1 and fakecuda.calls("cuGraphAddNode") == 1
            assert loop.iterations == 8 and float(s) == 1.0 and x.numpy().tolist() == [0.25] * 4
            with ctx.while_loop(s > 0.0, max_iterations=3) as loop:
                scale(x)
                total(s, x)
            assert loop.iterations == 3 and float(s) == 0.125
            with ctx.while_loop(max_iterations=5) as loop:
                scale(x)
                total(s, x)
                loop.continue_while(s > 0.03)
            assert loop.iterations == 3 and float(s) == 0.015625
            with ctx.while_loop(s > 1.0) as loop:
                scale(x)
            assert loop.iterations == 0 and x.numpy()[0] == 0.00390625
            with ctx.repeat(3), ctx.while_loop() as loop:
                scale(x, 2.0)
                loop.continue_while(s > 1.0)
            assert loop.iterations == 1 and x.numpy()[0] == 0.03125
            with ctx.while_loop(s > 0.0, max_iterations=7) as loop:
                scale(x)
                with ctx.if_(s > 1.0) as branch:
                    scale(x, 4.0)
                with branch.else_():
                    scale(x, 1.0)
        assert loop.iterations == 7  # also when the context is finalized
        assert not [line for line in told.lines if "driven from the host" in line]


def test_a_branch_and_a_long_repetition_are_the_devices_too(run):
    @run
    def body():
        told = Told()
        with stf.context(devices="cuda:0") as ctx:
            x, s = ctx.logical_data(np.ones(4)), ctx.logical_data(np.array(2.0))
            g = ctx.task_graph()
            with g, ctx.repeat(2000):
                scale(x, -1.0)
                with ctx.if_(s > 1.0) as branch:
                    scale(x, 1.0)
                with branch.else_():
                    scale(x, 0.5)
            for _ in range(3):
                g.launch()
            assert x.numpy().tolist() == [1] * 4
            with ctx.repeat(999):
                scale(x, -1.0)
            ctx.fill(s, 0.0)
            g.launch()
            assert x.numpy().tolist() == [-0.0] * 4
            known = g._recording.graph.graph
            assert known is not None and known.node_count < 20
        assert not [line for line in told.lines if "driven from the host" in line]


def test_what_a_device_cannot_decide_is_driven_from_the_host_and_told_once(run):
    @run
    def body():
        told, seen = Told(), []
        with stf.context(devices="cuda:0,1") as ctx:
            x, s = ctx.logical_data(np.ones(4)), ctx.logical_data(np.array(4.0))
            g = ctx.task_graph()
            with g, ctx.while_loop(s > 1.0):
                scale.on(ctx.devices[1])(x)
                total(s, x)
            for _ in range(3):
                ctx.fill(s, 4.0)
                g.launch()
            assert x.numpy().tolist() == [0.0625] * 4
            assert sum("while_loop" in line and "another device" in line for line in told.lines) == 1
            with ctx.while_loop(s > 0.0, max_iterations=2) as loop:
                ctx.host_launch(x.read())(lambda a: seen.append(float(a[0])))
                scale(x)
                total(s, x)
            assert seen == [0.0625, 0.03125] and loop.iterations == 2
            assert any("tasks on the host" in line for line in told.lines)


def test_parameters_renew_the_nodes_that_take_them_and_no_others(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph("axpy")
            a, b = g.param("a", 2.0), g.param("b", 1.0)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a * 3, x.read(), y.rw(), 4)
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), 4)
                scale(y, b)
            expected = 0.0
            launches = [
                ({}, (0, 0)),
                ({}, (0, 0)),
                ({"a": 1.0}, (1, 0)),
                ({"a": 1.0}, (0, 0)),
                ({"a": 5}, (1, 0)),
                ({"b": 0.5}, (1, 1)),
                ({"a": 5, "b": 0.5}, (1, 0)),
                ({}, (1, 1)),
            ]
            for values, renewed in launches:
                fakecuda.reset_calls()
                g.launch(**values)
                expected = (expected + 3 * values.get("a", 2.0) + 1) * values.get("b", 1.0)
                assert y.numpy().tolist() == [expected] * 4
                kernels = fakecuda.calls("cuGraphExecKernelNodeSetParams")
                assert (kernels, fakecuda.calls("cuGraphExecChildGraphNodeSetParams")) == renewed
            assert g._recording.graph.graph is not None


def test_threads_launch_one_graph_with_values_of_their_own(run):
    @run
    def body():
        import threading

        begun, go = threading.Event(), threading.Event()

        @stf.task
        def look(x: stf.Read, b):
            if b == 2.0 and not begun.is_set():
                begun.set()
                assert go.wait(60)
            x * b

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(1)), ctx.logical_data(np.zeros(4))
            with ctx.task(y.rw()) as t:
                address = t.get_arg(0)
            g = ctx.task_graph()  # it only reads: its launches do not wait for each other
            a, b, where = g.param("a", 0.0), g.param("b", 1.0), g.param("where", address)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), where, 1)
                look(x, b)
            for i in range(2):
                g.launch(a=10.0, where=address + 8 * i)
            other = threading.Thread(target=lambda: g.launch(a=10.0, b=2.0, where=address + 8))
            other.start()
            assert begun.wait(60)  # it found the kernel as it wants it
            g.launch(a=5.0, where=address + 16)
            go.set()
            other.join()
            ctx.synchronize()
            assert y.numpy().tolist() == [10.0, 20.0, 5.0, 0.0]


def test_graphs_of_other_data_keep_their_memory_until_they_are_done(run):
    def body():
        @stf.task
        def add(x: stf.Read, y: stf.ReadWrite, a):
            y += a * x  # which is allocated

        n = 1 << 11
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(n)), ctx.logical_data(np.zeros(n))
            others = [ctx.logical_data(np.zeros(n)) for _ in range(8)]  # more than are kept
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                for _ in range(6):
                    add(x, y, a)
            totals = np.zeros(8)
            for k in range(40):
                for i, other in enumerate(others):
                    value = float((k * 7 + i * 3) % 5 + 2)
                    g.launch({y: other}, a=value)
                    totals[i] += 6 * value
            assert [np.unique(other.numpy()).tolist() for other in others] == [[total] for total in totals]

    run(body, FAKECUDA_SEED="2")  # orders that CUDA allows


def test_threads_make_one_graph_ready(run):
    @run
    def body():
        import threading

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(1)), ctx.logical_data(np.zeros(2))
            with ctx.task(y.rw()) as t:
                address = t.get_arg(0)
            for _ in range(100):
                g = ctx.task_graph()
                a, where = g.param("a", 5.0), g.param("where", address)
                with g:
                    ctx.launch_kernel(axpy, (1, 1), a, x.read(), where, 1)
                g.launch(a=1.0, where=address + 8)
                gate = threading.Barrier(2)

                def launch():
                    gate.wait()
                    g.launch(a=1.0, where=address + 8)

                threads = [threading.Thread(target=launch) for _ in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                ctx.synchronize()
                assert y.numpy()[0] == 0.0  # nobody asked for the defaults
                with ctx.task(y.rw()):
                    pass
                g.close()


def test_a_graph_that_is_closed_during_a_launch_goes_after_it(run):
    @run
    def body():
        import threading
        import time

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 4.0))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                scale(x, a)
                temporary = ctx.logical_data_empty((4,), np.float64)
                ctx.fill(temporary, 2.0)
                ctx.launch_kernel(axpy, (1, 1), 1.0, temporary.read(), x.rw(), 4)
            for _ in range(2):
                g.launch()
            with ctx.task(x.rw()):
                other = threading.Thread(target=lambda: g.launch(a=2.0))
                other.start()
                time.sleep(0.2)
                g.close()
            other.join()
            assert x.numpy().tolist() == [18.0] * 4

            class Value:  # stands for a thread that closes it just then
                def __float__(self):
                    g.close()
                    return 2.0

                def __eq__(self, other):
                    return True

            g = ctx.task_graph("gone")
            a = g.param("a", 1.0)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), x.rw(), 4)
            with pytest.raises(stf.TaskStateError, match="graph 'gone' was closed before it could be launched"):
                g.launch(a=Value())


def test_recorded_with_blocks_are_not_watched(run):
    def body():
        for settings in ({}, {"use_graph": True}):
            with stf.context(devices="cuda:0", **settings) as ctx:
                x = ctx.logical_data(np.ones(4))
                g = ctx.task_graph()
                with g, ctx.task(x.rw()) as t:
                    (array,) = t.cupy()
                    array *= 2
                for _ in range(3):
                    g.launch()
                assert x.numpy().tolist() == [8.0] * 4

    run(body, STF_VALIDATE="1")


def test_a_body_that_puts_nothing_on_its_stream_for_some_values(run):
    @run
    def body():
        @stf.task
        def maybe(x: stf.ReadWrite, a):
            if a:
                x += a

        with stf.context(devices="cuda:0") as ctx:
            x, n = ctx.logical_data(np.zeros(4)), ctypes.c_size_t()
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                maybe(x, a)
            for value in (1.0, 1.0, 0.0, 2.0):
                g.launch(a=value)
                shown = g.handle
            assert x.numpy().tolist() == [4.0] * 4 and g._recording.graph.refusal is None
            assert not driver.cuGraphGetNodes(ctypes.c_void_p(shown), None, ctypes.byref(n))


def test_a_value_that_no_kernel_takes_is_refused_before_anything_runs(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph("axpy")
            n = g.param("n", 4)
            with g:
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), n)
            for wrong in (2.5, "four", None):
                with pytest.raises(TypeError, match="parameter 'n' is a kernel's argument of type int.*; got"):
                    g.launch(n=wrong)
            g.launch(n=2)
            assert y.numpy().tolist() == [1, 1, 0, 0]
            with pytest.raises(TypeError, match="the value of parameter 'n' is not known"):
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), n)
            g.launch(n=2)
            assert y.numpy().tolist() == [2, 2, 0, 0]


def test_recordings_leave_nothing_behind(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, s = ctx.logical_data(np.full(64, 1.0)), ctx.logical_data(np.array(0.0))

            def record():
                g = ctx.task_graph()
                a = g.param("a", 1.0)
                with g:
                    with ctx.while_loop(s < 2.0, max_iterations=2):
                        scale(x, 1.0)
                        ctx.launch_kernel(axpy, (1, 1), 0.0, x.read(), x.rw(), 64)
                        total(s, x)
                    scale(x, a)
                g.launch()
                g.launch(a=-1.0)
                g.launch(a=-1.0)
                g.close()

            for _ in range(20):
                record()
            ctx.synchronize()
            ctx.token()
            before = counts()
            for _ in range(200):
                record()
            ctx.synchronize()
            ctx.token()
            after = counts()
            assert all(after[kind] <= before[kind] + 50 for kind in before), (before, after)
            assert x.numpy().tolist() == [1.0] * 64


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
            g = ctx.task_graph("told")
            with g:
                ctx.host_launch(x.read())(lambda a: None)
            with pytest.raises(stf.CaptureError, match="graph 'told' is no CUDA graph: it has tasks on the host"):
                g.handle
        with stf.context(devices="cpu") as ctx:
            g = ctx.task_graph()
            with g:
                scale(ctx.logical_data(np.ones(3)))
            with pytest.raises(stf.CaptureError, match="is no CUDA graph: its device has no graphs"):
                g.handle


def test_kernels_and_copies_take_other_data(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.full(4, float(i))) for i in range(4)]
            x, y = data[:2]
            g = ctx.task_graph("axpy")
            a = g.param("a", 2.0)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), 4)
                scale(y, 2.0)
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), 4)
            model = [0.0, 1.0, 2.0, 3.0]
            for i, k, value in [(0, 1, 2.0), (2, 3, 2.0), (2, 3, 1.0), (3, 0, 1.0), (0, 1, 1.0), (1, 2, 3.0)] * 3:
                g.launch({x: data[i], y: data[k]}, a=value)
                model[k] = (model[k] + value * model[i]) * 2 + model[i]
                assert [float(d.numpy()[0]) for d in data] == model


def test_loops_and_branches_without_conditional_nodes(run):
    @run
    def body():
        from stf import config

        def program():
            with stf.context(devices="cuda:0") as ctx:
                s, x = ctx.logical_data_zeros(()), ctx.logical_data(np.full(4, 1024.0))
                with ctx.while_loop(s < 3.0):
                    with ctx.if_(s > 0.0):
                        scale(x)
                    s.assign(s + 1.0)
                return x.numpy().tolist()

        nodes = fakecuda.calls("cuGraphAddNode")
        assert program() == [256.0] * 4 and fakecuda.calls("cuGraphAddNode") > nodes
        nodes = fakecuda.calls("cuGraphAddNode")
        config.reload({"STF_CONDITIONAL_NODES": "0"})
        told = Told()
        assert program() == [256.0] * 4 and fakecuda.calls("cuGraphAddNode") == nodes
        assert any("driven from the host: graphs have no conditional nodes" in line for line in told.lines)


def test_zeros_of_either_sign_are_different_values(run):
    @run
    def body():
        @stf.task
        def sign(x: stf.Write, a):
            x[...] = np.copysign(1.0, a)

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph()
            a = g.param("a", 0.0)
            with g:
                sign(x, a)
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), 4)
            for value in (0.0, -0.0, 0.0, 0.0, -0.0, 1.0, -0.0):
                g.launch(a=value)
                assert x.numpy()[0] == np.copysign(1.0, value)


def test_a_body_that_fails_for_a_value_leaves_the_graph_as_it_was(run):
    """Kernels before it, which were to be renewed as well, are as the next launch wants them."""

    @run
    def body():
        @stf.task
        def add(x: stf.ReadWrite, a):
            if a == 2:
                raise ValueError("not two")
            x += a

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), 4)
                add(x, a)
            model = [1.0, 0.0]
            for value in (1.0, 3.0, 3.0, 4.0):
                g.launch(a=value)
                model = [model[0] + value, model[1] + value * model[0]]
                assert [float(x.numpy()[0]), float(y.numpy()[0])] == model
            with pytest.raises(stf.TaskFailedError, match="not two"):
                g.launch(a=2.0)
            ctx.fill(x, 1.0)
            ctx.fill(y, 0.0)
            model = [1.0, 0.0]
            for value in (4.0, 1.0, 4.0):
                g.launch(a=value)
                model = [model[0] + value, model[1] + value * model[0]]
                assert [float(x.numpy()[0]), float(y.numpy()[0])] == model


def test_values_of_parameters_that_change_in_place(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            g, lr, total = ctx.task_graph(), np.array(0.5), 0.0
            a = g.param("a", 0.5)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), 4)
            for value in (0.5, 2.0, 2.0, 4.0):
                lr[...] = value
                g.launch(a=lr)
                total += value
            assert y.numpy().tolist() == [total] * 4


def test_a_nested_graph_gives_its_kernels_parameters_of_the_outer_one(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            inner, outer = ctx.task_graph("inner"), ctx.task_graph("outer")
            a, b = inner.param("a", 1.0), outer.param("b", 2.0)
            with inner:
                ctx.launch_kernel(axpy, (1, 1), a * 3.0, x.read(), y.rw(), 4)
            with outer:
                inner.launch(a=b)
                inner.launch(a=b + 1.0)
            total = 0.0
            for value in (2.0, 2.0, 5.0, 2.0):
                outer.launch(b=value)
                total += 3 * value + 3 * (value + 1)
                assert y.numpy().tolist() == [total] * 4
            with pytest.raises(TypeError, match="computed from parameters cannot be with 'b' = 'two'"):
                outer.launch(b="two")
            inner.launch(a=1.0)
            assert y.numpy().tolist() == [total + 3.0] * 4


def test_graphs_of_launches_that_fail_are_not_kept(run):
    @run
    def body():
        @stf.task
        def fails(x: stf.ReadWrite, a):
            if a == 2:
                raise ValueError("not two")
            x += a

        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(12)]
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                fails(data[0], a)
            for other in data[1:]:
                with pytest.raises(stf.TaskFailedError):
                    g.launch({data[0]: other}, a=2.0)
            assert len(g._recording.graph.others) <= 4
            g.launch({data[0]: ctx.logical_data(np.zeros(4))})


def test_errors_of_the_users_that_speak_of_capturing_are_theirs(run):
    @run
    def body():
        class Mute(Exception):
            def __str__(self):
                raise AttributeError("no words")

        for graph in (True, False):
            with stf.context(devices="cuda:0", use_graph=graph) as ctx:
                x = ctx.logical_data(np.zeros(4))
                for error in (KeyError("the camera is capturing"), KeyboardInterrupt("is capturing"), Mute()):
                    with pytest.raises(type(error)):
                        with ctx.task(x.rw()) as t:
                            t.cupy()
                            raise error
                    ctx.fill(x, 1.0)
                assert x.numpy().tolist() == [1.0] * 4


def test_kernels_in_a_with_block_take_no_other_data(run):
    """They were given addresses: nobody knows of which data."""

    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y, other = (ctx.logical_data(np.full(4, float(i))) for i in range(3))
            g = ctx.task_graph("axpy")
            a = g.param("a", 2.0)
            with g:
                with ctx.cuda_kernel(x.read(), y.rw(), name="block") as k:
                    k.launch(axpy, 1, 1, (a, k.get_arg(0), k.get_arg(1), 4))
            with pytest.raises(stf.CaptureError, match="task 'block' .* was recorded as it stands"):
                g.launch({y: other})
            g.launch()
            g.launch(a=1.0)
            assert y.numpy().tolist() == [1] * 4 and other.numpy().tolist() == [2.0] * 4


def test_bodies_that_put_nothing_on_their_stream_for_some_values(run):
    @run
    def body():
        @stf.task
        def maybe(x: stf.ReadWrite, n):
            if n:
                x += n

        with stf.context(devices="cuda:0") as ctx:
            for default in (0, 2):
                x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
                g = ctx.task_graph()
                n = g.param("n", default)
                with g:
                    maybe(x, n)
                    scale(y, 1.0)
                total_of = 0
                for value in (default, default, 3, 0, 0, 4, 0):
                    g.launch(n=value)
                    total_of += value
                    assert x.numpy().tolist() == [total_of] * 4 and y.numpy().tolist() == [0] * 4


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


def test_numbers_that_a_kernel_can_and_cannot_take(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph()
            a, n = g.param("a", 1.0), g.param("n", 4)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), n)
            for wrong in (2**70, -(2**63) - 1):
                with pytest.raises(TypeError, match="of type int, as its default was, of 8 bytes; got"):
                    g.launch(n=wrong)
            g.launch(a=np.float64("nan"), n=1)
            assert np.isnan(y.numpy()).tolist() == [True, False, False, False]
            with pytest.raises(OverflowError, match="is 8 bytes"):
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), 2**64 + 2)


def test_a_launch_that_cannot_begin_poisons_what_it_was_to_write(run):
    @run
    def body():
        with stf.context(devices="cuda:0", use_graph=True) as ctx:
            x = ctx.logical_data(np.full(4, 3.0))
            scale(x)
            fakecuda.reset_calls("cuMemcpyAsync:1:CUDA_ERROR_OUT_OF_MEMORY")
            with pytest.raises((stf.Error, MemoryError)):
                x.numpy()
            with pytest.raises(stf.TaskFailedError, match="is poisoned"):
                x.numpy()
            x.accept()
            scale(x)
            assert x.numpy().tolist() == [1.5] * 4


def test_an_executable_that_cannot_be_made_is_done_without(run):
    @run
    def body():
        for plan in ("cuGraphInstantiateWithFlags:1:CUDA_ERROR_OUT_OF_MEMORY", "cuGraphGetNodes:1", "cuGraphAddNode:1"):
            with stf.context(devices="cuda:0") as ctx:
                x, s = ctx.logical_data(np.full(4, 64.0)), ctx.logical_data(np.array(1e9))
                ctx.launch_kernel(axpy, (1, 1), 0.0, x.read(), x.rw(), 4)
                ctx.synchronize()
                fakecuda.reset_calls(plan)
                try:
                    with ctx.while_loop(s > 32.0) as loop:
                        scale(x)
                        total(s, x)
                except stf.Error:  # a body that could not be captured
                    assert plan == "cuGraphGetNodes:1"
                    assert x.numpy().tolist() == [64] * 4
                    continue
                assert loop.iterations == 3 and x.numpy().tolist() == [8] * 4, plan
