"""Numbers in replayed functions: exact until three values were seen, parameters then, and never taken for another."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import math

import numpy as np
import pytest
from helpers import add, increment, is_cuda

import stf

VALUES = (2.0, 3.0, 5.0, 7.0, 11.0, 3.0, 13.0)


@pytest.fixture
def lS(ctx):
    return ctx.logical_data_full((), 10.0)


def run_both(ctx, make, values=VALUES):
    """Call a function for each value, replayed and as it is; return the replayed one, the results being the same."""
    results = []
    for wrap in (stf.replay, lambda fn: fn):
        lX, lS = ctx.logical_data(np.ones(3), name="X"), ctx.logical_data(np.full((), 10.0), name="S")
        fn = wrap(make(ctx))
        found = []
        for k in values:
            fn(lX, lS, k)
            found.append((lX.numpy().tolist(), float(lS)))
        results.append((fn, found))
    assert results[0][1] == results[1][1]
    return results[0][0]


def test_a_number_is_a_parameter_from_its_third_value_on(ctx, lX, lY):
    seen = []

    @stf.replay
    def step(x, y, a):
        seen.append(a)
        add(x, y, a)

    total = 0
    for a in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 1.0):
        step(lX, lY, a)
        total += a
        assert lX.numpy()[1] == total
    kinds = [type(a).__name__ for a in seen]
    assert kinds == ["float"] * 4 + ["Param"]  # each value ran as it is and was recorded, then one recording is of all
    told = step.explain()
    assert "parameters: a" in told and "3 recordings" in told and "1 signatures known" in told and "any float" in told


def test_numbers_of_other_types_are_recorded_anew(ctx, lX, lY):
    @stf.replay
    def step(x, y, a):
        add(x, y, a / 2 if isinstance(a, int) else a)

    total = 0
    for a in (1, 2, 3, 4, 5.0, 6.0, 7.0, 8, np.float64(9), np.float64(10), np.int64(3)):
        step(lX, lY, a)
        total += a / 2 if isinstance(a, int) else a
        assert lX.numpy()[1] == total


ASKED = {  # functions of X, a scalar S and a number: what they do must be what they do with a plain number
    "type": lambda ctx: lambda x, s, k: add(x, x, 1.0 if isinstance(k, float) else 100.0),
    "math": lambda ctx: lambda x, s, k: add(x, x, math.sqrt(k)),
    "shape": lambda ctx: lambda x, s, k: add(x, ctx.logical_data(np.ones(int(k) // int(k) + 2)), 1.0),
    "array": lambda ctx: lambda x, s, k: add(x, x, float(np.array([k, 1.0]).sum())),
    "asarray": lambda ctx: lambda x, s, k: add(x, x, float(np.asarray(k) + 1)),
    "attribute": lambda ctx: lambda x, s, k: add(x, x, k.real + 1),
    "method": lambda ctx: lambda x, s, k: add(x, x, 1.0 if k.is_integer() else 2.0),
    "no dunder": lambda ctx: lambda x, s, k: add(x, x, datetime.timedelta(seconds=k).total_seconds()),
    "swallowed": lambda ctx: lambda x, s, k: add(x, x, swallowed(k)),
    "branch": lambda ctx: lambda x, s, k: add(x, x, 1.0 if k > 4 else 2.0),
    "match": lambda ctx: lambda x, s, k: add(x, x, matched(k)),
    "repeat": lambda ctx: lambda x, s, k: repeated(ctx, x, int(k)),
    "range": lambda ctx: lambda x, s, k: [increment(x) for _ in range(int(k))],
    "text for people": lambda ctx: lambda x, s, k: add(x, x, 1.0 if repr(k) == "3.0" else 2.0),
    "array that changes": lambda ctx: lambda x, s, k: times_array(x, k),
    "compared array": lambda ctx: (
        lambda x, s, k: add(x, x, float((np.arange(4) < k).sum() + (k >= np.arange(4)).sum()))
    ),
    "in a list": lambda ctx: lambda x, s, k: take_list.on(stf.exec_place.host())(x, [k, 1.0]),
    "in a dict": lambda ctx: lambda x, s, k: take_dict.on(stf.exec_place.host())(x, {"deep": [{"k": k}]}),
    "in a closure": lambda ctx: lambda x, s, k: host_task(ctx, x, lambda a: np.add(a, k, out=a)),
    "in a default": lambda ctx: lambda x, s, k: host_task(ctx, x, lambda a, k=k: np.add(a, k, out=a)),
    "in a partial": lambda ctx: lambda x, s, k: host_task(ctx, x, functools.partial(add_in_place, k)),
    "in an inner function": lambda ctx: lambda x, s, k: host_task(ctx, x, within(lambda a: add_in_place(k, a))),
    "in an object": lambda ctx: lambda x, s, k: host_task(ctx, x, holding(Holder(k))),
    "in a bound method": lambda ctx: lambda x, s, k: host_task(ctx, x, Holder(k).body),
    "in a callable object": lambda ctx: lambda x, s, k: host_task(ctx, x, Holder(k)),
    "in an argument": lambda ctx: lambda x, s, k: call_on.on(stf.exec_place.host())(x, lambda a: a + k),
}

COMPUTED = {  # these stay parameters: one recording serves all values
    "arithmetic": lambda ctx: lambda x, s, k: add(x, x, (2 * k + 1) / 4 - k**2),
    "ufunc": lambda ctx: lambda x, s, k: add(x, x, np.sqrt(k) + np.maximum(k, 4.0)),
    "numpy number": lambda ctx: lambda x, s, k: add(x, x, np.float64(3) * k - np.float64(1)),
    "assign": lambda ctx: lambda x, s, k: s.assign(k),
    "expression": lambda ctx: lambda x, s, k: s.assign(k * s / 4 + 1 / (k + 1)),
    "fill": lambda ctx: lambda x, s, k: ctx.fill(x, k),
    "full": lambda ctx: lambda x, s, k: add(x, ctx.logical_data_full(3, k, np.float64), 2.0),
    "while": lambda ctx: lambda x, s, k: counted_up(ctx, x, s, k),
    "if": lambda ctx: lambda x, s, k: branched(ctx, x, s, k),
}


class Holder:
    """What bodies that are objects, or belong to them, hold."""

    def __init__(self, k):
        self.k = k

    def body(self, a):
        a += self.k

    __call__ = body


def holding(thing):
    return lambda a: thing.body(a)


def within(body):
    def outer(a):
        body(a)

    return outer


@stf.task
def call_on(x: stf.ReadWrite, fn):
    x[...] = fn(x)


def swallowed(k):
    try:
        return 1.0 if k == 3 else 2.0
    except TypeError:
        return 50.0


def times_array(x, k):
    weights = np.ones(3)
    product = k * weights
    weights *= 10
    add(x, x, float(product[0]))


def matched(k):
    match k:
        case 3.0:
            return 1.0
        case float():
            return 2.0
    return 3.0


def repeated(ctx, x, count):
    with ctx.repeat(count):
        increment(x)


def host_task(ctx, x, body):
    ctx.host_launch(x.rw())(body)


def add_in_place(k, a):
    a += k


def counted_up(ctx, x, s, k):
    s.assign(0.0)
    with ctx.while_loop(s < k):
        s.assign(s + 1)
        increment(x)


def branched(ctx, x, s, k):
    with ctx.if_(k > s / 2) as branch:
        increment(x)
    with branch.else_():
        add(x, x, k)


@stf.task
def take_list(x: stf.ReadWrite, numbers):
    x += numbers[0] + numbers[1]


@stf.task
def take_dict(x: stf.ReadWrite, numbers):
    x += numbers["deep"][0]["k"]


@pytest.mark.parametrize("name", ASKED)
def test_a_function_that_needs_values_gets_them(ctx, name):
    step = run_both(ctx, ASKED[name], (2.0, 3.0, 5.0, 7.0, 3.0, 3.0, 3.0, 5.0))
    if name != "type":
        assert "shape the graph: k" in step.explain()
    assert "launched" in step.explain()


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_from_numbers_is_computed_at_each_launch(ctx, name):
    step = run_both(ctx, COMPUTED[name])
    assert "1 recordings" in step.explain() and "parameters: k" in step.explain()
    assert "launched 5 times" in step.explain()


def test_not_a_number_and_zeros_are_themselves(ctx, lX):
    @stf.replay
    def step(x, k):
        set_to(x, k)

    for k in (0.0, -0.0, 0.0, -0.0, 0.0, -0.0, float("nan"), -0.0, float("nan")):
        step(lX, k)
        found = lX.numpy()[0]
        assert (math.isnan(found) and math.isnan(k)) or (found == k and math.copysign(1, found) == math.copysign(1, k))


@stf.task
def set_to(x: stf.Write, k):
    x[...] = 1
    x *= k


def test_arithmetic_of_scalar_data(ctx, lS):
    """What parameters can, expressions of data can."""
    lT = ctx.logical_data_empty((), np.float64)
    for expression, value in (
        (lS // 3, 3),
        (lS % 3, 1),
        (2**lS, 1024),
        (np.sqrt(lS * 10), 10),
        (np.float64(1) + lS, 11),
        (np.maximum(lS, 12), 12),
        (+lS, 10),
        (7 % lS, 7),
        (25 // lS, 2),
    ):
        lT.assign(expression)
        assert float(lT) == value
    with pytest.raises(TypeError, match="is not an array"):
        np.sqrt(ctx.logical_data(np.ones(3), name="V"))
    with pytest.raises(TypeError, match=r"numpy\.add of scalar data"):
        np.add(lS, np.ones(3))
    for change in ("s += 1", "s /= 2", "s **= 2", "s //= 2", "s %= 2"):
        with pytest.raises(TypeError, match="is not an array"):
            exec(change, {"s": lS})


def test_parameters_of_a_graph_in_expressions_and_fills(ctx, lX, lS):
    g = ctx.task_graph("steps")
    rate = g.param("rate", 1.0)
    with g:
        ctx.fill(lX, rate * 2)
        lS.assign(lS + rate)
        with ctx.if_(lS > rate + 12):
            increment(lX)
    for value, expected in ((1.0, 2), (50.0, 100), (200.0, 401)):
        g.launch(rate=value)
        assert lX.numpy()[0] == expected
    assert float(lS) == 10 + 251


def test_a_parameter_outside_of_its_graph_is_told(ctx, lX):
    p = ctx.task_graph("steps").param("p", 2.0)
    told = "parameter 'p' has a value in launches of .*, of which this task is no part; give it a number"
    with pytest.raises(TypeError, match=told):
        add(lX, lX, p)
    with ctx.graph_scope(), pytest.raises(TypeError, match=told):
        add(lX, lX, p)
    with pytest.raises(TypeError, match=told):
        ctx.fill(lX, p)
    other = ctx.task_graph()
    with other, pytest.raises(TypeError, match=told):
        add(lX, lX, p + 1)
    with pytest.raises(TypeError, match=told), ctx.repeat(2):
        add(lX, lX, p)
    lS = ctx.logical_data(np.zeros(()))
    with pytest.raises(TypeError, match=told):
        lS.assign(lS + p)
    with pytest.raises(TypeError, match=told), ctx.while_loop(lS < p):
        increment(lS)
    assert float(lS) == 0
    increment(lX)
    assert lX.numpy()[0] == 1  # nothing is poisoned


def test_a_parameter_within_a_container_is_told(ctx, lX):
    g = ctx.task_graph("steps")
    p = g.param("p", 2.0)
    with pytest.raises(TypeError, match="the value of parameter 'p' is not known while a graph is recorded"), g:
        take_list.on(stf.exec_place.host())(lX, [p, 1.0])
    increment(lX)
    assert lX.numpy()[0] == 1


@pytest.mark.parametrize("wrap", [lambda k: [k], lambda k: collections.deque([k]), lambda k: (k,)])
def test_a_number_that_is_returned(ctx, lX, wrap):
    @stf.replay
    def step(x, k):
        add(x, x, k)
        return wrap(k * 2)

    for k in VALUES:
        (found,) = step(lX, k)
        assert found == k * 2 and type(found) is float


def test_bodies_get_numbers_of_each_launch(ctx, lX):
    """Also by name, from a default, and in a body on the host."""
    types = []

    @stf.task
    def note(x: stf.ReadWrite, a, *, b=1.0):
        types.append((type(a), type(b)))
        x += a * b

    @stf.replay
    def step(x, k):
        note.on(stf.exec_place.host())(x, k, b=k)

    for k in VALUES:
        step(lX, k)
    assert lX.numpy()[0] == sum(k * k for k in VALUES)
    assert set(types) == {(float, float)}


def test_a_number_that_a_block_computes_with(ctx, lX):
    """A with-block is captured as it stands, so a number in it shapes the graph; on a CPU it cannot be recorded."""

    @stf.replay
    def step(x, k):
        with ctx.task(x.rw()) as t:
            (a,) = t.arrays()
            a += k

    if not is_cuda(ctx):
        step(lX, 1.0)
        with pytest.raises(stf.CaptureError, match="is a with-block on a CPU"):
            step(lX, 1.0)
        return
    for k in VALUES:
        step(lX, k)
    assert lX.numpy()[0] == sum(VALUES)


@stf.task
def increase(x: stf.ReadWrite, by):
    x += by


def test_what_cannot_be_computed_from_a_number_spoils_nothing(ctx):
    """A call raises what Python raises, before anything has begun."""
    lX = ctx.logical_data(np.zeros(4))

    @stf.replay
    def f(x, k):
        increase(x, 1 / k)

    for k in (1, 2, 4, 4):
        f(lX, k)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            f(lX, 0)
    f(lX, 1)
    assert lX.numpy().tolist() == [3.0] * 4

    inner, outer = ctx.task_graph(), ctx.task_graph()
    a, b = inner.param("a", 1.0), outer.param("b", 2.0)
    with inner:
        increase(lX, 1 / a)
    with outer:
        inner.launch(a=b - 1)
    inner.launch(a=2.0)
    outer.launch()
    for launch, error in (
        (lambda: inner.launch(a=0.0), ZeroDivisionError),
        (lambda: inner.launch(a=None), TypeError),
        (lambda: outer.launch(b=1.0), ZeroDivisionError),
    ):
        with pytest.raises(error):
            launch()
    outer.launch(b=3.0)
    assert lX.numpy().tolist() == [5.0] * 4


def handled(ctx):
    def step(x, s, k):
        try:
            add(x, x, 10 / (k - 3))
        except ZeroDivisionError:
            add(x, x, 77.0)

    return step


def unused(ctx):
    def step(x, s, k):
        increment(x)
        try:
            1 // (k - 3)
        except ArithmeticError:
            add(x, x, 77.0)

    return step


def suppressed(ctx):
    def step(x, s, k):
        with contextlib.suppress(OverflowError):
            add(x, x, 0.0 * 10.0 ** (k * 100) + 1.0)
        increment(x)

    return step


@pytest.mark.parametrize("validate", [False, True], ids=["", "validated"])
@pytest.mark.parametrize("make", [handled, unused, suppressed])
@pytest.mark.parametrize(
    "values", [(1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 3.0, 5.0), (1.0, 2.0, 4.0, 4.0, 3.0, 4.0, 3.0, 3.0, 7.0)]
)
def test_what_a_function_does_where_it_cannot_compute(ctx, make, values, validate, monkeypatch):
    """Its handler belongs to the value that it met, and not to the recording."""
    monkeypatch.setattr(stf.config, "validate", validate)
    step = run_both(ctx, make, values)
    assert "parameters: k" in step.explain() and "1 recordings" in step.explain()
    assert f"{len(values)} calls" in step.explain()


def test_a_call_that_cannot_be_recorded_says_why(ctx):
    step = stf.replay(handled(ctx))
    lX, lS = ctx.logical_data(np.ones(3)), ctx.logical_data(np.zeros(()))
    for k in (1.0, 2.0, 3.0, 3.0):
        step(lX, lS, k)
    assert "not recorded yet: something could not be computed with k = 3.0" in step.explain()


@dataclasses.dataclass
class Shifted:
    x: object
    by: object


@stf.task
def shift(thing: stf.ReadWrite):
    thing.x += thing.by


@pytest.mark.parametrize("wrap", [lambda k: k, lambda k: 2 * k], ids=["as such", "computed with"])
def test_a_number_beside_data_in_an_object_shapes_the_graph(ctx, wrap):
    def make(ctx):
        def step(x, s, k):
            shift(Shifted(x, wrap(k)))
            shift.on(stf.exec_place.host())(Shifted(x, wrap(k)))

        return step

    step = run_both(ctx, make)
    assert "values that shape the graph: k" in step.explain()
    g, lX = ctx.task_graph(), ctx.logical_data(np.zeros(3))
    p = g.param("p", 2.0)
    with pytest.raises(TypeError, match="the value of parameter 'p' is not known while a graph is recorded"), g:
        shift(Shifted(lX, wrap(p)))
    with pytest.raises(TypeError, match="parameter 'p' has a value in launches of graph"):
        shift(Shifted(lX, p))
    assert lX.numpy().tolist() == [0] * 3
