"""Recorded tasks on a GPU: one CUDA graph per program, temporaries of its own, kernels, torch, loops."""

from __future__ import annotations

import gc
import itertools
import mmap
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import stf
from stf._support.log_once import logged

cupy = pytest.importorskip("cupy")
pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("cuda_device_count")]

SCALE = 'extern "C" __global__ void scale(double *x, double a, int n) { int i = threadIdx.x; if (i < n) x[i] *= a; }'


@pytest.fixture
def ctx():
    with stf.context(devices="cuda:0") as context:
        yield context


@stf.task
def smooth(x: stf.Read, y: stf.ReadWrite):
    wide = cupy.concatenate([x, x * 2, x * 3])  # temporaries, given back when the body ends
    y += wide[x.size : 2 * x.size] + cupy.roll(x, 1) * 0.5


def smooth_on_host(x, y):
    y += x * 2 + np.roll(x, 1) * 0.5


def test_a_program_that_comes_again_is_one_cuda_graph(ctx):
    kernel = cupy.RawKernel(SCALE, "scale")
    x, y = ctx.logical_data(np.arange(32.0)), ctx.logical_data(np.zeros(32))
    g = ctx.task_graph()
    with g:
        smooth(x, y)
        ctx.launch_kernel(kernel, (1, 32), y.rw(), 0.5, np.int32(32))
        with ctx.task(y.rw()) as t:
            (array,) = t.cupy()
            array += 1
    expected = np.zeros(32)
    for _ in range(5):
        g.launch()
        smooth_on_host(np.arange(32.0), expected)
        expected = expected * 0.5 + 1
        assert np.allclose(y.numpy(), expected)
        assert g._recording.graph.graph is not None
    assert g._recording.graph.refusal is None and g._recording.graph.graph.node_count >= 3


def test_temporaries_of_recorded_bodies_are_the_graphs(ctx):
    x, y = ctx.logical_data(np.arange(1000.0)), ctx.logical_data(np.zeros(1000))
    g = ctx.task_graph()
    with g:
        smooth(x, y)
        smooth(x, y)
    expected = np.zeros(1000)
    for launch in range(6):
        spoil = [cupy.full(size, np.nan) for size in (1000, 3000, 1000, 2000, 8000)]
        g.launch()
        spoil.append(cupy.full(3000, np.nan))
        for _ in range(2):
            smooth_on_host(np.arange(1000.0), expected)
        assert np.allclose(y.numpy(), expected), launch
        del spoil


def test_a_training_step_in_torch_replayed_with_a_changing_learning_rate(ctx):
    torch = pytest.importorskip("torch")
    torch.zeros(1, device="cuda")

    @stf.task(arrays="torch")
    def gradient(w: stf.Read, x: stf.Read, y: stf.Read, g: stf.Write):
        error = (x * w).sum(1) - y
        g.copy_((2 * error[:, None] * x).mean(0))

    @stf.task(arrays="torch")
    def descend(w: stf.ReadWrite, g: stf.Read, rate):
        w -= rate * g

    @stf.replay
    def step(w, x, y, g, rate):
        gradient(w, x, y, g)
        descend(w, g, rate)

    random = np.random.default_rng(0)
    X, W = random.standard_normal((64, 5)), random.standard_normal(5)
    Y = X @ W
    w, x, y = ctx.logical_data(np.zeros(5)), ctx.logical_data(X), ctx.logical_data(Y)
    g, mine = ctx.logical_data_empty(5), np.zeros(5)
    for k in range(30):
        rate = 0.2 / (1 + k / 20)
        step(w, x, y, g, rate)
        mine -= rate * (2 * (X @ mine - Y)[:, None] * X).mean(0)
    assert np.allclose(w.numpy(), mine)
    assert "1 recordings" in step.explain()
    step.close()


