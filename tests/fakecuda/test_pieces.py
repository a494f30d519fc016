"""Recordings with tasks on the host, on the stand-in: graphs for the pieces between them, and nobody waits."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = "from graph_tools import *\n"


def test_the_pieces_between_bodies_of_the_host_are_graphs(run):
    @run
    def body():
        told, seen = Told(), []
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.full(4, 64.0)), ctx.logical_data(np.ones(4))
            g = ctx.task_graph("two")
            with g:
                for _ in range(3):
                    scale(x)
                ctx.host_launch(x.rw())(lambda v: seen.append(float(v[0])))
                for _ in range(4):
                    scale(y, 2.0)
                for _ in range(2):
                    scale(x, 4.0)
                    ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), 4)
            g.launch()
            ctx.synchronize()
            g.launch()  # this one makes them
            ctx.synchronize()
            for _ in range(2):
                fakecuda.reset_calls()
                g.launch()
                ctx.synchronize()
                assert fakecuda.calls("cuGraphLaunch") == 3 and fakecuda.calls("cuLaunchKernel") == 0
            values, a, b = [], 64.0, 1.0
            for _ in range(4):
                a /= 8
                values.append(a)
                b = b * 16 + a * 4 + a * 16
                a *= 16
            assert seen == values and x.numpy().tolist() == [a] * 4 and y.numpy().tolist() == [b] * 4
        (line,) = [line for line in told.lines if "in pieces" in line]
        assert line.startswith("graph 'two' (")
        assert line.endswith(") is, in pieces, 3 graphs of the device's and 1 step of the host")


def test_a_launch_waits_for_no_body(run):
    """Graphs behind bodies of the host are queued, with the values of their launch."""

    @run
    def body():
        import threading

        gate, seen = threading.Event(), []

        def look(v):
            assert gate.wait(30)
            seen.append(float(v[0]))

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.full(4, 64.0)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                scale(x)
                scale(x)
                ctx.host_launch(x.rw())(look)
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), y.rw(), 4)
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), 4)
                scale(x, 4.0)
            gate.set()
            for _ in range(2):
                g.launch()
            ctx.synchronize()
            gate.clear()
            for k in range(5):  # five are on their way, each with another value
                g.launch(a=float(k))
            g.launch()
            assert len(seen) == 2
            gate.set()
            assert x.numpy().tolist() == [64.0] * 4 and seen == [16.0] * 8
            assert y.numpy().tolist() == [(3 * 2 + sum(range(5)) + 5) * 16.0] * 4
            g.launch(a=3.0)
            assert y.numpy().tolist() == [(3 * 2 + sum(range(5)) + 5 + 4) * 16.0] * 4


def test_bodies_with_values_of_their_own_behind_bodies_of_the_host(run):
    @run
    def body():
        seen = []
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 1.0))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                scale(x, 2.0)
                scale(x, 2.0)
                ctx.host_launch(x.read())(lambda v: seen.append(float(v[0])))
                scale(x, a)
                scale(x, 0.25)
            for value in (1.0, 3.0, 5.0, 0.5):
                g.launch(a=value)
            assert x.numpy().tolist() == [7.5] * 4 and seen == [4.0, 4.0, 12.0, 60.0]


def test_memory_that_a_graph_writes_is_read_afterwards(run):
    """CUDA reads memory of the host that is not pinned in the call that copies it."""

    @run
    def body():
        @stf.task
        def count(x: stf.Accumulate[stf.reducer.sum], y: stf.Read):
            x += y

        with stf.context(devices="cuda:0") as ctx:
            x, y, z = (ctx.logical_data(np.full(4, value)) for value in (1, 2, 0))
            with ctx.repeat(1):
                with ctx.repeat(3):
                    count(x, y)
                    count(x, y)
                    scale(x, 3)
            with ctx.task(z.write(), x.read()) as t:
                there, here = t.cupy()
                there[...] = here
            assert x.numpy().tolist() == z.numpy().tolist() == [183] * 4


def test_a_branch_that_the_host_takes_behind_one_of_the_device(run):
    @run
    def body():
        def first(n, x, s):
            n += 1
            x[...] = s[...] = 1

        with stf.context(devices="cuda:0") as ctx:
            x, s, h = (ctx.logical_data(np.array(value)) for value in (0.0, 0.0, 0))
            with ctx.repeat(5):
                with ctx.if_(s > 0.0) as branch:
                    scale(x, 3.0)
                with branch.else_():
                    ctx.host_launch(h.rw(), x.rw(), s.write())(first)
            assert (int(h.numpy()), float(x.numpy())) == (1, 81.0)


def test_a_body_that_fails_between_pieces(run):
    """What comes after it is poisoned; the next launch is as ever."""

    @run
    def body():
        fails = [False]

        def look(v):
            if fails[0]:
                raise ArithmeticError("no")
            v += 1

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 1.0))
            g = ctx.task_graph()
            with g:
                scale(x, 2.0)
                scale(x, 2.0)
                ctx.host_launch(x.rw())(look)
                scale(x, 0.5)
                scale(x, 0.5)
            for _ in range(3):
                g.launch()
            assert x.numpy().tolist() == [1.75] * 4
            fails[0] = True
            g.launch()
            with pytest.raises(stf.TaskFailedError, match="ArithmeticError: no"):
                x.numpy()
            fails[0] = False
            with ctx.task(x.write()) as t:
                t.cupy()[0][...] = 1.0
            g.launch()
            assert x.numpy().tolist() == [1.25] * 4


def test_a_graph_context_launches_pieces(run):
    @run
    def body():
        seen = []
        with stf.context(devices="cuda:0", use_graph=True) as ctx:
            x = ctx.logical_data(np.full(4, 64.0))
            for n in range(3):
                for _ in range(3):
                    scale(x)
                ctx.host_launch(x.read())(lambda v: seen.append(float(v[0])))
                for _ in range(3):
                    scale(x, 2.0)
                fakecuda.reset_calls()
                ctx.synchronize()
                assert fakecuda.calls("cuGraphLaunch") == 2
                assert (fakecuda.calls("cuGraphInstantiateWithFlags") == 0) == (n > 0)  # updated from then on
        assert seen == [8.0] * 3


def test_recordings_in_pieces_leave_nothing_behind(run):
    @run
    def body():
        def some():
            x = ctx.logical_data(np.ones(4))
            g = ctx.task_graph()
            with g:
                scale(x)
                scale(x)
                ctx.host_launch(x.rw())(lambda v: v.fill(1))
                scale(x)
                scale(x)
            for _ in range(3):
                g.launch()
            g.close()
            return x

        with stf.context(devices="cuda:0") as ctx:

            def left():
                some().numpy()
                ctx.synchronize()
                ctx.token()
                return counts()

            for _ in range(20):
                left()
            before = left()
            for _ in range(100):
                after = left()
            assert after == before


def test_a_queued_graph_that_fails_is_told(run):
    """Its launch was accepted long ago: all that is left is to say that the context is lost."""

    @run
    def body():
        import contextlib
        import threading

        gate, home = threading.Event(), np.full(4, 1.0)
        ctx = stf.context(devices="cuda:0")
        x = ctx.logical_data(home)
        g = ctx.task_graph()
        with g:
            scale(x, 2.0)
            scale(x, 2.0)
        for _ in range(2):
            g.launch()
        ctx.host_launch(x.rw())(lambda v: gate.wait(30) and None)
        g.launch()
        fakecuda.reset_calls("cuGraphLaunch:1")
        gate.set()
        with pytest.raises(stf.Error, match="cuGraphLaunch failed .* contexts there are lost.* 'graph'"):
            x.numpy()
            ctx.synchronize()
        with contextlib.suppress(stf.Error):  # it may say so again
            ctx.finalize()
        assert home.tolist() == [16.0] * 4  # as the body on the host left it


def test_graphs_of_contexts_that_are_over_are_gone(run):
    @run
    def body():
        def one():
            with stf.context(devices="cuda:0") as ctx:
                x, z = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))
                g = ctx.task_graph()
                with g:
                    scale(x, 2.0)
                    scale(x, 2.0)
                    ctx.host_launch(x.rw())(lambda _: None)
                    scale(x, 2.0)
                    scale(x, 2.0)
                for _ in range(3):
                    g.launch({x: z})

        one()
        before = counts()
        for _ in range(5):
            one()
        assert counts() == before and before["graphs"] <= 4  # CUDA says later that the last ones are


def test_a_part_of_what_a_graph_writes_is_read_afterwards(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            for _ in range(10):
                big, x = ctx.logical_data(np.zeros(200_000)), ctx.logical_data(np.full(8, 1.0))
                part = list(x.tiles(4))[1]
                g = ctx.task_graph()
                with g:
                    for _ in range(6):
                        scale(big, 2.0)
                    scale(part, 3.0)
                    ctx.launch_kernel(axpy, (1, 1), 0.0, big.read(), part.rw(), 1)
                    ctx.prefetch(part, stf.data_place.host())
                for _ in range(3):
                    g.launch()
                g.close()
                del g, part
                out = ctx.logical_data(np.zeros(8))
                with ctx.task(out.write(), x.read()) as t:
                    there, here = t.cupy()
                    there[...] = here
                assert out.numpy().tolist() == [1.0] * 4 + [27.0] * 4

    run(body, FAKECUDA_SEED="3")
