"""Replays see what the function reads by names: attributes of objects, global variables, and those of what it calls."""

from __future__ import annotations

import datetime
import logging
import os
import random
import sys
import time
import types

import numpy as np
import pytest
from helpers import add, increment

import stf

RATE = 1.0
CONFIG = {"rate": 1.0}


class Plain:
    rate = 1.0

    def half(self):
        return self.rate / 2


class Slots:
    __slots__ = ("rate",)


class Computed:
    @property
    def rate(self):
        return 2 * self.doubled / 2


class Holder:
    def __init__(self, rate):
        self.inner = Plain()
        self.inner.rate = rate


PLAIN = Plain()


@stf.task
def put(x: stf.ReadWrite, k):
    x += k


@stf.task
def body_of_global(x: stf.ReadWrite):
    x += RATE


@stf.task
def body_of_attribute(x: stf.ReadWrite):
    x += PLAIN.rate


def helper(x, thing):
    put(x, thing.rate)


def global_on_one_way(x):
    rate = 0.0 if x is None else RATE
    put(x, rate)


def helped_by_global(x):
    put(x, RATE)


class Model:
    def __init__(self):
        self.opt = Plain()

    @stf.replay
    def step(self, x):
        opt = self.opt
        put(x, opt.rate)

    @stf.replay
    def by_method(self, x):
        put(x, 2 * self.opt.half())


def case(name, ctx):
    """What sets a rate, and a call of a replayed function that adds it."""
    slots, computed, closure, holder, model = Slots(), Computed(), Plain(), Holder(1.0), Model()

    def setter(thing, attribute="rate"):
        return lambda value: setattr(thing, attribute, value)

    def set_global(value):
        globals()["RATE"] = value

    functions = {
        "closure": (setter(closure), lambda x: put(x, closure.rate)),
        "slots": (setter(slots), lambda x: put(x, slots.rate)),
        "property": (setter(computed, "doubled"), lambda x: put(x, computed.rate)),
        "class": (setter(Plain), lambda x: put(x, Plain.rate)),
        "class of an object": (setter(Plain), lambda x: put(x, closure.rate)),
        "chain": (setter(holder.inner), lambda x: put(x, holder.inner.rate)),
        "whole object": (
            lambda value: setattr(holder, "inner", Holder(value).inner),
            lambda x: put(x, holder.inner.rate),
        ),
        "helper": (setter(closure), lambda x: helper(x, closure)),
        "inner function": (setter(closure), lambda x: (lambda: put(x, closure.rate))()),
        "global": (set_global, lambda x: put(x, RATE)),
        "global on one way": (set_global, global_on_one_way),
        "global of a helper": (set_global, lambda x: helped_by_global(x)),
        "global of a body": (set_global, lambda x: body_of_global(x)),
        "global object": (setter(PLAIN), lambda x: put(x, PLAIN.rate)),
        "global object of a body": (setter(PLAIN), lambda x: body_of_attribute(x)),
        "global dict": (lambda value: CONFIG.update(rate=value), lambda x: put(x, CONFIG["rate"])),
        "self": (setter(model.opt), model.step),
        "method": (setter(model.opt), model.by_method),
    }
    change, fn = functions[name]
    return change, fn if name in ("self", "method") else stf.replay(fn)


NAMES = [
    *(
        "closure",
        "slots",
        "property",
        "class",
        "class of an object",
        "chain",
        "whole object",
        "helper",
        "inner function",
    ),
    *(
        "global",
        "global on one way",
        "global of a helper",
        "global of a body",
        "global object",
        "global object of a body",
        "global dict",
    ),
    *("self", "method"),
]


@pytest.fixture
def restored():
    rate, of_class, of_config = RATE, Plain.rate, dict(CONFIG)
    yield
    globals()["RATE"], Plain.rate = rate, of_class
    CONFIG.update(of_config)
    PLAIN.__dict__.clear()


@pytest.mark.parametrize("name", NAMES)
def test_names_that_vary_give_right_values(ctx, lX, restored, name):
    change, step = case(name, ctx)
    for k in range(6):
        change(10.0**k)
        step(lX)
        lX.context.synchronize()  # a body on the host looks at objects when it runs
    assert lX.numpy().tolist() == [111111] * 4
    for _ in range(4):
        step(lX)
    assert lX.numpy().tolist() == [111111 + 4 * 100000] * 4
    recorded = getattr(step, "func", step).explain()
    assert "5 calls, recorded: 1 nodes, launched 4 times" in recorded  # what does not change is replayed


def test_an_object_as_an_argument(ctx, lX):
    thing = Plain()

    @stf.replay
    def step(x, o):
        put(x, o.rate)

    for k in range(6):
        thing.rate = 10.0**k
        step(lX, thing)
    assert lX.numpy()[0] == 111111


def test_data_and_functions_by_their_names(ctx, lX, monkeypatch):
    """A global data, and a task function, that is another one now."""
    monkeypatch.setitem(globals(), "DATA", ctx.logical_data(np.full(4, 1.0)))

    @stf.replay
    def step(x):
        add(x, DATA, 1.0)  # noqa: F821
        increment(x)

    for _ in range(3):
        step(lX)
    assert lX.numpy()[0] == 6
    monkeypatch.setitem(globals(), "DATA", ctx.logical_data(np.full(4, 10.0)))
    monkeypatch.setitem(globals(), "increment", put_hundred)
    for _ in range(3):
        step(lX)
    assert lX.numpy()[0] == 6 + 330 and "2 recordings" in step.explain()