def test_host_bodies_in_a_graph(ctx):
    x, seen = ctx.logical_data(np.zeros(8)), []

    @stf.task
    def increment(x: stf.ReadWrite):
        x += 1

    g = ctx.task_graph()
    with g:
        increment(x)
        ctx.host_launch(x.read())(lambda a: seen.append(float(a[0])))
        increment(x)
    for _ in range(4):
        g.launch()
    ctx.synchronize()
    assert seen == [1, 3, 5, 7] and x.numpy().tolist() == [8] * 8


def test_pieces_between_host_bodies_are_graphs(ctx, caplog):
    """Copies from and to memory of the host, which is not pinned, are nodes of them."""
    caplog.set_level("INFO", logger="stf")
    kernel = cupy.RawKernel(SCALE, "scale")
    x, seen = ctx.logical_data(np.ones(8)), []

    def look(x):
        seen.append(float(x[0]))
        x += 1

    g = ctx.task_graph("three")
    a = g.param("a", 2.0)
    with g:
        for _ in range(2):
            halve(x, 2.0)
            halve(x, 2.0)
            ctx.host_launch(x.rw())(look)
        ctx.launch_kernel(kernel, (1, 8), x.rw(), a, np.int32(8))
        halve(x)
    expected, mine = [], 1.0
    for factor in (2.0, 2.0, 3.0, 5.0, 0.5, 0.5):
        g.launch(a=factor)
        for _ in range(2):
            expected.append(mine * 4)
            mine = mine * 4 + 1
        mine *= factor / 2
    assert x.numpy().tolist() == [mine] * 8 and seen == expected
    told = [message for message in caplog.messages if "three" in message]
    assert len(told) == 2 and told[1].endswith(") is, in pieces, 3 graphs of the device's and 2 steps of the host")


def test_memory_comes_back(ctx):
    x = ctx.logical_data(np.zeros(1 << 16))
    pool, used = cupy.get_default_memory_pool(), []
    for _ in range(30):
        g = ctx.task_graph()
        with g:
            smooth(x, ctx.logical_data_zeros(1 << 16))
        g.launch()
        g.launch()
        g.close()
        del g
        ctx.synchronize()
        ctx.token()  # an entry to the engine: what was dropped is released
        used.append((ctx._driver.live_allocations, pool.used_bytes()))
    assert max(used[10:]) <= max(used[:10])


# -- loops, parameters, other data, callers' graphs ------------------------------------------------------------------


@stf.task
def halve(x: stf.ReadWrite, factor=0.5):
    x *= factor


@stf.task
def total(s: stf.Write, x: stf.Read):
    s[...] = x.sum()


WAITS = {
    "item": lambda x: x.sum().item(),
    "get": lambda x: x.get(),
    "device": lambda x: x.device.synchronize(),
    "stream": lambda x: cupy.cuda.get_current_stream().synchronize(),
    "torch": lambda x: pytest.importorskip("torch").cuda.synchronize(),
    "torch item": lambda x: pytest.importorskip("torch").as_tensor(x).sum().item(),
}


@pytest.mark.parametrize("how", WAITS)
def test_whatever_waits_for_the_device_runs_at_each_launch(ctx, how, caplog):
    """Its task is named, with its line and the reason; what is before and behind it is graphs."""
    caplog.set_level("INFO", logger="stf")
    logged.clear()
    if "torch" in how:
        pytest.importorskip("torch")

    @stf.task
    def waits(x: stf.ReadWrite):
        x += 1
        WAITS[how](x)

    x = ctx.logical_data(np.zeros(8))
    g = ctx.task_graph()
    with g:
        halve(x, 3.0)
        halve(x, 2.0)
        waits(x)
        halve(x, 2.0)
    for _ in range(3):
        g.launch()
    assert x.numpy().tolist() == [2.0 + 24.0 + 288.0] * 8
    messages = [text for text in caplog.messages if "calls what its library does not capture" in text]
    assert len(messages) == 1 and "task 'waits' (test_recorded.py:" in messages[0]


