"""Functions whose submissions are recorded at their second call: `stf.replay`."""

from __future__ import annotations

import enum
import gc
import inspect
import weakref

import numpy as np
import pytest
from helpers import add, add_up, everywhere, increment, take, together

import stf


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
        calls.append((a, n))
        for _ in range(n):  # so its value is part of the signature
            add(x, y, a * 2)

    total = 0
    for k in range(6):
        step(lX, lY, float(k))
        total += 2 * 2 * k
        assert lX.numpy()[1] == total
    assert [n for _, n in calls] == [2, 2, 2]  # the third value is recorded, as a parameter
    assert "parameters: a" in step.explain() and "launched 4 times" in step.explain()
    for _ in range(4):
        step(lX, lY, 1.0, n=3)
        total += 6
        assert lX.numpy()[1] == total
    assert [n for _, n in calls] == [2, 2, 2, 3, 3]
    step(lX, lY, 7.0)
    assert lX.numpy()[1] == total + 28 and len(calls) == 5
    step(lX, lY, 1.0, 4)  # its third value: that is asked for, so it stays part of the signature
    assert lX.numpy()[1] == total + 36 and "shape the graph: n" in step.explain()
    before = len(calls)
    for _ in range(3):
        step(lX, lY, 2.0, 4)
        step(lX, lY, 2.0, 3)
    assert lX.numpy()[1] == total + 36 + 3 * (16 + 12) and len(calls) == before + 1


def test_a_graph_tells_how_it_is_launched():
    parameters = inspect.signature(stf.TaskGraph.launch).parameters
    assert list(parameters) == ["self", "data", "values"] and parameters["data"].default is None


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


ASKS = {
    "equal": lambda k: 100 if k == 1 else 1,
    "unequal": lambda k: 1 if k != 1 else 100,
    "among": lambda k: 100 if k in (1, 2) else 1,
    "table": lambda k: {1: 100, 3: 1, 5: 1}[k],
    "get": lambda k: {1: 100}.get(k, 1),
    "text": lambda k: 100 if f"{k}" == "1" else 1,
    "string": lambda k: 100 if str(k) == "1" else 1,
    "of two": lambda k: 100 if k + k == 2 else 1,
    "bits": lambda k: 100 if k & 1 and k < 2 else 1,
    "round": lambda k: 100 if round(k) == 1 else 1,
}


@pytest.mark.parametrize("asks", ASKS)
def test_a_number_that_is_compared_shapes_the_graph(ctx, lX, asks):
    """Whatever asks for its value: the answer must not be that of the object that stands for it."""

    @stf.replay
    def step(x, k):
        add(x, x, ASKS[asks](k))

    for k in (1, 3, 5, 5, 5, 1, 1, 1, 3, 3, 3, 5):
        ctx.fill(lX, 1.0)
        step(lX, k)
        assert lX.numpy()[0] == (101 if k == 1 else 2), k
    assert "values that shape the graph: k" in step.explain() and "3 recordings" in step.explain()


def test_numbers_that_shape_the_graph_together(ctx, lX):
    """It was recorded again and again, for ever."""
    calls = []

    @stf.replay
    def step(x, a, b):
        calls.append(1)
        assert len(calls) < 20
        if a + b > 1:
            increment(x)
        for _ in range(a * b):
            increment(x)

    total = 0
    for a, b in ((2, 3), (2, 3), (1, 1), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2), (1, 0), (2, 3)):
        step(lX, a, b)
        total += (a + b > 1) + a * b
        assert lX.numpy()[0] == total
    assert "values that shape the graph: a, b" in step.explain()


def test_a_parameter_of_another_graph_that_shapes_a_replay_is_an_error(ctx, lX):
    p = ctx.task_graph("outer").param("p", 1.0)

    @stf.replay
    def step(x):
        if p > 0:
            increment(x)

    for _ in range(2):
        with pytest.raises(TypeError, match="the value of parameter 'p' is not known"):
            step(lX)