@stf.task
def put_hundred(x: stf.ReadWrite):
    x += 100


def test_what_the_function_stores_first_is_no_difference(ctx, lX):
    keeper = Plain()

    @stf.replay
    def step(x):
        keeper.made = ctx.logical_data_zeros(4)
        add(keeper.made, x, 1.0)
        add(x, keeper.made, 1.0)

    lX.context.fill(lX, 1.0)
    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 16 and "1 recordings" in step.explain()


def test_what_the_function_counts_runs_as_it_is(ctx, lX):
    counter = Plain()
    counter.count = 0

    @stf.replay
    def step(x):
        counter.count += 1
        put(x, counter.count)

    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 1 + 2 + 3 + 4


WORLDS = {
    "time": lambda: time.time() > 0,
    "now": lambda: datetime.datetime.now().year > 0,
    "random": lambda: random.random() < 2,
    "numpy": lambda: np.random.rand() < 2,  # noqa: NPY002
    "unseeded": lambda: np.random.default_rng().random() < 2,
    "environment": lambda: os.environ.get("STF_TEST_RATE") is None,
    "getenv": lambda: os.getenv("STF_TEST_RATE") is None,
}


@pytest.mark.parametrize("name", WORLDS)
def test_what_reads_the_world_runs_as_it_is_and_says_so_once(ctx, lX, name, caplog):
    read = WORLDS[name]

    @stf.replay
    def step(x, k):
        put(x, k * read())

    with caplog.at_level(logging.WARNING, "stf"):
        for k in (1.0, 1.0, 1.0, 2.0, 2.0):
            step(lX, k)
    assert lX.numpy()[0] == 7 and "0 recordings" in step.explain() and "not recorded, since it reads" in step.explain()
    assert len([record for record in caplog.records if "'step' is not replayed" in record.getMessage()]) == 1


def test_seeded_random_numbers_and_pauses_are_replayed(ctx, lX):
    @stf.replay
    def step(x):
        time.sleep(0)
        put(x, float(np.random.default_rng(1).integers(1, 2)))

    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 4 and "1 recordings" in step.explain()


def test_variables_of_other_modules(ctx, lX):
    module = types.ModuleType("settings_of_test")
    module.rate = 1.0

    @stf.replay
    def step(x):
        put(x, module.rate)

    for k in range(6):
        module.rate = 10.0**k
        step(lX)
    assert lX.numpy()[0] == 111111 and "settings_of_test" not in sys.modules


def test_an_attribute_that_cannot_be_read_is_no_error(ctx, lX):
    thing = Plain()

    @stf.replay
    def step(x):
        put(x, getattr(thing, "late", None) or (thing.late if hasattr(thing, "late") else 1.0))

    for _ in range(3):
        step(lX)
    thing.late = 10.0
    for _ in range(3):
        step(lX)
    assert lX.numpy()[0] == 33


class Rate:
    def __init__(self, rate=0.0):
        self.rate = rate

    def get(self):
        return self.rate

    def __enter__(self):
        return self.held

    def __exit__(self, *what):
        pass

    def __iter__(self):
        return iter([self.held])


class Derived(Rate):
    def get(self):
        return super().get()


def of_items(o, items):
    return sum(item.rate for item in items)


def of_one_item(o, items):
    return items[0].rate


def of_either(o, items):
    chosen = o if o is not None else items
    return chosen.rate


def of_named_expression(o, items):
    return (chosen := o).rate + 0 * (chosen is None)


def of_block(o, items):
    with o as held:
        return held.rate


def of_iteration(o, items):
    for held in o:
        return held.rate


def of_unpacked(o, items):
    (one,) = items
    return one.rate


def of_super(o, items):
    return o.get()


def of_helper(o, items):
    return rate_of(items[0])


def rate_of(one):
    return one.rate


@pytest.mark.parametrize(
    "read",
    [
        of_items,
        of_one_item,
        of_either,
        of_named_expression,
        of_block,
        of_iteration,
        of_unpacked,
        of_super,
        of_helper,
    ],
)
def test_attributes_by_way_of_items_and_of_what_calls_return(ctx, read):
    o, items = Derived(), (Rate(),)
    o.held = Rate()
    x = ctx.logical_data_zeros(2)

    @stf.replay
    def step(x):
        put(x, read(o, items))

    total = 0
    for rate in (1, 1, 1, 1, 2, 5):
        for one in (o, o.held, *items):
            one.rate = float(rate)
        step(x)
        total += rate
    assert x.numpy().tolist() == [total] * 2
    assert "recorded" in step.explain()
    step.close()


def test_random_state_that_an_object_holds_is_read_in_each_call(ctx, caplog):
    source = types.SimpleNamespace(random=random.Random(3))
    x = ctx.logical_data_zeros(1)

    @stf.replay
    def step(x):
        put(x, source.random.random())

    for _ in range(5):
        step(x)
    again = random.Random(3)
    assert x.numpy()[0] == pytest.approx(sum(again.random() for _ in range(5)))
    assert "random state" in caplog.text