@pytest.mark.parametrize("how", WAITS)
def test_a_block_that_waits_for_the_device_cannot_be_recorded(ctx, how):
    """The task is named, with its line and what to do; the graph before it and the context go on."""
    x = ctx.logical_data(np.zeros(8))
    if "torch" in how:
        pytest.importorskip("torch").zeros(1, device="cuda")
    with pytest.raises(stf.CaptureError, match=r"task 'waits' .*test_recorded.py:.* cannot be recorded: it waits"):
        with ctx.task_graph(), ctx.task(x.rw(), name="waits") as t:
            (array,) = t.cupy()
            array += 1
            WAITS[how](array)
    g = ctx.task_graph()
    with g:
        halve(x, 3.0)
    g.launch()
    with ctx.task(x.rw()) as t:
        (array,) = t.cupy()
        array += 1
    assert x.numpy().tolist() == [1.0] * 8


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_random_numbers_in_graphs(ctx, library):
    """Each launch draws others."""
    torch = pytest.importorskip("torch") if library == "torch" else None

    @stf.task(arrays=library)
    def draw(x: stf.Write):
        if torch is None:
            x[...] = cupy.random.random(8)
        else:
            x.copy_(torch.rand(8, dtype=torch.float64, device="cuda"))

    x, found = ctx.logical_data_empty(8), set()
    draw(x)
    g = ctx.task_graph()
    with g:
        draw(x)
    for _ in range(4):
        g.launch()
        found.add(float(x.numpy()[0]))
    assert len(found) == 4


@pytest.mark.parametrize("use_graph", [False, True])
def test_blas_of_cupy_in_graphs(use_graph):
    """CuPy does not capture cuBLAS: such a body runs at each launch."""
    a = np.arange(64.0).reshape(8, 8)

    @stf.task
    def power(x: stf.ReadWrite, y: stf.Read):
        x[...] = x @ y % 97.0

    with stf.context(use_graph=use_graph) as mine:
        x, y = mine.logical_data(np.eye(8)), mine.logical_data(a)
        if use_graph:
            for _ in range(3):
                power(x, y)
        else:
            g = mine.task_graph()
            with g:
                power(x, y)
            for _ in range(3):
                g.launch()
        found = x.numpy()
    model = np.eye(8)
    for _ in range(3):
        model = model @ a % 97.0
    assert np.array_equal(found, model)


def test_ten_thousand_recordings_leave_nothing_behind(ctx):
    x, s = ctx.logical_data(np.ones(64)), ctx.logical_data(np.array(0.0))

    def record():
        g = ctx.task_graph()
        a = g.param("a", -1.0)
        with g:
            with ctx.while_loop(s < 1e9, max_iterations=2):
                total(s, x)
            halve(x, a)
            with ctx.task(x.rw()) as t:
                (array,) = t.cupy()
                array *= -1.0
        for value in (-1.0, -1.0, 1.0, -1.0):
            g.launch(a=value)
        g.close()

    def used():
        ctx.synchronize()
        gc.collect()
        ctx.token()
        ctx.synchronize()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
        return resident, ctx._driver.live_allocations, cupy.get_default_memory_pool().used_bytes()

    found = []
    for count in (1000, 3000, 3000, 3000):
        for _ in range(count):
            record()
        found.append(used())
    before, after = found[0], found[-1]
    growth = [(now[0] - then[0]) >> 10 for then, now in itertools.pairwise(found)]
    assert min(growth) < 2 << 10, growth  # KiB; CUDA's own memory for graphs grows at times, with what is under way
    # as much spare memory stays as recordings were alive at a time; a leak would add some in each interval
    assert min(now[1] - then[1] for then, now in itertools.pairwise(found)) <= 0, found
    assert after[2] <= before[2] + (1 << 16), (before, after)
    assert np.abs(x.numpy()).tolist() == [1.0] * 64


