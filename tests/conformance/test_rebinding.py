"""Launches with other data than those that were recorded, and memory that is registered again while recordings hold it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from helpers import add, add_up, increment, is_cuda, take

import stf


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


def test_launches_with_ever_other_data(ctx):
    """More than graphs are kept for; some of them come again, and so do those that were recorded."""
    arrays = [np.full(6, float(i)) for i in range(14)]
    model = [array.copy() for array in arrays]
    data = [ctx.logical_data(array) for array in arrays]
    still = ctx.logical_data(np.full(6, 7.0))
    inner, g = ctx.task_graph("inner"), ctx.task_graph("outer")
    b, a = inner.param("b", 1.0), g.param("a", 1.0)
    with inner:
        add(data[1], still, b)
    with g:
        add(data[0], data[1], a)
        ctx.copy(data[0], data[1])
        inner.launch(b=a * 2)
        ctx.fill(data[0], 3.0)
        add.on(ctx.devices[-1])(data[0], still)
    order = [*range(2, 14), 3, 2, 0, 5, 13, 0, 7]
    for n, (i, k) in enumerate(zip(order, [*order[5:], *order[:5]], strict=True)):
        if i == k:
            continue
        others = {data[0]: data[i], data[1]: data[k]}
        g.launch(others, a=float(n % 3))
        model[i] += n % 3 * model[k]
        model[k][...] = model[i]
        model[k] += n % 3 * 2 * 7.0
        model[i][...] = 10.0
        assert [d.numpy()[0] for d in data] == [array[0] for array in model], (n, i, k)
    ctx.finalize()
    assert [array.tolist() for array in arrays] == [array.tolist() for array in model]


@stf.task
def add_slowly(x: stf.Read, y: stf.ReadWrite):
    time.sleep(0.01)
    y += x


@pytest.mark.parametrize("others", ["yx", "yz", "zx", "zy"])
def test_returned_results_go_to_the_other_data(ctx, others):
    """Also where one that is written stands for another: {x: y, y: x}."""

    @stf.task
    def both(x: stf.ReadWrite, y: stf.ReadWrite):
        return x + 100, y + 1

    @stf.task
    def one(x: stf.Write, y: stf.Read):
        return y + 7

    for fn in (both, one):
        data = {name: ctx.logical_data_full(3, 10.0 * k) for k, name in enumerate("xyz")}
        expected = {name: 10.0 * k for k, name in enumerate("xyz")}
        g = ctx.task_graph()
        with g:
            fn(data["x"], data["y"])
        for first, second in (others, "xy", others, others):
            g.launch({data[a]: data[b] for a, b in zip("xy", (first, second), strict=True) if a != b})
            if fn is both:
                expected[first], expected[second] = expected[first] + 100, expected[second] + 1
            else:
                expected[first] = expected[second] + 7
            assert {name: x.numpy()[0] for name, x in data.items()} == expected


def test_other_data_may_go_while_a_launch_works_on_them(ctx):
    """A body on the host looks at them long after the launch was submitted."""
    lX, lY = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
    g = ctx.task_graph()
    with g:
        add_slowly.on("host")(lX, lY)
    for i in range(6):
        g.launch({lX: ctx.logical_data_full(4, float(i))})
        add(ctx.logical_data_full(4, 1000.0), ctx.logical_data_zeros(4))  # which may take the place of what has gone
    homes = [np.zeros(4) for _ in range(3)]
    for home, end in zip(homes, (lambda lZ: None, lambda lZ: lZ.release(), lambda lZ: lZ.write_back()), strict=True):
        lZ = ctx.logical_data(home)
        g.launch({lY: lZ})
        end(lZ)
        del lZ
    ctx.synchronize()
    assert lY.numpy().tolist() == [15] * 4
    ctx.finalize()
    assert [home.tolist() for home in homes] == [[1] * 4] * 3


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
        stf.CaptureError, match="task 'block' .*test_rebinding.py:.* was recorded as it stands, and cannot"
    ):
        g.launch({lX: other})
    g.launch()
    assert lX.numpy().tolist() == [1] * 4 and other.numpy().tolist() == [0] * 4


@stf.task
def spread(xs: stf.ReadWrite, *ys: stf.Read, by=1.0, **named: stf.ReadWrite):
    for x in xs["all"]:
        for y in ys:
            x += by * y
    for k, x in enumerate(named.values()):
        x += k + 1


@stf.task
def on_stream(x: stf.ReadWrite, stream: stf.Stream):
    x += 1


@stf.task
def asks(task: stf.Task, x: stf.ReadWrite):
    x += 1


def test_containers_of_other_data(ctx):
    """Lists, dicts, *parts and **named take other data one by one; so does a function that takes its stream."""
    data = {name: ctx.logical_data_full(3, 10.0 * k, name=name) for k, name in enumerate("abcdef")}
    expected = {name: 10.0 * k for k, name in enumerate("abcdef")}
    g = ctx.task_graph()
    by = g.param("by", 1.0)
    with g:
        spread({"all": [data["a"], data["b"]]}, data["c"], data["d"], by=by, last=data["e"])
        on_stream(data["a"])
    for a, b, c, e, value in ["abce1", "fbce1", "bafc2", "abce3", "bfae3", "abcf1", "abce1"]:
        g.launch({data[x]: data[y] for x, y in zip("abce", (a, b, c, e), strict=True)}, by=float(value))
        added = float(value) * (expected[c] + expected["d"])
        expected[a] += added + 1
        expected[b] += added
        expected[e] += 1
        assert {name: x.numpy()[0] for name, x in data.items()} == expected


def test_a_function_that_takes_itself_takes_no_other_data(ctx, lX, lY):
    g = ctx.task_graph()
    with g:
        asks(lX)
    before = lX.numpy()
    with pytest.raises(stf.CaptureError, match="task 'asks' .* that do not take themselves .*graph 'graph' anew"):
        g.launch({lX: lY})
    g.launch()
    assert (lX.numpy() == before + 1).all()


def test_data_that_only_a_graph_holds_are_registered_again(ctx):
    """The same memory is the same data, also where their user has dropped them in between."""
    X = np.zeros((2, 3))

    def record():
        lX = ctx.logical_data(X, name="X")
        g = ctx.task_graph("held")
        with g:
            add(lX, lX)
        return g

    g = record()
    g.launch()
    for _ in range(2):
        lX = ctx.logical_data(X)
        assert lX.name == "X"
        increment(lX)
        g.launch()
        del lX
        with pytest.raises(
            ValueError, match=r"that of logical data 'X' .* recorded graph uses; .*close\(\) that first"
        ):
            ctx.logical_data(X[1])
    lX = ctx.logical_data(X)
    assert (lX.numpy() == 6).all()
    g.close()
    increment(lX)
    assert ctx.logical_data(X) is lX
    del lX
    lX = ctx.logical_data(X[1])
    assert lX.numpy().tolist() == [7, 7, 7]
    del lX
    ctx.finalize()
    assert (X == 7).all()


def test_memory_that_only_a_scope_holds_is_registered_again(ctx, lX):
    """Its user drops it at once, and registers it in the next line."""
    Y = np.arange(4.0)
    with ctx.graph_scope():
        for _ in range(3):
            add(lX, ctx.logical_data(Y))
    with ctx.task_graph() as g:
        for _ in range(2):
            add(lX, ctx.logical_data(Y))
    g.launch()
    g.launch()
    assert lX.numpy().tolist() == (7 * np.arange(4.0)).tolist()


@pytest.mark.parametrize("validate", [False, True])
def test_a_replayed_function_that_registers_an_array(ctx, lX, validate, monkeypatch):
    Y, expected = np.arange(4.0), np.zeros(4)

    @stf.replay
    def step(x, n):
        y = ctx.logical_data(Y, readonly=True)
        for _ in range(n):
            add(x, y)

    monkeypatch.setattr(stf.config, "validate", validate)
    for n in (1, 1, 1, 2, 2, 2, 1, 3):
        step(lX, n)
        expected += n * Y
        assert lX.numpy().tolist() == expected.tolist()


def test_an_array_that_only_a_recording_holds_is_the_users_again(ctx_factory, monkeypatch):
    """STF_VALIDATE=1 keeps it read-only as long as the data is the user's."""
    monkeypatch.setattr(stf.config, "validate", True)
    ctx, Y = ctx_factory(), np.arange(4.0)
    lX, lY = ctx.logical_data_zeros(4), ctx.logical_data(Y)
    with ctx.task_graph() as g:
        add(lX, lY)
        increment(lY)
    for launch in range(1, 4):
        assert not Y.flags.writeable
        g.launch()
        assert lX.numpy().tolist() == (launch * np.arange(4.0)).tolist()
        del lY
        ctx.synchronize()
        assert Y.tolist() == (np.arange(4.0) + 1).tolist()
        Y -= 1
        lY = ctx.logical_data(Y)
    assert lX.numpy().tolist() == (3 * np.arange(4.0)).tolist()
    assert lY.numpy().tolist() == np.arange(4.0).tolist()
    ctx.finalize()
    assert Y.flags.writeable


