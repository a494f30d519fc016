"""Short loops on a CPU are compiled code that workers run without Python, beside the program that submits them."""

from __future__ import annotations

import math
import random
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import stf
from stf.kernels import loop_tasks

pytest.importorskip("numba")

WARM = 80  # calls after which loops of a kind were compiled calls


def add_one(i, x):
    x[i] += 1.0


def add(i, a, out):
    out[i] += a[i]


def spin(i, x, count):
    for k in range(count):
        x[i] += 1e-15 * k
    x[i] += 1.0


def divide(i, x, d):
    if d == 0:
        raise ValueError("by zero")
    x[i] += 1 // d


def warm(ctx: stf.Context, data: stf.LogicalData, body, *args) -> None:
    """Call a loop until it is known to be short, and workers expect more."""
    for _ in range(2):
        for _ in range(WARM // 2):
            ctx.parallel_for(data.shape, data.rw(), args=args)(body)
        ctx.synchronize()


@pytest.fixture
def ctx():
    with stf.context(devices="cpu") as context:
        yield context


def is_compiled() -> bool:
    from stf._drivers import queues

    return queues.__file__.endswith((".so", ".pyd"))


needs_compiled = pytest.mark.skipif(not is_compiled(), reason="uncompiled, Python calls each loop")


@needs_compiled
def test_loops_run_while_the_program_keeps_the_gil(ctx: stf.Context) -> None:
    """A program that never lets others run Python sees them done: here for as long as the interval is."""
    X = np.zeros(8)
    x = ctx.logical_data(X)
    warm(ctx, x, add_one)
    time.sleep(0.1)  # until no worker is on its way to Python
    before = sys.getswitchinterval()
    sys.setswitchinterval(100.0)
    try:
        for _ in range(50):
            ctx.parallel_for(x.shape, x.rw())(add_one)
        end = time.monotonic() + 20
        while X[0] < WARM + 50 and time.monotonic() < end:
            pass
        seen = X[0]
    finally:
        sys.setswitchinterval(before)
    assert seen == WARM + 50


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(ctx: stf.Context, seed: int) -> None:
    """Loops, functions, with-blocks, waits and freezes, of the same data, in the order of the program."""
    draw = random.Random(seed)
    count = 6
    wanted = [np.full(8, float(i)) for i in range(count)]
    data = [ctx.logical_data(array.copy()) for array in wanted]
    scratch = ctx.logical_data_zeros(8)
    warm(ctx, scratch, add_one)
    for _ in range(WARM):
        ctx.parallel_for((8,), data[0].read(), scratch.rw())(add)
    ctx.synchronize()

    @stf.task
    def halve(x: stf.ReadWrite) -> None:
        x /= 2

    for _ in range(1500):
        a, b = draw.sample(range(count), 2)
        kind = draw.random()
        if kind < 0.5:
            ctx.parallel_for((8,), data[a].read(), data[b].rw())(add)
            wanted[b] += wanted[a]
        elif kind < 0.8:
            ctx.parallel_for((8,), data[b].rw())(add_one)
            wanted[b] += 1
        elif kind < 0.95:
            halve(data[b])
            wanted[b] /= 2
        elif kind < 0.97:
            with ctx.task(data[a].rw(), data[b].read()) as t:
                x, y = t.numpy()
                x -= y
            wanted[a] -= wanted[b]
        elif kind < 0.98:
            np.testing.assert_array_equal(data[a].numpy(), wanted[a])
        else:
            data[b] = ctx.logical_data(wanted[b].copy())
        for array in wanted:
            np.clip(array, -1e6, 1e6, out=array)
        if max(abs(array).max() for array in wanted) > 1e5:
            for i in range(count):
                halve(data[i])
                wanted[i] /= 2
    for own, array in zip(data, wanted, strict=True):
        np.testing.assert_array_equal(own.numpy(), array)


def test_a_loop_that_fails_tells_and_what_comes_after_is_skipped(ctx: stf.Context) -> None:
    x, other = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    warm(ctx, x, divide, 1)
    warm(ctx, other, add_one)
    ctx.parallel_for((4,), x.rw(), args=(0,))(divide)
    for _ in range(5):
        ctx.parallel_for((4,), x.rw(), args=(1,))(divide)
        ctx.parallel_for((4,), x.read(), other.rw())(add)
    with pytest.raises(stf.TaskFailedError, match="divide.*by zero"):
        ctx.synchronize()
    for lost in (x, other):
        with pytest.raises(stf.TaskFailedError, match="divide"):
            lost.numpy()
    y = ctx.logical_data_zeros(4)
    for _ in range(WARM):
        ctx.parallel_for((4,), y.rw(), args=(1,))(divide)
    assert y.numpy().tolist() == [WARM] * 4


@pytest.mark.parametrize("seed", range(4))
def test_what_was_cancelled_in_time_has_not_run(ctx: stf.Context, seed: int) -> None:
    """`cancel` says whether a task runs; those that it cancels, and what follows them on their data, do not."""
    draw = random.Random(seed)
    for _ in range(20):
        x = ctx.logical_data_zeros(1)
        warm(ctx, x, spin, 1)
        tasks = [ctx.parallel_for((1,), x.rw(), args=(draw.randrange(2000),))(spin) for _ in range(30)]
        chosen = draw.randrange(30)
        in_time = tasks[chosen].cancel()
        failed = tasks[-1].exception() is not None
        assert failed == in_time
        assert [task.exception() is not None for task in tasks] == [in_time and i >= chosen for i in range(30)]


def test_a_context_that_is_cancelled_runs_no_more(ctx: stf.Context) -> None:
    X = np.zeros(1)
    x = ctx.logical_data(X)
    warm(ctx, x, spin, 1)
    for _ in range(200):
        ctx.parallel_for((1,), x.rw(), args=(20_000,))(spin)
    cancelled = ctx.cancel()
    assert cancelled + int(X[0]) - WARM == 200


def test_handles_say_when_loops_are_done(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(1)
    warm(ctx, x, spin, 1)
    told: list[int] = []
    for number in range(50):
        task = ctx.parallel_for((1,), x.rw(), args=(1000,))(spin)
        task.add_done_callback(lambda _, number=number: told.append(number))
    assert task.result() is None
    assert task.done() and not task.running() and not task.cancelled()
    ctx.synchronize()
    assert sorted(told) == list(range(50))
    assert x.numpy()[0] >= WARM + 50


def test_numbers_and_arrays_of_another_kind_are_no_compiled_calls(ctx: stf.Context) -> None:
    """The types that a loop was compiled for, and how its arrays lie, decide which code is called."""
    x = ctx.logical_data_zeros((3,))
    y = ctx.logical_data(np.zeros((3, 2))[:, 0])  # with gaps

    def scale(i, x, by):
        x[i] += by

    for _ in range(WARM):
        ctx.parallel_for((3,), x.rw(), args=(2,))(scale)
    for by in (0.5, np.float32(0.25), True, np.int8(-3), 2, 1 << 40):
        ctx.parallel_for((3,), x.rw(), args=(by,))(scale)
        ctx.parallel_for((3,), y.rw(), args=(by,))(scale)
    wanted = 0.5 + 0.25 + 1 - 3 + 2 + float(1 << 40)
    assert x.numpy().tolist() == [2 * WARM + wanted] * 3
    assert y.numpy().tolist() == [wanted] * 3


def test_loops_grow_longer(ctx: stf.Context) -> None:
    """A loop that was short is cut for the workers once a compiled call of it took long."""
    n = 4096
    x = ctx.logical_data_zeros(n)
    warm(ctx, x, spin, 1)
    for _ in range(40):
        ctx.parallel_for((n,), x.rw(), args=(300,))(spin)
    wanted = np.zeros(1)
    for count in [1] * WARM + [300] * 40:
        for k in range(count):
            wanted += 1e-15 * k
        wanted += 1.0
    np.testing.assert_array_equal(x.numpy(), np.full(n, wanted[0]))


def stop_at(i, x, where):
    x[i] -= 1
    if x[i] == where:
        raise ValueError("there")


def test_a_loop_that_would_not_fail_again_has_failed(ctx: stf.Context) -> None:
    """Its code has changed the data when it is called again, for its error."""
    x = ctx.logical_data(np.full(1, 200.0))
    warm(ctx, x, stop_at, -1)
    ctx.parallel_for((1,), x.rw(), args=(200 - WARM - 1,))(stop_at)
    with pytest.raises(stf.TaskFailedError, match="stop_at"):
        ctx.synchronize()


@needs_compiled
def test_nothing_of_calls_that_have_run_is_kept(ctx: stf.Context) -> None:
    """Once somebody has waited for them, or the context has ended."""
    warm(ctx, ctx.logical_data_zeros(8), add_one)
    for ends in (False, True):
        own = stf.context(devices="cpu") if ends else ctx
        arrays = [np.zeros(8) for _ in range(20)]
        kept = [weakref.ref(array) for array in arrays]
        for array in arrays:
            data = own.logical_data(array)
            task = own.parallel_for(data.shape, data.rw())(add_one)
        while not task.done():
            pass
        if ends:
            own.finalize()
        else:
            own.synchronize()
        del array, arrays, data, task
        ctx.synchronize()
        assert not any(each() is not None for each in kept)


@needs_compiled
def test_a_worker_that_is_called_for_python_leaves_its_tasks_to_another() -> None:
    """And a body of Python's does not wait until a long chain of loops is done."""
    with stf.context(devices="cpu", workers=2) as ctx:
        x, y = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1)
        warm(ctx, x, spin, 1)
        ended = threading.Event()
        for _ in range(10):
            waits = ctx.task(y.rw())(lambda y: ended.wait(20))
            ctx.parallel_for((1,), x.rw(), args=(10,))(spin).result(timeout=10)
            ended.set()
            waits.result()
            ended.clear()
        chain = [ctx.parallel_for((1,), x.rw(), args=(5_000_000,))(spin) for _ in range(60)]
        ctx.task(y.rw())(lambda y: None).result()
        assert not chain[-1].done()


def poll_beside_a_longer_one(ctx: stf.Context, x: stf.LogicalData, y: stf.LogicalData) -> None:
    """Ask for a task until it is done, while one runs that nobody expected to be long."""
    longer = ctx.parallel_for((1,), x.rw(), args=(1_000_000_000,))(spin)
    shorter = ctx.parallel_for((1,), y.rw(), args=(1,))(spin)
    while not shorter.done():
        time.sleep(0.001)
    assert not longer.done()


@needs_compiled
def test_a_program_that_asks_for_a_task_need_not_wait_for_a_longer_one() -> None:
    with stf.context(devices="cpu", workers=2) as ctx:
        x, y = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1)
        warm(ctx, x, spin, 1)
        poll_beside_a_longer_one(ctx, x, y)


