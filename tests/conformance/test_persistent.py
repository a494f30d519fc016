"""Graphs that are loops of compiled bodies: the values are those of the tasks, one by one."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stf
from stf._drivers import loops
from stf._drivers.loops import Loops
from stf._port.native import CALL, FILL
from stf._recording import persistent, schedules
from stf.data.native_steps import native_fill

pytest.importorskip("numba")

needs_compiled = pytest.mark.skipif(
    not loops.__file__.endswith((".so", ".pyd")), reason="one thread runs loops in the uncompiled form"
)
WORKERS = 3
MANY = 5_000_000  # iterations that take seconds


@pytest.fixture(autouse=True)
def several_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small graphs have several queues, too."""
    for what in ("WAKE_NS", "HOP_NS", "LOOK_NS", "MOVE_NS"):
        monkeypatch.setattr(schedules, what, 0.0)
    monkeypatch.setattr(persistent, "usable_cores", lambda: WORKERS)


@pytest.fixture
def ctx() -> Iterator[Any]:
    with stf.context(devices="cpu", workers=WORKERS) as ctx:
        yield ctx
        ctx.synchronize()
        assert ctx._driver.errors == []


def add_three(i: Any, x: Any) -> None:
    x[i] += 3


def is_loop(graph: Any) -> bool:
    return "a persistent loop" in graph.explain()


def test_launches_give_what_the_tasks_give(ctx: Any) -> None:
    n = 50
    x, y, z = (ctx.logical_data(np.full(n, float(k))) for k in range(3))
    g = ctx.task_graph("steps", backend="persistent")
    with g:
        for _ in range(7):

            @ctx.parallel_for(x.shape, x.rw(), y.read())
            def add(i, x, y):
                x[i] += y[i] + i

            @ctx.parallel_for(x.shape, z.rw(), y.read())
            def scale(i, z, y):
                z[i] = 0.5 * z[i] + y[i]

            @ctx.parallel_for(x.shape, x.read(), z.read(), y.rw())
            def join(i, x, z, y):
                y[i] = 0.25 * (x[i] + z[n - 1 - i]) / (1 + y[i])

    for _ in range(5):
        g.launch()
    assert is_loop(g), g.explain()
    a, b, c = (np.full(n, float(k)) for k in range(3))
    for _ in range(35):
        a += b + np.arange(n)
        c = 0.5 * c + b
        b = 0.25 * (a + c[::-1]) / (1 + b)
    for data, wanted in zip((x, y, z), (a, b, c), strict=True):
        assert data.numpy() == pytest.approx(wanted, rel=1e-12)


def test_several_queues_wait_for_each_other(ctx: Any) -> None:
    """Wide and deep: each column is a chain, and every fifth step all columns look at each other."""
    width, depth = 8, 40

    def neighbour(row: int, k: int) -> int:
        return (k + 1) % width if row % 5 == 0 else k ^ 1

    columns = [ctx.logical_data(np.full(4, float(k))) for k in range(width)]
    g = ctx.task_graph(backend="persistent")

    def step(own: Any, other: Any) -> None:
        @ctx.parallel_for(own.shape, own.rw(), other.read())
        def mix(i, x, y):
            x[i] = 0.5 * x[i] + 0.25 * y[i] + 1.0

    with g:
        for row in range(depth):
            for k in range(width):
                step(columns[k], columns[neighbour(row, k)])
    wanted = [np.full(4, float(k)) for k in range(width)]
    for _ in range(30):
        g.launch()
        for row in range(depth):
            for k in range(width):
                wanted[k] = 0.5 * wanted[k] + 0.25 * wanted[neighbour(row, k)] + 1.0
    text = g.explain()
    assert is_loop(g), text
    assert f"{WORKERS} queues" in text
    for data, value in zip(columns, wanted, strict=True):
        assert np.array_equal(data.numpy(), value)


@pytest.mark.parametrize("backend", ["auto", "persistent", "graph", "play"])
def test_parameters_of_each_launch(ctx: Any, backend: str) -> None:
    x = ctx.logical_data_zeros(8)
    counts = ctx.logical_data(np.zeros(8, np.int32))
    g = ctx.task_graph(backend=backend)
    a, n, first = g.param("a", 1.5), g.param("n", 2), g.param("first", 0.0)
    with g:
        ctx.fill(x, first)

        @ctx.parallel_for(x.shape, x.rw(), counts.rw(), args=(a, n, 2 * a))
        def add(i, x, c, a, n, twice):
            x[i] += a + 10 * twice
            c[i] += n

    g.launch()
    assert np.all(x.numpy() == 31.5)
    g.launch(a=2.0, n=5)
    assert np.all(x.numpy() == 42.0)
    assert np.all(counts.numpy() == 7)
    g.launch(first=-1.0)
    assert np.all(x.numpy() == 30.5)
    assert np.all(counts.numpy() == 9)
    assert is_loop(g) == (backend in ("auto", "persistent"))