@stf.task
def collect(total: stf.Accumulate[stf.reducer.sum], x: stf.Read):
    total += x


@pytest.mark.parametrize("first", ["zeros", "empty"])
def test_what_accumulates_takes_other_data_with_no_content(ctx, lY, first):
    """It adds to what each launch finds, and to nothing where nobody wrote."""
    lX = ctx.logical_data_zeros(4) if first == "zeros" else ctx.logical_data_empty(4)
    with ctx.task_graph() as g:
        collect(lX, lY)
        with ctx.repeat(2):
            collect(lX, lY)
    g.launch()
    for times in (1, 2):
        other = ctx.logical_data_empty(4)
        for _ in range(times):
            g.launch({lX: other})
        assert other.numpy().tolist() == [0, 3 * times, 6 * times, 9 * times]
    assert lX.numpy().tolist() == [0, 3, 6, 9]


def test_what_the_user_wrote_before_an_array_is_registered_again_counts(ctx):
    """Data that only a graph holds are written home, and are what the array is when it is registered again."""
    X = np.zeros(4)
    lX = ctx.logical_data(X)
    with ctx.task_graph() as g:
        increment(lX)
    g.launch()
    del lX
    ctx.synchronize()
    assert X.tolist() == [1] * 4
    X[:] = 10
    lX = ctx.logical_data(X)
    increment(lX)
    g.launch()
    assert lX.numpy().tolist() == [12] * 4
    del lX
    g.launch()
    ctx.synchronize()
    assert X.tolist() == [13] * 4


