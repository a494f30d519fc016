"""What a replay looks at before it repeats what was recorded, and what `STF_VALIDATE=1` finds beside that."""

from __future__ import annotations

import array
import collections
import dataclasses
import logging
import random
import sys
import threading
import time
import types

import numpy as np
import pytest
from helpers import add, increment

import stf
from stf import replaying
from stf._engine import turns


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


# -- threads ---------------------------------------------------------------------------------------------------------


def in_threads(count, work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_threads_replay_and_record_in_one_context(ctx):
    """Each with data of its own; recordings wait for the others' tasks, and they for recordings."""
    data = [ctx.logical_data(np.zeros(4), name=f"D{i}") for i in range(3)]

    @stf.replay
    def step(x, k):
        increment(x)
        add(x, x, k)

    def work(number):
        x = data[number]
        for i in range(40):
            step(x, float(number))
            increment(x)
            if i % 10 == 5:
                x.numpy()
            if i % 13 == 7:
                step.close()

    in_threads(3, work)
    for number, x in enumerate(data):
        expected = 0.0
        for _ in range(40):
            expected = (expected + 1) * (1 + number) + 1
        assert x.numpy()[0] == expected


def test_a_recording_waits_for_a_task_of_another_thread(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(replaying, "PATIENCE_S", 10.0)
    opened, seen = threading.Event(), []

    @stf.replay
    def step(x):
        seen.append(ended.is_set())
        increment(x)

    ended = threading.Event()
    step(lX)

    def hold():
        with ctx.task(stf.exec_place.host(), lY.rw()):
            opened.set()
            recorder.start()
            recorder.join(0.2)
            ended.set()

    recorder = threading.Thread(target=lambda: step(lX))
    holder = threading.Thread(target=hold)
    holder.start()
    holder.join(30)
    recorder.join(30)
    assert seen == [False, True] and lX.numpy()[0] == 2


def test_a_call_that_gets_no_turn_runs_as_it_is(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(replaying, "PATIENCE_S", 0.05)
    calls = []

    @stf.replay
    def step(x):
        calls.append(1)
        increment(x)

    step(lX)
    with ctx.task(stf.exec_place.host(), lY.rw()):
        in_threads(1, lambda _: step(lX))
    assert len(calls) == 2 and "0 recordings" in step.explain()
    step(lX)  # it rests
    assert len(calls) == 3 and "0 recordings" in step.explain()
    monkeypatch.setattr(step, "_rests_until", 0.0)
    step(lX)
    step(lX)
    assert len(calls) == 4 and "1 recordings" in step.explain() and lX.numpy()[0] == 5


def test_who_waits_too_long_for_another_thread_is_told(ctx, lX, lY, monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE_S", 0.05)
    stories = []

    def record():
        try:
            with ctx.repeat(2):
                increment(lX)
        except stf.TaskStateError as error:
            stories.append(str(error))

    with ctx.task(stf.exec_place.host(), lY.rw()):
        in_threads(1, lambda _: record())
    assert "repeat could not be opened for 0.05 s" in stories[0] and "let it end first" in stories[0]
    record()
    assert lX.numpy()[0] == 2


BESIDE = {
    "add": lambda ctx, y: add(y, y),
    "wait": lambda ctx, y: y.numpy(),
    "synchronize": lambda ctx, y: ctx.synchronize(),
    "fence": lambda ctx, y: ctx.fence().synchronize(),
    "fill": lambda ctx, y: ctx.fill(y, 1.0),
    "write back": lambda ctx, y: y.write_back(),
    "freeze": lambda ctx, y: ctx.freeze(y).unfreeze(),
    "repeat": lambda ctx, y: repeated(ctx, y),
    "if": lambda ctx, y: branched(ctx, y),
    "graph": lambda ctx, y: recorded(ctx, y),
    "scope": lambda ctx, y: gathered(ctx, y),
    "tiles": lambda ctx, y: increment(y.tiles(2)[0]),
}


def repeated(ctx, y):
    with ctx.repeat(2):
        increment(y)


def branched(ctx, y):
    with ctx.if_(ctx.logical_data_full((), 1.0) > 0):
        increment(y)


def recorded(ctx, y):
    g = ctx.task_graph("mine")
    with g:
        increment(y)
    g.launch()


def gathered(ctx, y):
    with ctx.graph_scope():
        increment(y)


@pytest.mark.parametrize("name", BESIDE)
def test_what_others_do_while_a_thread_records(ctx, lX, lY, name):
    started = threading.Event()

    @stf.replay
    def step(x):
        if step_is_recorded[0]:
            started.set()
            time.sleep(0.1)
        increment(x)

    step_is_recorded = [False]
    step(lX)
    expected, lZ = ctx.logical_data(np.arange(4.0)), ctx.logical_data(np.zeros(4))
    BESIDE[name](ctx, expected)

    def work(number):
        if number:
            assert started.wait(30)
            BESIDE[name](ctx, lY)
        else:
            step_is_recorded[0] = True
            step(lX)

    in_threads(2, work)
    increment(lZ)
    assert lX.numpy()[0] == 2 and lZ.numpy()[0] == 1
    assert lY.numpy().tolist() == expected.numpy().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_of_threads(ctx, seed, monkeypatch):
    """Each on data of its own and on shared data: replays, tasks, loops and waits, at a fast switch of threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    data = [ctx.logical_data(np.zeros(4), name=f"D{i}") for i in range(4)]
    shared, counts = ctx.logical_data(np.zeros(4), name="shared"), [0] * 4

    @stf.replay
    def step(x, common, k):
        set_sum(x, k)
        increment(common)

    @stf.replay
    def loop(x):
        with ctx.repeat(3):
            increment(x)

    def work(number):
        rng, x, expected = random.Random(10 * seed + number), data[number], 0
        for _ in range(25):
            kind = rng.choice(("step", "step", "loop", "task", "wait", "shared", "repeat", "synchronize"))
            if kind == "step":
                k = rng.randint(1, 6)
                step(x, shared, k)
                expected = expected * 2 + k
                counts[number] += 1
            elif kind == "loop":
                loop(x)
                expected += 3
            elif kind == "task":
                add(x, x)
                expected *= 2
            elif kind == "wait":
                assert x.numpy()[0] == expected
            elif kind == "shared":
                increment(shared)
                counts[number] += 1
            elif kind == "repeat":
                repeated(ctx, x)
                expected += 2
            else:
                ctx.synchronize()
        assert x.numpy()[0] == expected

    try:
        in_threads(4, work)
    finally:
        sys.setswitchinterval(before)
    assert shared.numpy()[0] == sum(counts)


@stf.task
def set_sum(x: stf.ReadWrite, k):
    x *= 2
    x += k


# -- validation ------------------------------------------------------------------------------------------------------

WORLD = types.ModuleType("world")  # a global: not looked at


@stf.task
def double(x: stf.ReadWrite, a=2.0):
    x *= a


def other_increment(x):
    if WORLD.changed:
        double(x)
    else:
        increment(x)


def other_value(x):
    add(x, WORLD.ly, 2.0 if WORLD.changed else 1.0)


def other_data(x):
    add(x, WORLD.lz if WORLD.changed else WORLD.ly, 1.0)


def other_count(x):
    for _ in range(2 if WORLD.changed else 1):
        increment(x)


def other_fill(x):
    x.context.fill(x, 2.0 if WORLD.changed else 1.0)


def other_closure(x):
    value = 3.0 if WORLD.changed else 1.0
    x.context.host_launch(x.rw())(lambda a: np.add(a, value, out=a))


def other_expression(x):
    WORLD.ls.assign(WORLD.ls * (3 if WORLD.changed else 2))


def other_loop(x):
    with x.context.repeat(3 if WORLD.changed else 2):
        increment(x)


def other_branch(x):
    with x.context.if_(WORLD.ls > (1000.0 if WORLD.changed else 0.0)):
        increment(x)


def other_temporary(x):
    lT = x.context.logical_data_full(4, 2.0 if WORLD.changed else 1.0)
    add(x, lT, 1.0)


class Body:
    def __init__(self, value):
        self.value = value

    def run(self, a):
        a += self.value


def other_method(x):
    x.context.host_launch(x.rw())(Body(2.0 if WORLD.changed else 1.0).run)


class Owner:
    """With a list that contains itself."""

    def __init__(self):
        self.items = [1.0]
        self.items.append(self.items)

    def run(self, a):
        a += self.items[0]


def test_validation_of_bodies_with_cycles(ctx, lX, monkeypatch):
    owner = Owner()

    @stf.replay
    def step(x):
        ctx.host_launch(x.rw())(owner.run)
        ctx.host_launch(x.rw())(lambda a: np.add(a, len(items), out=a))

    items = owner.items
    monkeypatch.setattr(stf.config, "validate", True)
    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 12


def other_reduction(x):
    lS = x.context.logical_data_full((), 0.0)
    for _ in range(3):
        count.on(stf.exec_place.host())(lS, x)
    if WORLD.changed:
        increment(lS)


@stf.task
def count(s: stf.Accumulate[stf.reducer.sum], x: stf.Read):
    s += x[0]


DIFFERENT = [
    other_method,
    other_reduction,
    other_increment,
    other_value,
    other_data,
    other_count,
    other_fill,
    other_closure,
    other_expression,
    other_loop,
    other_branch,
    other_temporary,
]


@pytest.mark.parametrize("fn", DIFFERENT, ids=lambda fn: fn.__name__)
def test_validation_finds_what_depends_on_the_world(ctx, lX, lY, fn, monkeypatch):
    WORLD.changed, WORLD.ly, WORLD.lz = False, lY, ctx.logical_data(np.ones(4), name="Z")
    WORLD.ls = ctx.logical_data(np.full((), 2.0), name="S")
    step = stf.replay(fn)
    for _ in range(3):
        step(lX)
    monkeypatch.setattr(stf.config, "validate", True)
    for _ in range(2):
        step(lX)  # it is the same, however it is looked at
    before, scalar = lX.numpy().tolist(), float(WORLD.ls)
    WORLD.changed = True
    with pytest.raises(
        stf.TaskStateError, match=f"'{fn.__name__}' submits other tasks than when it was recorded: node"
    ):
        step(lX)
    assert lX.numpy().tolist() == before and float(WORLD.ls) == scalar
    WORLD.changed = False
    step(lX)


def test_validation_of_numbers_and_random_values(ctx, lX, lY, monkeypatch):
    random = np.random.default_rng(1)

    @stf.replay
    def same(x, y, k):
        add(x, y, k * 2)

    @stf.replay
    def different(x, y):
        add(x, y, random.random())

    monkeypatch.setattr(stf.config, "validate", True)
    for k in (1.0, 2.0, 3.0, 4.0, 5.0):
        same(lX, lY, k)
    assert lX.numpy()[1] == 30
    different(lX, lY)
    with pytest.raises(stf.TaskStateError, match="it depends on something that is no argument"):
        different(lX, lY)


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
