"""Graphs that are launched with ever other data: the nodes that work on these are changed, one by one."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = """
import threading
from graph_tools import *

NODES = (
    "cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams", "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecChildGraphNodeSetParams",
)

def changed():
    return tuple(fakecuda.calls(name) for name in NODES)

def made():
    return sum(fakecuda.calls(name) for name in ("cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuGraphExecUpdate"))

def one_by_one(ctx, g, pairs, expected, captures=0):
    '''Launch it with each pair of data in place of the first; after some, nodes are changed, and nothing is made.'''
    x, y = pairs[0]
    found = []
    for i, (one, other) in enumerate(pairs[1:]):
        fakecuda.reset_calls()
        g.launch({x: one, y: other})
        if i >= 4:
            assert made() == 0 and fakecuda.calls("cuStreamBeginCapture") == captures, i
            found.append(changed())
        expected(i + 1)
    assert len(set(found)) == 1, found
    return found[0]
"""


def test_kernels_copies_fills_and_bodies_are_changed(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            pairs = [tuple(ctx.logical_data(np.full(4, 10.0 * i + k)) for k in (1, 2)) for i in range(9)]
            x, y = pairs[0]
            still, nothing = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
            g = ctx.task_graph()
            with g:
                for _ in range(20):  # which work on none of them
                    ctx.launch_kernel(axpy, (1, 1), 1.0, still.read(), nothing.rw(), 4)
                ctx.launch_kernel(axpy, (1, 1), 2.0, x.read(), y.rw(), 4)
                ctx.launch_kernel(axpy, (1, 1), 1.0, still.read(), y.rw(), 4)
                scale(y, 3.0)
                ctx.copy(y, x)
                ctx.fill(y, 0.0)

            def expected(i):
                value = (2 * (10.0 * i + 1) + 10.0 * i + 2 + 1) * 3
                assert [float(d.numpy()[0]) for d in pairs[i]] == [value, 0.0], i

            assert one_by_one(ctx, g, pairs, expected, captures=1) == (2, 1, 1, 1)
            assert nothing.numpy().tolist() == [160.0] * 4
            g.launch()
            expected(0)


def test_only_what_is_other_than_before_is_changed(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            xs = [ctx.logical_data(np.full(4, float(i))) for i in range(9)]
            y = ctx.logical_data(np.zeros(4))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                for _ in range(50):
                    ctx.launch_kernel(axpy, (1, 1), 1.0, y.read(), y.rw(), 0)
                ctx.launch_kernel(axpy, (1, 1), a, xs[0].read(), y.rw(), 4)
            total = 0.0
            for n, (i, value) in enumerate([(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2), (7, 2), (7, 3), (1, 3)]):
                fakecuda.reset_calls()
                g.launch({xs[0]: xs[i]}, a=value)
                total += value * i
                assert n < 4 or (changed(), made()) == ((1, 0, 0, 0), 0), (n, changed(), made())
                assert float(y.numpy()[0]) == total


def test_several_devices(run):
    """Kernels, copies, fills and bodies on each are changed; CUDA refuses that for copies from one to the other."""

    @run
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            one, other = ctx.devices
            pairs = [tuple(ctx.logical_data(np.full(1000, 10.0 * i + k)) for k in (1, 2)) for i in range(8)]
            (x, y), still = pairs[0], [ctx.logical_data(np.ones(1000)) for _ in range(4)]
            g = ctx.task_graph()
            with g:
                for data, place, mine in ((x, one, still[:2]), (y, other, still[2:])):
                    with place:
                        ctx.launch_kernel(axpy, (1, 1), 2.0, mine[0].read(), data.rw(), 1000)
                        scale(data, 3.0)
                        ctx.copy(data, mine[1])
                        ctx.fill(data, 5.0)
                        ctx.copy(mine[1], data)

            def expected(i):
                values = [3 * (10.0 * i + k + 2) for k in (1, 2)]
                assert [float(d.numpy()[-1]) for d in pairs[i]] == values, i

            assert one_by_one(ctx, g, pairs, expected, captures=2) == (2, 4, 4, 2)
            g.close()
            between = ctx.task_graph()
            with between:
                scale.on(one)(x, 2.0)
                scale.on(other)(x, 3.0)
            for i, (data, _) in enumerate(pairs[1:]):
                before = data.numpy()
                between.launch({x: data})
                assert (data.numpy() == 6 * before).all(), i


def test_pinned_memory_of_the_host(run):
    """Copies to it, for a body there that reads, are changed like others."""

    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            n = 1 << 14
            pairs = [tuple(ctx.logical_data(np.full(n, 10.0 * i + k)) for k in (1, 2)) for i in range(9)]
            (x, _), seen = pairs[0], []
            g = ctx.task_graph()
            with g:
                scale(x, 3.0)
                ctx.host_launch(x.read(), uses_cuda=False)(lambda x: seen.append(float(x[-1])))
                ctx.copy(x, pairs[0][1])

            def expected(i):
                assert [float(d.numpy()[-1]) for d in pairs[i]] == [3 * (10.0 * i + 1)] * 2, i
                assert seen[-1] == 3 * (10.0 * i + 1)

            found = one_by_one(ctx, g, pairs, expected, captures=1)
            assert found == (0, 2, 0, 1)


def test_what_cannot_be_changed_stands_in_nobodys_way(run):
    """A condition, and a body on the host, of other data than those that change."""

    @run
    def body():
        for special in ("branch", "host"):
            with stf.context(devices="cuda:0") as ctx:
                pairs = [tuple(ctx.logical_data(np.full(4, 10.0 * i + k)) for k in (1, 2)) for i in range(9)]
                x, y = pairs[0]
                z, seen = ctx.logical_data(np.ones(4)), []
                g = ctx.task_graph()
                with g:
                    ctx.launch_kernel(axpy, (1, 1), 2.0, x.read(), y.rw(), 4)
                    if special == "branch":
                        with ctx.if_(ctx.logical_data(np.array(True))):
                            scale(z, 2.0)
                    else:
                        ctx.host_launch(z.rw(), uses_cuda=False)(lambda z: seen.append(z.__imul__(2.0)[0]))

                def expected(i):
                    assert pairs[i][1].numpy().tolist() == [2 * (10.0 * i + 1) + 10.0 * i + 2] * 4, i

                assert one_by_one(ctx, g, pairs, expected) == (1, 0, 0, 0)
                assert z.numpy().tolist() == [2.0**8] * 4


def test_what_cannot_be_changed_is_captured_anew(run):
    """Copies of several rows, and what a condition decides about; the driver refuses, or is not asked."""

    def rows(ctx, x, y):
        ctx.copy(x, y)

    def branches(ctx, x, y):
        flag = ctx.logical_data(np.array(True))
        with ctx.if_(flag):
            ctx.copy(x, y)

    def host(ctx, x, y):
        ctx.host_launch(x.read(), y.rw())(lambda x, y: np.copyto(y, x))

    prelude = "".join(f"{source}\n" for source in map(_source, (rows, branches, host)))

    def body():
        for build in (rows, branches, host):
            with stf.context(devices="cuda:0") as ctx:
                arrays = [cupy.full((8, 64), float(i))[:, i : i + 7] for i in range(14)]
                if build is not rows:
                    arrays = [array.get() for array in arrays]
                data = [ctx.logical_data(array) for array in arrays]
                pairs = list(zip(data[::2], data[1::2], strict=True))
                x, y = pairs[0]
                g = ctx.task_graph()
                with g:
                    build(ctx, x, y)
                for _ in range(2):
                    for i, (one, other) in enumerate(pairs):
                        ctx.fill(one, 100.0 + i)
                        g.launch({x: one, y: other} if i else {})
                        assert np.unique(other.numpy()).tolist() == [100.0 + i], (build, i)

    run(body, prelude)


def _source(function):
    import inspect
    import textwrap

    return textwrap.dedent(inspect.getsource(function))


def test_a_change_that_fails_leaves_the_graph_usable(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(12)]
            one = ctx.logical_data(np.ones(4))
            g = ctx.task_graph()
            with g:
                ctx.launch_kernel(axpy, (1, 1), 1.0, one.read(), data[0].rw(), 4)
                ctx.launch_kernel(axpy, (1, 1), 2.0, one.read(), data[0].rw(), 4)
            for i, other in enumerate(data[1:]):
                fakecuda.reset_calls("cuGraphExecKernelNodeSetParams:2" if i == 6 else "")
                g.launch({data[0]: other})
            assert all(other.numpy().tolist() == [3.0] * 4 for other in data[1:])

    run(body)


def test_launches_wait_for_a_body_on_the_host(run):
    """What is in the driver's queue works on the data that it was launched with."""

    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            go = threading.Event()
            data = [ctx.logical_data(np.zeros(4)) for _ in range(12)]
            one = ctx.logical_data(np.ones(4))
            g = ctx.task_graph()
            with g:
                ctx.launch_kernel(axpy, (1, 1), 1.0, one.read(), data[0].rw(), 4)
            for other in data[1:6]:
                g.launch({data[0]: other})
            ctx.host_launch(one.rw())(lambda x: x.fill(5.0 if go.wait(30) else 0.0))
            for _ in range(2):
                for other in data[1:]:
                    g.launch({data[0]: other})
            go.set()
            found = [float(other.numpy()[0]) for other in data]
            assert found == [0.0] + [11.0] * 5 + [10.0] * 6


