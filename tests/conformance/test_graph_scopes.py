"""Graph scopes: tasks that become one graph, launched once or not at all; in each other, and in what is recorded."""

from __future__ import annotations

import contextlib
import functools
import threading

import numpy as np
import pytest
from helpers import add, increment, is_cuda, together

import stf
from stf._engine import thread_turns
from stf.graphs import graph_scope


@stf.task
def fail(x: stf.ReadWrite):
    raise ZeroDivisionError("mine")


@contextlib.contextmanager
def raises_in(ctx):
    """A graph_scope whose body raises at its end."""
    with pytest.raises(KeyError), ctx.graph_scope():
        yield
        raise KeyError


def test_a_graph_scope_runs_once_at_its_end(ctx, lX, lY):
    with ctx.graph_scope():
        add(lX, lY)
        with ctx.graph_scope():
            add.on(ctx.devices[-1])(lX, lY)
    assert lX.numpy().tolist() == [0, 2, 4, 6]


def test_a_context_launches_what_it_gathered_when_that_is_much(ctx_factory, monkeypatch):
    """So the memory of a long program is bounded; what is one graph by the user's word stays one."""
    monkeypatch.setattr(graph_scope, "MOST", 20)
    launched, close = [], graph_scope.GatheringScope._close_and_launch

    def noted(self, waiting):
        launched.append(close(self, waiting))
        return launched[-1]

    monkeypatch.setattr(graph_scope.GatheringScope, "_close_and_launch", noted)
    with ctx_factory(use_graph=True) as ctx:
        lX = ctx.logical_data(np.zeros(3))
        for _ in range(50):
            increment(lX)
        assert len(launched) == 2
        lX.numpy()
        before = len(launched)
        with ctx.graph_scope():
            for _ in range(50):
                increment(lX)
            assert len(launched) == before
        assert lX.numpy().tolist() == [100] * 3


def test_a_graph_scope_that_raises_does_nothing(ctx, lX, lY):
    with pytest.raises(ValueError, match="mine"), ctx.graph_scope():
        add(lX, lY)
        raise ValueError("mine")
    assert lX.numpy().tolist() == [0] * 4
    add(lX, lY)
    assert lX.numpy().tolist() == [0, 1, 2, 3]


def test_a_graph_scope_that_raises_beside_a_task_of_another_thread(ctx, lX, lY):
    """It waits for that, so that its own tasks run together or not at all."""
    opened, go_on = threading.Event(), threading.Event()

    def other():
        with ctx.task(lY.rw()):
            opened.set()
            go_on.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    opened.wait(30)
    timer = threading.Timer(0.1, go_on.set)
    timer.start()
    with pytest.raises(ValueError, match="mine"), ctx.graph_scope():
        increment(lX)
        raise ValueError("mine")
    go_on.set()
    thread.join()
    assert lX.numpy().tolist() == [0] * 4


def test_a_graph_scope_inside_of_an_open_task_is_refused(ctx, lX, lY):
    task = ctx.task(lY.rw(), name="open").start()
    with (
        pytest.raises(stf.TaskStateError, match="cannot be (opened|launched) while task 'open' .* is open; end it"),
        ctx.graph_scope(),
    ):
        increment(lX)
    task.end()
    with ctx.graph_scope():
        increment(lX)
    assert lX.numpy().tolist() == [1] * 4


def test_graph_scopes_of_threads_take_turns(ctx):
    data = [ctx.logical_data(np.zeros(4)) for _ in range(3)]

    def work(lX):
        for _ in range(20):
            with ctx.graph_scope():
                increment(lX)
                increment(lX)
            increment(lX)

    together(*(functools.partial(work, lX) for lX in data))
    assert [lX.numpy().tolist() for lX in data] == [[60] * 4] * 3


def test_a_context_is_not_finalized_inside_of_a_graph_scope(ctx, lX):
    with ctx.graph_scope():
        increment(lX)
        with pytest.raises(stf.TaskStateError, match="finalize inside graph_scope: nothing of it has run"):
            ctx.finalize()
    assert lX.numpy().tolist() == [1] * 4


def test_with_blocks_in_a_graph_scope(ctx, lX, lY):
    with ctx.graph_scope():
        add(lX, lY)
        with ctx.task(lX.rw()) as t:
            x = t.arrays()[0]
            x *= 2
        add(lX, lY)
    assert lX.numpy().tolist() == [0, 3, 6, 9]