def test_loops_and_branches_are_decided_on_the_device(ctx, caplog):
    caplog.set_level("INFO", logger="stf")
    x, s = ctx.logical_data(np.full(64, 64.0)), ctx.logical_data(np.array(1e9))
    with ctx.while_loop(s > 64.0, max_iterations=100) as loop:
        halve(x)
        total(s, x)
        with ctx.if_(s > 1024.0) as branch:
            halve(x)
        with branch.else_():
            halve(x, 1.0)
    mine, sums, iterations = 64.0, 1e9, 0
    while sums > 64.0:
        mine, iterations = mine * 0.5, iterations + 1
        sums = 64 * mine
        mine *= 0.5 if sums > 1024.0 else 1.0
    assert loop.iterations == iterations and float(s) == sums and x.numpy().tolist() == [mine] * 64
    with ctx.repeat(3), ctx.while_loop(max_iterations=5) as loop:
        halve(x, 2.0)
        total(s, x)
        loop.continue_while(s > 0.0)
    assert loop.iterations == 5 and x.numpy().tolist() == [mine * 2**15] * 64
    g = ctx.task_graph()
    with g, ctx.repeat(2000):
        halve(x, -1.0)
    for _ in range(3):
        g.launch()
    assert x.numpy().tolist() == [mine * 2**15] * 64 and g._recording.graph.graph.node_count < 20
    assert caplog.messages == []


def test_a_thousand_iterations_wait_for_nobody(ctx, caplog):
    """One graph of the device's does them all: it is launched while what comes before waits for the host."""
    caplog.set_level("INFO", logger="stf")
    x, n = ctx.logical_data(np.zeros(8)), ctx.logical_data(np.zeros((), np.int64))
    gate, opened = threading.Event(), []

    @stf.task
    def count(x: stf.ReadWrite, n: stf.ReadWrite):
        x += 1
        n += 1

    ctx.host_launch(x.rw(), n.rw())(lambda x, n: opened.append(gate.wait(20)))
    with ctx.while_loop(n < 1000) as loop:
        count(x, n)
    gate.set()
    assert loop.iterations == 1000 and x.numpy().tolist() == [1000] * 8
    assert opened == [True] and caplog.messages == []


def test_parameters_of_kernels_are_renewed_in_the_graph(ctx):
    kernel = cupy.RawKernel(SCALE, "scale")
    x = ctx.logical_data(np.ones(32))
    g = ctx.task_graph()
    a, n = g.param("a", 1.0), g.param("n", np.int32(32))
    with g:
        ctx.launch_kernel(kernel, (1, 32), x.rw(), a, n)
        halve(x, a)
        ctx.launch_kernel(kernel, (1, 32), x.rw(), 2 * a, np.int32(32))
    expected = np.ones(32)
    for value, count in [(1.0, 32), (1.0, 32), (0.5, 32), (0.5, 16), (2.0, 8), (1.0, 32), (0.25, 32)]:
        g.launch(a=value, n=np.int32(count))
        expected[:count] *= value
        expected *= value * 2 * value
        assert x.numpy().tolist() == expected.tolist()
    assert g._recording.graph.graph is not None


def test_a_graph_with_other_data(ctx):
    kernel = cupy.RawKernel(SCALE, "scale")
    model = [np.full(32, float(i + 1)) for i in range(3)]
    data = [ctx.logical_data(array.copy()) for array in model]
    g = ctx.task_graph()
    with g:
        ctx.launch_kernel(kernel, (1, 32), data[0].rw(), 3.0, np.int32(32))
        smooth(data[0], data[1])
        ctx.copy(data[1], data[0])
    for i, k in [(0, 1), (1, 2), (2, 0), (1, 2), (0, 1), (0, 2), (2, 1)]:
        g.launch({data[0]: data[i], data[1]: data[k]})
        model[i] *= 3
        smooth_on_host(model[i], model[k])
        model[i][...] = model[k]
        assert all(np.allclose(known.numpy(), mine) for known, mine in zip(data, model, strict=True)), (i, k)


