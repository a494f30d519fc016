"""Windows: tasks that are held until they are planned, and what a program sees of that."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import types

import numpy as np
import pytest
from helpers import is_cuda, library, put, runs_kernels

import stf
from stf.observe.durations import Duration
from stf.placement import planned
from stf.tasks.window import conflict, modes_of


@stf.task
def inc(x: stf.ReadWrite):
    put(x, content_of(x) + 1)


@stf.task
def init(x: stf.Write, value):
    put(x, np.full(x.shape, value))


@stf.task
def add(x: stf.ReadWrite, y: stf.Read):
    put(x, content_of(x) + content_of(y))


@stf.task
def double(x: stf.ReadWrite):
    x += x


def content_of(x):
    return x if library(x) is np else x.get()


def held(ctx):
    return len(ctx.window.held) + len(ctx.window.recorded)


@pytest.fixture
def several(ctx_factory, monkeypatch):
    """Contexts whose windows are released by the program alone."""
    if ctx_factory.device_count < 2:
        pytest.skip("one device: nothing is held")
    monkeypatch.setattr("stf.tasks.window.IDLE_S", 3600.0)
    return ctx_factory


# -- what holds, and what releases ---------------------------------------------------------------------------------


def test_tasks_are_held_until_something_needs_them(several):
    ctx = several(placement=planned())
    data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
    for x in data:
        inc(x)
        ctx.task(x.rw())(inc.fn)
    assert held(ctx) == 8
    assert data[0].numpy().tolist() == [2.0] * 4
    assert held(ctx) == 0


def test_a_full_window_submits_half_of_it(several):
    ctx = several(placement=planned(window=8))
    data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
    counts = []
    for _ in range(4):
        for x in data:
            inc(x)
            counts.append(held(ctx))
    assert counts == [1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4]
    assert [x.numpy().tolist() for x in data] == [[4.0] * 4] * 4


@pytest.mark.parametrize(
    "need",
    [
        lambda ctx, x, task: ctx.synchronize(),
        lambda ctx, x, task: ctx.submit(),
        lambda ctx, x, task: ctx.fill(ctx.logical_data(np.zeros(1)), 1.0),
        lambda ctx, x, task: inc.on(0)(ctx.logical_data(np.zeros(1))),
        lambda ctx, x, task: inc.on(x)(x),
        lambda ctx, x, task: task.done(),
        lambda ctx, x, task: task.device,
        lambda ctx, x, task: task.place,
        lambda ctx, x, task: task.add_done_callback(lambda task: None),
        lambda ctx, x, task: ctx.task_graph().__enter__().__exit__(None, None, None),
        lambda ctx, x, task: ctx.graph_scope().__enter__().__exit__(None, None, None),
        lambda ctx, x, task: x.release() if x.core.home is None else ctx.submit(),
    ],
)
def test_whoever_asks_releases(several, need):
    ctx = several(placement=planned())
    x = ctx.logical_data(np.zeros(4))
    task = inc(x)
    assert held(ctx) == 1 and "held" in repr(task)
    need(ctx, x, task)
    assert held(ctx) == 0 and "held" not in repr(task)


@pytest.mark.at_once("a with-block runs where it stands")
def test_a_with_block_comes_after_what_is_held(several):
    ctx = several(placement=planned())
    x = ctx.logical_data(np.zeros(4))
    inc(x)
    with ctx.task(x.rw()) as t:
        put(t.arrays()[0], content_of(t.arrays()[0]) * 10)
        y = ctx.logical_data(np.zeros(4))
        inc(y)
        assert held(ctx) == 0  # nothing is held beside an open task
    assert x.numpy().tolist() == [10.0] * 4


def test_a_pause_releases(ctx_factory):
    if ctx_factory.device_count < 2:
        pytest.skip("one device: nothing is held")
    ctx = ctx_factory(placement=planned())
    x = ctx.logical_data(np.zeros(4))
    inc(x)
    deadline = time.monotonic() + 30
    while held(ctx) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert held(ctx) == 0
    assert x.numpy().tolist() == [1.0] * 4


def test_memory_of_data_that_only_a_held_task_has_can_be_registered_again(several):
    ctx = several(placement=planned())
    array = np.zeros(8)
    for part in (array, array[:4], array[2:6], array):
        inc(ctx.logical_data(part))
    ctx.finalize()
    assert array.tolist() == [3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 2.0, 2.0]


def test_a_task_that_is_held_cannot_be_changed(several):
    ctx = several(placement=planned())
    x = ctx.logical_data(np.zeros(4))
    task = ctx.task(x.rw(), name="step")
    task(inc.fn)
    for change in (lambda: task(inc.fn), lambda: task.on(0), lambda: task.start(), lambda: task.add_deps(x.read())):
        with pytest.raises(stf.TaskStateError, match="task 'step', which has started"):
            change()
    assert x.numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("window", ["8", 2.5, True, None])
def test_a_window_is_a_number_of_tasks(window):
    with pytest.raises(TypeError, match="window is a number of tasks"):
        planned(window=window)


def test_a_window_is_positive():
    for window in (0, -1):
        with pytest.raises(ValueError, match="window is a positive number of tasks"):
            planned(window=window)
    with pytest.raises(TypeError, match="move_weight is a number"):
        planned(move_weight="4")


# -- values are those of the call ----------------------------------------------------------------------------------

scale = 1.0


@stf.task
def add_global(x: stf.ReadWrite):
    put(x, content_of(x) + scale)


def test_variables_are_those_of_the_call(several):
    global scale
    ctx = several(placement=planned())
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
    for scale in (1.0, 10.0, 100.0):
        add_global(x)
        step = scale

        @ctx.task(y.rw())
        def body(y):
            put(y, content_of(y) + step * scale)

    step = scale = 0.0
    assert held(ctx) == 6
    assert x.numpy().tolist() == [111.0] * 4
    assert y.numpy().tolist() == [10101.0] * 4


def test_numbers_of_a_kernel_are_those_of_the_call(several):
    ctx = several(placement=planned())
    if not runs_kernels(ctx):
        pytest.skip("no kernels here")
    x = ctx.logical_data(np.zeros(4))

    def body(i, x):
        x[i] += step

    for value in (1.0, 10.0, 100.0):
        step = value
        ctx.parallel_for(x.shape, x.rw())(body)
    step = 0.0
    assert held(ctx) in (2, 3)  # the first one may compile
    assert x.numpy().tolist() == [111.0] * 4


@pytest.mark.not_captured("the body copies to the host")
def test_numpy_settings_are_those_of_the_call(several):
    ctx = several(placement=planned())
    x, seen = ctx.logical_data(np.zeros(4)), []

    def look(x):
        seen.append(np.geterr()["divide"])

    with np.errstate(divide="raise"):
        ctx.task(x.rw())(look)
    with np.errstate(divide="ignore"):
        ctx.task(x.rw())(look)
        assert held(ctx) == 2
        ctx.synchronize()
    assert seen == ["raise", "ignore"]


# -- errors --------------------------------------------------------------------------------------------------------


def test_a_task_that_cannot_begin_is_named_and_poisons_what_it_was_to_write(several):
    ctx = several(placement=planned())
    x, y, empty = (ctx.logical_data(np.zeros(4), name=name) for name in "xyz")
    empty = ctx.logical_data_empty(4, name="empty")
    inc(y)
    add(x, empty)
    inc(x)
    inc(y)
    with pytest.raises(stf.UninitializedDataError, match="read by task 'add'") as caught:
        ctx.submit()
    assert "task 'add' (test_windows.py:" in caught.value.__notes__[0]
    with contextlib.suppress(stf.TaskFailedError):
        ctx.synchronize()  # says that 'inc' was skipped, since it needs what is poisoned
    assert y.numpy().tolist() == [2.0] * 4  # the others are submitted
    with pytest.raises(stf.TaskFailedError, match="task 'add'"):
        x.numpy()


@pytest.mark.not_captured("the body copies to the host")
def test_a_body_that_raises_is_named_as_ever(several):
    ctx = several(placement=planned())
    x = ctx.logical_data(np.zeros(4), name="x")

    @stf.task
    def broken(x: stf.ReadWrite):
        raise ValueError("no")

    broken(x)
    inc(x)
    with pytest.raises((stf.TaskFailedError, ValueError)) as caught:
        ctx.synchronize()
    assert "no" in str(caught.value)
    with contextlib.suppress(stf.TaskFailedError):
        ctx.synchronize()  # where bodies run in the call, 'inc' is told of once more


def test_a_context_that_an_exception_leaves_drops_what_is_held(several):
    x = np.zeros(4)
    with pytest.raises(KeyError) as caught:
        with several(placement=planned()) as ctx:
            inc(ctx.logical_data(x))
            assert held(ctx) == 1
            raise KeyError("stop")
    assert any("task 'inc' (test_windows.py:" in note for note in caught.value.__notes__)
    assert x.tolist() == [0.0] * 4


def test_an_interrupt_leaves_no_half_window(several):
    ctx = several(placement=planned())
    data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
    for x in data:
        inc(x)
    one = ctx.window.held[2]

    def interrupt(task):
        raise KeyboardInterrupt

    one.submit = interrupt
    with pytest.raises(KeyboardInterrupt):
        ctx.submit()
    assert held(ctx) == 0
    states = []
    for x in data:
        try:
            states.append(x.numpy().tolist())
        except stf.TaskFailedError as error:
            states.append("KeyboardInterrupt" in str(error))
    assert states.count([1.0] * 4) + states.count(True) == 4 and states[2] is True


# -- recordings ----------------------------------------------------------------------------------------------------


def test_a_recording_is_planned_as_a_whole(several):
    ctx = several(placement=planned(window=2))
    data = [ctx.logical_data(np.ones(4)) for _ in range(4)]
    graph = ctx.task_graph()
    with graph:
        for _ in range(3):
            for x in data:
                double(x)
        assert held(ctx) == 12
    assert graph.nodes >= 12
    for _ in range(2):
        graph.launch()
    assert [x.numpy().tolist() for x in data] == [[64.0] * 4] * 4


def test_a_recording_that_raises_forgets_what_is_held(several):
    ctx = several(placement=planned())
    x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))
    double(y)
    with pytest.raises(KeyError), ctx.task_graph():
        double(x)
        raise KeyError("stop")
    with pytest.raises(KeyError), ctx.graph_scope():
        double(x)
        raise KeyError("stop")
    assert held(ctx) == 0
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([1.0] * 4, [2.0] * 4)


def test_replayed_calls_and_loops_are_planned(several):
    ctx = several(placement=planned())
    data = [ctx.logical_data(np.ones(4)) for _ in range(3)]

    @stf.replay
    def steps(data):
        for _ in range(2):
            for x in data:
                double(x)

    for _ in range(4):
        steps(data)
    with ctx.repeat(2):
        for x in data:
            double(x)
    with ctx.graph_scope():
        for x in data:
            double(x)
        assert held(ctx) == 3
    assert [x.numpy().tolist() for x in data] == [[2.0**11] * 4] * 3


# -- threads -------------------------------------------------------------------------------------------------------


@pytest.mark.not_captured("the body copies to the host")
def test_a_thread_that_comes_later_comes_after_what_is_held(several):
    ctx = several(placement=planned())
    x = ctx.logical_data(np.zeros(4))
    inc(x)
    thread = threading.Thread(target=lambda: ctx.task(x.rw())(lambda x: put(x, content_of(x) * 10)))
    thread.start()
    thread.join()
    assert x.numpy().tolist() == [10.0] * 4


@pytest.mark.not_captured("the body copies to the host")
@pytest.mark.parametrize("window", [3, 16])
def test_threads_share_a_window(several, window):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads come between each other
    ctx = several(placement=planned(window=window))
    data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]

    def work(mine):
        for _ in range(50):
            inc(mine)

    threads = [threading.Thread(target=work, args=(x,)) for x in data]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert [x.numpy().tolist() for x in data] == [[50.0] * 4] * 4


def test_a_task_that_is_done_is_not_overtaken(several):
    """Another thread has submitted it, and has not counted it yet."""
    ctx = several(placement=planned())
    x = ctx.logical_data(np.zeros(4))
    init(x, 1.0)
    window = ctx.engine.window
    held = window.held[0]
    modes = modes_of(held.task)
    assert window.is_overtaken(modes)
    ctx.synchronize()
    window.left[0] = held
    assert not window.is_overtaken(modes)


@pytest.mark.not_captured("the body copies to the host")
def test_a_body_that_submits_comes_after_what_is_held(several):
    ctx = several(placement=planned())
    if is_cuda(ctx):
        pytest.skip("bodies on a device only enqueue")
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
    submit = functools.partial(inc.on(0).__call__, x)

    @stf.task
    def outer(y: stf.ReadWrite):
        y += 1
        submit()

    init(x, 5.0)
    outer(y)
    ctx.synchronize()
    ctx.synchronize()
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([6.0] * 4, [1.0] * 4)


def test_a_replayed_function_is_planned_again_when_its_tasks_take_other_times(several):
    ctx = several(placement=planned(window=8))
    if is_cuda(ctx):
        pytest.skip("nodes of a GPU's graph are not timed")

    @stf.task
    def work(x: stf.ReadWrite):
        time.sleep(float(x[0]))

    @stf.replay
    def steps(a, b, c, d):
        work(a)
        work(b)
        work(c)
        work(d)

    xs = [ctx.logical_data(np.full(4, 0.001)) for _ in range(4)]
    for _ in range(6):
        steps(*xs)
        ctx.synchronize()
    before = steps._recordings
    assert before <= 2  # the first plan may have had estimates
    for x in xs:
        ctx.fill(x, 0.008)
    for _ in range(30):
        steps(*xs)
        ctx.synchronize()
    assert before < steps._recordings <= before + 3
    assert [x.numpy().tolist() for x in xs] == [[0.008] * 4] * 4
    found = steps._recordings
    for _ in range(40):
        steps(*xs)
    assert steps._recordings == found
    assert steps._latest is not None  # which costs as little as without a plan


def test_user_graphs_keep_their_plan(several):
    ctx = several(placement=planned(window=8))
    x = ctx.logical_data(np.zeros(4))
    with ctx.task_graph() as graph:
        inc(x)
    for _ in range(5):
        graph.launch()
    assert x.numpy().tolist() == [5.0] * 4


@pytest.mark.parametrize("max_pending", [1, 2, 1000])
def test_what_a_body_submits_overtakes_nothing_of_the_window(several, max_pending):
    """Its task is the most urgent one, and whoever submits the others may be held back by it."""
    ctx = several(placement=planned(window=8), max_pending=max_pending)
    if is_cuda(ctx):
        pytest.skip("bodies on a device only enqueue")
    home = np.ones(4)
    x, y = ctx.logical_data(home), ctx.logical_data(np.zeros(4))

    @stf.task
    def double(x: stf.ReadWrite):
        x *= 2

    @stf.task
    def add(x: stf.ReadWrite):
        x += 1

    @stf.task
    def nest(y: stf.ReadWrite, x: stf.Data):
        y += 1
        add(x)

    double(x)
    nest.with_priority(-1)(y, x)
    for _ in range(4):
        add(y)
    ctx.synchronize()
    ctx.finalize()
    assert home.tolist() == [3.0] * 4


def test_tasks_conflict_by_what_their_data_are_tiles_or_parts_of(several):
    ctx = several()
    x, y = ctx.logical_data(np.zeros((4, 4))), ctx.logical_data(np.zeros(4))
    whole = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
    z = ctx.logical_data(np.zeros(4), data_place=whole)
    tiles = x.tiles((2, 2))

    def modes(*accesses):
        return modes_of(types.SimpleNamespace(accesses=accesses))

    assert conflict(modes(tiles[0, 0].read()), modes(tiles[1, 1].rw()))
    assert conflict(modes(y.read(), z.parts[0].write()), modes(z.parts[1].read()))
    assert not conflict(modes(y.read(), z.read()), modes(z.parts[1].read(), y.read()))
    assert not conflict(modes(y.rw()), modes(z.rw()))


def test_a_whole_keeps_its_order_with_its_parts(several):
    """The most urgent task uses the whole, which one before it has changed in part."""
    ctx = several(placement=planned(window=8))
    home = np.ones(4)
    x = ctx.logical_data(home, data_place=stf.data_place.composite(ctx.devices, stf.partition("blocked")))
    y = ctx.logical_data(np.zeros(4))

    @stf.task
    def double(x: stf.ReadWrite):
        x *= 2

    double(x.parts[0])
    inc.with_priority(-1)(x)
    for _ in range(6):
        inc(y)
    expected = np.ones(4)
    expected[x.parts[0].region.indices()] = 2
    assert ctx.wait(x).tolist() == (expected + 1).tolist()


def test_a_whole_keeps_its_order_with_its_tiles(several):
    """As above; the tiles are dropped before, while their task is held."""
    ctx = several(placement=planned(window=8))
    x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))

    @stf.task
    def double(x: stf.ReadWrite):
        x *= 2

    tiles = x.tiles(2)
    double(tiles[1])
    del tiles
    inc.with_priority(-1)(x)
    for _ in range(6):
        inc(y)
    assert ctx.wait(x).tolist() == [2, 2, 3, 3]


def test_tiles_of_one_array_are_planned_beside_each_other():
    """Their tasks are no chain, as those on the whole would be."""
    calibration = stf.Calibration(
        {(f, n, "H200"): Duration(16, 1e-3, 1e-3, 1e-3) for f in ("init", "inc") for n in range(48)}, {}
    )

    def program():
        with stf.context(place="auto", placement=planned(window=64)) as ctx:
            for _ in range(4):
                for tile in ctx.logical_data_empty(1 << 10).tiles(1 << 7).ravel():
                    init(tile, 1.0)
                    inc(tile)

    one, four = (stf.plan(program, devices=f"{n}xH200", model=calibration).makespan for n in (1, 4))
    assert one / four > 2.5