def test_threads_beside_a_graph_scope_go_their_own_way(ctx, lX, lY, monkeypatch):
    """They wait for its end, but not for ever: this one waits for them."""
    monkeypatch.setattr(thread_turns, "PATIENCE_S", 0.05)
    lZ, descriptions = ctx.logical_data(np.zeros(4)), []

    def other():
        try:
            add(lZ, lY)
        except stf.TaskStateError as error:
            descriptions.append(str(error))

    with ctx.graph_scope():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        add(lX, lY)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert lX.numpy().tolist() == [0, 1, 2, 3] and lZ.numpy().tolist() == [0, 1, 2, 3]
    assert len(descriptions) == 1 and "another thread has graph_scope open" in descriptions[0]


def test_a_scope_whose_body_raises_runs_nothing_of_it(ctx):
    x, one = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.ones(3))
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


@pytest.mark.parametrize("what", ["freeze", "accept", "release", "tiles"])
def test_what_cannot_be_recorded_launches_a_graph_scope(ctx, what):
    X = np.zeros(4)
    lX, lY = ctx.logical_data(X), ctx.logical_data(np.zeros(4))
    with ctx.graph_scope():
        ctx.fill(lX, 2.0)
        if what == "freeze":
            ctx.freeze(lX).unfreeze()
        elif what == "tiles":
            for tile in lX.tiles((2,)):
                ctx.fill(tile, 3.0)
            del tile
            increment(lX)
        else:
            getattr(lX, what)()
        ctx.fill(lY, 4.0)
    ctx.synchronize()
    assert lY.numpy().tolist() == [4.0] * 4
    ctx.finalize()
    assert X.tolist() == [4.0 if what == "tiles" else 2.0] * 4


def test_a_task_of_another_thread_that_begins_with_a_graph_scope(ctx_factory, monkeypatch):
    """It is no part of that, however late it is told that there is one."""
    begins, goes_on = threading.Event(), threading.Event()
    record = graph_scope.GatheringScope._record

    def record_lazy(self):
        if threading.current_thread().name == "other":
            begins.set()
            assert goes_on.wait(20)
        return record(self)

    monkeypatch.setattr(graph_scope.GatheringScope, "_record", record_lazy)
    with ctx_factory(use_graph=True) as ctx:
        lX, lY = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3))
        other = threading.Thread(target=increment, args=(lY,), name="other")
        other.start()
        assert begins.wait(20)
        with pytest.raises(KeyError), ctx.graph_scope():
            goes_on.set()
            other.join(20)
            increment(lX)
            raise KeyError
        assert not other.is_alive()
        assert lX.numpy().tolist() == [0] * 3 and lY.numpy().tolist() == [1] * 3


# -- in each other -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["scope", "graph", "repeat", "branch", "replay"])
def test_an_inner_scope_that_raises_takes_back_its_own_part(ctx, lX, lY, where):
    lT, made = ctx.logical_data(np.ones((), np.int64)), []

    def body(lX, lY):
        increment(lX)
        with raises_in(ctx):
            add(lX, lY, 100.0)
            with ctx.graph_scope():
                increment(lY)
            lZ = ctx.logical_data_full(4, 7.0)
            with ctx.repeat(2):
                add(lY, lZ)
        with ctx.graph_scope():
            add(lX, lY)
            with raises_in(ctx):
                increment(lX)
        increment(lX)

    step = stf.replay(body)
    for k in range(1, 4):
        if where == "scope":
            with ctx.graph_scope():
                body(lX, lY)
        elif where == "graph":
            with ctx.task_graph() as g:
                body(lX, lY)
            g.launch()
            made.append(g)
        elif where == "repeat":
            with ctx.repeat(1):
                body(lX, lY)
        elif where == "branch":
            with ctx.if_(lT > 0):
                body(lX, lY)
        else:
            step(lX, lY)
        assert lX.numpy().tolist() == [2.0 * k, 3.0 * k, 4.0 * k, 5.0 * k]
    assert lY.numpy().tolist() == [0, 1, 2, 3]
    for g in made:
        g.launch()
    if where == "replay":
        assert "launched 2 times" in step.explain()
    ctx.check_state()