@pytest.mark.parametrize(
    "compute", [lambda p: p // 2, lambda p: 7 % p, lambda p: abs(-p), lambda p: 2**p, lambda p: +p, lambda p: 9 // p]
)
def test_arithmetic_of_numbers_is_done_at_each_launch(ctx, lX, compute):
    @stf.replay
    def step(x, p):
        add(x, x, compute(p))

    for p in (5.0, 4.0, 3.0, 2.0, 5.0, 4.0):
        ctx.fill(lX, 1.0)
        step(lX, p)
        assert lX.numpy()[0] == 1 + compute(p)
    assert "1 recordings" in step.explain() and "parameters: p" in step.explain()


def test_a_replay_cannot_branch_on_data(ctx, lX):
    @stf.replay
    def step(x):
        if x.numpy()[0] < 10:
            increment(x)

    step(lX)
    for _ in range(2):
        with pytest.raises(
            stf.TaskStateError, match="wait inside graph 'step'.* nor branch on them; use ctx.if_ or ctx.while"
        ):
            step(lX)
    assert "use ctx.if_ or ctx.while_loop" in step.explain()
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


def test_calls_like_earlier_ones_are_known_without_a_look_at_all(ctx):
    """By position: data and lists of data, numbers, other objects, closures, defaults, the default place."""
    calls, scale, names = [], 2.0, {"x": 1}

    @stf.replay
    def step(parts, by, word="a", a=1.0):
        calls.append(word)
        for part in parts:
            add(part, by, a * scale)

    data = [ctx.logical_data(np.zeros(3)) for _ in range(3)]
    model = [0.0, 0.0, 0.0]
    one, two = ctx.logical_data(np.ones(3)), ctx.logical_data(np.full(3, 2.0))

    def check(parts, by, *rest):
        step([data[i] for i in parts], by, *rest)
        for i in parts:
            model[i] += (1 if by is one else 2) * scale * (rest[1] if len(rest) > 1 else 1)
        assert [float(d.numpy()[0]) for d in data] == model

    for _ in range(4):  # in turn, so that each is known
        check([0, 1], one)
        check([1, 2], one)
        check([0, 1], two, "a", 3.0)
        check([0, 1], two, "a", 4.0)
    assert len(calls) == 6
    check([0, 1, 2], one)  # another list of data
    check([1, 0], one)
    check([0, 1], two, "b", 3.0)
    check([0, 1], two, "a", 3)  # another type of number
    assert len(calls) == 10
    scale = 5.0  # a closure
    for _ in range(3):
        check([0, 1], one)
    assert len(calls) == 12
    parts = [data[0], data[1]]
    for _ in range(3):
        step(parts, one)
    parts[1] = data[2]  # the same list, and other data
    step(parts, one)
    model = [model[0] + 20, model[1] + 15, model[2] + 5]
    assert [float(d.numpy()[0]) for d in data] == model
    step.close()
    check([0, 1], one)
    assert names == {"x": 1} and "1 signatures known" in step.explain()


def test_values_that_change_in_place_are_looked_at_again(ctx):
    one, two = ctx.logical_data(np.ones(3)), ctx.logical_data(np.full(3, 2.0))
    x, terms = ctx.logical_data(np.zeros(3)), [one]

    class Config:
        def __init__(self, v):
            self.v = v

        def __eq__(self, other):
            return isinstance(other, Config) and self.v == other.v

        def __hash__(self):
            return hash(self.v)

    @stf.replay
    def step(x, config, terms=terms):
        for term in terms:
            add(x, term, config.v)

    for _ in range(4):
        step(x, Config(1.0))
    terms[0] = two  # the default
    step(x, Config(1.0))
    step(x, Config(10.0))
    assert x.numpy().tolist() == [26.0] * 3


@pytest.mark.parametrize("form", ["lists", "dict", "tuple", "rows", "numbers"])
def test_containers_of_data_are_known_without_a_look_at_all(ctx, form, monkeypatch):
    """Lists of lists of data, as of tiles, and what is in them, whenever that changes; also in variable arguments."""
    tiles = [[ctx.logical_data(np.zeros(2)) for _ in range(2)] for _ in range(2)]
    other, calls, looks = ctx.logical_data(np.zeros(2)), [], []

    @stf.replay
    def step(*given):
        calls.append(1)
        (first,) = given if form != "rows" else (given,)
        rows = list(first.values()) if form == "dict" else first[0] if form == "tuple" else first
        by = first[-1] if form == "numbers" else 1.0
        for row in rows[:2]:
            for tile in row:
                ctx.task(tile.rw())(lambda t, by=by: t + by)

    forms = {
        "lists": lambda: [tiles],
        "dict": lambda: [{"a": tiles[0], "b": tiles[1]}],
        "tuple": lambda: [(tiles, "x", (1, 2))],
        "rows": lambda: tiles,
        "numbers": lambda: [[*tiles, 2.0]],
    }
    whole = type(step)._call_whole
    monkeypatch.setattr(type(step), "_call_whole", lambda *rest: looks.append(1) or whole(*rest))
    each = 2.0 if form == "numbers" else 1.0
    for _ in range(3):
        step(*forms[form]())
    looks.clear()
    for _ in range(3):
        step(*forms[form]())
    assert looks == [] and len(calls) == 2
    assert [[t.numpy().tolist() for t in row] for row in tiles] == [[[6 * each] * 2] * 2] * 2
    before, tiles[1][0] = tiles[1][0], other  # in place, in a list of a list
    step(*forms[form]())
    assert other.numpy().tolist() == [each] * 2 and before.numpy().tolist() == [6 * each] * 2 and looks == [1]
    tiles[0].append(before)
    step(*forms[form]())
    assert before.numpy().tolist() == [7 * each] * 2 and other.numpy().tolist() == [2 * each] * 2
    if form == "dict":
        step({"b": tiles[0], "a": tiles[1]})
    if form == "numbers":
        step([*tiles, 5.0])
    if form in ("dict", "numbers"):
        assert other.numpy().tolist() == [2 * each + (5.0 if form == "numbers" else 1.0)] * 2 and len(looks) == 3


def test_methods_are_known_without_a_look_at_all(ctx, lX, lY, monkeypatch):
    """A bound method of the closure is its object and its function; what those read is compared as well."""

    class Solver:
        def __init__(self, x):
            self.rows = [[x], [x]]

        def add_to(self, n):
            for row in self.rows[:n]:
                increment(row[0])

    one, two, looks = Solver(lX), Solver(lY), []
    submit, method = one.add_to, two.add_to

    @stf.replay
    def step(n):
        submit(n)
        method(n)

    whole = type(step)._call_whole
    monkeypatch.setattr(type(step), "_call_whole", lambda *rest: looks.append(1) or whole(*rest))
    for _ in range(4):
        step(2)
    looks.clear()
    before, other = [x.numpy()[0] for x in (lX, lY)], ctx.logical_data(np.zeros(4))
    for _ in range(3):
        step(2)
        method = two.add_to  # another object, and the same method
    assert [x.numpy()[0] for x in (lX, lY)] == [before[0] + 6, before[1] + 6] and looks == []
    two.rows[1][0] = other
    step(2)
    assert other.numpy()[0] == 1 and lY.numpy()[0] == before[1] + 7
    method = Solver(other).add_to
    step(2)
    assert other.numpy()[0] == 3 and lX.numpy()[0] == before[0] + 10


@pytest.mark.parametrize(
    "pack", [lambda kind: kind, lambda kind: [kind], lambda kind: {"a": (kind,)}, lambda kind: {kind: 1}]
)
def test_types_of_numpys_are_arguments_like_others(ctx, pack):
    x, seen = ctx.logical_data(np.zeros(2)), []

    @stf.replay
    def step(x, given):
        seen.append(given)
        ctx.task(x.rw())(lambda a, k=1.0 if "32" in str(given) else 10.0: a + k)

    for kind in (np.float32, np.float32, np.float32, np.float64, np.float64, np.float64, np.float32):
        step(x, pack(kind))
    assert x.numpy().tolist() == [34.0] * 2 and len(seen) == 4


@pytest.mark.parametrize("pack", [lambda kind: kind, lambda kind: [kind]])
def test_members_of_enumerations_of_numbers_are_no_parameters(ctx, pack):
    """Code asks whether a member is one of them, which a number in its place is not."""

    class Kind(enum.IntEnum):
        A = 1
        B = 2
        C = 3
        D = 4

    x = ctx.logical_data(np.zeros(2))

    @stf.replay
    def step(x, given):
        kind = given[0] if isinstance(given, list) else given
        amount = 1.0 if kind is not Kind.A else 100.0
        ctx.task(x.rw())(lambda a: a + amount)

    for kind in (Kind.B, Kind.C, Kind.D, Kind.B, Kind.A, Kind.C, Kind.A, Kind.D):
        step(x, pack(kind))
    assert x.numpy().tolist() == [206.0] * 2


def test_nothing_in_the_place_of_what_was_dropped(ctx, lX):
    """An object that is gone is no None; a list of a class of its own is more than its items."""

    class Items(list):
        scale = 1.0

    @stf.replay
    def step(given):
        scale = (1.0 if given["hook"] is None else 100.0) * getattr(given["x"], "scale", 1.0)
        for x in given["x"]:
            ctx.task(x.rw())(lambda a: a + scale)

    @stf.replay
    def by_hook(x, hook):
        ctx.task(x.rw())(lambda a, k=1.0 if hook is None else 100.0: a + k)

    def hook():
        pass

    for _ in range(4):
        step({"hook": hook, "x": [lX]})
        by_hook(lX, hook)
    before = lX.numpy()[0]
    del hook
    gc.collect()
    step({"hook": None, "x": [lX]})
    by_hook(lX, None)
    assert lX.numpy()[0] == before + 2
    items = Items([lX])
    for _ in range(4):
        step({"hook": None, "x": items})
    items.scale = 10.0
    step({"hook": None, "x": items})
    assert lX.numpy()[0] == before + 16


@pytest.mark.parametrize("nested", [False, True])
def test_a_pattern_keeps_no_data_alive(ctx, nested):
    """Data made of two arrays are back in these when their user drops them, as recordings know."""

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    stf.register_data_interface(Pair, flatten=lambda p: (p.a, p.b), unflatten=lambda p, arrays: Pair(*arrays))
    pair = Pair(np.zeros(4), np.zeros(4))
    data = [ctx.logical_data(pair), ctx.logical_data(np.zeros(4))]

    @stf.replay
    def step(given):
        @ctx.task(given[0].rw() if nested else given.rw())
        def both(p):
            p.a += 1
            p.b += 2

    for _ in range(5):
        step(data if nested else data[0])
    data[0] = None
    gc.collect()
    ctx.synchronize()
    assert pair.a.tolist() == [5] * 4 and pair.b.tolist() == [10] * 4


def test_the_recording_that_is_used_most_stays(ctx, lX, lY):
    """Calls by keyword are looked at whole; those that are known by identity count as well."""
    calls = []

    @stf.replay
    def step(x, y, tag):
        calls.append(tag)
        add(x, y)

    others = [object() for _ in range(12)]
    for other in others:
        for _ in range(2):
            step(lX, lY, "hot")
            step(x=lX, y=lY, tag=other)
    step(lX, lY, "hot")
    assert calls.count("hot") == 2


def test_calls_from_several_threads_while_recordings_are_given_up(ctx_factory):
    """Each thread has a context of its own; what one gives up, another does not find again."""
    tags = [object() for _ in range(6)]

    @stf.replay
    def step(x, y, tag):
        add(x, y)

    def work():
        with ctx_factory() as ctx:
            x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.ones(2))
            done = 0
            for i in range(120):
                try:
                    step(x, y, tags[i % 6 if i % 3 else 0])
                    done += 1
                except stf.TaskStateError:
                    pass  # another thread gave it up just now
            assert x.numpy().tolist() == [done] * 2 and done > 60

    together(work, work, work)


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