@needs_compiled
def test_who_asks_for_a_task_gets_a_worker_that_no_task_needed_before() -> None:
    with stf.context(devices="cpu", workers=2) as ctx:
        x, y = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1)
        for _ in range(WARM):
            before = ctx.parallel_for((1,), x.rw(), args=(1,))(spin)
            while not before.done():  # so one worker has done it all
                pass
        poll_beside_a_longer_one(ctx, x, y)


def test_a_short_loop_that_took_long_before_is_soon_one_piece(
    ctx: stf.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of pieces may wait for the GIL most of their time; so they say little of how long the loop takes."""

    def turn(i, x, count):
        for k in range(count):
            x[i] += 1e-15 * k

    x = ctx.logical_data_zeros(8)
    for _ in range(3):
        ctx.parallel_for(x.shape, x.rw(), args=(1_000_000,))(turn)
    ctx.synchronize()
    counts = []
    run = loop_tasks.LoopTask.run

    def slow_run(task, call, pieces):
        def slow_call(number, piece):
            end = time.perf_counter() + 25e-6
            while time.perf_counter() < end:  # as one that waits
                pass
            call(number, piece)

        counts.append(len(pieces))
        run(task, slow_call, pieces)

    monkeypatch.setattr(loop_tasks.LoopTask, "run", slow_run)
    for _ in range(100):
        ctx.parallel_for(x.shape, x.rw(), args=(1,))(turn)
    ctx.synchronize()
    assert 1 <= len(counts) < 50


def describe(i, x, out):
    rest = x[1:]
    out[i, 0], out[i, 1], out[i, 2] = x.size, x.itemsize, rest.size
    for axis in range(x.ndim):
        out[i, 3 + axis], out[i, 6 + axis] = x.shape[axis], x.strides[axis]
    out[i, 9] = 0
    for value in rest.flat:
        out[i, 9] = 2 * out[i, 9] % 1000003 + value


GRID = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "array",
    [
        GRID,
        GRID.astype(np.int16),
        GRID.T,
        GRID[:, ::-1, 1:3],
        GRID.reshape(1, 24),
        GRID[0, 1:2, :3],
        GRID[:, :0, 1:],
        GRID.ravel()[::5],
        np.asfortranarray(GRID[0].astype(np.float32)),
    ],
    ids=lambda array: f"{array.dtype} {array.shape} {array.strides}",
)
def test_a_compiled_call_gets_arrays_as_numba_gives_them(ctx: stf.Context, array: np.ndarray) -> None:
    results = []
    for count in (1, WARM, WARM):
        result = np.zeros((1, 10))
        data, out = ctx.logical_data(array), ctx.logical_data(result)
        for _ in range(count):
            ctx.parallel_for((1,), data.read(), out.rw())(describe)
        ctx.synchronize()
        results.append(result)
    np.testing.assert_array_equal(results[2], results[0])
    assert results[0][0, 0] == array.size
    assert tuple(results[0][0, 6 : 6 + array.ndim]) == array.strides or array.size == 0


RATE = 3.0


def number_of_roots():
    return 4.0


def test_loops_in_a_function_that_sees_variables_as_they_were(ctx: stf.Context) -> None:
    """Its global variables are no plain dictionary then, and so are those of loops that are written in it."""

    @stf.task
    def add_in_loops(x: stf.ReadWrite) -> None:
        rate, own = int(RATE), np.zeros(4)
        with stf.context(devices="cpu") as inner:
            data = inner.logical_data(own)
            for _ in range(3):

                @inner.parallel_for(data.shape, data.rw())
                def add_rates(i, x):
                    for _ in range(rate):
                        x[i] += math.sqrt(number_of_roots())

        x += own

    x = ctx.logical_data(np.zeros(4))
    add_in_loops(x)
    assert ctx.wait(x).tolist() == [18.0] * 4


def test_a_loop_whose_first_elements_take_least_stays_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    def triangle(i, x):
        for k in range(2 * i):
            x[i] += 1e-9 * k

    counts = []
    run = loop_tasks.LoopTask.run

    def counted_run(task, call, pieces):
        counts.append(len(pieces))
        run(task, call, pieces)

    monkeypatch.setattr(loop_tasks.LoopTask, "run", counted_run)
    with stf.context(devices="cpu", workers=16) as ctx:
        x = ctx.logical_data_zeros(2000)
        for _ in range(40):
            ctx.parallel_for(x.shape, x.rw())(triangle)
        ctx.synchronize()
    assert len(counts) > 30