def test_all_scopes_that_an_exception_leaves_run_nothing(ctx, lX, lY):
    with raises_in(ctx):
        increment(lX)
        with ctx.graph_scope():
            increment(lY)
    with pytest.raises(ValueError), ctx.graph_scope():
        increment(lX)
        with ctx.graph_scope():
            increment(lY)
            with ctx.graph_scope():
                add(lX, lY)
                raise ValueError
    assert lX.numpy().tolist() == [0] * 4 and lY.numpy().tolist() == [0, 1, 2, 3]


def test_a_body_that_fails_in_an_inner_scope_poisons_what_comes_from_it(ctx, lX, lY):
    lZ = ctx.logical_data(np.zeros(4), name="Z")
    with ctx.graph_scope():
        with ctx.graph_scope():
            fail.on(stf.exec_place.host())(lX)
            increment(lY)
        with ctx.graph_scope():
            add(lZ, lX)
        increment(lY)
    with pytest.raises(stf.TaskFailedError, match="task 'fail'"):
        ctx.synchronize()
    assert lY.numpy().tolist() == [2, 3, 4, 5]
    for data in (lX, lZ):
        with pytest.raises(stf.TaskFailedError, match="task 'fail'"):
            data.numpy()
        data.accept()


def test_with_blocks_in_inner_scopes(ctx, lX, lY):
    """On a CPU they are done where they stand, behind all that came before."""
    with ctx.graph_scope():
        add(lX, lY)
        with ctx.graph_scope():
            increment(lX)
            with ctx.task(lX.rw()) as t:
                x = t.arrays()[0]
                x *= 2
            with ctx.graph_scope():
                add(lX, lY)
                with ctx.task(lX.rw()) as t:
                    x = t.arrays()[0]
                    x *= 2
                add(lX, lY)
            increment(lX)
        add(lX, lY)
    y = np.arange(4.0)
    assert lX.numpy().tolist() == (((y + 1) * 2 + y) * 2 + y + 1 + y).tolist()


def test_what_cannot_be_recorded_launches_all_scopes_around(ctx, lX, lY):
    with ctx.graph_scope():
        increment(lX)
        with ctx.graph_scope():
            increment(lX)
            ctx.freeze(lX).unfreeze()
            with ctx.graph_scope():
                increment(lX)
                lY.release()
                increment(lX)
        for tile in lX.tiles((2,)):
            with ctx.graph_scope():
                increment(tile)
        del tile
        with ctx.graph_scope():
            increment(lX)
    assert lX.numpy().tolist() == [6] * 4


@pytest.mark.parametrize("first", [True, False])
def test_what_waits_is_refused_inside(ctx, lX, lY, first):
    """Before anything was gathered, too."""
    waits = {
        "wait": lX.numpy,
        "synchronize": ctx.synchronize,
        "fence": ctx.fence,
        "write_back": lX.write_back,
        "finalize": ctx.finalize,
        "submit": ctx.submit,
    }
    with ctx.graph_scope():
        if not first:
            increment(lX)
        for depth in range(2):
            with ctx.graph_scope() if depth else contextlib.nullcontext():
                for name, wait in waits.items():
                    with pytest.raises(stf.TaskStateError, match=f"{name} inside graph_scope: nothing of it"):
                        wait()
        with pytest.raises(stf.TaskStateError, match="cannot be recorded inside of graph_scope; record it before"):
            ctx.task_graph().__enter__()
        increment(lY)
    assert lX.numpy().tolist() == [0.0 if first else 1.0] * 4 and lY.numpy().tolist() == [1, 2, 3, 4]


def test_nothing_is_submitted_inside_of_what_is_recorded(ctx, lX):
    with ctx.task_graph("g") as g:
        increment(lX)
        with pytest.raises(stf.TaskStateError, match="submit inside graph 'g': nothing of it starts before its end"):
            ctx.submit()
    with ctx.repeat(2), pytest.raises(stf.TaskStateError, match="submit inside repeat: nothing of it starts before"):
        ctx.submit()
    g.launch()
    ctx.submit()
    assert lX.numpy().tolist() == [1] * 4


def test_an_inner_scope_is_one_task_of_the_one_around(ctx, lX, lY):
    """Its tasks have joined accesses: two that only read stand beside each other."""
    g = ctx.task_graph()
    with g:
        for _ in range(2):
            with ctx.graph_scope():
                total = ctx.logical_data_zeros(4)
                add(total, lX)
                add(total, lX)
            del total
    assert g.nodes == 2
    g.launch()
    assert lX.numpy().tolist() == [0] * 4