def test_a_scope_that_raises_in_a_replayed_function(ctx, lX, lY):
    """All calls do what the first one does, which runs nothing of it: it is no part of what is recorded."""

    @stf.replay
    def step(x, y):
        add(x, y)
        try:
            with ctx.graph_scope():
                add(x, y, 100.0)
                raise ValueError("mine")
        except ValueError:
            pass

    for _ in range(5):
        step(lX, lY)
    assert lX.numpy().tolist() == [0, 5, 10, 15]
    assert "recorded: 1 nodes, launched 4 times" in step.explain()


def test_data_that_a_function_makes_begin_with_nothing_in_each_call(ctx, lX, lY):
    @stf.replay
    def step(x, y):
        total = ctx.logical_data_empty(4)
        add_up(total, y)
        take(x, total)
        inner = ctx.logical_data_empty(4)
        with ctx.repeat(2):
            add_up(inner, y)
        add_up(inner, x)
        take(x, inner)

    for _ in range(5):
        step(lX, lY)
        assert lX.numpy().tolist() == [0.0, 3.0, 6.0, 9.0]
    assert "1 recordings" in step.explain()


class Extra:
    """Something that is given to a body."""


def test_arguments_go_with_the_context(ctx_factory):
    @stf.task
    def add(x: stf.ReadWrite, extra):
        x += 1

    @stf.replay
    def step(x, extra):
        add(x, extra)

    extra = Extra()
    gone = weakref.ref(extra)
    ctx = ctx_factory()
    lX = ctx.logical_data(np.zeros(3))
    for _ in range(4):
        step(lX, extra)
    assert lX.numpy().tolist() == [4.0] * 3
    del extra
    ctx.finalize()
    gc.collect()
    assert gone() is None
    assert "4 calls" in step.explain() and "launched 3 times" in step.explain()
    step.close()