def test_threads_that_share_an_inner_graph(run):
    """Each launches a graph of its own with other data; the one inside, which is changed for them, they share."""

    def body():
        import random
        import sys
        import time

        from stf._recording import device_graphs
        from stf._recording.rebinding import Rebinding

        def with_pauses(function):  # where another thread may run
            def slow(self):
                time.sleep(random.random() * 1e-3)
                found = function(self)
                time.sleep(random.random() * 1e-3)
                return found

            return slow

        Rebinding.key, Rebinding.bound = map(with_pauses, (Rebinding.key, Rebinding.bound))
        device_graphs.OTHERS = 1
        sys.setswitchinterval(1e-5)
        told, wrong = Told(), []
        with stf.context(devices="cuda:0") as ctx:
            one, base = ctx.logical_data(np.ones(4)), [ctx.logical_data(np.zeros(4)) for _ in range(2)]
            inner = ctx.task_graph("inner")
            with inner:
                for k in range(2):
                    ctx.launch_kernel(axpy, (1, 1), k + 1.0, one.read(), base[k].rw(), 4)
            outers = [ctx.task_graph(f"outer {t}") for t in range(3)]
            for outer in outers:
                with outer:
                    inner.launch()
                    ctx.host_launch(ctx.logical_data(np.zeros(4)).rw())(lambda x: None)

            def work(t):
                rng = random.Random(t)
                model = [[np.full(4, 10.0 * t + i) for i in range(3)] for _ in range(2)]
                data = [[ctx.logical_data(array.copy()) for array in row] for row in model]
                for _ in range(50):
                    i, k = rng.randrange(3), rng.randrange(3)
                    outers[t].launch({base[0]: data[0][i], base[1]: data[1][k]})
                    model[0][i] += 1
                    model[1][k] += 2
                for known, mine in zip(data[0] + data[1], model[0] + model[1], strict=True):
                    if not np.array_equal(known.numpy(), mine):
                        wrong.append((t, known.numpy(), mine))

            threads = [threading.Thread(target=work, args=(t,)) for t in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert wrong == [] and not [line for line in told.lines if "'inner'" in line], (wrong, told.lines)
        assert fakecuda.calls("cuGraphExecKernelNodeSetParams") > 50

    run(body)
