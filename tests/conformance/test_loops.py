"""Loops and branches that are recorded, and the scalars of data that decide them."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref

import numpy as np
import pytest
from helpers import add, everywhere, increment, is_cuda, set_to

import stf

# -- loops and branches -------------------------------------------------------------------------------------------------


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
    for wrong, error in ((1.5, TypeError), ("3", TypeError), (np.array([2]), TypeError), (-1, ValueError)):
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


def test_how_often_a_loop_ran_is_not_known_while_it_is_recorded(ctx, lX):
    """A program that goes by it would be recorded as if it had not run."""

    def step(s, x):
        ctx.fill(s, 0.0)
        with ctx.while_loop(s < 3) as loop:
            increment(s)
        add(x, x, 1.0 if loop.iterations == 3 else 100.0)
        return loop

    steps = ctx.logical_data_zeros(())
    loop = step(steps, lX)
    told = "iterations of a while_loop inside of {}: nothing that is recorded has run yet"
    with pytest.raises(stf.TaskStateError, match=told.format("graph_scope")), ctx.graph_scope():
        step(steps, lX)
    with pytest.raises(stf.TaskStateError, match=told.format("repeat")), ctx.repeat(2):
        step(steps, lX)
    with pytest.raises(stf.TaskStateError, match=told.format("graph 'g'")), ctx.task_graph("g"):
        step(steps, lX)
    replayed = stf.replay(step)
    replayed(steps, lX)
    with pytest.raises(stf.TaskStateError, match=told.format("graph 'step'")):
        replayed(steps, lX)
    with ctx.repeat(2), ctx.while_loop(steps < 7) as inner:
        increment(steps)
    assert float(steps) == 7 and inner.iterations == 0 and loop.iterations == 3
    assert lX.numpy().tolist() == [0] * 4


def test_a_loop_says_when_it_goes_on_in_its_own_body(ctx):
    """A block inside may not run, and then nothing would say it."""
    steps = ctx.logical_data_zeros(())
    for block in (lambda: ctx.if_(steps < 2), lambda: ctx.repeat(0), ctx.graph_scope):
        with pytest.raises(stf.TaskStateError, match="continue_while inside of .*, which may not run each time"):
            with ctx.while_loop() as loop:
                increment(steps)
                with block():
                    loop.continue_while(steps < 5)
    with ctx.while_loop() as loop:
        increment(steps)
        with ctx.if_(steps > 100):
            increment(steps)
        loop.continue_while(steps < 5)
    assert float(steps) == 5


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
    with pytest.raises(stf.TaskStateError, match="else_ comes behind"):
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


def test_a_branch_without_bodies_whose_input_fails_meanwhile(ctx, lX, lY):
    """Nothing in it says how it went: its input, the branch before it, does, when the last body of that was looked at."""

    def fails(_):
        raise ZeroDivisionError("meanwhile")

    for flag in 20 * [ctx.logical_data_full((), 1.0, name="flag")]:
        with pytest.raises(stf.TaskFailedError, match="ZeroDivisionError: meanwhile"):
            ctx.host_launch(lX.rw())(fails)
            with ctx.if_(flag > 2) as branch:
                add(lX, lY)
            with branch.else_():
                pass
            lX.numpy()
        with contextlib.suppress(stf.TaskFailedError):
            ctx.synchronize()  # tells it unless that was told with the data
        ctx.fill(lX, 1.0)
        ctx.fill(lY, 1.0)
    assert lX.numpy().tolist() == lY.numpy().tolist() == [1] * 4


def test_a_loop_that_cannot_be_submitted_gives_its_memory_up(ctx, lX):
    keep_previous = ctx.logical_data_empty(4)
    with pytest.raises(stf.UninitializedDataError), ctx.repeat(2):
        add(lX, keep_previous)
    g = ctx.task_graph()
    with g, pytest.raises(stf.UninitializedDataError), ctx.repeat(2):
        add(lX, keep_previous)
    g.launch()
    g.close()
    lX.release()


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


# -- scalars ------------------------------------------------------------------------------------------------------------


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
    seen = ctx.logical_data_zeros(())
    for truth in (True, False):  # a scalar of truth values is a condition itself
        c.assign(stf.equal(a, 3 if truth else 4))
        with ctx.if_(c) as branch:
            seen.assign(seen + 1)
        with branch.else_():
            seen.assign(seen + 10)
    assert float(seen) == 11
    with pytest.raises(
        TypeError, match="takes a condition of logical data, such as residual > tol, or a scalar of dtype bool"
    ):
        ctx.if_(a)


def test_conditions_are_what_numpy_would_say(ctx):
    a, nan, one = (ctx.logical_data_full((), value) for value in (3.0, np.nan, 1.0))
    yes, no = ctx.logical_data(np.array(True)), ctx.logical_data(np.array(False))
    c = ctx.logical_data_empty((), np.bool_)
    for condition, value in (
        (np.float32(4) > a, True),
        (np.array(2.0) >= a, False),
        (np.isnan(nan), True),
        (np.isfinite(nan) | no, False),
        (~yes, False),
        (yes & (a > 2), True),
        ((a > 2) & no, False),
        (np.equal(a, 3) & (a > 2), True),
        (np.not_equal(a, 3) | no, False),
        (no ^ (a > 2), True),
        (np.logical_not(no), True),
        (np.logical_and(a > 2, yes), True),
        (np.isnan(nan) > 0, True),
        (stf.equal(a > 2, True), True),
        ((a > 2) + one > 1, True),
    ):
        c.assign(condition)
        assert bool(c.numpy()) is value
    c.assign(yes)
    assert bool(c.numpy()) is True
    c.assign(np.bool_(False))
    assert bool(c.numpy()) is False
    with pytest.raises(TypeError, match="~ is of conditions and scalars of dtype bool; compare first"):
        ~a
    with pytest.raises(TypeError, match="is not an array"):
        yes &= no
    with pytest.raises(TypeError, match="unsupported operand"):
        a & (a > 2)
    for wrong in (lambda: (a == 3) & (a > 2), lambda: (a > 2) | True, lambda: (a > 2) & np.True_):
        with pytest.raises(TypeError, match=r"got (True|False); `==` of logical data says .*stf.equal\(a, b\)"):
            wrong()


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


@pytest.mark.parametrize("way", ["repeat", "graph", "nested"])
def test_what_a_branch_writes_first_goes_on_elsewhere(ctx, way):
    """The first iteration initialises; what comes then is on the host, and the next one finds it where the branch is."""
    total, flag = ctx.logical_data_empty(4), ctx.logical_data_full((), 1.0)

    def step():
        with ctx.if_(flag > 0):
            ctx.fill(total, 100.0)
            flag.assign(0.0)
        increment.on("host")(total)

    if way == "repeat":
        with ctx.repeat(4):
            step()
    elif way == "nested":
        with ctx.repeat(2):
            with ctx.repeat(2):
                step()
    else:
        g = ctx.task_graph()
        with g:
            step()
        for _ in range(4):
            g.launch()
    assert total.numpy().tolist() == [104] * 4


@pytest.mark.parametrize("replayed", [False, True], ids=["graph", "replay"])
@pytest.mark.parametrize("kind", ["loop", "branch in a loop", "local in a loop", "local in a branch"])
def test_what_a_failed_launch_left_in_data_of_its_own_spoils_no_later_one(ctx, kind, replayed):
    """The flag of a condition, a counter, and data that nobody else can see are written before they are read."""

    @stf.task
    def bad(x: stf.ReadWrite):
        raise ValueError("meant")

    def program(given, out, s):
        ctx.fill(s, 0)
        ctx.fill(out, 0)
        local = ctx.logical_data_empty((), np.float64) if "local" in kind else None
        if kind == "local in a branch":
            with ctx.if_(s < 3):
                ctx.fill(local, 0)
                add(local, given)
                add(out, local)
            return
        with ctx.while_loop(s < 3):
            increment(s)
            if kind == "loop":
                add(out, given)
            elif kind == "branch in a loop":
                with ctx.if_(s > 1):
                    add(out, given)
            else:
                ctx.fill(local, 0)
                add(local, given)
                add(out, local)

    given, out, s = ctx.logical_data_full((), 1.0), ctx.logical_data_zeros(()), ctx.logical_data_zeros(())
    if replayed:
        function = stf.replay(program)
        launch = functools.partial(function, given, out, s)
    else:
        g = ctx.task_graph()
        with g:
            program(given, out, s)
        launch = g.launch
    for _ in range(3):
        launch()
    expected = float(out)
    assert expected == {"loop": 3, "branch in a loop": 2, "local in a loop": 3, "local in a branch": 1}[kind]
    for _ in range(2):
        with pytest.raises(stf.TaskFailedError):
            bad(given)
            launch()
            ctx.synchronize()
        for x, value in ((given, 1.0), (out, 0), (s, 0)):
            ctx.fill(x, value)
        launch()
        assert float(out) == expected


def test_conditions_and_values_of_two_contexts(ctx, ctx_factory):
    """Also where the data have the same number in theirs."""
    other = ctx_factory()
    s, t = ctx.logical_data_zeros(()), other.logical_data_zeros(())
    for use in (lambda: t.assign(s + 1), lambda: s.assign(s + t), lambda: other.if_(s < 1).__enter__()):
        with pytest.raises(stf.ContextMismatchError):
            use()
    assert float(s) == 0 and float(t) == 0


def test_no_iterations_inside_of_others(ctx, lX):
    s, one = ctx.logical_data_zeros(()), ctx.logical_data_ones(())

    def body():
        add(lX, one)
        with ctx.while_loop(s < 3, max_iterations=0) as loop:
            add(lX, one, 100.0)
        add(lX, one)
        return loop

    with ctx.task_graph() as g:
        loop = body()
    g.launch()
    g.launch()
    with ctx.if_(s < 1):
        body()
    assert lX.numpy().tolist() == [6] * 4 and loop.iterations == 0