def test_explain_tells_places_apart():
    @stf.task
    def add(x: stf.ReadWrite):
        x += 1

    @stf.replay
    def step(x):
        add(x)

    with stf.context(devices="cpu:2") as ctx:
        lX = ctx.logical_data(np.zeros(3))
        for place in (0, 1, 0, 1):
            with ctx.devices[place]:
                step(lX)
        told = step.explain()
        assert all(f" on exec_place.device({k}): 2 calls" in told for k in (0, 1)), told
        step.close()


def test_an_array_that_a_function_registers_is_looked_at_in_each_launch(ctx):
    """Its handle is gone when the function returns, so that the array is the user's."""
    n = 150_000  # too large to be compared
    W, V = np.zeros(n), np.zeros(n)
    lY = ctx.logical_data_zeros(n)

    @stf.replay
    def step(w, v, y):
        lV = ctx.logical_data(v)
        add(y, ctx.logical_data(w))
        increment(lV)
        add(y, lV)

    expected = 0
    for k in range(5):
        W[:], V[:] = k, 10 * k
        step(W, V, lY)
        expected += 11 * k + 1
        assert lY.numpy()[[0, -1]].tolist() == [expected] * 2
        ctx.synchronize()
        assert V[[0, -1]].tolist() == [10 * k + 1] * 2
    step.close()


