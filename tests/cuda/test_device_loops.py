"""Recordings of small kernels as one loop on a device: `task_graph(backend="persistent")` at a GPU."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stf
from stf import con, mem, par

pytest.importorskip("numba_cuda")


@pytest.fixture
def ctx() -> Iterator[Any]:
    with stf.context(devices="cuda:0") as ctx:
        yield ctx


def is_loop(graph: Any) -> bool:
    return "a persistent loop on device(0)" in graph.explain()


def test_a_wide_stencil(ctx: Any) -> None:
    width, depth, n = 40, 30, 100
    columns = [ctx.logical_data(np.full(n, float(k))) for k in range(width)]
    others = [ctx.logical_data(np.zeros(n)) for _ in range(width)]

    def step(left: Any, own: Any, right: Any, to: Any) -> None:
        @ctx.parallel_for((n,), left.read(), own.read(), right.read(), to.write())
        def mix(i, a, b, c, out):
            out[i] = 0.25 * a[i] + 0.5 * b[i] + 0.25 * c[i] + i

    g = ctx.task_graph(backend="persistent")
    with g:
        for _ in range(depth // 2):
            for one, other in ((columns, others), (others, columns)):
                for k in range(width):
                    step(one[k - 1], one[k], one[(k + 1) % width], other[k])
    wanted = np.repeat(np.arange(float(width))[:, None], n, 1)
    for _ in range(4):
        g.launch()
        for _ in range(depth):
            wanted = 0.25 * np.roll(wanted, 1, 0) + 0.5 * wanted + 0.25 * np.roll(wanted, -1, 0) + np.arange(n)
    assert is_loop(g), g.explain()
    for data, value in zip(columns, wanted, strict=True):
        assert np.allclose(data.numpy(), value, rtol=1e-12)


def test_kernels_of_many_blocks(ctx: Any) -> None:
    shape = (300, 700)
    x, y = ctx.logical_data(np.ones(shape)), ctx.logical_data(np.zeros(shape))
    total, bins = ctx.logical_data(np.array(1.0)), ctx.logical_data(np.zeros(7, np.int64))
    few = ctx.logical_data(np.zeros(()))
    g = ctx.task_graph(backend="persistent")
    with g:
        for _ in range(3):

            @ctx.parallel_for(shape, x.read(), y.rw())
            def add(i, j, x, y):
                y[i, j] += x[i, j] * j

            @ctx.parallel_for(shape, y.read(), total.reduce(stf.reducer.sum, accumulate=True))
            def whole(i, j, y):
                return y[i, j]

            @ctx.parallel_for(shape, y.read(), bins.reduce(stf.reducer.sum, accumulate=True))
            def count(i, j, y, bins):
                bins[j % 7] += 1

            @ctx.parallel_for((50,), y.read(), few.reduce(stf.reducer.maxval))
            def largest(i, y):
                return y[i, i]

    for _ in range(3):
        g.launch()
    assert is_loop(g), g.explain()
    steps = np.arange(1, 10)
    assert np.array_equal(y.numpy(), np.broadcast_to(9.0 * np.arange(700), shape))
    assert total.numpy() == pytest.approx(1.0 + steps.sum() * 300 * np.arange(700.0).sum(), rel=1e-12)
    assert bins.numpy().tolist() == [9 * 300 * 100] * 7
    assert few.numpy() == 9 * 49


def test_groups_of_threads_fills_and_copies(ctx: Any) -> None:
    x, y = ctx.logical_data(np.arange(4096.0)), ctx.logical_data(np.zeros(4096))
    sums = ctx.logical_data(np.zeros(16))
    g = ctx.task_graph(backend="persistent")
    with g:
        ctx.fill(y, 3.0)
        ctx.copy(x, y)

        @ctx.launch(par(16, con(256, mem(256 * 8))), y.rw(), sums.write())
        def rows(th, y, sums):
            group, lane = th.rank(0), th.rank(1)
            shared = th.storage(1, np.float64)
            shared[lane] = y[256 * group + lane] + 1
            th.sync(1)
            if lane == 0:
                total = 0.0
                for k in range(256):
                    total += shared[k]
                sums[group] = total

    text = []
    for _ in range(3):
        g.launch()
        text.append(g.explain())
    assert np.array_equal(y.numpy(), np.arange(4096.0))
    assert np.array_equal(sums.numpy(), (np.arange(4096.0) + 1).reshape(16, 256).sum(1))
    assert is_loop(g), text[-1]


def test_what_is_no_loop_is_a_graph_and_says_why(ctx: Any) -> None:
    x = ctx.logical_data(np.zeros(64))

    def by(factor: Any) -> Any:
        @ctx.parallel_for((64,), x.rw(), args=(factor,))
        def add(i, x, factor):
            x[i] += factor

    by(6.0)
    h = ctx.task_graph(backend="persistent")
    with h:
        ctx.parallel_for((64,), x.rw())("[](auto i, auto x) { x(i) += 1; }")
    for _ in range(3):
        h.launch()
    assert "no body in Python" in h.explain()
    assert np.array_equal(x.numpy(), np.full(64, 9.0))


def test_bodies_with_names_of_numba_cuda_are_no_loop(ctx: Any) -> None:
    from numba import cuda

    x = ctx.logical_data(np.zeros(64))
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for((64,), x.rw())
        def own(i, x):
            x[i] += cuda.threadIdx.x + 1 - i

    for _ in range(3):
        g.launch()
    assert "reads names of numba.cuda" in g.explain()
    assert np.array_equal(x.numpy(), np.full(64, 3.0))


STEP = 2.0


def stepped(value: float) -> float:
    return value + STEP


def test_what_bodies_call_is_as_it_was_recorded(ctx: Any, monkeypatch: Any) -> None:
    x = ctx.logical_data(np.zeros(64))
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for((64,), x.rw())
        def more(i, x):
            x[i] = stepped(x[i])

    g.launch()
    monkeypatch.setitem(globals(), "STEP", 5.0)
    for _ in range(2):
        g.launch()
    assert "has changed since then" in g.explain()
    assert np.array_equal(x.numpy(), np.full(64, 6.0))


def test_parameters_are_written_before_each_launch(ctx: Any) -> None:
    x, y = ctx.logical_data(np.zeros(64)), ctx.logical_data(np.zeros(64, np.float32))
    g = ctx.task_graph(backend="persistent")
    factor, count = g.param("factor", 1.0), g.param("count", 2)
    with g:
        for k in range(5):

            @ctx.parallel_for((64,), x.rw(), args=(factor + k, count))
            def add(i, x, factor, count):
                x[i] += factor * count

            @ctx.parallel_for((64,), y.rw(), args=(count,))
            def more(i, y, count):
                y[i] += count

    wanted, others = 0.0, 0
    for k in range(6):
        g.launch(factor=0.5 * k, count=k)
        wanted += k * (5 * 0.5 * k + 10)
        others += 5 * k
    g.launch()
    assert is_loop(g), g.explain()
    assert np.array_equal(x.numpy(), np.full(64, wanted + 2 * 15.0))
    assert np.array_equal(y.numpy(), np.full(64, others + 10))


def test_other_data_take_the_nodes_of_the_recording(ctx: Any) -> None:
    x, y = ctx.logical_data(np.zeros(64)), ctx.logical_data(np.zeros(64))
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for((64,), x.rw())
        def add(i, x):
            x[i] += 1.0

    for _ in range(3):
        g.launch()
    g.launch({x: y})
    g.launch()
    assert is_loop(g)
    assert np.array_equal(x.numpy(), np.full(64, 4.0))
    assert np.array_equal(y.numpy(), np.ones(64))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(ctx: Any, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice([1, 17, 256, 3000]) for _ in range(12)]
    data = [ctx.logical_data(np.full(n, float(k))) for k, n in enumerate(sizes)]
    wanted = [np.full(n, float(k)) for k, n in enumerate(sizes)]
    program = []
    for _ in range(200):
        kind = rng.choice(["mix", "scale", "fill"])
        a, b = rng.sample(range(12), 2)
        program.append((kind, a, b, rng.randint(1, 9) / 8))
    g = ctx.task_graph(backend="persistent")
    with g:
        for kind, a, b, number in program:
            if kind == "fill" and number < 0.5:
                ctx.fill(data[a], number)
            elif kind == "mix":
                submit_mix(ctx, data[a], data[b], sizes[a], sizes[b])
            else:
                submit_scale(ctx, data[a], sizes[a], number)
    for _ in range(3):
        g.launch()
        for kind, a, b, number in program:
            if kind == "fill" and number < 0.5:
                wanted[a][:] = number
            elif kind == "mix":
                wanted[a] = 0.5 * wanted[a] + 0.25 * wanted[b][np.arange(sizes[a]) % sizes[b]]
            else:
                wanted[a] = wanted[a] * number + 1.0
    assert is_loop(g), g.explain()
    for one, value in zip(data, wanted, strict=True):
        assert np.allclose(one.numpy(), value, rtol=1e-12)


def submit_mix(ctx: Any, one: Any, other: Any, n: int, m: int) -> None:
    @ctx.parallel_for((n,), one.rw(), other.read(), args=(m,))
    def mix(i, x, y, m):
        x[i] = 0.5 * x[i] + 0.25 * y[i % m]


def submit_scale(ctx: Any, one: Any, n: int, number: float) -> None:
    @ctx.parallel_for((n,), one.rw(), args=(number,))
    def scale(i, x, number):
        x[i] = x[i] * number + 1.0


HANGS = """
import numpy as np, stf
from stf._recording import device_loops
whole = device_loops.written
device_loops.LIMIT_NS = 1_000_000_000
device_loops.written = lambda steps, queues, numbers: whole(
    steps, [[step._replace(done=-1) for step in queue] if k == 0 else queue for k, queue in enumerate(queues)], numbers
)
with stf.context(devices="cuda:0") as ctx:
    x, y = ctx.logical_data(np.zeros(1024)), ctx.logical_data(np.zeros(1024))
    g = ctx.task_graph(backend="persistent")
    with g:
        for _ in range(4):
            ctx.parallel_for((1024,), x.read(), y.rw())(lambda i, x, y: None)
            ctx.parallel_for((1024,), y.read(), x.rw())(lambda i, x, y: None)
    g.launch()
    g.launch()
    print(g.explain())
    ctx.synchronize()
"""


@pytest.mark.timeout(120)
def test_a_loop_that_is_wrong_hangs_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=100, check=False)
    assert "a persistent loop on device(0)" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
    assert "CUDA_ERROR_LAUNCH_FAILED" in done.stderr, done.stderr