def test_a_graph_with_ever_other_data(ctx):
    """After some, its nodes are changed one by one, with other values of parameters too: no graph is made."""
    kernel = cupy.RawKernel(SCALE, "scale")
    model = [[np.full(32, float(10 * i + k)) for k in (1, 2)] for i in range(12)]
    pairs = [[ctx.logical_data(array.copy()) for array in both] for both in model]
    still = ctx.logical_data(np.full(32, 5.0))
    (x, y), g = pairs[0], ctx.task_graph()
    a = g.param("a", 1.0)
    with g:
        ctx.launch_kernel(kernel, (1, 32), x.rw(), 3.0, np.int32(32))
        ctx.launch_kernel(kernel, (1, 32), x.rw(), a, np.int32(32))
        smooth(x, y)
        smooth(still, y)
        ctx.copy(y, x)
        ctx.fill(y, 0.0)
        smooth(still, y)
    made = []
    for i in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 1, 11, 2):
        value = float(1 + i % 3)
        g.launch({x: pairs[i][0], y: pairs[i][1]}, a=value)
        one, other = model[i]
        one *= 3 * value
        smooth_on_host(one, other)
        smooth_on_host(np.full(32, 5.0), other)
        one[...] = other
        other[...] = 0
        smooth_on_host(np.full(32, 5.0), other)
        assert np.allclose(pairs[i][0].numpy(), one) and np.allclose(pairs[i][1].numpy(), other), i
        made.append(ctx._driver.graphs.statistics()[:2])
    assert made[4] == made[-1], made


def test_loops_and_branches_in_a_graph_that_a_caller_captures():
    x, y, sums = cupy.full(64, 64.0), cupy.ones(64), cupy.asarray(np.array(1e9))
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    with stf.context(stream=stream) as filling:
        lx, ly, s = (filling.logical_data(array) for array in (x, y, sums))
        with filling.while_loop(s > 64.0, max_iterations=100) as loop:
            halve(lx)
            total(s, lx)
            with filling.if_(s > 1024.0) as branch:
                halve(ly, 2.0)
            with branch.else_():
                halve(ly, 3.0)
    graph = stream.end_capture()
    assert x.get().tolist() == [64.0] * 64
    for iterations in (6, 0):  # the second launch finds nothing to do
        graph.launch(stream)
        stream.synchronize()
        assert loop.iterations == iterations and float(sums.get()) == 64.0
        assert x.get().tolist() == [1.0] * 64 and y.get().tolist() == [486.0] * 64


def test_a_callers_graph_is_filled(ctx):
    from cuda.bindings import driver

    def done(result):
        assert int(result[0]) == 0, result[0]
        return result[1] if len(result) > 1 else None

    x, field = np.full(1 << 16, 8.0), cupy.ones(1 << 16)
    graph = done(driver.cuGraphCreate(0))
    with stf.context(graph=int(graph)) as filling:
        host, device = filling.logical_data(x), filling.logical_data(field)
        halve(host)
        smooth(device, host)
    assert x[0] == 8.0
    executable = done(driver.cuGraphInstantiate(graph, 0))
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(2):
        done(driver.cuGraphLaunch(executable, stream.ptr))
    stream.synchronize()
    assert np.allclose(x, (8.0 * 0.5 + 2.5) * 0.5 + 2.5)
    done(driver.cuGraphExecDestroy(executable))
    done(driver.cuGraphDestroy(graph))
    g = ctx.task_graph()
    with g:
        halve(ctx.logical_data(np.ones(4)))
    _, count = driver.cuGraphGetNodes(driver.CUgraph(g.handle))[1:]
    assert count >= 1


# -- bodies on the host in graphs that others launch ------------------------------------------------------------------