def test_arrays_registered_in_a_graph_are_looked_at_in_each_launch(ctx):
    X = np.ones(3)
    lY = ctx.logical_data_zeros(3)
    graph = ctx.task_graph()
    with graph:
        add(lY, ctx.logical_data(X))
    for k in range(3):
        X[:] = k + 1
        graph.launch()
        assert lY.numpy().tolist() == [(k + 1) * (k + 2) / 2] * 3


def test_what_cannot_be_recorded_runs_as_it_is(ctx):
    @stf.replay
    def by_tiles(x):
        for tile in x.tiles((2,)):
            increment(tile)

    @stf.replay
    def lent(x):
        ctx.freeze(x).unfreeze()
        increment(x)

    lX = ctx.logical_data(np.zeros(4))
    for _ in range(4):
        by_tiles(lX)
        lent(lX)
    assert lX.numpy().tolist() == [8.0] * 4
    assert "4 calls, not recorded: split is not possible inside of graph 'by_tiles'" in by_tiles.explain()
    assert "not recorded: freeze is not possible" in lent.explain()


def test_the_context_is_known_by_arguments_and_closures(ctx):
    lX = ctx.logical_data(np.zeros(3))

    @stf.replay
    def by_argument(context, n):
        lY = context.logical_data_full(3, n)
        add(lX, lY)

    @stf.replay
    def by_closure():
        increment(lX)

    for _ in range(4):
        by_argument(ctx, 2.0)
        by_closure()
    assert lX.numpy().tolist() == [12.0] * 3
    assert all("launched 3 times" in f.explain() for f in (by_argument, by_closure))
    by_argument.close(), by_closure.close()


def test_explain_says_that_there_was_no_memory_to_record(ctx_factory):
    """A call then runs as it is, where one task after the other finds room."""
    if ctx_factory.shares_host:
        pytest.skip("the host's memory has no limit")
    n = 1 << 12
    with ctx_factory(memory_limit=3 * 8 * n + 2000) as ctx:
        kept, pinned, x, y = (ctx.logical_data(np.zeros(n)) for _ in range(4))
        g = ctx.task_graph("alive")
        with g:
            add(kept, pinned)
        g.launch()

        @stf.replay
        def two(x, y):
            increment(x)
            increment(y)

        for _ in range(5):
            two(x, y)
        told = two.explain()
        assert "0 recordings" in told and "5 calls, not recorded yet: no room for" in told and "graph 'alive'" in told
        assert x.numpy()[-1] == y.numpy()[-1] == 5


def test_numbers_that_are_no_arguments_are_told_of(ctx, lX, lY, caplog):
    """Nothing is replayed then: `explain()` and the log say what to do."""
    settings = {"rate": 0.0}

    @stf.replay
    def step(x, y):
        add(x, y, settings["rate"])

    for k in range(9):
        settings["rate"] = float(k)
        step(lX, lY)
    told = step.explain()
    assert "0 recordings" in told and "what changed last: settings" in told
    assert "no two calls were alike: pass numbers that change as arguments" in told and "(and 8 more like it)" in told
    assert [text for text in caplog.messages if "was called 9 times with something new" in text and "settings" in text]
    step.close()
