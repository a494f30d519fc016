"""What a body reads of its surroundings is as it was when the task was submitted, wherever and whenever it runs."""

from __future__ import annotations

import functools
import threading
import types

import numpy as np
import pytest
from helpers import queued

import stf


@pytest.fixture
def vec(ctx):
    def make(value, n=3, name=None):
        return ctx.logical_data(np.full(n, float(value)), name=name)

    return make


@pytest.fixture
def gate():
    """What holds up a first body, so that those behind it run when all were submitted."""
    opened = threading.Event()
    yield opened
    opened.set()


def test_closures_are_snapshotted_at_submission(ctx, vec):
    gate = threading.Event()
    x, y = vec(0), vec(0)
    for k in range(5):

        @stf.task
        def f(x: stf.ReadWrite):
            assert gate.wait(30)
            x += 10**k

        f.on(queued(ctx))(x)
        ctx.task(queued(ctx), y.rw())(lambda y: (gate.wait(30), y.__iadd__(10**k), None)[-1])
    k = 100
    gate.set()
    assert x.numpy()[0] == y.numpy()[0] == 11111 and k == 100


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args)

    return wrapper


def decorated(put, k):
    return logged(lambda x: put(x, k))


def partial(put, k):
    return functools.partial(lambda n, x: put(x, k + n), 0)


def helper(put, k):
    def inner(x):
        put(x, k)

    return lambda x: inner(x)


def recursive(put, k):
    def inner(x, n):
        return put(x, k) if n == 0 else inner(x, n - 1)

    return lambda x: inner(x, 3)


@pytest.mark.parametrize("how", [decorated, partial, helper, recursive])
@pytest.mark.parametrize("kind", ["task", "host_launch", "function"])
def test_functions_in_closures_are_taken_as_they_are(ctx, vec, gate, how, kind):
    """A variable of theirs that changes afterwards, as that of a loop does, is what it was."""

    def put(x, k):
        x[k] = k

    x = vec(0, 5)
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    for k in range(5):

        def late(x):
            how(put, k)(x)

        for body in (how(put, k), late):
            if kind == "task":
                ctx.task(queued(ctx), x.rw())(body)
            elif kind == "host_launch":
                ctx.host_launch(x.rw())(body)
            else:

                @stf.task
                def f(x: stf.ReadWrite):
                    body(x)

                f.on(queued(ctx))(x)
    gate.set()
    assert x.numpy().tolist() == [0, 1, 2, 3, 4]


def test_what_a_body_assigns_to_is_what_its_author_sees(ctx, vec):
    """nonlocal: the variable is shared, also with functions that the body calls."""
    total, seen, calls = None, 0, 0

    def note():
        nonlocal calls
        calls += 1

    def get():
        return calls

    x = vec(2)

    @ctx.host_launch(x.read())
    def grab(x):
        nonlocal total
        total = float(x.sum())

    for _ in range(3):

        @ctx.host_launch(x.rw())
        def count(x):
            nonlocal seen
            seen += 1
            note()
            x += get()

    ctx.synchronize()
    assert (total, seen, calls, x.numpy()[0]) == (6, 3, 3, 2 + 1 + 2 + 3)


def test_a_function_with_attributes_is_one_object(ctx, vec):
    def body(x):
        body.calls += 1

    body.calls = 0
    x = vec(0)
    for _ in range(3):
        ctx.host_launch(x.rw())(body)
    ctx.synchronize()
    assert body.calls == 3


MODULE = """
i = scale = 0
numbers = []
def put(x):
    numbers.append(i)
    x[i] = i * scale
def count(x):
    global counted
    counted += 1
counted = 0
def nested(x):
    def inner():
        return i
    x[inner()] += 1
"""


@pytest.mark.parametrize("kind", ["task", "host_launch", "function"])
def test_global_variables_are_taken_as_they_are(ctx, vec, gate, kind):
    module = types.ModuleType("script")
    exec(MODULE, vars(module))
    x = vec(0, 5)
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)

    def submit(body):
        if kind == "task":
            ctx.task(queued(ctx), x.rw())(body)
        elif kind == "host_launch":
            ctx.host_launch(x.rw())(body)
        else:
            body.__annotations__ = {"x": stf.ReadWrite}
            stf.task(body).on(queued(ctx))(x)

    for module.i in range(5):
        module.scale = 10
        for body in (module.put, module.nested, module.count):
            submit(body)
    module.i = module.scale = 99
    gate.set()
    assert x.numpy().tolist() == [1, 11, 21, 31, 41]
    assert module.numbers == [0, 1, 2, 3, 4]  # the list is the script's
    assert module.counted == 5  # and so is what bodies assign to


def test_data_in_globals_may_be_mentioned_if_the_task_has_them(ctx, vec, monkeypatch):
    x = vec(1)
    monkeypatch.setitem(globals(), "GLOBAL", x)

    @stf.task
    def f(x: stf.ReadWrite):
        x += GLOBAL.shape[0]  # noqa: F821

    def g(x):
        x += GLOBAL.shape[0]  # noqa: F821

    f(x)
    ctx.task(x.rw())(g)
    assert x.numpy()[0] == 7
    with pytest.raises(stf.AccessError, match="uses logical data 'GLOBAL' without an access; pass it"):
        ctx.task(vec(0).rw())(lambda a: GLOBAL)  # noqa: F821
