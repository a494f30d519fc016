"""Recorded tasks: graphs to launch again, with other values and other data, in each other; scopes."""

from __future__ import annotations

import functools
import gc
import threading
import time

import numpy as np
import pytest
from helpers import add, content, everywhere, increment, is_cuda, put, runs_kernels, set_to

import stf
from stf._support.log_once import logged
from stf.values.params import DerivedParam


@stf.task
def divide(x: stf.ReadWrite, by):
    if by == 0:
        raise ZeroDivisionError("by zero")
    x /= by


# -- graphs by hand -----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("uses_cuda", [True, False])
def test_bodies_on_the_host_of_a_graph(ctx, uses_cuda):
    """Values, other data, failures and their end are the same whether they are nodes of the driver's graph or not."""
    x, y = (ctx.logical_data(np.full(4, value)) for value in (1.0, 2.0))
    divided = stf.task(divide.fn, uses_cuda=uses_cuda)
    seen = []
    g = ctx.task_graph("bodies")
    by = g.param("by", 2.0)
    with g:
        increment(x)
        divided.on("host")(x, by)
        ctx.host_launch(x.read(), args=(by * 2,), uses_cuda=uses_cuda)(lambda a, n: seen.append((float(a[0]), n)))
        increment(x)
    mine, others, told = 1.0, 2.0, []
    for value in (2.0, 4.0, 0.5):
        g.launch(by=value)
        g.launch({x: y}, by=value)
        for before in (mine, others):
            told.append(((before + 1) / value, 2 * value))
        mine, others = (mine + 1) / value + 1, (others + 1) / value + 1
    assert x.numpy().tolist() == [mine] * 4 and y.numpy().tolist() == [others] * 4
    ctx.synchronize()
    assert sorted(seen) == sorted(told)
    del seen[:]
    g.launch(by=0)
    with pytest.raises(stf.TaskFailedError, match="ZeroDivisionError: by zero"):
        ctx.synchronize()
    assert seen == []  # what comes after it in that launch
    set_to(x, 3.0)
    g.launch(by=8.0)
    assert x.numpy().tolist() == [1.5] * 4
    ctx.synchronize()
    assert seen == [(0.5, 16.0)]


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
    descriptions = []

    def other():
        try:
            add(lX, lY)
        except stf.TaskStateError as error:
            descriptions.append(str(error))

    with g:
        add(lX, lY)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(descriptions) == 1 and "another thread has graph 'mine' open" in descriptions[0]


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


@stf.task
def add_sum(x: stf.ReadWrite, a=1.0):
    """Add a times the sum, which its library looks at on the host: no graph of a device can have that."""
    x += a * float(x.sum())


def test_a_body_that_no_graph_can_have_runs_at_each_launch(ctx, lX, lY, caplog):
    """In the call, on streams, with the values and the data of that launch; it is told once."""
    caplog.set_level("INFO", logger="stf")
    logged.clear()
    g = ctx.task_graph()
    a = g.param("a", 1.0)
    with g:
        increment(lX)
        add_sum(lX, a)
        increment(lX)
    model = np.zeros(4)
    for value in (1.0, 1.0, 2.0):
        g.launch(a=value)
        model = (model + 1) * (1 + 4 * value) + 1
    assert lX.numpy().tolist() == model.tolist()
    g.launch({lX: lY})
    assert lY.numpy().tolist() == [12.0, 13.0, 14.0, 15.0]
    messages = [text for text in caplog.messages if "calls what its library does not capture" in text]
    assert len(messages) == ctx.on_cuda
    assert not ctx.on_cuda or "task 'add_sum'" in messages[0]
    g.close()


def test_such_bodies_in_replays_loops_and_scopes(ctx, lX):
    @stf.replay
    def step(x, k):
        increment(x)
        add_sum(x, k)

    model = 0.0
    for k in (1.0, 2.0, 1.0, 1.0):
        step(lX, k)
        model = (model + 1) * (1 + 4 * k)
    said = "task 'add_sum' (test_graphs.py" in step.explain()
    assert said == ctx.on_cuda and ("does not capture" in step.explain()) == ctx.on_cuda
    with ctx.repeat(2):
        increment(lX)
        add_sum(lX)
    model = ((model + 1) * 5 + 1) * 5
    with ctx.graph_scope():
        add_sum(lX)
        increment(lX)
    assert lX.numpy().tolist() == [model * 5 + 1] * 4