@pytest.mark.parametrize("block", ["task_graph", "repeat", "graph_scope"])
def test_an_array_that_a_body_still_works_on_is_registered_in_a_recording(ctx, block, lY):
    X = np.zeros(4)
    add(ctx.logical_data(X), lY)  # dropped at once
    with ctx.repeat(2) if block == "repeat" else getattr(ctx, block)() as recorded:
        add(ctx.logical_data(X), lY)
    if block == "task_graph":
        recorded.launch()
        recorded.close()
    ctx.synchronize()
    assert X.tolist() == [0, *[(3 if block == "repeat" else 2) * i for i in range(1, 4)]]


@pytest.mark.parametrize("way", ["close", "wait", "leave"])
def test_sums_in_data_of_the_graph_alone_outlive_it(ctx_factory, way):
    """The launch has not begun when the graph goes, and with it the data that it alone has."""
    gate, content, other = threading.Event(), np.full(3, 7.0), np.full(3, 5.0)

    @stf.task
    def held(x: stf.ReadWrite):
        gate.wait(5)

    with ctx_factory() as ctx:
        x, y, z = ctx.logical_data(np.ones(3)), ctx.logical_data(content), ctx.logical_data(other)
        g = ctx.task_graph()
        with g:
            total = ctx.logical_data_zeros(3)
            held.on(stf.exec_place.host())(x)
            add_up.on(stf.exec_place.host())(total, x)
            take(y, total)
        del total
        threading.Timer(0.1, gate.set).start()
        g.launch({x: z})
        if way == "close":
            g.close()
        if way == "wait":
            assert y.numpy().tolist() == [5.0] * 3
    assert content.tolist() == [5.0] * 3
