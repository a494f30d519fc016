"""Recorded tasks on the stand-in: what becomes of them in CUDA's graphs, and how many calls that takes."""

# ruff: noqa: F821
from __future__ import annotations

import pytest

PRELUDE = "import os\nfrom graph_tools import *\n"


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


def test_independent_tasks_are_independent_nodes(run):
    """A graph has lanes for all of them: the lanes of a device, which are few, would order some."""

    @run
    def body():
        chains = 64
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(2 * chains)]
            g = ctx.task_graph()
            with g:
                for _ in range(3):
                    for x, y in zip(data[:chains], data[chains:], strict=True):
                        ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), y.rw(), 4)
            edges = ctypes.c_size_t()
            found = driver.cuGraphGetEdges_v2(ctypes.c_void_p(g.handle), None, None, None, ctypes.byref(edges))
            assert (found, edges.value) == (0, 2 * chains)


def test_kernels_of_bodies_are_nodes_of_the_graph_around(run):
    """A few, each after the one before; CUDA makes an executable of its own of each child."""

    @run
    def body():
        cases = [(1, False, (1, 0)), (3, False, (3, 0)), (8, False, (8, 0)), (9, False, (0, 1)), (2, True, (0, 1))]
        for kernels, fills, (own, children) in cases:
            with stf.context(devices="cuda:0") as ctx:
                x, y, z = (ctx.logical_data(np.full(4, value)) for value in (1.0, 2.0, 0.0))
                g = ctx.task_graph()
                with g:
                    for data in (x, y):
                        with ctx.task(data.rw()) as t:
                            (array,) = t.cupy()
                            if fills:
                                where = ctypes.c_void_p(array.data.ptr), 0, 32, ctypes.c_void_p(int(t.stream))
                                assert not driver.cuMemsetD8Async(*where)
                            for _ in range(kernels):
                                array += 1
                    with ctx.task(x.read(), y.read(), z.rw()) as t:
                        one, other, total = t.cupy()
                        total += one
                        total += other
                fakecuda.reset_calls()
                g.launch()
                g.launch()
                made = fakecuda.calls("cuGraphAddKernelNode"), fakecuda.calls("cuGraphAddChildGraphNode")
                assert made == (2 * own + 2, 2 * children), (kernels, fills, made)
                assert fakecuda.calls("cuGraphInstantiateWithFlags") == 1
                assert z.numpy().tolist() == [8.0 if fills else 6.0 * (1 + kernels)] * 4


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
            with pytest.raises(TypeError, match="parameter 'n' has a value in launches of graph 'axpy', of which"):
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
                ctx.synchronize()  # else executables are kept for as many recordings as were alive at once

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


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_executables_are_kept_up_to_a_budget(run, kept):
    """Graphs of some twenty nodes, of two shapes in turn: those used last are updated, the others made."""

    def body():
        kept, resources = int(os.environ["KEPT"]), stf.Resources()
        with stf.context(devices="cuda:0", resources=resources) as ctx:
            x = ctx.logical_data(np.full(64, 1.0))

            def use(count):
                g = ctx.task_graph()
                with g:
                    for _ in range(count):
                        ctx.launch_kernel(axpy, (1, 1), 1.0, x.read(), x.rw(), 64)
                for _ in range(3):  # the first is played task by task
                    g.launch()
                ctx.synchronize()
                g.close()
                for _ in range(3):  # who enters gives up what was closed, and whoever looks finds it done
                    ctx.token()
                    ctx.synchronize()
                (told,) = resources.statistics().drivers.values()
                return told.graphs_made, told.graphs_updated, told.graphs_kept

            first = use(20)
            again = use(20)
            assert again[:2] == (first[0] + (kept == 0), first[1] + (kept > 0)), (first, again)
            other = use(21)
            assert other[0] == again[0] + 1, (again, other)
            last = use(20)
            assert last[:2] == (other[0] + (kept < 2), other[1] + (kept == 2)), (other, last)
            assert last[2] == kept, last
            told = ctx.statistics()
            assert (told.graphs_made, told.graphs_updated, told.graphs_kept) == last
            assert told.graph_cache_bytes == kept * 25 * 4096
            assert 0 <= told.graphs_kept_bytes <= told.graph_cache_bytes and (told.graphs_kept_bytes > 0) == (kept > 0)
            assert f"CUDA graphs: {last[0]} graphs made, {last[1]} updated, {kept} kept (" in str(told)
        resources.close()
        assert fakecuda.leaks() == {}, fakecuda.leaks()

    run(body, KEPT=str(kept), STF_GRAPH_CACHE=str(kept * 25 * 4096))


def test_a_context_that_ends_keeps_nothing_that_its_graphs_allocated(run):
    """What a body allocates for a launch with other data goes with the executable graph, which CUDA has to let go."""

    @run
    def body():
        @stf.task
        def answer(x: stf.Write, y: stf.Read):
            return y * 5 + 1  # two arrays of CuPy's

        with stf.context(devices="cuda:0") as ctx:
            lX, lY, lZ = (ctx.logical_data(np.zeros(4)) for _ in range(3))
            g = ctx.task_graph()
            with g:
                answer(lX, lY)
            g.launch({lX: lZ})
            assert lZ.numpy().tolist() == [1] * 4
        cupy.get_default_memory_pool().free_all_blocks()
        assert fakecuda.leaks() == {}, fakecuda.leaks()


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


def test_host_memory_levels_off_over_ten_thousand_recordings(run):
    """Resident memory without launches, for which streams make their events; what Python has with them."""

    @run
    def body():
        import mmap
        import tracemalloc

        def record(times, launches):
            for _ in range(times):
                with ctx.task_graph() as g:
                    ctx.fill(a, 2.0)
                    ctx.copy(a, b)
                for _ in range(launches):
                    g.launch()
                g.close()
            ctx.synchronize()
            gc.collect()

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE

        with stf.context(devices="cuda:0") as ctx:
            a, b = (ctx.logical_data(np.zeros(64)) for _ in range(2))
            record(2000, 0)
            before = resident()
            record(10_000, 0)
            assert resident() - before < 200_000, (before, resident())  # 20 bytes a recording
            tracemalloc.start()
            record(1000, 2)
            before = tracemalloc.get_traced_memory()[0]
            record(2000, 2)
            after = tracemalloc.get_traced_memory()[0]
            assert after - before < 40_000, (before, after)
            assert b.numpy().tolist() == [2.0] * 64


@pytest.mark.parametrize("where", ["scope", "context"])
@pytest.mark.parametrize("kind", ["repeat", "graph"])
def test_memory_that_was_reserved_for_what_never_ran_is_waited_for(run, where, kind):
    """The stand-in refuses a copy that comes before the allocation, which another recording made."""

    def body():
        import contextlib

        @stf.task
        def add(x: stf.ReadWrite, n=1):
            x += n

        for _ in range(60):
            with stf.context(devices="cuda:0,1", use_graph=WHERE == "context") as ctx:
                x = ctx.logical_data(np.ones(8))
                with ctx.graph_scope() if (WHERE, KIND) == ("scope", "repeat") else contextlib.nullcontext():
                    g = ctx.task_graph() if KIND == "graph" else None
                    with g or ctx.repeat(0):
                        add.on(1)(x)
                        add.on(0)(x)
                    if g is not None:
                        g.close()
                    with ctx.graph_scope():
                        add.on(stf.exec_place.host())(x, 2)
                        add.on(0)(x, 2)
                assert x.numpy()[0] == 5

    run(body, f"WHERE, KIND = {where!r}, {kind!r}\n", FAKECUDA_SEED="3")