def test_a_parameter_is_written_once_for_all_steps(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs a step gives it its numbers: one thread that did it for all would keep the others waiting."""
    written: list[Any] = []
    words = persistent.Plan.words

    class Watched(loops.Loop):
        def put(self, *given: Any) -> int:
            written.append(given)
            return super().put(*given)

    def note(plan: Any, values: Any) -> list[int]:
        written.append(words(plan, values))
        return written[-1]

    monkeypatch.setattr(loops.Loops, "make", lambda role, *given: Watched(*given))
    monkeypatch.setattr(persistent.Plan, "words", note)
    columns = [ctx.logical_data(np.zeros(1, np.int64)) for _ in range(4)]
    g = ctx.task_graph(backend="persistent")
    n = g.param("n", 0)
    with g:
        for k in range(10):
            for x in columns:

                @ctx.parallel_for((1,), x.rw(), args=(k, n))
                def add(_, x, k, n):
                    x[0] += n * k

    for value in (3, 5):
        g.launch(n=value)
    assert [int(x.numpy()[0]) for x in columns] == [45 * 8] * 4
    assert written == [[3], [5]]


def test_a_value_of_another_type_is_played(ctx: Any) -> None:
    x = ctx.logical_data_zeros(4)
    g = ctx.task_graph(backend="persistent")
    a = g.param("a", 1)
    with g:

        @ctx.parallel_for(x.shape, x.rw(), args=(a,))
        def add(i, x, a):
            x[i] += a

    g.launch(a=2)
    g.launch(a=0.5)
    g.launch(a=3)
    assert np.all(x.numpy() == 5.5)


def test_launches_with_other_data(ctx: Any) -> None:
    x, y, s = ctx.logical_data_zeros(6), ctx.logical_data(np.ones(6)), ctx.logical_data_zeros(())
    z = ctx.logical_data(np.full(6, 2.0))
    g = ctx.task_graph(backend="persistent")
    a = g.param("a", 1.0)
    with g:

        @ctx.parallel_for(x.shape, x.rw(), args=(a,))
        def add(i, x, a):
            x[i] += a * (i + 1)

        total = ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))
        total(lambda i, x: x[i])

    g.launch()
    g.launch({x: y}, a=2.0)
    assert ctx.wait(s) == 6 + 42
    g.launch({x: z})
    g.launch()
    assert ctx.wait(s) == 42.0
    assert np.all(x.numpy() == 2.0 * np.arange(1, 7))
    assert np.all(y.numpy() == 1 + 2.0 * np.arange(1, 7))
    assert np.all(z.numpy() == 2 + 1.0 * np.arange(1, 7))
    assert is_loop(g)


def test_launches_with_other_data_beside_each_other(ctx: Any) -> None:
    data = [ctx.logical_data(np.full(100, float(k))) for k in range(12)]
    g = ctx.task_graph(backend="persistent")
    with g:
        for _ in range(20):

            @ctx.parallel_for(data[0].shape, data[0].rw())
            def add(i, x):
                x[i] += 1

    for _ in range(10):
        for other in data:
            g.launch({data[0]: other})
    for k, other in enumerate(data):
        assert np.all(other.numpy() == k + 200)


def test_fills_copies_and_reductions(ctx: Any) -> None:
    x, y = ctx.logical_data(np.arange(200_000.0)), ctx.logical_data_zeros(200_000)
    s, count = ctx.logical_data_zeros(()), ctx.logical_data(np.zeros((), np.int64))
    bins = ctx.logical_data_zeros(4)
    small, wide = ctx.logical_data(np.zeros((3, 5), np.complex128)), ctx.logical_data(np.ones((3, 5), np.complex128))
    g = ctx.task_graph(backend="persistent")
    with g:
        ctx.copy(x, y)
        ctx.parallel_for(x.shape, y.read(), s.reduce(stf.reducer.sum))(lambda i, y: y[i])
        ctx.parallel_for(x.shape, y.read(), count.reduce(stf.reducer.sum, accumulate=True))(lambda i, y: 1)

        @ctx.parallel_for(x.shape, y.read(), bins.reduce(stf.reducer.sum))
        def histogram(i, y, bins):
            bins[i % 4] += 1.0

        ctx.fill(small, 2 + 3j)
        ctx.copy(small, wide)

    for k in range(3):
        g.launch()
        assert ctx.wait(s) == 200_000 * 199_999 / 2
        assert ctx.wait(count) == 200_000 * (k + 1)
        assert np.all(bins.numpy() == 50_000)
        assert np.all(wide.numpy() == 2 + 3j)
    assert is_loop(g), g.explain()


def test_reductions_have_the_bits_of_played_ones() -> None:
    values = np.random.default_rng(1).normal(size=300_001)
    found = []
    for backend in ("play", "persistent"):
        with stf.context(devices="cpu", workers=WORKERS) as ctx:
            x, s = ctx.logical_data(values), ctx.logical_data_zeros(())
            g = ctx.task_graph(backend=backend)
            with g:
                ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))(lambda i, x: x[i] * 1.1)
            for _ in range(3):
                g.launch()
            found.append(float(ctx.wait(s)).hex())
    assert found[0] == found[1]


def test_arrays_with_gaps_and_other_orders(ctx: Any) -> None:
    whole = np.zeros((6, 8))
    x = ctx.logical_data(whole[1:5, ::2])
    y = ctx.logical_data(np.asfortranarray(np.ones((4, 4))))
    z = ctx.logical_data(np.zeros((4, 4), np.float32))
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for(x.shape, x.rw(), y.read(), z.write())
        def add(i, j, x, y, z):
            x[i, j] += y[i, j] + 10 * i + j
            z[i, j] = x[i, j]

        ctx.copy(x, y)

    g.launch()
    g.launch()
    base = np.add.outer(10 * np.arange(4), np.arange(4))
    assert np.array_equal(x.numpy(), 2 * (base + 1) + base)
    assert np.array_equal(y.numpy(), x.numpy())
    assert np.array_equal(z.numpy(), x.numpy().astype(np.float32))
    assert is_loop(g), g.explain()


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16", "S3"])
@pytest.mark.parametrize("width", [1, 2])
def test_copies_of_elements_apart(ctx: Any, dtype: str, width: int) -> None:
    content = np.arange(60).astype(dtype).reshape(4, 3, 5)
    x, y = ctx.logical_data(content[..., 1 : 1 + width]), ctx.logical_data(np.zeros((4, 3, width), dtype))
    z = ctx.logical_data(np.zeros((4, 6, width), dtype)[:, ::-2])
    g = ctx.task_graph(backend="persistent")
    with g:
        ctx.copy(x, y)
        ctx.copy(y, z)
    g.launch()
    assert is_loop(g), g.explain()
    for data in (y, z):
        assert np.array_equal(data.numpy(), content[..., 1 : 1 + width])


def test_emulated_devices_have_copies_between_them() -> None:
    with stf.context(devices="cpu:2", workers=WORKERS) as ctx:
        x, y = ctx.logical_data(np.arange(10.0)), ctx.logical_data_zeros(10)
        g = ctx.task_graph(backend="persistent")
        with g:
            for k in range(4):

                @ctx.parallel_for(stf.exec_place.device(k % 2), x.shape, x.read(), y.rw())
                def add(i, x, y):
                    y[i] += x[i] + 1

        for _ in range(3):
            g.launch()
        assert np.array_equal(y.numpy(), 12 * (np.arange(10.0) + 1))
        assert is_loop(g), g.explain()


def test_what_prevents_a_loop_is_said(ctx: Any) -> None:
    x = ctx.logical_data_zeros(3)
    g = ctx.task_graph("mixed", backend="persistent")
    with g:

        @ctx.parallel_for(x.shape, x.rw(), name="first")
        def first(i, x):
            x[i] += 1

        ctx.task(x.rw(), name="second")(lambda x: x + 1)
    g.launch()
    g.launch()
    assert np.all(x.numpy() == 4)
    text = g.explain()
    assert "no persistent loop: task 'second'" in text, text
    assert "first" not in text


def test_a_body_that_raises_fails_the_launch(ctx: Any) -> None:
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    g = ctx.task_graph(backend="persistent")
    limit = g.param("limit", 10.0)
    with g:

        @ctx.parallel_for(x.shape, x.rw(), args=(limit,))
        def add(i, x, limit):
            if x[i] >= limit:
                raise ValueError("too much")
            x[i] += 1

        @ctx.parallel_for(x.shape, x.read(), y.write())
        def copy(i, x, y):
            y[i] = x[i]

    g.launch()
    assert np.all(y.numpy() == 1)
    assert is_loop(g)
    g.launch(limit=1.0)
    with pytest.raises(stf.TaskFailedError) as caught:
        y.numpy()
    assert "too much" in str(caught.value) + str(caught.value.__cause__)


def test_a_launch_on_poisoned_data_is_skipped(ctx: Any) -> None:
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for(x.shape, x.read(), y.write())
        def copy(i, x, y):
            y[i] = x[i] + 1

    g.launch()

    def fail(x: Any) -> None:
        raise ZeroDivisionError("first")

    ctx.task(x.rw(), name="bad")(fail)
    g.launch()
    with pytest.raises(stf.TaskFailedError, match="bad"):
        ctx.wait(y)


def test_what_is_watched_is_played() -> None:
    with stf.context(devices="cpu", observe=True) as ctx:
        x = ctx.logical_data_zeros(3)
        g = ctx.task_graph(backend="persistent")
        with g:

            @ctx.parallel_for(x.shape, x.rw())
            def add(i, x):
                x[i] += 1

        g.launch()
        assert np.all(x.numpy() == 1)
        assert not is_loop(g)


def test_graphs_in_graphs(ctx: Any) -> None:
    x = ctx.logical_data_zeros(5)
    inner, outer = ctx.task_graph("inner", backend="persistent"), ctx.task_graph("outer", backend="persistent")
    a, b = inner.param("a", 1.0), outer.param("b", 2.0)
    with inner:

        @ctx.parallel_for(x.shape, x.rw(), args=(a,))
        def add(i, x, a):
            x[i] = 2 * x[i] + a

    with outer:
        inner.launch()
        inner.launch(a=b)
        inner.launch(a=3 * b)
    wanted = 0.0
    for value in (2.0, 5.0, 7.0):
        outer.launch(b=value)
        for step in (1.0, value, 3 * value):
            wanted = 2 * wanted + step
    assert np.all(x.numpy() == wanted)
    assert is_loop(outer), outer.explain()


def test_a_graph_that_is_closed_ends_its_launches(ctx: Any) -> None:
    x = ctx.logical_data_zeros(1000)
    g = ctx.task_graph(backend="persistent")
    with g:
        for _ in range(50):

            @ctx.parallel_for(x.shape, x.rw())
            def add(i, x):
                x[i] += 1

    for _ in range(20):
        g.launch()
    g.close()
    assert np.all(x.numpy() == 1000)


def test_there_is_no_other_backend(ctx: Any) -> None:
    with pytest.raises(ValueError, match="backend='fast'"):
        ctx.task_graph(backend="fast")


@pytest.fixture
def by_default(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let all that can be loops be loops; the launches of these are listed."""
    made: list[Any] = []
    launch = persistent.launch

    def noted(frame: Any, thing: Any, *rounds: Any) -> Any:
        run = launch(frame, thing, *rounds)
        made.extend([] if run is None else [type(thing).__name__])
        return run

    monkeypatch.setattr(persistent, "runs_before", 0)
    monkeypatch.setattr(persistent, "launch", noted)
    return made


def test_a_repetition_is_one_loop(ctx: Any, by_default: list[Any]) -> None:
    x, y = ctx.logical_data_zeros(5), ctx.logical_data(np.ones(5))
    with ctx.repeat(700):

        @ctx.parallel_for(x.shape, x.rw(), y.read())
        def add(i, x, y):
            x[i] += y[i]

        ctx.copy(x, y)
        ctx.fill(y, 2.0)

    assert np.all(x.numpy() == 1 + 699 * 2.0)
    assert by_default == ["Repeat"]


@pytest.mark.parametrize("limit", [None, 1, 7, 300])
def test_a_loop_with_a_condition_decides_itself(ctx: Any, by_default: list[Any], limit: int | None) -> None:
    s, x = ctx.logical_data(np.array(0.0)), ctx.logical_data_zeros(3)
    with ctx.while_loop(s < 400, max_iterations=limit) as loop:

        @ctx.parallel_for(x.shape, x.rw())
        def add(i, x):
            x[i] += i

        s.assign(s + 1)

    wanted = 400 if limit is None else limit
    assert loop.iterations == wanted
    assert ctx.wait(s) == wanted
    assert np.array_equal(x.numpy(), wanted * np.arange(3.0))
    assert by_default == ["Recording", "While"]


def test_a_loop_whose_condition_does_not_hold_does_nothing(ctx: Any, by_default: list[Any]) -> None:
    s = ctx.logical_data(np.array(5.0))
    with ctx.while_loop(s < 4) as loop:
        s.assign(s + 1)
    assert loop.iterations == 0
    assert ctx.wait(s) == 5.0
    assert by_default == ["Recording"]


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_a_loop_that_tests_at_its_end(ctx: Any, by_default: list[Any], limit: int | None) -> None:
    s = ctx.logical_data(np.array(10.0))
    with ctx.while_loop(max_iterations=limit) as loop:
        s.assign(s * 0.5)
        loop.continue_while(s > 1)
    wanted = 4 if limit is None else limit
    assert loop.iterations == wanted
    assert ctx.wait(s) == 10.0 / 2**wanted
    assert by_default == ["While"]


def test_loops_in_a_graph(ctx: Any) -> None:
    s, x = ctx.logical_data(np.array(0.0)), ctx.logical_data_zeros(3)
    g = ctx.task_graph(backend="persistent")
    start = g.param("start", 0.0)
    with g:
        ctx.fill(s, start)
        with ctx.repeat(3):
            s.assign(s + 1)
        with ctx.while_loop(s < 10) as loop:

            @ctx.parallel_for(x.shape, x.rw(), s.read())
            def add(i, x, s):
                x[i] += s

            s.assign(s + 1)

    total = 0
    for k in (0, 5, 9):
        g.launch(start=float(k))
        total += sum(range(k + 3, 10))
        assert ctx.wait(s) == max(10, k + 3)
        assert np.all(x.numpy() == total)
        assert loop.iterations == max(7 - k, 0)


def test_small_repetitions_are_steps_of_the_graph_around(ctx: Any) -> None:
    x = ctx.logical_data_zeros(3)
    g = ctx.task_graph(backend="persistent")
    with g:
        ctx.fill(x, 1.0)
        with ctx.repeat(4):

            @ctx.parallel_for(x.shape, x.rw())
            def twice(i, x):
                x[i] *= 2

    for _ in range(3):
        g.launch()
        assert np.all(x.numpy() == 16)
    assert "5 steps" in g.explain()


def test_a_replayed_function_is_a_loop(ctx: Any) -> None:
    x, y = ctx.logical_data_zeros(6), ctx.logical_data(np.ones(6))

    @stf.replay(backend="persistent")
    def steps(x: Any, y: Any, rate: float) -> None:
        for _ in range(3):

            @ctx.parallel_for(x.shape, x.rw(), y.read(), args=(rate,))
            def add(i, x, y, rate):
                x[i] += rate * y[i]

            ctx.fill(y, rate)

    wanted, last = 0.0, 1.0
    for k in range(12):
        rate = 1.0 + k / 8
        steps(x, y, rate)
        for _ in range(3):
            wanted, last = wanted + rate * last, rate
    assert np.all(x.numpy() == wanted)
    assert "a persistent loop: " in steps.explain(), steps.explain()
    with pytest.raises(ValueError, match="backend='none'"):
        stf.replay(lambda x: None, backend="none")


def test_long_runs_between_other_tasks_are_loops(ctx: Any) -> None:
    x, y, seen = ctx.logical_data_zeros(4), ctx.logical_data(np.ones(4)), []
    other = ctx.logical_data_zeros(4)
    g = ctx.task_graph(backend="persistent")
    a = g.param("a", 1.0)

    def run(count: int) -> None:
        for _ in range(count):

            @ctx.parallel_for(x.shape, x.rw(), y.read(), args=(a,))
            def add(i, x, y, a):
                x[i] += a * y[i]

    with g:
        run(20)
        ctx.host_launch(x.read())(lambda x: seen.append(float(x[0])))
        run(30)
        ctx.task(y.rw(), name="python")(lambda y: y + 1)
        run(3)
        ctx.copy(x, other)
    total, step = 0.0, 1.0
    wanted = []
    for k in range(4):
        g.launch(a=float(k))
        wanted.append(total + 20 * k * step)
        total += 50 * k * step
        step += 1
        total += 3 * k * step
        assert np.all(x.numpy() == total)
        assert np.all(other.numpy() == total)
    assert seen == wanted
    assert "2 persistent loops of 50 nodes" in g.explain(), g.explain()
    assert "no persistent loop: task 'python'" in g.explain()


def test_it_is_chosen_where_nobody_asks(ctx: Any) -> None:
    """The first launch is played, and so are the first rounds of repetitions and loops."""
    x, s = ctx.logical_data_zeros(3), ctx.logical_data(np.array(0.0))
    g, h = ctx.task_graph(), ctx.task_graph()
    with g:

        @ctx.parallel_for(x.shape, x.rw())
        def add(i, x):
            x[i] += 1

        with ctx.while_loop(s < 9) as loop:
            s.assign(s + 1)
        ctx.fill(s, 0.0)
        with ctx.repeat(5):
            s.assign(s + 1)
    with h:
        ctx.task(x.rw(), name="python")(lambda x: x + 1)
    for k in range(1, 4):
        g.launch()
        assert loop.iterations == (9 if k == 1 else 4)
        assert ctx.wait(s) == 5
        assert np.all(x.numpy() == k)
        h.launch()
        ctx.fill(x, float(k))
    assert "no persistent loop" not in h.explain()


@pytest.mark.parametrize("backend", ["graph", "play"])
def test_another_backend_is_no_loop(ctx: Any, backend: str) -> None:
    x = ctx.logical_data_zeros(3)
    g = ctx.task_graph(backend=backend)
    with g, ctx.repeat(40):

        @ctx.parallel_for(x.shape, x.rw())
        def add(i, x):
            x[i] += 1

    for _ in range(3):
        g.launch()
    assert np.all(x.numpy() == 120)
    assert not is_loop(g)


def test_loops_over_partitioned_data() -> None:
    """A body on a part gets it as a part of a larger array."""
    with stf.context(devices="cpu:2", workers=WORKERS) as ctx:
        place = stf.data_place.composite(stf.exec_place.grid(list(ctx.devices)), stf.partition("blocked"))
        x = ctx.logical_data(np.arange(40.0), data_place=place)
        s, n = ctx.logical_data_zeros(()), ctx.logical_data(np.zeros((), np.int32))
        bins = ctx.logical_data_zeros(4)
        g = ctx.task_graph(backend="persistent")
        with g:

            @ctx.parallel_for(x.shape, x.rw())
            def add(i, x):
                x[i] += i

            ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))(lambda i, x: x[i])
            ctx.parallel_for(x.shape, x.read(), n.reduce(stf.reducer.max))(lambda i, x: np.int32(x[i]))

            @ctx.parallel_for(x.shape, x.read(), bins.reduce(stf.reducer.sum))
            def histogram(i, x, bins):
                bins[i % 4] += x[i]

        for k in range(2, 5):
            g.launch()
            wanted = k * np.arange(40.0)
            assert ctx.wait(s) == wanted.sum()
            assert ctx.wait(n) == wanted.max()
            assert np.array_equal(bins.numpy(), wanted.reshape(10, 4).sum(0))
            assert np.array_equal(x.numpy(), wanted)
        assert is_loop(g), g.explain()


