"""Recorded tasks: graphs to launch again, scopes, loops and branches; and arithmetic of scalars."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from helpers import is_cuda

import stf


@stf.task
def add(x: stf.ReadWrite, y: stf.Read, a=1.0):
    x += a * y


@stf.task
def increment(x: stf.ReadWrite):
    x += 1


@stf.task
def set_to(x: stf.Write, value):
    x[...] = value


@stf.task
def divide(x: stf.ReadWrite, by):
    if by == 0:
        raise ZeroDivisionError("by zero")
    x /= by


@pytest.fixture
def lX(ctx):
    return ctx.logical_data(np.zeros(4), name="X")


@pytest.fixture
def lY(ctx):
    return ctx.logical_data(np.arange(4.0), name="Y")


def everywhere(ctx, n):
    """Places in turn."""
    return [ctx.devices[i % len(ctx.devices)] for i in range(n)]


# -- graphs by hand ------------------------------------------------------------------------------------------------


def test_recording_runs_nothing_and_a_launch_runs_all(ctx, lX, lY):
    g = ctx.task_graph("twice")
    with g:
        add(lX, lY)
        add.on(ctx.devices[-1])(lX, lY, 2.0)
    assert lX.numpy().tolist() == [0] * 4
    for k in range(1, 4):
        g.launch()
        assert lX.numpy().tolist() == [0, 3 * k, 6 * k, 9 * k]
    assert g.launches == 3 and "launched 3 times" in repr(g)


def test_launches_are_ordered_with_other_tasks_by_their_data(ctx, lX, lY):
    g = ctx.task_graph()
    with g:
        for place in everywhere(ctx, 6):
            add.on(place)(lX, lY)
    increment(lX)
    g.launch()
    for place in everywhere(ctx, 3):
        increment.on(place)(lY)
        g.launch()
    expected, y = np.ones(4), np.arange(4.0)
    for step in range(4):
        expected += 6 * (y + step)
    assert lX.numpy().tolist() == expected.tolist()


def test_parameters(ctx, lX, lY):
    g = ctx.task_graph()
    a = g.param("a", 1.0)
    with g:
        add(lX, lY, a)
        add(lX, lY, 2 * a + 1)
    g.launch()
    assert lX.numpy().tolist() == [0, 4, 8, 12]
    for value in (0.0, 5.0):
        g.launch(a=value)
    assert lX.numpy()[1] == 4 + 1 + 16
    with pytest.raises(TypeError, match="has no parameter 'b'; it has a"):
        g.launch(b=1)
    with pytest.raises(TypeError, match="parameter 'a' is not known while a graph is recorded"):
        bool(a > 0)
    with pytest.raises(stf.TaskStateError, match="is recorded"):
        g.param("c", 0)


def test_several_graphs_live_at_once_and_share_data(ctx, lX, lY):
    graphs = []
    for factor in (1.0, 10.0, 100.0):
        g = ctx.task_graph(f"times {factor}")
        with g:
            add(lX, lY, factor)
        graphs.append(g)
    for g in (*graphs, *reversed(graphs)):
        g.launch()
    assert lX.numpy().tolist() == [0, 222, 444, 666]
    graphs[1].close()
    with pytest.raises(stf.TaskStateError, match="is closed; record a new one"):
        graphs[1].launch()
    graphs[0].launch()
    assert lX.numpy()[1] == 223


def test_temporaries_of_a_graph(ctx, lX, lY):
    """Data that only the graph uses are written before they are read, in every launch."""
    temporary = ctx.logical_data_empty(4)
    g = ctx.task_graph()
    with g:
        set_to(temporary, 3.0)
        add.on(ctx.devices[-1])(temporary, lY)
        add(lX, temporary)
    del temporary
    gc.collect()
    g.launch()
    g.launch()
    assert lX.numpy().tolist() == [6, 8, 10, 12]
    g.close()


def test_reductions_in_a_graph(ctx):
    total = ctx.logical_data(np.full(2, 5.0))

    @stf.task
    def count(s: stf.Accumulate[stf.reducer.sum], value):
        s += value

    g = ctx.task_graph()
    with g:
        for i, place in enumerate(everywhere(ctx, 4)):
            count.on(place)(total, float(i))
    for launch in range(1, 4):
        g.launch()
        assert total.numpy().tolist() == [5 + 6 * launch] * 2


def test_a_recording_that_raises_leaves_nothing(ctx, lX, lY):
    g = ctx.task_graph()
    with pytest.raises(ValueError, match="mine"), g:
        add(lX, lY)
        raise ValueError("mine")
    with pytest.raises(stf.TaskStateError, match="is not recorded"):
        g.launch()
    add(lX, lY)
    assert lX.numpy().tolist() == [0, 1, 2, 3]
    with g:
        add(lX, lY)
    g.launch()
    assert lX.numpy().tolist() == [0, 2, 4, 6]


def test_a_body_that_fails_in_a_launch_poisons_what_the_graph_writes(ctx, lX, lY):
    g = ctx.task_graph("fragile")
    by = g.param("by", 1.0)
    with g:
        divide(lX, by)
        add(lX, lY)
    g.launch()
    assert lX.numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(stf.TaskFailedError, match="'divide' .*ZeroDivisionError: by zero"):
        g.launch(by=0)
        lX.numpy()
    set_to(lX, 4.0)
    g.launch(by=2)
    assert lX.numpy().tolist() == [2, 3, 4, 5]
    lY.accept()


def test_waiting_inside_a_recording_is_refused(ctx, lX, lY):
    g = ctx.task_graph("steps")
    with pytest.raises(stf.TaskStateError, match="wait inside graph 'steps'"), g:
        add(lX, lY)
        lX.numpy()
    with pytest.raises(stf.TaskStateError, match="finalize inside"), g:
        ctx.finalize()
    with pytest.raises(stf.TaskStateError, match="release data is not possible inside of graph 'steps'"), g:
        lX.release()
    add(lX, lY)
    assert lX.numpy().tolist() == [0, 1, 2, 3]


def test_other_threads_do_not_add_to_a_recording(ctx, lX, lY):
    g = ctx.task_graph("mine")
    stories = []

    def other():
        try:
            add(lX, lY)
        except stf.TaskStateError as error:
            stories.append(str(error))

    with g:
        add(lX, lY)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(stories) == 1 and "another thread has graph 'mine' open" in stories[0]


def test_graphs_are_closed_with_their_context(ctx_factory):
    X = np.zeros(4)
    context = ctx_factory()
    lX = context.logical_data(X)
    g = context.task_graph()
    with g:
        increment(lX)
    g.launch()
    g.launch()
    context.finalize()
    assert X.tolist() == [2] * 4
    with pytest.raises((stf.TaskStateError, stf.ContextClosedError)):
        g.launch()


def test_a_body_that_waits_for_the_device_cannot_be_recorded(ctx, lX):
    if not ctx.on_cuda:
        pytest.skip("on a CPU nothing is captured")

    @stf.task
    def looks(x: stf.ReadWrite):
        x += float(x.sum())

    g = ctx.task_graph()
    with pytest.raises(stf.CaptureError, match="task 'looks' .*test_graphs.py:.* cannot be recorded: it waits"), g:
        looks(lX)
    increment(lX)
    assert lX.numpy().tolist() == [1] * 4


# -- scopes --------------------------------------------------------------------------------------------------------


def test_a_graph_scope_runs_once_at_its_end(ctx, lX, lY):
    with ctx.graph_scope():
        add(lX, lY)
        with ctx.graph_scope():
            add.on(ctx.devices[-1])(lX, lY)
    assert lX.numpy().tolist() == [0, 2, 4, 6]


def test_a_graph_scope_that_raises_does_nothing(ctx, lX, lY):
    with pytest.raises(ValueError, match="mine"), ctx.graph_scope():
        add(lX, lY)
        raise ValueError("mine")
    assert lX.numpy().tolist() == ([0] * 4 if ctx.engine.epoch is None else [0, 1, 2, 3])


def test_with_blocks_in_a_graph_scope(ctx, lX, lY):
    with ctx.graph_scope():
        add(lX, lY)
        with ctx.task(lX.rw()) as t:
            x = t.arrays()[0]
            x *= 2
        add(lX, lY)
    assert lX.numpy().tolist() == [0, 3, 6, 9]


# -- loops and branches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 7])
def test_repeat(ctx, lX, lY, count):
    with ctx.repeat(count):
        for place in everywhere(ctx, 2):
            add.on(place)(lX, lY)
            increment.on(place)(lY)
    x, y = np.zeros(4), np.arange(4.0)
    for _ in range(2 * count):
        x += y
        y += 1
    assert lX.numpy().tolist() == x.tolist()
    assert lY.numpy().tolist() == y.tolist()


def test_repeat_takes_a_number(ctx):
    for wrong, error in ((1.5, TypeError), ("3", TypeError), (-1, ValueError)):
        with pytest.raises(error, match="a number of times"):
            ctx.repeat(wrong)


def test_while_loop_tests_first(ctx, lX, lY):
    steps = ctx.logical_data_zeros(())
    with ctx.while_loop(steps < 5) as loop:
        add.on(ctx.devices[-1])(lX, lY)
        increment(steps)
    assert float(steps) == 5 and loop.iterations == 5
    assert lX.numpy().tolist() == [0, 5, 10, 15]
    with ctx.while_loop(steps < 5) as loop:
        increment(steps)
    assert float(steps) == 5 and loop.iterations == 0


def test_while_loop_that_tests_last(ctx):
    steps = ctx.logical_data_zeros(())
    with ctx.while_loop() as loop:
        increment(steps)
        loop.continue_while(steps < 0)
    assert float(steps) == 1 and loop.iterations == 1
    with ctx.while_loop(max_iterations=6) as loop:
        increment(steps)
        loop.continue_while(steps > 0)
    assert float(steps) == 7 and loop.iterations == 6


def test_what_a_loop_writes_and_never_reads(ctx, lX):
    steps = ctx.logical_data_zeros(())
    with ctx.while_loop(steps > 0):
        set_to(lX, 9.0)
        increment(steps)
    assert lX.numpy().tolist() == [0] * 4  # no trip: the content stays
    with ctx.while_loop(steps < 2):
        set_to.on(ctx.devices[-1])(lX, 9.0)
        increment(steps)
    assert lX.numpy().tolist() == [9] * 4


def test_a_loop_says_when_it_goes_on(ctx):
    steps = ctx.logical_data_zeros(())
    with pytest.raises(stf.TaskStateError, match="calls loop.continue_while"), ctx.while_loop():
        increment(steps)
    with pytest.raises(stf.TaskStateError, match="exactly once"), ctx.while_loop(steps < 1) as loop:
        loop.continue_while(steps < 2)
    with pytest.raises(TypeError, match="while_loop takes a condition"):
        ctx.while_loop(True)
    with pytest.raises(TypeError, match="if_ takes a condition"):
        ctx.if_(steps)
    assert float(steps) == 0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_branches(ctx, lX, lY, value):
    flag = ctx.logical_data_full((), value)
    with ctx.if_(flag > 0.5) as branch:
        add(lX, lY)
        set_to(flag, 0.0)  # the condition was decided before
    with branch.else_():
        add.on(ctx.devices[-1])(lX, lY, 10.0)
        increment(lY)
    assert lX.numpy().tolist() == ([0, 1, 2, 3] if value else [0, 10, 20, 30])
    assert lY.numpy()[0] == (0 if value else 1)
    with pytest.raises(stf.TaskStateError, match="else_ comes directly behind"):
        branch.else_()


def test_loops_and_branches_nest(ctx, lX, lY):
    outer, inner = ctx.logical_data_zeros(()), ctx.logical_data_zeros(())
    with ctx.while_loop(outer < 3):
        set_to(inner, 0.0)
        with ctx.while_loop(inner < 4):
            increment(inner)
            with ctx.if_(inner > 2) as branch:
                add(lX, lY)
            with branch.else_():
                add.on(ctx.devices[-1])(lX, lY, 100.0)
        with ctx.repeat(2):
            increment(lX)
        increment(outer)
    assert lX.numpy().tolist() == [6 + 606 * y for y in range(4)]


def test_loops_in_a_recorded_graph(ctx, lX, lY):
    steps = ctx.logical_data_zeros(())
    g = ctx.task_graph()
    with g:
        set_to(steps, 0.0)
        with ctx.while_loop(steps < 3):
            add(lX, lY)
            increment(steps)
        with ctx.repeat(2):
            increment.on(ctx.devices[-1])(lX)
    for launch in range(1, 4):
        g.launch()
        assert lX.numpy().tolist() == [launch * (3 * y + 2) for y in range(4)]


def test_a_body_that_fails_ends_the_loop(ctx, lX):
    steps = ctx.logical_data_zeros(())
    limit = ctx.logical_data_full((), 1e9)

    @stf.task
    def fails_at_third(s: stf.ReadWrite):
        s += 1
        if s > 2:
            raise ZeroDivisionError("third")

    def loops():
        with ctx.while_loop(steps < limit):
            fails_at_third(steps)
        steps.numpy()

    if ctx.on_cuda:
        pytest.skip("a body on a device is recorded once: it raises then")
    with pytest.raises(stf.TaskFailedError, match="ZeroDivisionError: third"):
        loops()
    set_to(steps, 0.0)
    assert float(steps) == 0


# -- scalars -------------------------------------------------------------------------------------------------------


def test_arithmetic_of_scalars(ctx):
    a, b = ctx.logical_data_full((), 3.0), ctx.logical_data_full((1,), 4.0)
    c = ctx.logical_data_empty(())
    for expression, value in (
        (a / b, 0.75),
        (2 * a - b**2, -10.0),
        (abs(-a) + 1, 4.0),
        (1 / (a - 1) - a, -2.5),
        (b, 4.0),
        (7, 7.0),
        (np.float64(2) * a, 6.0),
    ):
        assert c.assign(expression) is c
        assert float(c) == value
    c.assign(c * c)
    assert float(c) == 36


def test_conditions(ctx):
    a, b = ctx.logical_data_full((), 3.0), ctx.logical_data_full((), 4.0)
    c = ctx.logical_data_empty((), np.bool_)
    for condition, value in (
        (a < b, True),
        (a >= 3, True),
        (b <= a, False),
        (a > 5, False),
        (stf.equal(a, 3) & (b > a), True),
        ((a > b) | ~(b > a), False),
        (a + 1 > b - 1, True),
    ):
        c.assign(condition)
        assert bool(c.numpy()) is value


def test_arrays_are_no_scalars(ctx, lX):
    s = ctx.logical_data_zeros(())
    with pytest.raises(TypeError, match="is not an array: open it in a task"):
        lX + 1
    with pytest.raises(TypeError, match="is not an array: open it in a task"):
        bool(lX < 1)
    with pytest.raises(TypeError, match="assign computes one number"):
        lX.assign(s)
    with pytest.raises(TypeError, match="truth of an expression of logical data is not known"):
        bool(s < 1)
    with pytest.raises(TypeError, match="equal compares logical data"):
        stf.equal(1, 2)


def test_jacobi_to_convergence(ctx):
    """Solve A x = b where A = diag(4) - ones off the diagonal, until the largest step is small."""
    n = 16
    b = np.linspace(1, 2, n)
    x, y = ctx.logical_data(np.zeros(n)), ctx.logical_data_empty(n)
    change = ctx.logical_data_full((), np.inf)
    rhs = ctx.logical_data(b, readonly=True)

    @stf.task
    def sweep(x: stf.Read, b: stf.Read, y: stf.Write):
        y[...] = b / 4
        y[1:] += x[:-1] / 4
        y[:-1] += x[1:] / 4

    @stf.task
    def compare(x: stf.Read, y: stf.Read, change: stf.Write):
        change[...] = abs(x - y).max()

    with ctx.while_loop(change > 1e-12, max_iterations=500) as loop:
        sweep(x, rhs, y)
        compare(x, y, change)
        sweep(y, rhs, x)
    matrix = 4 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    assert np.abs(matrix @ x.numpy() - b).max() < 1e-10
    assert 5 < loop.iterations < 50


# -- replay --------------------------------------------------------------------------------------------------------


def test_replay_records_the_second_call(ctx, lX, lY):
    calls = []

    @stf.replay
    def step(x, y, a):
        calls.append(a)
        for place in everywhere(ctx, 2):
            add.on(place)(x, y, a)

    for k in range(1, 7):
        step(lX, lY, 1.0)
        assert lX.numpy().tolist() == [0, 2 * k, 4 * k, 6 * k]
    assert len(calls) == 2
    assert "1 recordings" in step.explain() and "6 calls" in step.explain()


def test_numbers_are_parameters_of_a_replay(ctx, lX, lY):
    calls = []

    @stf.replay
    def step(x, y, a, n=2):
        calls.append(n)
        for _ in range(n):  # so its value is part of the signature
            add(x, y, a * 2)

    total = 0
    for k in range(6):
        step(lX, lY, float(k))
        total += 2 * 2 * k
        assert lX.numpy()[1] == total
    assert "shape the graph: n" in step.explain()
    before = len(calls)
    for _ in range(4):
        step(lX, lY, 1.0, n=3)
        total += 6
        assert lX.numpy()[1] == total
    assert len(calls) == before + 2
    step(lX, lY, 1.0)
    assert lX.numpy()[1] == total + 4 and len(calls) == before + 2


def test_other_data_and_closures_are_recorded_anew(ctx, lX, lY):
    factor, calls = 1.0, []

    @stf.replay
    def step(x):
        calls.append(factor)
        add(x, lY, factor)

    lZ = ctx.logical_data(np.zeros(4))
    for _ in range(3):
        step(lX)
    for _ in range(3):
        step(lZ)
    factor = 10.0
    for _ in range(3):
        step(lX)
    assert lX.numpy().tolist() == [0, 33, 66, 99]
    assert lZ.numpy().tolist() == [0, 3, 6, 9]
    assert calls == [1.0] * 4 + [10.0] * 2


def test_a_replay_cannot_branch_on_data(ctx, lX):
    @stf.replay
    def step(x):
        if x.numpy()[0] < 10:
            increment(x)

    step(lX)
    with pytest.raises(stf.TaskStateError, match="wait inside") as caught:
        step(lX)
    assert "cannot wait for data, or branch on them, on the host" in caught.value.__notes__[0]
    increment(lX)
    assert lX.numpy()[0] == 2


def test_a_replay_inside_a_graph_is_a_part_of_it(ctx, lX, lY):
    @stf.replay
    def step(x, y):
        add(x, y)

    g = ctx.task_graph()
    with g:
        step(lX, lY)
        step(lX, lY)
    g.launch()
    assert lX.numpy().tolist() == [0, 2, 4, 6]


def test_what_replay_decorates():
    with pytest.raises(TypeError, match="decorates a function, got int"):
        stf.replay(3)
    with pytest.raises(TypeError, match="has no parameter 'n' to be static"):
        stf.replay(static=("n",))(lambda x: None)
    with pytest.raises(TypeError, match="was called without logical data"):
        stf.replay(lambda a: None)(1)


def test_old_recordings_are_given_up(ctx, lY):
    @stf.replay
    def step(x):
        add(x, lY)

    many = [ctx.logical_data(np.zeros(4)) for _ in range(12)]
    for x in many:
        step(x)
        step(x)
    for x in many:
        assert x.numpy().tolist() == [0, 2, 4, 6]
    step.close()


def test_a_replay_goes_from_context_to_context(ctx_factory):
    """A function of a module outlives the contexts that it was recorded in, and keeps none of them alive."""

    @stf.replay
    def step(x, values):
        add(x, x, float(values[0]))

    values = np.ones(1)
    for _ in range(3):
        context = ctx_factory()
        X = np.ones(2)
        x = context.logical_data(X)
        for _ in range(4):
            step(x, values)
        context.finalize()
        assert X.tolist() == [16, 16]
    alive = weakref.ref(context)
    ctx_factory.opened.clear()
    del context, x
    gc.collect()
    assert alive() is None
    assert "12 calls" not in step.explain()


def test_a_loop_that_cannot_be_submitted_gives_its_memory_up(ctx, lX):
    unwritten = ctx.logical_data_empty(4)
    with pytest.raises(stf.UninitializedDataError), ctx.repeat(2):
        add(lX, unwritten)
    g = ctx.task_graph()
    with g, pytest.raises(stf.UninitializedDataError), ctx.repeat(2):
        add(lX, unwritten)
    g.launch()
    g.close()
    lX.release()


def test_threads_beside_a_graph_scope_go_their_own_way(ctx, lX, lY):
    lZ, stories = ctx.logical_data(np.zeros(4)), []

    def other():
        try:
            add(lZ, lY)
        except stf.TaskStateError as error:
            stories.append(str(error))

    if ctx.engine.epoch is not None:
        pytest.skip("a graph context gathers the tasks of all threads")
    with ctx.graph_scope():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        add(lX, lY)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert lX.numpy().tolist() == [0, 1, 2, 3] and lZ.numpy().tolist() == [0, 1, 2, 3]
    assert len(stories) == 1 and "another thread has graph_scope open" in stories[0]


def test_what_an_assignment_holds(ctx):
    """A recorded expression knows positions: the data that it reads may be dropped."""
    s, t = ctx.logical_data_full((), 3.0), ctx.logical_data_empty(())
    g = ctx.task_graph()
    with g:
        t.assign(s * 2 + 1)
    handle = weakref.ref(s)
    del s
    gc.collect()
    assert handle() is None
    g.launch()
    assert float(t) == 7


# -- other data --------------------------------------------------------------------------------------------------------


def test_a_launch_with_other_data(ctx):
    arrays = [np.arange(4.0) + i for i in range(4)]
    model = [array.copy() for array in arrays]
    data = [ctx.logical_data(array, name=f"D{i}") for i, array in enumerate(arrays)]
    g = ctx.task_graph("other")
    a = g.param("a", 1.0)
    with g:
        add(data[0], data[1], a)
        add.on(ctx.devices[-1])(data[0], data[1])
        ctx.fill(data[2], 7.0)
        with ctx.repeat(2):
            add(data[2], data[0], -1.0)
    for x, y, z, value in [
        (0, 1, 2, 1.0),
        (3, 1, 2, 2.0),
        (1, 3, 0, 2.0),
        (1, 3, 0, 1.0),
        (0, 1, 2, 3.0),
        (2, 0, 3, 1.0),
    ]:
        g.launch({data[0]: data[x], data[1]: data[y], data[2]: data[z]}, a=value)
        model[x] += (value + 1) * model[y]
        model[z][...] = 7 - 2 * model[x]
        for i in range(4):
            assert data[i].numpy().tolist() == model[i].tolist(), (x, y, z, i)
    ctx.finalize()
    assert [array.tolist() for array in arrays] == [array.tolist() for array in model]


def test_data_that_cannot_stand_for_others(ctx):
    lX, lY = ctx.logical_data(np.zeros(4), name="X"), ctx.logical_data(np.ones(4), name="Y")
    other, shorter = ctx.logical_data(np.ones(4), name="O"), ctx.logical_data(np.ones(3), name="S")
    integers, token = ctx.logical_data(np.ones(4, int), name="I"), ctx.token(name="T")
    g = ctx.task_graph("other")
    with g:
        add(lX, lY)
    for wrong in (shorter, integers, token):
        with pytest.raises(
            ValueError, match=f"{wrong.name}' .*cannot stand for logical data 'Y'.*same shape and dtype"
        ):
            g.launch({lY: wrong})
    with pytest.raises(ValueError, match="'O' .* is not used by graph 'other'"):
        g.launch({other: lY})
    with pytest.raises(ValueError, match="'X' .* cannot stand for another data: it is used in graph 'other' itself"):
        g.launch({lY: lX})
    with pytest.raises(ValueError, match="was given the same data twice"):
        g.launch({lY: other, lX: other})
    with pytest.raises(TypeError, match="logical data is needed, got int"):
        g.launch({lY: 1})
    with pytest.raises(stf.ContextMismatchError), stf.context(devices="cpu") as another:
        g.launch({lY: another.logical_data(np.ones(4))})
    g.launch({lY: other})
    assert lX.numpy().tolist() == [1] * 4


def test_a_with_block_is_done_with_what_it_was_recorded_with(ctx):
    if not is_cuda(ctx):
        pytest.skip("on a CPU with-blocks are not recorded")
    lX, other = ctx.logical_data(np.zeros(4), name="X"), ctx.logical_data(np.zeros(4))
    g = ctx.task_graph("other")
    with g, ctx.task(lX.rw(), name="block") as t:
        t.cupy()[0][...] += 1
    with pytest.raises(
        stf.CaptureError, match="task 'block' .*test_graphs.py:.* was recorded as it stands, and cannot"
    ):
        g.launch({lX: other})
    g.launch()
    assert lX.numpy().tolist() == [1] * 4 and other.numpy().tolist() == [0] * 4


# -- graphs in graphs --------------------------------------------------------------------------------------------------


def test_a_graph_in_another_one_has_its_own_values(ctx):
    x = ctx.logical_data(np.zeros(3))
    one = ctx.logical_data(np.ones(3))
    g, h = ctx.task_graph("inner"), ctx.task_graph("outer")
    a, b = g.param("a", 1.0), h.param("a", 100.0)
    with g:
        add(x, one, a)
    with h:
        g.launch(a=5.0)
        g.launch(a=2 * b)
        g.launch()
    h.launch()
    assert x.numpy().tolist() == [5 + 200 + 1] * 3
    for _ in range(2):
        h.launch(a=1000.0)
    assert x.numpy().tolist() == [206 + 2 * (5 + 2000 + 1)] * 3
    with ctx.repeat(3):
        g.launch(a=7.0)
    assert x.numpy().tolist() == [4218 + 21] * 3


def test_a_graph_lives_as_long_as_one_that_runs_it(ctx):
    x, one = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.ones(3))
    g, h = ctx.task_graph("inner"), ctx.task_graph("outer")
    with g:
        add(x, one)
    with ctx.repeat(2):
        g.launch()
    assert not g._recording.closed
    with h:
        g.launch()
        g.launch()
    inner = g._recording
    g.close()
    h.launch()
    assert not inner.closed and x.numpy().tolist() == [4] * 3
    h.close()
    assert inner.closed
    ctx.check_state()


def test_what_a_branch_may_write_stays_when_it_does_not(ctx):
    condition, one = ctx.logical_data(np.array(1.0)), ctx.logical_data(np.ones(3))
    made = ctx.logical_data_empty(3)

    @stf.task
    def write(x: stf.Write, value):
        x[...] = value

    inner, g = ctx.task_graph("inner"), ctx.task_graph("outer")
    with inner, ctx.if_(condition > 0.0):
        write(made, 1.0)
    with g:
        inner.launch()
    g.launch()
    assert made.numpy().tolist() == [1] * 3
    for graph in (g, inner):
        write(made, 5.0)
        ctx.fill(condition, -1.0)
        graph.launch()
        assert made.numpy().tolist() == [5] * 3
        ctx.fill(condition, 1.0)
        graph.launch()
        assert made.numpy().tolist() == [1] * 3
    add(made, one)
    assert made.numpy().tolist() == [2] * 3


def test_a_scope_whose_body_raises_runs_nothing_of_it(ctx):
    x, one = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.ones(3))
    if ctx.engine.epoch is not None:
        pytest.skip("a graph context gathers by itself")
    with pytest.raises(ZeroDivisionError), ctx.graph_scope():
        add(x, one)
        with ctx.repeat(2):
            add(x, one, 10.0)
        1 / 0
    assert x.numpy().tolist() == [0] * 3
    with ctx.graph_scope():
        add(x, one)
        with ctx.repeat(2):
            add(x, one, 10.0)
        add(x, one)
    assert x.numpy().tolist() == [22] * 3


def test_a_failure_in_a_loop_of_a_scope_is_told(ctx):
    if is_cuda(ctx):
        pytest.skip("a body on a device is recorded once: it raises then")

    @stf.task
    def fails(x: stf.ReadWrite):
        raise RuntimeError("in the loop")

    x, y = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3))
    with ctx.graph_scope():
        add(y, x)
        with ctx.repeat(2):
            fails(x)
    with pytest.raises(stf.TaskFailedError, match="in the loop"):
        ctx.synchronize()
    with pytest.raises(stf.TaskFailedError, match="poisoned"):
        x.numpy()
    assert y.numpy().tolist() == [0] * 3


@pytest.mark.parametrize("block", ["graph", "repeat", "while", "scope"])
def test_a_task_that_is_open_when_a_block_ends(ctx, block):
    x, y, s = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3)), ctx.logical_data(np.array(1.0))
    if not is_cuda(ctx):
        pytest.skip("on a CPU with-blocks are not recorded")
    blocks = {
        "graph": ctx.task_graph,
        "repeat": lambda: ctx.repeat(2),
        "while": lambda: ctx.while_loop(s < 0.0),
        "scope": ctx.graph_scope,
    }
    if block == "scope" and ctx.engine.epoch is not None:
        pytest.skip("a graph context gathers by itself")
    with pytest.raises(stf.TaskStateError), blocks[block]():
        task = ctx.task(x.rw(), name="open").start()
    with pytest.raises(stf.TaskStateError):
        task.end()
    add(y, s)
    assert y.numpy().tolist() == [1] * 3
