"""Loops and branches on the stand-in: which a device decides about, and which the host does."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = "import os\nfrom graph_tools import *\n"


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


def test_how_many_launches_a_repetition_takes(run):
    """One, where it is a loop of the device's or has one in it; else each time is one: a long graph made once costs more."""

    @run
    def body():
        for count, has_loop, launches in [(25, True, 1), (2000, True, 1), (2000, False, 1), (25, False, 25)]:
            with stf.context(devices="cuda:0") as ctx:
                x, n = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.array(0.0))
                with ctx.repeat(count):
                    ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), x.rw(), 0)
                    scale(x, 1.0)
                    if has_loop:
                        ctx.fill(n, 0.0)
                        with ctx.while_loop(n < 3.0):
                            n.assign(n + 1)
                            scale(x, 1.0)
                ctx.synchronize()
                assert fakecuda.calls("cuGraphLaunch") == launches, (count, has_loop)
                fakecuda.reset_calls()


def test_repetitions_in_each_other_are_no_long_graph(run):
    """All nodes count that they would become."""

    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.ones(4))
            g = ctx.task_graph()
            with g, ctx.repeat(40), ctx.repeat(40):
                scale(x, -1.0)
            for _ in range(3):
                g.launch()
            assert x.numpy().tolist() == [1] * 4
            known = g._recording.graph.graph
            assert known is not None and known.node_count < 100


def test_what_a_device_decides_about_comes_one_after_the_other(run):
    """The stand-in refuses graphs where it does not: a GPU stops for good there now and then (nested_nodes.cu)."""

    @run
    def body():
        told = Told()
        with stf.context(devices="cuda:0") as ctx:
            x, y, z = [ctx.logical_data(np.ones(4)) for _ in range(3)]
            n, m, s = [ctx.logical_data(np.array(0.0)) for _ in range(3)]

            def steps():
                with ctx.while_loop(m < 2):
                    scale(x, 2.0)
                    m.assign(m + 1)
                with ctx.if_(s < 1) as branch:
                    scale(y, 3.0)
                with branch.else_():
                    scale(y, 5.0)
                with ctx.repeat(300):
                    scale(z, -1.0)

            graph = ctx.task_graph()
            with graph:
                with ctx.while_loop(n < 3):
                    m.assign(0.0)
                    steps()
                    n.assign(n + 1)
                m.assign(0.0)
                steps()
            for _ in range(2):
                n.assign(0.0)
                graph.launch()
            assert x.numpy().tolist() == [2.0**16] * 4 and y.numpy().tolist() == [3.0**8] * 4
            assert z.numpy().tolist() == [1.0] * 4 and fakecuda.calls("cuGraphAddNode") > 8
            assert not [line for line in told.lines if "driven from the host" in line]


def test_sums_are_the_devices_where_it_is_alone(run):
    """What accumulates in a recording adds to the data itself, and there is nothing for the host to fold."""

    @run
    def body():
        @stf.task
        def add_up(x: stf.Accumulate[stf.reducer.sum], y: stf.Read):
            x += y

        told = Told()
        with stf.context(devices="cuda:0") as ctx:
            for make in (ctx.logical_data_zeros, ctx.logical_data_empty):
                x, y, s = make(4, np.float64), ctx.logical_data(np.ones(4)), ctx.logical_data(np.array(0.0))
                fakecuda.reset_calls()
                with ctx.while_loop(s < 3) as loop:
                    add_up(x, y)
                    s.assign(s + 1)
                ctx.synchronize()
                assert fakecuda.calls("cuGraphLaunch") == 1 and loop.iterations == 3
                with ctx.repeat(2):
                    add_up(x, y)
                assert x.numpy().tolist() == [5] * 4
        user = Graph()
        X = np.zeros(4)
        with stf.context(devices="cuda:0", graph=user.handle) as ctx:
            x, y, s = ctx.logical_data(X), ctx.logical_data(np.ones(4)), ctx.logical_data(np.array(0.0))
            with ctx.while_loop(s < 3):
                add_up(x, y)
                s.assign(s + 1)
        user.launch()
        assert X.tolist() == [3] * 4
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
            for step in range(3):
                with ctx.while_loop(s > 0.0, max_iterations=2) as loop:
                    ctx.host_launch(x.read())(lambda a: seen.append(float(a[0])))
                    scale(x)
                    total(s, x)
                assert loop.iterations == 2
                ctx.synchronize()
                assert seen == [0.0625 / 2**k for k in range(2 * step + 2)]
            assert sum("tasks on the host" in line for line in told.lines) == 1
            assert sum("in pieces" in line for line in told.lines) == 1


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