def test_numbers_of_all_kinds_reach_a_body(ctx: Any) -> None:
    x, z = ctx.logical_data(np.zeros(8)), ctx.logical_data(np.zeros(1, np.complex128))
    empty, flags = ctx.logical_data(np.zeros((0, 3))), ctx.logical_data(np.zeros(2, bool))
    numbers = (
        np.float32(0.1),
        True,
        2 - 3j,
        (1, (2.5, False)),
        np.int8(-3),
        np.uint64(2**63 + 5),
        np.complex64(1 + 2j),
    )
    found = []
    for backend in ("play", "persistent"):
        g = ctx.task_graph(backend=backend)
        with g:
            ctx.fill(x, 0.0)

            @ctx.parallel_for((1,), x.rw(), z.rw(), flags.write(), args=numbers)
            def put(_, x, z, flags, a, b, c, d, e, f, h):
                x[0], x[1], x[2], x[3], x[4] = a, b, c.real, c.imag, d[0]
                x[5], x[6], x[7] = d[1][0], e, f - np.uint64(2**63)
                z[0] = c * h
                flags[0], flags[1] = b, d[1][1]

            @ctx.parallel_for(empty.shape, empty.rw())
            def none(i, j, y):
                y[i, j] = 1.0

            ctx.fill(empty, 2.0)

        for _ in range(3):
            g.launch()
        found.append([x.numpy().tolist(), z.numpy().tolist(), flags.numpy().tolist()])
        assert is_loop(g) == (backend == "persistent"), g.explain()
    assert found[0] == found[1]


