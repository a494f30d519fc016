"""What a replay looks at before it repeats what was recorded, and what `STF_VALIDATE=1` finds beside that."""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import gc
import itertools
import logging
import types
import weakref

import numpy as np
import pytest
from helpers import add, increment, set_to

import stf


@dataclasses.dataclass
class Options:
    factor: float
    steps: int = 1


@dataclasses.dataclass(slots=True)
class Slotted:
    factor: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    factors: list


@dataclasses.dataclass(unsafe_hash=True)
class Hashed:
    factor: float


def cyclic(value):
    items = [value]
    items.append({"around": items})
    return items


CONTAINERS = {  # a value, and how it changes in place
    "list": (lambda: [1.0], lambda c: c.__setitem__(0, 5.0), lambda c: c[0]),
    "nested": (lambda: {"a": [1.0, (2,)]}, lambda c: c["a"].__setitem__(0, 5.0), lambda c: c["a"][0]),
    "set": (lambda: {1.0}, lambda c: (c.clear(), c.add(5.0)), lambda c: next(iter(c))),
    "array": (lambda: np.ones(3), lambda c: c.__setitem__(0, 5.0), lambda c: float(c[0])),
    "dataclass": (lambda: Options(1.0), lambda c: setattr(c, "factor", 5.0), lambda c: c.factor),
    "dataclass with slots": (lambda: Slotted(1.0), lambda c: setattr(c, "factor", 5.0), lambda c: c.factor),
    "frozen dataclass": (lambda: Frozen([1.0]), lambda c: c.factors.__setitem__(0, 5.0), lambda c: c.factors[0]),
    "hashed dataclass": (lambda: Hashed(1.0), lambda c: setattr(c, "factor", 5.0), lambda c: c.factor),
    "deque": (lambda: collections.deque([1.0]), lambda c: c.__setitem__(0, 5.0), lambda c: c[0]),
    "bytearray": (lambda: bytearray([1]), lambda c: c.__setitem__(0, 5), lambda c: float(c[0])),
    "array.array": (lambda: array.array("d", [1.0]), lambda c: c.__setitem__(0, 5.0), lambda c: c[0]),
    "chain map": (lambda: collections.ChainMap({"a": 1.0}), lambda c: c.__setitem__("a", 5.0), lambda c: c["a"]),
    "cycle": (lambda: cyclic(1.0), lambda c: c.__setitem__(0, 5.0), lambda c: c[0]),
    "values of a dict": (
        lambda: {"a": [1.0]}.values(),
        lambda c: next(iter(c)).__setitem__(0, 5.0),
        lambda c: next(iter(c))[0],
    ),
    "record": (
        lambda: np.array([(1.0, 2)], [("w", "f8"), ("n", "i8")])[0],
        lambda c: c.__setitem__("w", 5.0),
        lambda c: float(c["w"]),
    ),
    "record of objects": (
        lambda: np.array([([1.0], 2)], [("w", "O"), ("n", "i8")])[0],
        lambda c: c["w"].__setitem__(0, 5.0),
        lambda c: c["w"][0],
    ),
    "namespace": (lambda: types.SimpleNamespace(a=1.0), lambda c: setattr(c, "a", 5.0), lambda c: c.a),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("where", ["argument", "closure"])
def test_containers_are_compared_by_what_they_contain(ctx, lX, lY, name, where):
    make, change, read = CONTAINERS[name]
    held, calls = make(), []

    if where == "argument":

        @stf.replay
        def step(x, y, c):
            calls.append(1)
            add(x, y, read(c))

        def call():
            step(lX, lY, held)

    else:

        @stf.replay
        def step(x, y):
            calls.append(1)
            add(x, y, read(held))

        def call():
            step(lX, lY)

    for _ in range(4):
        call()
    assert len(calls) == 2 and lX.numpy()[1] == 4
    change(held)
    for _ in range(3):
        call()
    assert lX.numpy()[1] == 4 + 15
    assert "c" in step.explain() or "held" in step.explain()


def test_what_the_function_itself_changes_is_not_compared(ctx, lX):
    """Such as a log, or a table that it fills."""
    log, table = [], {}

    @stf.replay
    def step(x):
        log.append(len(log))
        table[len(log)] = 1
        increment(x)

    for _ in range(6):
        step(lX)
    assert lX.numpy()[0] == 6 and len(log) == 2


def test_a_function_that_rebinds_what_it_closes_over_is_not_recorded(ctx):
    """Such as one that swaps two data: its Python must run each time."""
    a, b = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.ones(2))
    seen = a, b

    @stf.task
    def sum_up(x: stf.ReadWrite, y: stf.Read):
        x += y

    @stf.replay
    def step(ctx):
        nonlocal a, b
        sum_up(a, b)
        a, b = b, a

    want = [0, 1]
    for k in range(9):
        step(ctx)
        want[k % 2] += want[1 - k % 2]
    assert [data.numpy().tolist() for data in seen] == [[want[0]] * 2, [want[1]] * 2]
    assert "0 recordings" in step.explain() and "since it changes 'b' of its closure" in step.explain()