def test_what_the_host_drives_is_said_once_of_what_it_is_because_of(run):
    """Of a loop, and not of the graph around it; and of a graph in which another one only orders."""

    def body():
        def lines(name):
            return [line for line in told.lines if "driven from the host" in line and name in line]

        told, seen = Told(), []
        with stf.context(devices="cuda:0") as ctx:
            s, token = ctx.logical_data_zeros(()), ctx.token()
            with ctx.task_graph("looping") as looping:
                ctx.fill(s, 0.0)
                with ctx.while_loop(s < 2.0):
                    s.assign(s + 1.0)
                    ctx.host_launch(s.read())(lambda value: seen.append(float(value)))
            with ctx.task_graph("ordering") as ordering:
                for _ in range(3):
                    with ctx.task(token.rw()):
                        pass
            for _ in range(3):
                looping.launch()
                ordering.launch()
            with ctx.task_graph("calling") as calling:
                ordering.launch()
                ctx.host_launch(s.read())(lambda value: seen.append(float(value)))
            for _ in range(3):
                calling.launch()
            ctx.synchronize()
        assert seen == [1.0, 2.0] * 3 + [2.0] * 3
        assert [len(lines(name)) for name in ("while_loop", "looping", "ordering", "calling")] == [1, 0, 0, 1], (
            told.lines
        )

    run(body)


def test_a_recording_over_two_devices_is_one_launch(run):
    @run
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.full(4, 2.0))
            s = ctx.logical_data(np.array(0.0))
            g = ctx.task_graph()
            with g:
                scale.on(ctx.devices[0])(x, 2.0)
                scale.on(ctx.devices[1])(y, 3.0)
                scale.on(ctx.devices[1])(x, 5.0)  # which comes over
                scale.on(ctx.devices[0])(y, 7.0)
                total.on(ctx.devices[0])(s, x)
            g.launch()
            ctx.synchronize()
            fakecuda.reset_calls()
            for k in range(2, 5):
                g.launch()
                ctx.synchronize()
                assert fakecuda.calls("cuGraphLaunch") <= k - 1
            assert fakecuda.calls("cuGraphLaunch") >= 2  # the second launch captures, and the later ones launch
            assert x.numpy().tolist() == [1e4] * 4
            assert y.numpy().tolist() == [2 * 21.0**4] * 4
            assert float(s) == 4e4


def test_a_loop_whose_body_uses_both_devices_is_decided_by_the_host_and_its_body_is_one_graph(run):
    """CUDA wants all work in the body of a conditional node to belong to one context."""

    @run
    def body():
        told = Told()
        with stf.context(devices="cuda:0,1") as ctx:
            x, y = ctx.logical_data(np.full(4, 64.0)), ctx.logical_data(np.ones(4))
            s = ctx.logical_data(np.array(1e9))
            g = ctx.task_graph()
            with g, ctx.while_loop(s > 1.0, max_iterations=100) as loop:
                scale.on(ctx.devices[0])(x)
                scale.on(ctx.devices[1])(y, 2.0)
                total.on(ctx.devices[0])(s, x)
            for k in range(4):
                ctx.fill(x, 64.0)
                ctx.fill(s, 1e9)
                ctx.synchronize()
                fakecuda.reset_calls()
                g.launch()
                assert loop.iterations == 8
                assert float(s) == 1.0
                assert y.numpy().tolist() == [2.0 ** (8 * (k + 1))] * 4
                if k >= 2:
                    assert 8 <= fakecuda.calls("cuGraphLaunch") <= 18  # the body, and what decides, each time
            assert sum("while_loop" in line and "another device" in line for line in told.lines) == 1
