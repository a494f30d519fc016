"""What a replayed function reaches by other ways than names: lists, defaults, methods, factories; its globals count."""

from __future__ import annotations

import functools
import sys

import pytest

import stf

RATE = 1.0


@stf.task
def put(value, y: stf.Write):
    y[...] = value


@stf.task
def put_rate(y: stf.Write):
    y[...] = RATE


def plain(y):
    put(RATE, y)


def body(y):
    y[...] = RATE


class Model:
    def __init__(self):
        self.task = put_rate
        self.rate = 1.0

    def method(self, y):
        put(RATE, y)

    def own(self, y):
        put(self.rate, y)

    def by_attribute(self, y):
        self.task(y)

    @staticmethod
    def static(y):
        put(RATE, y)

    @classmethod
    def of_class(cls, y):
        put(RATE, y)

    @stf.task
    def is_task(self, y: stf.Write):
        y[...] = RATE


def factory():
    def inner(y):
        put(RATE, y)

    return inner


def factory_of_tasks():
    @stf.task
    def inner(y: stf.Write):
        y[...] = RATE

    return inner


TASKS, TABLE, PAIR = [put_rate], {"a": put_rate}, (put_rate, 1)
NESTED = [[{"k": (put_rate,)}]]
PLAIN, BODIES, MODELS = [plain], [body], [Model()]


def each(y):
    for task in TASKS:
        task(y)


def by_default(y, task=put_rate):
    task(y)


def by_default_list(y, *, functions=[plain]):  # noqa: B006
    functions[0](y)


def in_a_loop(y):
    with y.context.repeat(2):
        TASKS[0](y)


FORMS = {
    "list": lambda y: [task(y) for task in TASKS] and None,
    "loop over a list": each,
    "dict": lambda y: TABLE["a"](y) and None,
    "tuple": lambda y: PAIR[0](y) and None,
    "nested": lambda y: NESTED[0][0]["k"][0](y) and None,
    "function of a list": lambda y: PLAIN[0](y),
    "default": by_default,
    "list as default": by_default_list,
    "method": lambda y: MODELS[0].method(y),
    "static method": lambda y: MODELS[0].static(y),
    "class method": lambda y: MODELS[0].of_class(y),
    "attribute": lambda y: MODELS[0].by_attribute(y),
    "method that is a task": lambda y: MODELS[0].is_task(y) and None,
    "factory": lambda y: factory()(y),
    "factory of tasks": lambda y: factory_of_tasks()(y) and None,
    "body": lambda y: y.context.task(y.write())(BODIES[0]) and None,
    "body on the host": lambda y: y.context.host_launch(y.write())(BODIES[0]) and None,
    "partial": lambda y: functools.partial(PLAIN[0], y)(),
    "submit_task": lambda y: y.context.submit_task(TASKS[0], y),
    "map": lambda y: list(map(PLAIN[0], [y])) and None,
    "getattr": lambda y: getattr(MODELS[0], "met" + "hod")(y),
    "repeat": in_a_loop,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_global_variable_counts_by_whatever_way_it_is_reached(ctx, monkeypatch, form):
    y = ctx.logical_data_zeros(3)
    step = stf.replay(FORMS[form])
    for rate in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0, 1.0, 1.0):
        monkeypatch.setattr(sys.modules[__name__], "RATE", rate)
        step(y)
        assert y.numpy().tolist() == [rate] * 3
    assert sum(entry.graph.launches for entry in step._entries.values() if entry.graph) >= 4


def test_attributes_of_an_object_of_a_list(ctx):
    model, y = Model(), ctx.logical_data_zeros(3)
    models = [model]
    step = stf.replay(lambda y: models[0].own(y))
    for rate in (1.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0):
        model.rate = rate
        step(y)
        assert y.numpy().tolist() == [rate] * 3


@pytest.mark.parametrize("way", ["argument", "closure"])
@pytest.mark.parametrize(
    ("pack", "get"),
    [
        (lambda known: [[known]], lambda held: held[0][0]),
        (lambda known: {"a": {"b": known}}, lambda held: held["a"]["b"]),
        (lambda known: (1, [[[known]]]), lambda held: held[1][0][0][0]),
    ],
)
def test_what_is_in_containers_of_containers(ctx, pack, get, way):
    """Attributes of objects, and what closures of functions hold, which nothing else leads to."""
    model, box, y, z = Model(), [1.0], ctx.logical_data_zeros(3), ctx.logical_data_zeros(3)

    def rate():
        return box[0]

    objects, functions = pack(model), pack(rate)
    given = () if way == "closure" else (objects, functions)

    def use(y, z, a, b):
        put(get(a).rate, y)
        put(get(b)(), z)

    def with_closure(y, z):
        use(y, z, objects, functions)

    step = stf.replay(with_closure if way == "closure" else use)
    for number in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0, 1.0):
        model.rate = box[0] = number
        step(y, z, *given)
        assert y.numpy().tolist() == [number] * 3 and z.numpy().tolist() == [number] * 3


def test_what_was_made_in_the_call_is_not_kept(ctx):
    class Options:
        rate = 1.0

    def use(options, y):
        put(options.rate, y)

    y = ctx.logical_data_zeros(3)
    step = stf.replay(lambda y: use(Options(), y))
    for _ in range(4):
        step(y)
    assert not any("Options" in repr(one.content) for one in step._met.values())
    assert step._recordings == 1 and y.numpy()[0] == 1


@pytest.mark.parametrize("ask", [lambda v: type(v), lambda v: type(2 * v), lambda v: type(v).__mro__[0]])
def test_the_type_of_a_number_is_that_of_the_call(ctx, ask):
    kinds = {float: 1.0, int: 2.0}

    @stf.replay
    def step(y, v):
        put(kinds[ask(v)], y)

    y = ctx.logical_data_zeros(1)
    for v in (1, 2, 3, 4, 0.5, 1.5, 2.5, 3.5, 5, 4.5, 6, 6, 6):
        step(y, v)
        assert y.numpy()[0] == kinds[type(v)]


def test_a_profiler_of_the_user_stays(ctx):
    seen = []
    y = ctx.logical_data_zeros(1)
    step = stf.replay(lambda y: put(1.0, y) and None)
    sys.setprofile(lambda *event: seen.append(event[1]))
    try:
        for _ in range(3):
            step(y)
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert seen and y.numpy()[0] == 1