def test_bodies_that_change_a_container_of_the_closure(ctx, lX):
    """The function only hands it on, and when bodies run is nobody's to say."""
    seen = []

    @stf.replay
    def step(x):
        ctx.host_launch(x.rw())(lambda a: (seen.append(1), np.add(a, 1, out=a))[1])

    for _ in range(6):
        step(lX)
        ctx.synchronize()
    assert lX.numpy()[0] == 6 and len(seen) == 6
    assert "launched 5 times" in step.explain()


def traced(fn):
    @functools.wraps(fn)
    def call(*args, **kwargs):
        return fn(*args, **kwargs)

    return call


class Traced:
    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn

    def __call__(self, *args):
        return self.fn(*args)


def uses_of(ctx, k):
    """Functions that use what `k` holds, each in another way; `scale` in the closure is that, too."""
    scale = 0.0

    def set_to(value):
        nonlocal scale
        scale = k[0] = value

    def direct(x, y):
        add(x, y, scale)

    def scaled(a, x, y):
        add(x, y, a * scale)

    @stf.task
    def task(x: stf.ReadWrite, y: stf.Read):
        x += y * scale

    def body_reads_list(x, y):
        @ctx.task(stf.exec_place.host(), x.rw(), y.read())
        def body(x, y):
            x += y * k[0]

    def applies(x, y, fn):
        fn(x, y)

    def reads_beside_a_store(x, y):
        local = [0.0]
        local[0] = k[0]
        add(x, y, local[0])

    @stf.task
    def stores(x: stf.ReadWrite, y: stf.Read):
        x[...] = x + y * k[0]

    class Adder:
        def __call__(self, x, y):
            add(x, y, scale)

    @dataclasses.dataclass
    class Model:
        weights: list

        def step(self, x, y):
            add(x, y, self.weights[0])

    def with_default(x, y, c=k):
        add(x, y, c[0])

    table, by_name = [direct], {"direct": [direct]}

    return set_to, {
        "decorated": traced(direct),
        "decorated twice": traced(traced(direct)),
        "by an object": Traced(direct),
        "partial": functools.partial(scaled, 1.0),
        "partial of a list": functools.partial(lambda c, x, y: add(x, y, c[0]), k),
        "partial by name": functools.partial(lambda x, y, c: add(x, y, c[0]), c=k),
        "helper": lambda x, y: direct(x, y),
        "helper of a helper": lambda x, y: traced(lambda: direct(x, y))(),
        "task function": lambda x, y: task(x, y),
        "body": body_reads_list,
        "argument": lambda x, y: applies(x, y, direct),
        "bound argument": functools.partial(applies, fn=direct),
        "beside a store": reads_beside_a_store,
        "in a store": lambda x, y: stores(x, y),
        "in a table": lambda x, y: table[0](x, y),
        "in a dict of lists": lambda x, y: by_name["direct"][0](x, y),
        "object that is called": Adder(),
        "method": Model(k).step,
        "default": lambda x, y: with_default(x, y),
    }


@pytest.mark.parametrize("name", uses_of(None, [0.0])[1])
def test_all_that_a_function_closes_over_is_seen(ctx, lX, lY, name):
    set_to, functions = uses_of(ctx, [0.0])
    step, total = stf.replay(functions[name]), 0.0
    for value in (1.0, 1.0, 1.0, 5.0, 5.0, 7.0, 7.0, 7.0, 1.0):
        set_to(value)
        step(lX, lY)
        ctx.synchronize()  # a body that runs later sees what is in the list then
        total += value
    assert lX.numpy()[1] == total
    assert step.explain().count("launched 2 times") == 1 and step.explain().count("launched 3 times") == 1


def test_a_function_that_is_given_is_seen_with_its_closure(ctx, lX, lY):
    set_to, functions = uses_of(ctx, [0.0])
    step = stf.replay(lambda x, y, fn: fn(x, y))
    helper, total = functions["helper"], 0.0
    for value in (1.0, 1.0, 1.0, 5.0, 5.0, 7.0):
        set_to(value)
        step(lX, lY, helper)
        total += value
    assert lX.numpy()[1] == total and "launched 2 times" in step.explain()