def test_scopes_that_are_left_in_the_wrong_order(ctx, lX, lY):
    outer, inner = ctx.graph_scope(), ctx.graph_scope()
    outer.__enter__()
    increment(lX)
    inner.__enter__()
    increment(lY)
    with pytest.raises(stf.TaskStateError, match="cannot be closed before what was opened inside of it"):
        outer.__exit__(None, None, None)
    with contextlib.suppress(stf.TaskStateError):
        inner.__exit__(None, None, None)
    increment(lX)
    assert lX.numpy().tolist() == [1] * 4
    ctx.check_state()


@pytest.mark.parametrize("inside", ["a scope", "a graph"])
def test_one_scope_is_not_entered_twice_at_once(ctx, lX, inside):
    scope = ctx.graph_scope()
    g = ctx.task_graph()
    with g if inside == "a graph" else contextlib.nullcontext():
        for _ in range(2):  # but again
            with scope:
                increment(lX)
                with pytest.raises(stf.TaskStateError, match="this graph_scope is entered already; make another one"):
                    scope.__enter__()
                increment(lX)
    if inside == "a graph":
        g.launch()
    assert lX.numpy().tolist() == [4] * 4


def test_inner_scopes_of_threads(ctx):
    data = [ctx.logical_data(np.zeros(4)) for _ in range(3)]

    def work(lX):
        for k in range(15):
            with ctx.graph_scope():
                increment(lX)
                with contextlib.suppress(KeyError), ctx.graph_scope():
                    increment(lX)
                    if k % 3 == 0:
                        raise KeyError
                increment(lX)

    together(*(functools.partial(work, lX) for lX in data))
    assert [lX.numpy().tolist() for lX in data] == [[40] * 4] * 3


def test_an_outcome_of_an_if_is_remembered(ctx, lX):
    """`else_` goes by what its `if_` found, whatever was submitted between."""
    lS = ctx.logical_data(np.zeros((), np.int64))
    with ctx.if_(lS > 0) as branch:
        increment(lX)
    increment(lS)
    with branch.else_():
        increment(lX)
        increment(lX)
    assert lX.numpy().tolist() == [2] * 4


@pytest.mark.parametrize("form", ["function", "with-block"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("leaves", [True, False])
def test_a_task_that_is_skipped_in_a_scope_poisons_what_it_was_to_write(ctx, lX, lY, form, known, depth, leaves):
    if leaves and form == "with-block" and not is_cuda(ctx):
        return  # it launches what was recorded
    lZ = ctx.logical_data(np.zeros(4))
    with pytest.raises(stf.TaskFailedError, match="mine"):
        fail(lX)
        ctx.synchronize()

    def reader():
        if form == "function":
            add(lY, lX)
            return
        with pytest.raises(stf.TaskFailedError, match="poisoned"), ctx.task(lX.read(), lY.rw()):
            raise AssertionError("it ran")

    with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as scopes:
        for _ in range(depth):
            scopes.enter_context(ctx.graph_scope())
        if known:
            add(lZ, lY)  # the scope knows lY before it is spoilt
        reader()
        if leaves:
            raise ZeroDivisionError
    if leaves:
        assert lY.numpy().tolist() == [0, 1, 2, 3]
    else:
        with pytest.raises(stf.TaskFailedError, match="poisoned: task 'fail'"):
            lY.numpy()
    assert lZ.numpy().tolist() == ([0, 1, 2, 3] if known and not leaves else [0] * 4)
    with contextlib.suppress(stf.TaskFailedError):
        ctx.check_errors()


@pytest.mark.parametrize("max_pending", [1, 1000])
def test_a_token_that_is_poisoned_stays_so_through_a_scope(ctx_factory, max_pending):
    """Whoever reads it is not run, as with other data."""
    ctx = ctx_factory(max_pending=max_pending)
    token, ran = ctx.token(), []

    def fails(*arrays):
        raise ValueError("meant")

    with contextlib.suppress(stf.TaskFailedError):
        ctx.host_launch(token.rw())(fails)
        with ctx.graph_scope():
            ctx.host_launch(token.rw())(lambda: None)
    with contextlib.suppress(stf.TaskFailedError), ctx.task(stf.exec_place.host(), token.read()):
        ran.append(True)
    with pytest.raises(stf.TaskFailedError, match="meant"):
        ctx.host_launch(token.read())(lambda: ran.append(True))
        ctx.finalize()
    assert not ran
