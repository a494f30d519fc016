"""What ``STF_VALIDATE=1`` finds: that a replayed function depends on what replays do not look at."""

from __future__ import annotations

import dataclasses
import functools
import re
import types

import numpy as np
import pytest
from helpers import add, increment, is_cuda

import stf

WORLD = types.ModuleType("world")
of_world = functools.partial(getattr, WORLD)  # no attribute that the code names: not looked at


@stf.task
def double(x: stf.ReadWrite, a=2.0):
    x *= a


def other_increment(x):
    if of_world("changed"):
        double(x)
    else:
        increment(x)


def other_value(x):
    add(x, of_world("ly"), 2.0 if of_world("changed") else 1.0)


def other_data(x):
    add(x, of_world("lz") if of_world("changed") else of_world("ly"), 1.0)


def other_count(x):
    for _ in range(2 if of_world("changed") else 1):
        increment(x)


def other_fill(x):
    x.context.fill(x, 2.0 if of_world("changed") else 1.0)


def other_closure(x):
    value = 3.0 if of_world("changed") else 1.0
    x.context.host_launch(x.rw())(lambda a: np.add(a, value, out=a))


def other_expression(x):
    of_world("ls").assign(of_world("ls") * (3 if of_world("changed") else 2))


def other_loop(x):
    with x.context.repeat(3 if of_world("changed") else 2):
        increment(x)


def other_branch(x):
    with x.context.if_(of_world("ls") > (1000.0 if of_world("changed") else 0.0)):
        increment(x)


def other_temporary(x):
    lT = x.context.logical_data_full(4, 2.0 if of_world("changed") else 1.0)
    add(x, lT, 1.0)


class Body:
    def __init__(self, value):
        self.value = value

    def run(self, a):
        a += self.value


def other_method(x):
    x.context.host_launch(x.rw())(Body(2.0 if of_world("changed") else 1.0).run)


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

        ctx.host_launch(x.rw())(lambda a: down(a, 3))

    def down(a, n):
        return up(a, n - 1) if n else None

    def up(a, n):
        a += 1
        return down(a, n)

    items = owner.items
    monkeypatch.setattr(stf.config, "validate", True)
    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 24


def other_reduction(x):
    lS = x.context.logical_data_full((), 0.0)
    for _ in range(3):
        count.on(stf.exec_place.host())(lS, x)
    if of_world("changed"):
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


@dataclasses.dataclass
class Scaled:
    x: object
    by: float


@stf.task
def scale_dataclass(thing: stf.ReadWrite):
    thing.x *= thing.by


@stf.task
def add_named(**named: stf.ReadWrite):
    for name, x in named.items():
        x += 1 if name == "one" else 100


@stf.task
def add_keyed(things: stf.ReadWrite):
    for name, x in things.items():
        x += 1 if name == "one" else 100


def other_field(x):
    scale_dataclass(Scaled(x, 3.0 if of_world("changed") else 2.0))


def other_names(x):
    one, two = (of_world("ly"), x) if of_world("changed") else (x, of_world("ly"))
    add_named(**({"two": two, "one": one} if of_world("changed") else {"one": one, "two": two}))


def other_keys(x):
    add_keyed({"two" if of_world("changed") else "one": x})


VALUE = 1.0


def other_global(x):
    def body(a):
        a += VALUE

    globals()["VALUE"] = 3.0 if of_world("changed") else 1.0
    x.context.task(x.rw())(body)