def test_what_functions_of_the_closure_change_is_not_compared(ctx, lX):
    """Such as the log of a task, or of a decorator."""
    log, calls, counts = [], {}, []

    def counted(fn):
        @functools.wraps(fn)
        def call(x):
            calls["count"] = calls.get("count", 0) + 1
            return fn(x)

        return call

    @stf.task(arrays="numpy")
    def noted(x: stf.ReadWrite):
        log.append(1)
        x += 1

    def remember(values):
        values += [1]

    @stf.replay
    @counted
    def step(x):
        remember(counts)
        noted.on("host")(x)

    for _ in range(6):
        step(lX)
        ctx.synchronize()
    assert lX.numpy()[0] == 6 and len(log) == 6 and calls["count"] == 2 and len(counts) == 2
    assert "launched 5 times" in step.explain()


def test_a_decorator_may_give_more_than_it_gets(ctx, lX, lY):
    def with_two(fn):
        @functools.wraps(fn)
        def call(x, y):
            return fn(x, y, 2.0)

        return call

    @stf.replay
    @with_two
    def step(x, y, c):
        add(x, y, c)

    for _ in range(4):
        step(lX, lY)
    assert lX.numpy()[1] == 8 and "launched 3 times" in step.explain()


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_functions_whose_call_runs_nothing_are_refused(kind):
    def generator(x):
        yield x

    async def coroutine(x):
        return x

    with pytest.raises(TypeError, match=f"got the coroutine or generator '{kind}'"):
        stf.replay(generator if kind == "generator" else coroutine)


@dataclasses.dataclass
class Derived:
    factor: float

    def __post_init__(self):
        self.scale = self.factor


@dataclasses.dataclass(eq=False)
class Layer:
    width: float


class Stateful(collections.UserList):
    scale = 1.0


def test_containers_are_what_is_beside_their_items_too(ctx, lX, lY):
    layers = [Layer(1.0), Layer(1.0)]
    weights = {layers[0]: 1.0, layers[1]: 10.0}
    derived, stateful = Derived(1.0), Stateful([1.0])

    @stf.replay
    def by_layer(x, y, layer):
        add(x, y, weights[layer])

    @stf.replay
    def by_scale(x, y, options):
        add(x, y, options.scale)

    @stf.replay
    def by_type(x, y, numbers):
        add(x, y, float(numbers[0]))

    for _ in range(3):
        by_layer(lX, lY, layers[0])
        by_layer(lX, lY, layers[1])
    assert lX.numpy()[1] == 33
    for options in (derived, stateful):
        ctx.fill(lX, 0.0)
        for _ in range(3):
            by_scale(lX, lY, options)
        options.scale = 5.0
        by_scale(lX, lY, options)
        assert lX.numpy()[1] == 8
    ctx.fill(lX, 0.0)
    for numbers in (array.array("l", [1]), array.array("d", [5e-324])) * 3:
        by_type(lX, lY, numbers)
    assert lX.numpy()[1] == 3


def test_data_in_containers_of_all_kinds(ctx, lX):
    @stf.replay
    def step(options):
        increment(options.data)

    for _ in range(4):
        step(types.SimpleNamespace(data=lX))
    assert lX.numpy()[0] == 4 and "launched 3 times" in step.explain()


def test_the_default_place_is_compared(ctx, lX):
    calls = []

    @stf.replay
    def step(x):
        calls.append(1)
        increment(x)

    places = list(dict.fromkeys((ctx.devices[0], ctx.devices[len(ctx.devices) - 1])))
    for place in places * 2:
        with place:
            for _ in range(3):
                step(lX)
    assert lX.numpy()[0] == 6 * len(places) and len(calls) == 2 * len(places)


def test_tasks_of_another_context_are_refused(ctx, ctx_factory, lX):
    """They would run now, and in no launch."""
    with ctx_factory() as other:
        lZ = other.logical_data(np.zeros(2), name="Z")

        @stf.replay
        def step(x):
            increment(x)
            increment(lZ)

        step(lX)
        for _ in range(2):
            with pytest.raises(stf.TaskStateError, match="is of another context than graph 'step'"):
                step(lX)
        assert "not recorded, since it raised TaskStateError" in step.explain()
        g = ctx.task_graph("steps")
        with pytest.raises(stf.TaskStateError, match="is of another context than graph 'steps'"), g:
            float(other.logical_data_full((), 1.0))
        with ctx.graph_scope():  # which is launched once, as that runs once
            increment(lX)
            increment(lZ)
        assert lX.numpy()[0] == 2 and lZ.numpy()[0] == 2


def test_two_contexts_may_be_recorded_together(ctx, ctx_factory, lX):
    with ctx_factory() as other:
        lZ = other.logical_data(np.zeros(2), name="Z")
        g, h = ctx.task_graph("one"), other.task_graph("other")
        with g, h:
            increment(lX)
            increment(lZ)
        g.launch()
        h.launch()
        h.launch()
        assert lX.numpy()[0] == 1 and lZ.numpy()[0] == 2


# -- telling ---------------------------------------------------------------------------------------------------------