def done(result):
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) > 1 else None


class Launched:
    """A graph of the caller's, instantiated and launched by cuda.bindings."""

    def __init__(self, graph):
        from cuda.bindings import driver

        self.driver = driver
        self.executable = done(driver.cuGraphInstantiate(driver.CUgraph(int(graph)), 0))
        self.stream = cupy.cuda.Stream(non_blocking=True)

    def launch(self, times=1):
        for _ in range(times):
            done(self.driver.cuGraphLaunch(self.executable, self.stream.ptr))
        self.stream.synchronize()

    def destroy(self):
        done(self.driver.cuGraphExecDestroy(self.executable))


@pytest.mark.parametrize("size", [8, 1 << 16])  # small memory of the host is not pinned
def test_bodies_that_use_no_cuda_are_nodes_of_a_graph(ctx, size, caplog):
    from cuda.bindings import driver

    caplog.set_level("INFO", logger="stf")
    x, seen, codes = ctx.logical_data(np.full(size, 8.0)), [], []

    def look(a):
        seen.append(float(a[-1]))

    def step(a, by):
        codes.append(int(driver.cuStreamQuery(0)[0]))
        a += by

    g = ctx.task_graph()
    by = g.param("by", 1.0)
    with g:
        halve(x)
        ctx.host_launch(x.rw(), args=(by,), uses_cuda=False)(step)
        halve(x, 3.0)
        ctx.host_launch(x.read(), uses_cuda=False)(look)
        halve(x)
    values, want = [], 8.0
    for k in range(30):
        g.launch(by=float(k))
        values.append((want / 2 + k) * 3)
        want = values[-1] / 2
        if k % 3 == 0:
            halve(x)  # which copies what a body has written
            want /= 2
    assert (x.numpy() == want).all() and seen == values
    not_permitted = int(driver.CUresult.CUDA_ERROR_NOT_PERMITTED)
    assert codes == [not_permitted] * 30
    assert g._recording.graph.graph.node_count >= 5
    assert not [line for line in caplog.messages if "driven from the host" in line]
    g.close()

    @stf.replay
    def fails(x, by):
        halve(x)
        ctx.host_launch(x.rw(), args=(by,), uses_cuda=False, name="breaks")(lambda a, by: by and 1 / 0)

    for _ in range(4):
        fails(x, 0)
    with pytest.raises(stf.TaskFailedError, match="'breaks'"):
        for _ in range(4):
            fails(x, 1)
        ctx.synchronize()
    x.accept()
    ctx.synchronize()


def test_cuda_calls_bodies_of_a_handle(ctx):
    from cuda.bindings import driver

    x, codes = ctx.logical_data(np.full(1 << 16, 8.0)), []

    def step(a, by):
        codes.append(int(driver.cuStreamQuery(0)[0]))
        a += by

    g = ctx.task_graph()
    by = g.param("by", 1.0)
    with g:
        halve(x)
        ctx.host_launch(x.rw(), args=(by,))(step)
        halve(x)
    g.launch()
    with ctx.task(x.rw()):  # where launches leave it: on the device alone
        pass
    ctx.synchronize()
    launched, want = Launched(g.handle), 2.5
    for _ in range(3):
        launched.launch(2)
        for _ in range(2):
            want = (want / 2 + 1) / 2
    assert (x.numpy() == want).all() and len(codes) == 7
    not_permitted = int(driver.CUresult.CUDA_ERROR_NOT_PERMITTED)
    assert codes[0] != not_permitted and codes[1:] == [not_permitted] * 6
    g.launch(by=2.0)
    assert (x.numpy() == (want / 2 + 2) / 2).all() and codes[-1] != not_permitted
    launched.destroy()