DIFFERENT += [other_field, other_names, other_keys, other_global]
AT = r"\(test_replay_validation\.py:\d+\)"
SAYS = {
    other_method: rf"node 0 of 1: task 'run' {AT} has 2\.0 where it had 1\.0;",
    other_increment: rf"node 0 of 1: task 'double' {AT} stands where task 'increment' {AT} stood;",
    other_value: rf"node 0 of 1: task 'add' {AT} has 2\.0 where it had 1\.0;",
    other_data: rf"node 0 of 1: task 'add' {AT} has data #\d+ where it had data #\d+;",
    other_count: rf"node 1 of 2: task 'increment' {AT} is new;",
    other_closure: rf"node 0 of 1: task '<lambda>' {AT} has 3\.0 where it had 1\.0;",
    other_expression: rf"node 0 of 1: (task 'assign' {AT} has 3 where it had 2|the launch of a kernel has other values)",
    other_loop: "node 0 of 1: repeat has 3 where it had 2;",
    other_global: rf"node 0 of 1: task 'body' {AT} has 3\.0 where it had 1\.0;",
    other_names: rf"node 0 of 1: task 'add_named' {AT} has 'two' where it had 'one';",
}


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
    ) as told:
        step(lX)
    assert re.search(SAYS.get(fn, ""), str(told.value)), told.value
    assert lX.numpy().tolist() == before and float(WORLD.ls) == scalar
    WORLD.changed = False
    step(lX)


def test_validation_beside_bodies_that_change_what_they_hold(ctx, lX, monkeypatch):
    """The same list is the same, whatever bodies have put in it meanwhile."""
    monkeypatch.setattr(stf.config, "validate", True)
    log, owner = [], types.SimpleNamespace(log=[])

    @stf.replay
    def step(x):
        mine = owner.log
        for _ in range(20):
            ctx.host_launch(x.rw())(lambda a: log.append(1) or mine.append(1))

    for _ in range(30):
        step(lX)
    ctx.synchronize()
    assert len(log) == len(owner.log) == 600


def test_validation_of_kernels_that_call_functions(ctx, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(stf.config, "validate", True)
    x, total = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(()))

    def twice(value):
        return 2.0 * value

    @stf.replay
    def step(x, total, number):
        def add_to(i, x):
            x[i] += twice(number)

        ctx.parallel_for(x.shape, x.rw()).on("host")(add_to)
        ctx.parallel_for(x.shape, x.read(), total.reduce(stf.reducer.sum)).on("host")(lambda i, x: twice(x[i]))

    for number in range(5):
        step(x, total, float(number))
    assert x.numpy().tolist() == [20.0] * 4 and total.numpy() == 160.0


def test_validation_of_numbers_and_random_values(ctx, lX, lY, monkeypatch):
    source = functools.partial(getattr, types.SimpleNamespace(random=np.random.default_rng(1)))

    @stf.replay
    def same(x, y, k):
        add(x, y, k * 2)

    @stf.replay
    def different(x, y):
        add(x, y, source("random").random())

    monkeypatch.setattr(stf.config, "validate", True)
    for k in (1.0, 2.0, 3.0, 4.0, 5.0):
        same(lX, lY, k)
    assert lX.numpy()[1] == 30
    different(lX, lY)
    with pytest.raises(stf.TaskStateError, match="it depends on something that is no argument"):
        different(lX, lY)


@pytest.mark.parametrize("by", ["work", "number"])
def test_what_a_body_takes_of_the_world(ctx, lX, by, monkeypatch):
    """Numbers that it names are compared. What else it did on a device was recorded, and validation says that it changed."""

    @stf.task
    def body(a: stf.ReadWrite):
        a += VALUE
        if of_world("changed"):
            a += 10.0

    @stf.replay
    def step(x):
        body(x)

    monkeypatch.setattr(stf.config, "validate", True)
    WORLD.changed = False
    monkeypatch.setitem(globals(), "VALUE", 1.0)
    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 4
    if by == "work":
        WORLD.changed = True
    else:
        monkeypatch.setitem(globals(), "VALUE", 5.0)
    if by == "number":
        step(lX)
        assert lX.numpy()[0] == 9
    elif is_cuda(ctx):
        with pytest.raises(stf.TaskStateError, match="task 'body' .* has .* where it had"):
            step(lX)
        assert lX.numpy()[0] == 4
    else:
        step(lX)
        assert lX.numpy()[0] == 15


LAZY = None