def test_threads_launch_one_graph(ctx: Any) -> None:
    data = [ctx.logical_data(np.zeros(50)) for _ in range(5)]
    g = ctx.task_graph(backend="persistent")
    a = g.param("a", 1.0)
    with g:
        for _ in range(10):

            @ctx.parallel_for(data[0].shape, data[0].rw(), args=(a,))
            def add(i, x, a):
                x[i] += a

    def launch(k: int) -> None:
        for _ in range(30):
            g.launch({data[0]: data[k]} if k else None, a=float(k + 1))

    threads = [threading.Thread(target=launch, args=(k,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(5):
        assert np.all(data[k].numpy() == 300 * (k + 1)), k


def test_a_schedule_that_is_refused_is_played(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(*_: Any) -> None:
        raise schedules.ScheduleError("step 1 does not come after step 0")

    monkeypatch.setattr(persistent, "check", check)
    x = ctx.logical_data_zeros(3)
    g = ctx.task_graph(backend="persistent")
    with g:
        ctx.fill(x, 2.0)
    for _ in range(3):
        g.launch()
    assert np.all(x.numpy() == 2.0)
    assert "no persistent loop: step 1 does not come after step 0" in g.explain()


def test_a_loop_is_planned_again_by_measured_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that seem short have one queue, until they were measured."""
    monkeypatch.setattr(schedules, "WAKE_NS", 100.0)
    monkeypatch.setattr(persistent, "WAKE_NS", 100.0)
    with stf.context(devices="cpu", workers=2) as ctx:
        data = [ctx.logical_data(np.ones(1)) for _ in range(4)]
        g = ctx.task_graph(backend="persistent")
        a = g.param("a", 1.0)
        with g:
            for _ in range(5):
                for x in data:

                    @ctx.parallel_for((1,), x.rw(), args=(a,))
                    def work(_, x, a):
                        for k in range(2000):
                            x[0] = x[0] * 0.5 + a * (k % 3)

        def model(value: float, a: float) -> float:
            for k in range(10_000):
                value = value * 0.5 + a * ((k % 2000) % 3)
            return value

        wanted, queues = 1.0, []
        for k in range(8):
            g.launch(a=1.0 + k)
            wanted = model(wanted, 1.0 + k)
            assert [float(x.numpy()[0]) for x in data] == [wanted] * 4
            queues.append(g.explain().partition(" queues")[0].rpartition(" ")[2])
        assert queues[0] == "1"
        assert queues[-1] == "2"


def test_a_loop_is_planned_again_when_a_parameter_changes_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short launches have one queue, and long ones of the same graph several; and each of them again."""
    for module in (schedules, persistent):
        monkeypatch.setattr(module, "WAKE_NS", 300_000.0)  # longer than short ones take in the uncompiled form
    monkeypatch.setattr(persistent, "usable_cores", lambda: 2)
    with stf.context(devices="cpu", workers=2) as ctx:
        data = [ctx.logical_data(np.zeros(1)) for _ in range(4)]
        g = ctx.task_graph(backend="persistent")
        n = g.param("n", 1)
        with g:
            for _ in range(5):
                for x in data:

                    @ctx.parallel_for((1,), x.rw(), args=(n,))
                    def work(_, x, n):
                        for k in range(n):
                            x[0] = x[0] * 0.5 + k % 3

        def model(value: float, n: int) -> float:
            for _ in range(5):
                for k in range(n):
                    value = value * 0.5 + k % 3
            return value

        def queues_after(launches: int, n: int) -> str:
            nonlocal value
            for _ in range(launches):
                g.launch(n=n)
                value = model(value, n)
            assert [float(x.numpy()[0]) for x in data] == [value] * 4
            return g.explain().partition(" queues")[0].rpartition(" ")[2]

        value = 0.0
        assert queues_after(8, 1) == "1"
        assert queues_after(6, 200_000) == "2"
        g.launch(n=0)
        assert "1" in (queues_after(5000, 1) for _ in range(10))  # as long as it took to plan, which may be long
        assert queues_after(6, 200_000) == "2"


def test_a_plan_is_kept_where_all_steps_take_longer() -> None:
    """It would be the same plan again, and a new one takes longer than many launches."""
    steps = persistent.Steps(2)
    for _ in range(40):
        steps.add_body(native_fill(print, (np.zeros(1), 0.0)), None, None, [], [], {})
    steps.costs = [10_000.0 + 100.0 * k for k in range(40)]
    plan = persistent.Plan(steps, Loops())
    steps.costs = [3.0 * cost for cost in steps.costs]
    assert plan.suits_times(sum(steps.costs))
    steps.costs[:20] = [4.0 * cost for cost in steps.costs[:20]]
    assert not plan.suits_times(sum(steps.costs))


def columns_of(ctx: Any, arrays: list[np.ndarray], steps: int) -> Any:
    """Return a graph of columns beside each other: each step counts in one, and takes as long as `n` says."""
    columns = [ctx.logical_data(array) for array in arrays]
    g = ctx.task_graph(backend="persistent")
    n = g.param("n", 1)
    with g:
        for _ in range(steps):
            for x in columns:

                @ctx.parallel_for((1,), x.rw(), args=(n,))
                def work(_, x, n):
                    for k in range(n):
                        x[1] = x[1] * 0.5 + k % 3
                    x[0] += 1.0

    return g


def divide(_: Any, x: Any, d: int) -> None:
    if d == 0:
        raise ValueError("by zero")
    x[0] += 1 // d


def pair() -> list[np.ndarray]:
    return [np.zeros(2), np.zeros(2)]


@needs_compiled
def test_helpers_stay_for_the_next_launch() -> None:
    """To come takes as long as some hundred tasks, so who helps waits a moment for the next launch."""
    with stf.context(devices="cpu", workers=WORKERS) as ctx:
        g = columns_of(ctx, [np.zeros(2) for _ in range(WORKERS)], 40)
        for _ in range(20):
            g.launch(n=2000)
        ctx.synchronize()
        loop = g._recording.loops.first.loop
        found = 0
        for _ in range(200):
            g.launch(n=2000)
            g.launch(n=2000)
            found = max(found, loop.helpers())
        ctx.synchronize()
        assert 1 <= found <= WORKERS - 1
        end = time.monotonic() + 20
        while loop.helpers() and time.monotonic() < end:
            time.sleep(0.001)
        assert loop.helpers() == 0


@needs_compiled
def test_a_helper_goes_for_a_task_of_python() -> None:
    """It leaves after the step that it is in; the leader does the rest."""
    with stf.context(devices="cpu", workers=2) as ctx:
        arrays, other = pair(), ctx.logical_data(np.zeros(1))
        g = columns_of(ctx, arrays, 200)
        for _ in range(3):
            g.launch(n=200_000)
        ctx.synchronize()
        before = []
        for turn in range(3, 6):
            g.launch(n=200_000)
            end = time.monotonic() + 20
            while arrays[0][0] == 200 * turn and time.monotonic() < end:
                pass

            @ctx.task(other.rw())
            def task(x):
                x += 1

            other.numpy()
            before.append(arrays[0][0] + arrays[1][0] < 400 * (turn + 1))
            ctx.synchronize()
        assert any(before)
        assert [array[0] for array in arrays] == [1200, 1200]


@needs_compiled
@pytest.mark.parametrize("workers", [1, 2])
def test_short_launches_run_while_the_program_keeps_the_gil(workers: int) -> None:
    """In one of some turns: after a launch that takes longer than known, Python looks."""
    arrays = pair()
    with stf.context(devices="cpu", workers=workers) as ctx:
        g = columns_of(ctx, arrays, 4)
        launches, runs_alone = 0, False
        while launches < 1000 and not runs_alone:
            for _ in range(3):
                for _ in range(20):
                    g.launch(n=3)
                ctx.synchronize()
                time.sleep(0.1)  # until no worker is on its way to Python
            launches += 100
            switch = sys.getswitchinterval()
            sys.setswitchinterval(100.0)
            try:
                for _ in range(40):
                    g.launch(n=3)
                end = time.monotonic() + 2
                while arrays[0][0] < 4 * launches and time.monotonic() < end:
                    pass
                runs_alone = [array[0] for array in arrays] == [4 * launches] * 2
            finally:
                sys.setswitchinterval(switch)
            ctx.synchronize()
        assert runs_alone


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns with the GIL all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("seed", range(3))
def test_launches_whose_times_change_and_other_data(seed: int, hasty_threads: None) -> None:
    """Short launches, long ones, and some with other data share a loop, have one for themselves, or are measured."""
    draw = random.Random(seed)
    arrays, others = [np.zeros(200_000), np.zeros(2)], [np.zeros(200_000), np.zeros(2)]
    found: dict[bool, list[float]] = {False: [], True: []}
    with stf.context(devices="cpu", workers=2) as ctx:
        x, y = (ctx.logical_data(array) for array in arrays)
        data = [ctx.logical_data(array) for array in others]
        g = ctx.task_graph(backend="persistent")
        number, n = g.param("number", 0), g.param("n", 1)
        with g:

            @ctx.parallel_for((1,), x.rw(), y.rw(), args=(number, n))
            def work(_, x, y, number, n):
                for k in range(n):
                    y[1] = y[1] * 0.5 + k % 3
                x[0] += 1.0
                x[int(x[0])] = number

        launches = 0
        for _ in range(120):
            for _ in range(draw.choice((1, 1, 3, 20))):
                has_others = draw.random() < 0.3
                launches += 1
                given = [{x: data[0], y: data[1]}] if has_others else []
                g.launch(*given, number=launches, n=draw.choice((1, 3, 1000)) if draw.random() < 0.98 else 50_000)
                found[has_others].append(launches)
            if draw.random() < 0.3:
                ctx.synchronize()
        ctx.synchronize()
        assert ctx._driver.errors == []
    for array, wanted in ((arrays[0], found[False]), (others[0], found[True])):
        assert array[1 : 1 + int(array[0])].tolist() == wanted


def test_a_short_launch_that_fails(hasty_threads: None) -> None:
    """Code that fails is called once more for its error; what comes after it is skipped, and all goes on then."""
    arrays = pair()
    with stf.context(devices="cpu", workers=2) as ctx:
        x, y = (ctx.logical_data(array) for array in arrays)
        g = ctx.task_graph(backend="persistent")
        d = g.param("d", 1)
        with g:
            ctx.parallel_for((1,), x.rw(), args=(d,))(divide)

            @ctx.parallel_for((1,), x.read(), y.rw())
            def add(_, x, y):
                y[0] += x[0]

        for turn in range(60):
            for _ in range(20):
                g.launch(d=1)
            ctx.synchronize()
            good = turn % 7
            with contextlib.suppress(stf.TaskFailedError):  # it may be told where the next one is launched
                for k in range(good + 3):
                    g.launch(d=int(k != good))
            with pytest.raises(stf.TaskFailedError, match="by zero"):
                ctx.synchronize()
            for data in (x, y):
                with pytest.raises(stf.TaskFailedError):
                    data.numpy()
                with ctx.task(data.write()) as t:
                    t.numpy()[0][...] = float(turn)
            ctx.synchronize()
            assert [array[0] for array in arrays] == [turn, turn]


@needs_compiled
def test_a_task_of_python_does_not_wait_for_a_worker_that_leads_a_long_launch() -> None:
    """Another worker, which is idle, runs it."""
    with stf.context(devices="cpu", workers=2) as ctx:
        g = columns_of(ctx, [np.zeros(2)], 4)
        other = ctx.logical_data(np.zeros(1))
        before = []
        for _ in range(4):
            for _ in range(20):
                g.launch(n=3)
                ctx.synchronize()
            start = time.perf_counter()
            g.launch(n=25_000_000)  # 4 steps of 25 ms or more
            time.sleep(0.01)

            @ctx.task(other.rw())
            def task(x):
                x += 1

            other.numpy()
            took = time.perf_counter() - start
            ctx.synchronize()
            before.append(took < 0.5 * (time.perf_counter() - start))
        assert sum(before) >= 3


def test_steps_are_measured_only_in_launches_that_are(ctx: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever launches next without Python would go on measuring."""
    said: list[bool] = []

    class Watched(loops.Loop):
        def measure(self, wanted: bool) -> int:
            said.append(wanted)
            return super().measure(wanted)

    monkeypatch.setattr(loops.Loops, "make", lambda role, *given: Watched(*given))
    g = columns_of(ctx, pair(), 10)
    for _ in range(40):
        g.launch(n=1000)
        ctx.synchronize()
        assert not said[-1]
    assert any(said)


def test_the_time_of_a_step_is_the_least_of_the_launches_that_are_measured() -> None:
    """Others have the cores in some launch; a step that seemed long for that would be planned apart."""
    waits = iter([0.02, 0.0, 0.02, 0.02])

    def step() -> None:
        time.sleep(next(waits))

    loop = Loops().make([[(CALL, 0, (), -1, ())]], [0, id(step)], step)
    for _ in range(3):
        loop.measure(True)
        assert loop.lead([]) == -1
        loop.measure(False)
    assert 0 < loop.times()[0] < 10_000_000
    loop.forget_times()
    loop.measure(True)
    loop.lead([])
    assert loop.times()[0] >= 20_000_000


def test_a_loop_with_other_data_in_its_table_is_not_shared(ctx: Any) -> None:
    """Who launches with other data may have had it between the look whether it can be shared and that."""
    x, y = (ctx.logical_data(np.zeros(2)) for _ in range(2))
    g = ctx.task_graph(backend="persistent")
    with g:
        ctx.parallel_for((2,), x.rw())(add_three)
    for _ in range(10):
        g.launch()
    ctx.synchronize()
    found = g._recording.loops
    plan = found.first
    assert found.share(plan)
    found.give_shared(plan, plan)
    g.launch({x: y})
    ctx.synchronize()
    assert not found.share(plan) and found.idle == [plan]
    g.launch()
    assert x.numpy().tolist() == [33, 33] and y.numpy().tolist() == [3, 3]


@needs_compiled
def test_a_launch_is_put_after_the_one_before_it_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads may run between the call of a loop and the end of its launch, with which a worker gets it."""

    class Slow(persistent.Loops):
        is_slow = False

        @property
        def runs_left(self) -> int:
            return 0

        @runs_left.setter
        def runs_left(self, value: int) -> None:
            if self.is_slow:
                time.sleep(0.005)

    monkeypatch.setattr("stf.graphs.task_graph.Loops", Slow)
    with stf.context(devices="cpu", workers=2) as ctx:
        x = ctx.logical_data(np.zeros(1))
        g = ctx.task_graph(backend="persistent")
        d = g.param("d", 1)
        with g:
            ctx.parallel_for((1,), x.rw(), args=(d,))(divide)

        for _ in range(10):
            for _ in range(20):
                g.launch(d=1)
            ctx.synchronize()
            g._recording.loops.is_slow = True
            with contextlib.suppress(stf.TaskFailedError):
                for value in (1, 0, 1, 1):
                    g.launch(d=value)
            g._recording.loops.is_slow = False
            with pytest.raises(stf.TaskFailedError, match="by zero"):
                ctx.synchronize()
            with pytest.raises(stf.TaskFailedError):
                x.numpy()
            with ctx.task(x.write()) as t:
                t.numpy()[0][...] = 0.0


def test_a_graph_is_closed_while_helpers_wait_for_a_launch() -> None:
    with stf.context(devices="cpu", workers=2) as ctx:
        for _ in range(30):
            arrays = pair()
            g = columns_of(ctx, arrays, 20)
            for _ in range(6):
                g.launch(n=500)
            ctx.synchronize()
            g.close()
            del g
            gc.collect()
            assert [array[0] for array in arrays] == [120, 120]
        assert not [thing for thing in gc.get_objects() if type(thing) is loops.Loop]


def test_parameters_of_all_kinds(ctx: Any) -> None:
    x, z = ctx.logical_data(np.zeros(4, np.float32)), ctx.logical_data(np.zeros(2, np.complex128))
    found = []
    launches = [{}, {"c": 3 - 1j}, {"b": False, "f": np.float32(0.3)}, {"c": 2.0, "n": -(2**62)}, {"f": 1.5}]
    for backend in ("play", "persistent"):
        g = ctx.task_graph(backend=backend)
        c, b = g.param("c", 1 + 2j), g.param("b", True)
        f, n = g.param("f", np.float32(0.1)), g.param("n", 7)
        with g:
            ctx.fill(z, c)

            @ctx.parallel_for((1,), x.write(), args=(b, f, n))
            def put(_, x, b, f, n):
                x[0], x[1], x[2], x[3] = b, f, n % 1000, n < 0

        told = []
        for values in launches:
            g.launch(**values)
            told.append((z.numpy().tolist(), x.numpy().tolist()))
        found.append(told)
        assert is_loop(g) == (backend == "persistent"), g.explain()
    assert found[0] == found[1]


def test_steps_of_python_have_the_context_variables_of_the_launch(ctx: Any) -> None:
    a, b, s = (ctx.logical_data(np.array(v)) for v in (1.0, 0.0, 5.0))
    g = ctx.task_graph(backend="persistent")
    with g:
        s.assign(a / b)
    with np.errstate(divide="ignore"):
        g.launch()
        assert ctx.wait(s) == np.inf
    assert is_loop(g)
    with np.errstate(divide="raise"):
        g.launch()
    with pytest.raises(stf.TaskFailedError, match="divide by zero"):
        ctx.wait(s)


def test_data_that_are_not_aligned_are_played(ctx: Any) -> None:
    x, y = ctx.logical_data(np.zeros(4)), np.zeros(5 * 8, np.uint8)[3:35].view(np.float64)
    other = ctx.logical_data(y)
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for(x.shape, x.rw())
        def add(i, x):
            x[i] += i

    g.launch()
    for _ in range(3):
        g.launch({x: other})
    assert np.array_equal(other.numpy(), 3 * np.arange(4.0))
    assert np.array_equal(x.numpy(), np.arange(4.0))


def test_runs_beside_each_other_are_loops_of_their_own(ctx: Any) -> None:
    """A loop does not wait for a body on the host that its tasks do not come after."""
    data = [ctx.logical_data(np.zeros(3)) for _ in range(3)]
    held = threading.Event()
    g = ctx.task_graph(backend="persistent")

    def wait(x: Any) -> None:
        held.wait()

    with g:
        ctx.host_launch(data[0].rw())(wait)
        for x in data[:2]:
            for _ in range(20):

                @ctx.parallel_for(x.shape, x.rw())
                def add(i, x):
                    x[i] += 1

        ctx.copy(data[1], data[2])
    g.launch()
    held.set()
    ctx.synchronize()
    g.launch()
    assert np.all(data[0].numpy() == 40)
    assert np.all(data[2].numpy() == 40)
    assert "2 persistent loops of 41 nodes" in g.explain(), g.explain()


@pytest.mark.parametrize("turn", range(6))
def test_a_launch_with_other_data_leaves_nothing_behind(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the loop is planned anew after it."""
    monkeypatch.setattr(persistent, "WAKE_NS", 0.0)
    with stf.context(devices="cpu", workers=2) as ctx:
        x, y, bins = ctx.logical_data(np.arange(6.0)), ctx.logical_data(np.arange(6.0)), ctx.logical_data_zeros(3)
        other = ctx.logical_data_zeros(3)
        g = ctx.task_graph(backend="persistent")
        with g:

            @ctx.parallel_for(x.shape, x.read(), bins.reduce(stf.reducer.sum))
            def add(i, x, bins):
                bins[i // 2] += x[i]

            @ctx.parallel_for(y.shape, y.rw())
            def shift(i, y):
                y[i] += 1

        for k in range(7):
            if k == turn:
                g.launch({bins: other})
                assert np.array_equal(other.numpy(), [1, 5, 9])
                ctx.fill(other, -1.0)
            else:
                ctx.fill(bins, 0.0)
                g.launch()
                assert np.array_equal(bins.numpy(), [1, 5, 9])
        assert np.all(other.numpy() == -1)


def test_a_loop_ends_when_its_wait_is_interrupted(ctx: Any, by_default: list[Any]) -> None:
    """Its data are the user's again: Ctrl-C in a notebook leaves the context open."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("SIGINT has another handler")
    count = np.zeros(1)
    x, s = ctx.logical_data(count), ctx.logical_data(np.array(0.0))

    def interrupt() -> None:
        while count[0] < 1000:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), ctx.while_loop(s < 1, max_iterations=1000 * MANY):

        @ctx.parallel_for((1,), x.rw())
        def add(_, x):
            x[0] += 1

    thread.join()
    assert "While" in by_default
    assert x.accept().numpy()[0] < 1000 * MANY
    ctx.fill(x, 5.0)
    assert x.numpy()[0] == 5.0


def test_launches_on_their_way_outlive_graph_and_data(ctx: Any) -> None:
    """They find other data, and memory of what was recorded, where these were: a loop may be made by a worker."""
    x, y, started = ctx.logical_data_zeros(50), ctx.logical_data_zeros(50), threading.Event()
    others = [ctx.logical_data(np.full(50, float(k))) for k in range(4)]
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for(x.shape, x.rw())
        def add(i, x):
            x[i] += 1

        ctx.copy(x, y)
        ctx.parallel_for(y.shape, y.rw())(add_three)

    g.launch()
    assert is_loop(g), g.explain()
    for other in others:
        ctx.task(other.rw())(lambda _: started.wait(10.0) and None)
    for one, copy in ((others[0], others[1]), (others[2], others[3])):
        g.launch({x: one, y: copy})
    g.close()
    del x, y, g
    gc.collect()
    ctx.fill(ctx.logical_data_zeros(50), 9.0)  # lets go of what was dropped
    started.set()
    assert [float(data.numpy()[7]) for data in others] == [1, 4, 3, 6]


def test_a_loop_is_planned_again_after_its_graph_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pieces of its bodies need other slots, with the addresses from before."""
    monkeypatch.setattr(persistent, "WAKE_NS", 0.0)
    monkeypatch.setattr(persistent, "LONG_NS", 0.0)
    with stf.context(devices="cpu:2", workers=WORKERS) as ctx:
        started = threading.Event()
        x, y, last = (ctx.logical_data_zeros(50) for _ in range(3))
        g = ctx.task_graph(backend="persistent")
        with g:
            for device in range(2):

                @ctx.parallel_for(stf.exec_place.device(device), x.shape, x.rw(), y.rw())
                def add(i, x, y):
                    x[i] += 1
                    y[i] += x[i]

        g.launch()
        assert is_loop(g), g.explain()
        ctx.task(x.rw())(lambda _: started.wait(10.0) and None)
        for _ in range(8):
            g.launch()
        ctx.copy(y, last)
        g.close()
        del x, y, g
        gc.collect()
        ctx.fill(ctx.logical_data_zeros(50), 9.0)
        started.set()
        assert np.all(last.numpy() == 171)


def test_other_data_live_no_longer_than_their_launch(ctx: Any) -> None:
    x, bins, array = ctx.logical_data_zeros(8), ctx.logical_data_zeros(4), np.arange(8.0)
    g = ctx.task_graph(backend="persistent")
    with g:

        @ctx.parallel_for(x.shape, x.read(), bins.reduce(stf.reducer.sum))
        def add(i, x, bins):
            bins[i % 4] += x[i]

    g.launch()
    before = sys.getrefcount(array)
    other = ctx.logical_data(array)
    g.launch({x: other})
    assert np.array_equal(bins.numpy(), [4, 6, 8, 10])
    del other
    ctx.synchronize()
    gc.collect()
    assert sys.getrefcount(array) == before
    ctx.fill(x, 1.0)
    g.launch()
    assert np.all(bins.numpy() == 2)
    assert is_loop(g), g.explain()


def test_what_a_loop_cannot_take_is_said(ctx: Any) -> None:
    x = ctx.logical_data_zeros(2)
    g = ctx.task_graph(backend="persistent")
    n = g.param("n", 2**63 + 2048)
    with g:

        @ctx.parallel_for(x.shape, x.write(), args=(n,), name="large")
        def put(i, x, n):
            x[i] = n

    g.launch()
    assert np.all(x.numpy() == 2.0**63 + 2048)
    g.launch(n=3)
    assert np.all(x.numpy() == 3)
    assert "task 'large'" in g.explain()
    assert "takes an integer of more than 63 bits" in g.explain()


def test_arrays_that_are_not_aligned_are_filled_by_numpy() -> None:
    """The C of fills may use instructions that need aligned addresses."""
    room = np.zeros(5 * 8, np.uint8)
    for start, body in ((0, FILL), (3, CALL)):
        array = room[start : start + 32].view(np.float64)
        ((call,),) = native_fill(print, (array, 1.0)).stages
        assert call.body == body