def test_small_memory_in_a_callers_graph_with_bodies():
    """CUDA would read it when the graph is launched, before the bodies have written it."""
    from cuda.bindings import driver

    wholes = [np.full(8, 3.0), np.full((6, 8), 3.0), np.array(3.0)]
    views = [wholes[0], wholes[1][::2, ::-3], wholes[2]]
    graph, want = done(driver.cuGraphCreate(0)), 3.0
    with stf.context(graph=int(graph)) as filling:

        def grow(a):
            a += 1

        for view in views:
            item = filling.logical_data(view)
            halve(item)
            filling.host_launch(item.rw())(grow)
            halve(item, 3.0)
    launched = Launched(graph)
    done(driver.cuGraphDestroy(graph))
    launched.launch(3)
    for _ in range(3):
        want = (want / 2 + 1) * 3
    for view, whole in zip(views, wholes, strict=True):
        assert (view == want).all()
        view[...] = 3.0
        assert (whole == 3.0).all()
    launched.destroy()


def test_cuda_calls_bodies_of_a_callers_graph_as_long_as_it_lives():
    from cuda.bindings import driver

    class Thing:
        total = 0.0

    thing, x, field = Thing(), np.full(1 << 16, 8.0), cupy.ones(1 << 16)
    gone = weakref.ref(thing)
    graph = done(driver.cuGraphCreate(0))
    with stf.context(graph=int(graph)) as filling:
        host, device, fresh = filling.logical_data(x), filling.logical_data(field), filling.logical_data_empty(1 << 17)

        def body(a, d, t, thing):
            d += a
            t[:] = d[0]
            thing.total += float(t.sum())

        halve(host)
        filling.host_launch(host.read(), device.rw(), fresh.write(), args=(thing,))(body)
        halve(device)
    launched = Launched(graph)
    done(driver.cuGraphDestroy(graph))
    del thing, body, filling, host, device, fresh
    gc.collect()
    f, total = 1.0, 0.0
    for value in (4.0, 2.0, 1.0):
        launched.launch()
        total += (f + value) * (1 << 17)
        f = (f + value) / 2
        assert (x == value).all() and (field.get() == f).all() and gone().total == total
    launched.destroy()
    cupy.cuda.Device().synchronize()
    for _ in range(100):  # CUDA says when, on a thread of its own
        gc.collect()
        if gone() is None:
            break
        cupy.zeros(1).get()
    assert gone() is None


def test_a_body_that_raises_in_a_launch_of_the_callers(ctx):
    x = ctx.logical_data(np.zeros(64), name="x")
    g = ctx.task_graph()

    def breaks(a):
        raise ZeroDivisionError("no")

    with g:
        ctx.host_launch(x.rw(), name="breaks")(breaks)
        halve(x)
    launched = Launched(g.handle)
    for _ in range(2):
        launched.launch(2)
        with pytest.raises(stf.TaskFailedError, match="task 'breaks' .*no$"):
            ctx.synchronize()
    ctx.check_errors()
    launched.destroy()


def test_a_body_gets_the_gil_while_the_launch_queue_is_full():
    stream, x, ran = cupy.cuda.Stream(non_blocking=True), cupy.ones(64), []

    def sleeps(a):
        time.sleep(0.3)  # while the others fill their queue
        ran.append(1)

    kernel = cupy.RawKernel(SCALE, "scale")
    with stf.context(stream=stream) as warm:  # what is loaded once
        warm.launch_kernel(kernel, (1, 64), warm.logical_data(x).rw(), 1.0, np.int32(64))
    stream.synchronize()
    stream.begin_capture()
    with stf.context(stream=stream) as filling:
        filling.host_launch(filling.logical_data(np.zeros(4)).rw())(sleeps)
    graph = stream.end_capture()
    for _ in range(2):
        graph.launch(stream)
        with stf.context(stream=stream) as behind:
            lx = behind.logical_data(x)
            for _ in range(3000):
                behind.launch_kernel(kernel, (1, 64), lx.rw(), 1.0, np.int32(64))
        stream.synchronize()
    assert len(ran) == 2