def test_recordings_that_are_given_up_are_told(ctx, lX, lY, caplog):
    @stf.replay(static=("n",))
    def step(x, n, mode="a"):
        for _ in range(n):
            increment(x)

    with caplog.at_level(logging.WARNING, "stf"):
        for n in range(1, 12):
            step(lX, n)
            step(lX, n)
    assert lX.numpy()[0] == sum(2 * n for n in range(1, 12))
    told = step.explain()
    assert "11 recordings, 3 given up, 8 signatures known" in told
    assert "values that shape the graph: n" in told and "what changed last: n" in told
    assert "n 11, mode a: 2 calls, recorded: 11 nodes, launched 1 times" in told
    assert len(caplog.records) == 1 and "what changed last: n" in caplog.text


def test_signatures_without_recordings_take_no_recording_s_place(ctx, lX):
    calls = []

    @stf.replay(static=("n",))
    def step(x, n):
        calls.append(n)
        increment(x)

    for _ in range(3):
        step(lX, 0)
    for n in range(1, 30):
        step(lX, n)  # once each
    before = len(calls)
    step(lX, 0)
    assert len(calls) == before and lX.numpy()[0] == 33


def test_a_function_that_is_never_called_alike_is_told(ctx, lX, caplog):
    @stf.replay(static=("n",))
    def step(x, n):
        increment(x)

    with caplog.at_level(logging.WARNING, "stf"):
        for n in range(100):
            step(lX, n)
    assert len(caplog.records) == 1 and "nothing is replayed; what changed last: n" in caplog.text
    assert "0 recordings" in step.explain() and "64 signatures known" in step.explain()


def test_why_a_call_was_not_recorded_is_told(ctx, lX):
    @stf.replay
    def step(x):
        if x.numpy()[0] < 10:
            increment(x)

    step(lX)
    with pytest.raises(stf.TaskStateError):
        step(lX)
    assert "not recorded, since it raised TaskStateError: wait inside" in step.explain()


def test_a_writeable_memoryview_is_compared_as_the_object_that_it_is(ctx):
    x, view = ctx.logical_data_zeros(3), memoryview(bytearray(4))

    @stf.replay
    def steps(x, view):
        stf.task(increase)(x)

    def increase(a: stf.ReadWrite):
        a += 1

    for _ in range(4):
        steps(x, view)
    assert x.numpy().tolist() == [4] * 3 and "launched 3 times" in steps.explain()


class Unhashable:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n


@pytest.mark.parametrize("kind", ["slice", "object", "large array"])
def test_what_is_known_by_its_identity_may_go_and_another_take_its_place(ctx, lX, kind):
    """A new object in a container, at the address of one that is gone, is another one."""
    make = {
        "slice": lambda n: slice(0, n),
        "object": Unhashable,
        "large array": lambda n: np.full(1 << 18, float(n)),
    }[kind]
    read = {"slice": lambda v: v.stop, "object": lambda v: v.n, "large array": lambda v: int(v[0])}[kind]

    @stf.replay
    def steps(x, box):
        for _ in range(read(box["v"])):
            increment(x)

    box, expected = {}, 0
    for i in range(24):
        box["v"] = None
        box["v"] = make(i % 5)
        steps(lX, box)
        expected += i % 5
    assert lX.numpy().tolist() == [expected] * 4


def test_arguments_of_calls_that_were_not_recorded_may_go(ctx, lX):
    @stf.replay
    def step(x, table):
        increment(x)

    seen = []
    for _ in range(4):
        table = np.zeros(1 << 18)
        seen.append(weakref.ref(table))
        step(lX, table)
        del table
    ctx.synchronize()
    assert [table() for table in seen] == [None] * 4


@pytest.mark.parametrize("calls", [1, 4])
def test_a_context_among_the_arguments_is_collected(ctx_factory, calls):
    @stf.replay
    def step(ctx, x):
        increment(x)

    ctx = ctx_factory()
    X, known = np.zeros(4), weakref.ref(ctx)
    x = ctx.logical_data(X)
    for _ in range(calls):
        step(ctx, x)
    ctx.finalize()
    ctx_factory.opened.clear()
    del ctx, x
    gc.collect()
    assert X.tolist() == [calls] * 4 and known() is None


def test_what_is_another_one_after_each_use_is_not_recorded(ctx):
    lX, lY = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    numbers, random = itertools.count(), np.random.default_rng(3)

    @stf.replay
    def of_closure(x):
        set_to(x, next(numbers))

    @stf.replay
    def of_argument(x, source):
        set_to(x, source.random())

    for k in range(4):
        of_closure(lX)
        assert lX.numpy()[0] == k
    expected = np.random.default_rng(3)
    for _ in range(4):
        of_argument(lY, random)
        assert lY.numpy()[0] == expected.random()
    assert "not recorded, since 'numbers' is another one after each use" in of_closure.explain()
    assert "not recorded, since 'source' is another one after each use" in of_argument.explain()