def test_a_global_variable_that_a_body_sets_first_is_no_difference(ctx, lX, monkeypatch):
    @functools.cache
    def make():
        globals()["LAZY"] = 2.0

    @stf.task
    def body(a: stf.ReadWrite):
        make()
        a += LAZY

    monkeypatch.setitem(globals(), "LAZY", None)
    with ctx.task_graph() as g:
        body(lX)
    g.launch()
    assert lX.numpy()[0] == 2
    make.cache_clear()
    monkeypatch.setitem(globals(), "LAZY", None)
    monkeypatch.setattr(stf.config, "validate", True)
    step = stf.replay(lambda x: body(x))
    step(lX)
    assert lX.numpy()[0] == 4  # before it is recorded
    for _ in range(3):
        step(lX)
    assert lX.numpy()[0] == 10


def test_numbers_in_arguments_of_any_number_are_no_difference(ctx, lX, monkeypatch):
    @stf.task
    def body(a: stf.ReadWrite, *factors, **named):
        a += sum(factors) + sum(named.values())

    step = stf.replay(lambda x, k: body(x, k, 2 * k, by=k))
    monkeypatch.setattr(stf.config, "validate", True)
    for k in (1.0, 2.0, 3.0, 4.0, 5.0):
        step(lX, k)
    assert lX.numpy()[0] == 4 * 15 and "1 recordings" in step.explain()


def test_one_recording_fits_into_the_memory_and_two_do_not(monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)

    @stf.replay
    def step(x, y):
        one, two = ctx.logical_data_full(1000, 1.0), ctx.logical_data_full(1000, 1.0)
        add(two, one)
        add(y, two)

    with stf.context(devices="cpu:1", memory_limit=4 * 8000) as ctx:
        x, y = ctx.logical_data_ones(1000), ctx.logical_data_zeros(1000)
        for _ in range(5):
            step(x, y)
        assert y.numpy()[0] == 10
        step.close()


def test_evictions_meanwhile_are_no_difference(monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)

    @stf.replay
    def step(x, y):
        add(y, x)

    with stf.context(devices="cpu:1", memory_limit=4 * 8000) as ctx:
        x, blocks = ctx.logical_data_ones(1000), [ctx.logical_data_zeros(1000) for _ in range(6)]
        for _ in range(4):
            for y in blocks:
                step(x, y)
        assert [y.numpy()[0] for y in blocks] == [4.0] * 6
        step.close()


def test_data_that_a_function_keeps_in_an_object_are_those_of_the_last_call(ctx, monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)

    class Model:
        pass

    model, kept = Model(), []

    @stf.replay
    def step(x):
        model.half = ctx.logical_data_zeros(4)
        add(model.half, x)
        result = ctx.logical_data_zeros(4)
        add(result, x)
        return result

    x = ctx.logical_data_ones(4)
    for i in range(4):
        kept.append(step(x))
        assert model.half.numpy().tolist() == kept[-1].numpy().tolist() == [i + 1.0] * 4
        increment(x)
    assert "4 calls" in step.explain() and "launched 3 times" in step.explain()
    step.close()
    assert model.half.numpy().tolist() == [4.0] * 4


def test_a_temporary_array_that_is_registered_is_told(ctx, monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)
    kept = np.ones(4)

    @stf.replay
    def temporary(y):
        x = ctx.logical_data(np.zeros(4))
        increment(x)
        add(y, x)

    @stf.replay
    def constant(y):
        add(y, ctx.logical_data(np.ones(4)))
        add(y, ctx.logical_data(kept))

    lY = ctx.logical_data_zeros(4)
    temporary(lY)
    with pytest.raises(stf.TaskStateError, match="registers another array each time.*logical_data_zeros"):
        temporary(lY)
        temporary(lY)
    lZ = ctx.logical_data_zeros(4)
    for _ in range(4):
        constant(lZ)
    assert lZ.numpy().tolist() == [8.0] * 4
    temporary.close(), constant.close()