def test_such_a_body_fails_in_a_launch(ctx, lX, lY):
    """What it was to write is poisoned; the next launch finds what was written since."""

    @stf.task
    def check(x: stf.ReadWrite):
        if float(x.sum()) > 12:
            raise ValueError("too much")
        x += 1

    g = ctx.task_graph()
    with g:
        increment(lX)
        check(lX)
    g.launch()
    g.launch()
    with pytest.raises(stf.TaskFailedError, match="task 'check' .*test_graphs.py:.*too much"):
        g.launch()
        ctx.wait(lX)
    ctx.fill(lX, 0)
    g.launch()
    assert lX.numpy().tolist() == [2] * 4
    increment(lY)
    assert lY.numpy().tolist() == [1, 2, 3, 4]


def test_such_a_body_is_skipped_behind_one_that_failed(ctx, lX, lY):
    """On the host, and in the same launch: the first failure is told, and what has nothing to do with it is good."""
    seen, lZ = [], ctx.logical_data(np.zeros(2))

    @stf.task
    def bad(x: stf.ReadWrite):
        raise ValueError("root")

    @stf.task
    def look(x: stf.Read, y: stf.ReadWrite):
        seen.append(float(x.sum()))

    for around in (ctx.graph_scope, ctx.task_graph):
        seen.clear()
        with around() as g:
            increment(lZ)
            bad.on(stf.exec_place.host())(lX)
            look(lX, lY)
        if around == ctx.task_graph:
            g.launch()
        with pytest.raises(stf.TaskFailedError, match="task 'bad' .*root"):
            ctx.synchronize()
        assert len(seen) == 0
        for data in (lX, lY):
            with pytest.raises(stf.TaskFailedError, match="root"):
                ctx.wait(data)
            ctx.fill(data, 1.0)
        if around == ctx.graph_scope:
            assert lZ.numpy().tolist() == [1] * 2
    lZ.accept()


def test_such_a_body_fails_alone_in_a_scope(ctx, lX, lY):
    """What others wrote there stays, and the cause is what the body raised."""
    if not ctx.on_cuda:
        pytest.skip("on a CPU all bodies are queued")

    @stf.task
    def fails(x: stf.ReadWrite):
        float(x.sum())
        raise ZeroDivisionError("mine")

    with ctx.graph_scope():
        increment(lY)
        fails(lX)
    with pytest.raises(stf.TaskFailedError, match="task 'fails'") as told_error:
        ctx.wait(lX)
    assert isinstance(told_error.value.__cause__, ZeroDivisionError)
    assert lY.numpy().tolist() == [1, 2, 3, 4]
    ctx.fill(lX, 0)


def test_only_some_values_need_such_a_body(ctx, lX):
    @stf.task
    def by_value(x: stf.ReadWrite, k):
        x += float(x.sum()) if k >= 2 else k

    @stf.replay
    def step(x, k):
        by_value(x, k)

    for k in (0.0, 0.5, 1.0, 1.5, 2.0, 1.0, 3.0):
        step(lX, k)
    assert lX.numpy().tolist() == [16 * 5.0] * 4


def test_the_first_failure_of_a_launch_counts(ctx, lX, lY):
    """Bodies run beside each other: one that succeeds later heals nothing."""
    fails = []

    @stf.task
    def slow(x: stf.Write):
        time.sleep(0.05)
        x[...] = 7

    @stf.task
    def quick(x: stf.Write):
        if fails:
            raise ZeroDivisionError("quick")
        x[...] = 7

    g = ctx.task_graph()
    with g:
        slow.on(stf.exec_place.host())(lX)
        quick.on(stf.exec_place.host())(lY)
    fails.append(True)
    g.launch()
    with pytest.raises(stf.TaskFailedError, match="quick"):
        ctx.synchronize()
    with pytest.raises(stf.TaskFailedError, match="quick"):
        ctx.wait(lY)
    ctx.fill(lX, 0)
    ctx.fill(lY, 0)


def test_a_block_that_waits_for_the_device_cannot_be_recorded(ctx, lX):
    if not ctx.on_cuda:
        pytest.skip("on a CPU nothing is captured")
    g = ctx.task_graph()
    with pytest.raises(stf.CaptureError, match="task 'block' .*test_graphs.py:.* cannot be recorded: it waits"), g:
        with ctx.task(lX.rw(), name="block") as t:
            t.cupy()[0].get()
    with pytest.raises(stf.CaptureError, match="task 'device' .*test_graphs.py:.* cannot be recorded: it waits"), g:
        with ctx.task(lX.rw(), name="device") as t:
            t.cupy()[0].device.synchronize()
    with pytest.raises(stf.CaptureError, match="task 'asks' .*test_graphs.py:.* cannot be recorded: it waits"), g:

        @ctx.task(lX.rw(), name="asks")
        def asks(x, t: stf.Task):
            x.get()

    increment(lX)
    assert lX.numpy().tolist() == [1] * 4


# -- other data ---------------------------------------------------------------------------------------------------------


def test_threads_launch_one_graph_with_other_data_in_turn(ctx, lX, lY):
    g = ctx.task_graph()
    with g:
        increment(lX)
    g.launch({lX: lY})
    thread = threading.Thread(target=g.launch, args=({lX: lY},), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    g.launch({lX: lY})
    assert lX.numpy().tolist() == [0] * 4 and lY.numpy().tolist() == [3, 4, 5, 6]


def test_read_only_data_stand_for_what_is_read_alone(ctx, lX, lY):
    R = np.full(4, 5.0)
    lR = ctx.logical_data(R, readonly=True, name="R")
    g = ctx.task_graph("adds")
    with g:
        add(lX, lY)
    with pytest.raises(stf.AccessError, match="'R'.* is read-only and cannot stand for data that graph 'adds' writes"):
        g.launch({lX: lR})
    g.launch({lY: lR})
    assert lX.numpy().tolist() == [5] * 4
    ctx.synchronize()
    assert (R == 5).all()


# -- graphs in graphs ---------------------------------------------------------------------------------------------------


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


def test_a_graph_that_was_part_of_a_scope_takes_other_data_again(ctx, lX, lY):
    """It uses memory of its own, of which launches with other data take turns."""
    total = ctx.logical_data(np.zeros(4))
    g = ctx.task_graph()
    with g:
        accumulate(total, lX)
        accumulate.on(ctx.devices[-1])(total, lX)
        increment(total)
    expected = 0
    for k in range(1, 4):
        for lZ, times in ((lY, 1), (lX, 0)):
            g.launch({lX: lZ} if lZ is not lX else None)
            with ctx.graph_scope():
                g.launch()
                g.launch()
            g.launch({lX: lZ} if lZ is not lX else None)
            expected += 4 + 4 * times * np.arange(4.0)
        assert total.numpy().tolist() == expected.tolist(), k
    outer = ctx.task_graph("outer")
    with outer:
        with pytest.raises(stf.CaptureError, match="cannot be launched with other data inside of"):
            g.launch({lX: lY})
        g.launch()
    with pytest.raises(stf.CaptureError, match="is part of another one"):
        g.launch({lX: lY})
    outer.close()
    g.launch({lX: lY})


@stf.task
def accumulate(x: stf.Accumulate[stf.reducer.sum], y: stf.Read):
    x += y


def test_parameters_among_any_number_of_arguments(ctx, lX):
    @stf.task
    def add_all(x: stf.ReadWrite, *values, **named):
        x += sum(values) + sum(named.values())

    g = ctx.task_graph()
    a, b = g.param("a", 1.0), g.param("b", 10.0)
    with g:
        add_all(lX, 100.0, a, b, more=b, most=a * 2)
    g.launch()
    g.launch(a=2.0)
    g.launch(a=3.0, b=0.0)
    assert lX.numpy().tolist() == [123 + 126 + 109] * 4


def test_other_data_are_a_mapping(ctx, lX):
    g = ctx.task_graph()
    with g:
        increment(lX)
    with pytest.raises(
        TypeError, match="takes a mapping of recorded data to others.* got int; parameters are given by"
    ):
        g.launch(5)
    g.launch()
    assert lX.numpy().tolist() == [1] * 4


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
    if block == "scope" and ctx.engine.gathering is not None:
        pytest.skip("a graph context gathers by itself")
    with pytest.raises(stf.TaskStateError), blocks[block]():
        task = ctx.task(x.rw(), name="open").start()
    with pytest.raises(stf.TaskStateError):
        task.end()
    add(y, s)
    assert y.numpy().tolist() == [1] * 3


def test_a_recording_that_raised_is_made_again(ctx, lX, lY):
    """With parameters of the same names, but for those that were made before it."""
    g = ctx.task_graph()
    b = g.param("b", 1.0)
    with pytest.raises(ValueError, match="mine"), g:
        add(lX, lY, g.param("a", 1.0) * b)
        raise ValueError("mine")
    with pytest.raises(ValueError, match="has a parameter 'b' already"):
        g.param("b", 1.0)
    with g:
        add(lX, lY, g.param("a", 2.0) * b)
    g.launch(b=3.0)
    assert lX.numpy().tolist() == [0, 6, 12, 18]
    g.close()
    with pytest.raises(stf.errors.GraphClosedError):
        g.param("c", 1.0)


def test_a_parameter_of_another_graph_is_no_value_of_a_launch(ctx):
    lX = ctx.logical_data(np.zeros(3))
    g, h = ctx.task_graph("g"), ctx.task_graph("h")
    a, b = g.param("a", 1.0), h.param("b", 5.0)
    with g:
        ctx.fill(lX, a)
    with h:
        ctx.fill(lX, b)
    for value in (b, 2 * b, a):
        with pytest.raises(TypeError, match="has a value in launches of graph"):
            g.launch(a=value)
    with pytest.raises(TypeError, match="a parameter takes a number, got <logical data"):
        g.launch(a=lX)
    with pytest.raises(TypeError, match="has a value in launches of graph 'h'"):
        ctx.host_launch(lX.rw(), fn=lambda x, k: None, args=(b,))
    g.launch(a=3.0)
    assert lX.numpy().tolist() == [3.0] * 3


def test_a_parameter_is_no_number_of_times(ctx, lX):
    g = ctx.task_graph()
    a = g.param("a", 2)
    for block in (lambda: ctx.repeat(a), lambda: ctx.while_loop(max_iterations=a)):
        with pytest.raises(TypeError, match=r"is an integer, got <parameter a=2>; .*ctx.while_loop\(n < a\)"):
            block()


@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
@pytest.mark.parametrize("where", ["before", "inside", "tiles"])
def test_what_a_user_puts_on_a_stream_comes_before_the_launch_that_uses_his_array(ctx, where, own):
    """As it comes before a task that is given the array then; the host waits for nothing."""
    if not is_cuda(ctx):
        pytest.skip("the devices of this context are the CPU's")
    cupy = pytest.importorskip("cupy")
    from cuda.bindings import driver

    n, count = 1 << 16, 5
    with cupy.cuda.Device(ctx.devices[0].index):
        X, total = cupy.zeros(n), ctx.logical_data_zeros(n // 2 if where == "tiles" else n)
        wrong, right = cupy.full(n, -1.0), [cupy.full(n, float(k)) for k in range(2 * count)]
        cupy.cuda.Device().synchronize()
        stream = cupy.cuda.Stream(non_blocking=True) if own else cupy.cuda.Stream.null
        held = [] if where == "inside" else [ctx.logical_data(X)]
        if where == "tiles":
            held[:] = held[0].tiles(n // 2)

        def body(total):
            for lX in held or [ctx.logical_data(X)]:
                with ctx.repeat(2):
                    add(total, lX)

        g = ctx.task_graph()
        with g:
            body(total)
        launches = [g.launch] * count
        if where == "inside":
            launches += [functools.partial(stf.replay(body), total)] * count
        held.clear()
        for k, launch in enumerate(launches):
            with stream:
                for source in [*[wrong] * 100, right[k]]:  # which takes longer than the launch
                    (code,) = driver.cuMemcpyDtoDAsync(X.data.ptr, source.data.ptr, X.nbytes, stream.ptr)
                    assert int(code) == 0
                launch()
            ctx.synchronize()
    uses = 4.0 if where == "tiles" else 2.0
    assert np.unique(total.numpy()).tolist() == [uses * sum(range(len(launches)))]


@pytest.mark.parametrize("memory", ["NumPy's", "a device's"])
@pytest.mark.parametrize("inside", ["a branch", "a loop", "a scope"])
def test_arrays_that_are_registered_inside_are_their_users_between_launches(ctx, inside, memory):
    X = np.zeros(4)
    if memory == "a device's":
        if not is_cuda(ctx):
            pytest.skip("the devices of this context are the CPU's")
        X = pytest.importorskip("cupy").zeros(4)
    lS = ctx.logical_data(np.ones((), np.int64))

    def body(lS):
        block = {"a branch": lambda: ctx.if_(lS > 0), "a loop": lambda: ctx.repeat(2), "a scope": ctx.graph_scope}
        with block[inside]():
            increment(ctx.logical_data(X))

    step = 2 if inside == "a loop" else 1
    g = ctx.task_graph()
    with g:
        body(lS)
    for launch in (g.launch, functools.partial(stf.replay(body), lS)):
        for k in range(5):
            put(X, np.full(4, 10.0 * k))
            launch()
            ctx.synchronize()
            assert content(X).tolist() == [10.0 * k + step] * 4
        launch()
        launch()
        ctx.synchronize()
        assert content(X).tolist() == [40.0 + 3 * step] * 4


def test_what_is_computed_from_a_parameter_is_computed_once_a_launch(ctx, monkeypatch):
    computed, compute = [], DerivedParam._compute

    def counted(param, values):
        if values is not None:
            computed.append(param)
        return compute(param, values)

    monkeypatch.setattr(DerivedParam, "_compute", counted)
    data = [ctx.logical_data(np.zeros(2)) for _ in range(3)]
    with ctx.task_graph() as g:
        a = g.param("a", 1.0)
        twice = 2 * a
        for x in data:
            set_to(x, twice)
        set_to(data[0], twice + 1)
    for value in (3.0, 5.0, 5.0, -0.0):
        computed.clear()
        g.launch(a=value)
        assert [x.numpy()[0] for x in data] == [2 * value + 1, 2 * value, 2 * value]
        assert len(computed) == 2 or is_cuda(ctx)  # where what was captured is compared with the launch before
    g.launch()
    assert [x.numpy()[0] for x in data] == [3.0, 2.0, 2.0]


def test_a_body_takes_numbers_and_parameters_in_turn(ctx):
    if not runs_kernels(ctx):
        pytest.skip("no kernels here")
    x = ctx.logical_data(np.zeros(5), write_back=False)
    g = ctx.task_graph("turns")
    f, n = g.param("f", 1.0), g.param("n", 2)

    def add(i, x, a):
        x[i] += a

    with g:
        for k in range(4):
            for a in (f, 0.5, n, 3, f + k, n * 2, True):
                ctx.parallel_for(x.shape, x.rw(), args=(a,))(add)
    expected = 0.0
    for values in ({}, {"f": 2.5}, {"n": -7}, {"f": -0.25, "n": 11}):
        g.launch(**values)
        one, two = values.get("f", 1.0), values.get("n", 2)
        expected += sum(one + 0.5 + two + 3 + (one + k) + 2 * two + 1 for k in range(4))
    np.testing.assert_array_equal(x.numpy(), expected)
