"""What a body reads of its surroundings is as it was when the task was submitted, wherever and whenever it runs."""

from __future__ import annotations

import datetime
import enum
import fractions
import functools
import gc
import threading
import types
import weakref

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


def test_what_a_body_wraps_is_taken_as_it_is(ctx, vec, gate):
    """A variable that changes afterwards, as that of a loop does, is what it was: behind decorators and partials too."""
    x = vec(0, 5)
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    for k in range(5):

        @ctx.host_launch(x.rw())
        @logged
        @logged
        def decorated(x):
            x[k] += 1

        @ctx.task(queued(ctx), x.rw())
        @logged
        def also(x):
            x[k] += 10

        @stf.task
        @logged
        def function(x: stf.ReadWrite):
            x[k] += 100

        function.on(queued(ctx))(x)
        ctx.host_launch(x.rw())(functools.partial(lambda n, x: x.__setitem__(k, x[k] + n), 1000))
    gate.set()
    assert x.numpy().tolist() == [1111] * 5


def test_functions_that_a_body_holds_are_themselves(ctx, vec):
    """They are objects: keys of a table, say. What they see is what they would see anywhere."""
    k = 1

    def helper(x):
        return x * k

    table = {helper: 3.0}
    x = vec(2)

    @ctx.host_launch(x.rw())
    def body(x):
        x *= table[helper]
        x[:] = helper(x)

    assert x.numpy().tolist() == [6] * 3


def test_a_body_may_call_itself(ctx, vec):
    """Its name is bound when the decorator has given it back."""
    x = vec(0)

    @ctx.host_launch(x.rw())
    def walk(x, n=3):
        if n:
            x += n
            walk(x, n - 1)

    assert x.numpy().tolist() == [6] * 3


def test_a_variable_of_a_function_inside_is_another_one(ctx, vec, gate):
    x = vec(0, 5)
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    for k in range(5):

        @ctx.host_launch(x.rw())
        def body(x):
            def inner():
                k = 0

                def more():
                    nonlocal k
                    k += 1

                more()
                return k

            x[k] += k + inner()

    gate.set()
    assert x.numpy().tolist() == [1, 2, 3, 4, 5]


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
i = scale = counted = 0
total = None
numbers = []
class P:
    k = 2
def put(x: stf.ReadWrite):
    numbers.append(i)
    x[i] = i * scale
def count(x: stf.ReadWrite):
    global counted
    counted += scale
def nested(x: stf.ReadWrite):
    def inner():
        return i
    x[inner()] += P.k
def bump():
    global counted
    counted += 1
    return counted
def calls(x: stf.ReadWrite):
    before = counted
    assert bump() == before + 1 == counted
def classes(x: stf.ReadWrite):
    class Q:
        z = np.zeros(1) + scale
    assert eval("Q.z[0]") == scale
def imports(x: stf.ReadWrite):
    import math
    x[i] += math.floor(0.5 + 0 * scale)
def at():
    return i
def scaled(k):
    return k * scale if k < 2 else scaled(k - 1)
def helped(x: stf.ReadWrite):
    x[at()] += scaled(k=3)
@logged
def decorated(x: stf.ReadWrite):
    x[i] += 100
"""


@pytest.mark.parametrize("kind", ["task", "host_launch", "function"])
def test_global_numbers_are_taken_as_they_are(ctx, vec, gate, kind):
    """Where a script, or a notebook, has the variables of its loops."""
    module = types.ModuleType("script")
    module.np, module.stf, module.logged = np, stf, logged
    exec(MODULE, vars(module))
    x = vec(0, 5)
    names = ("put", "nested", "count", "calls", "classes", "imports", "helped", "decorated")
    functions = {name: stf.task(getattr(module, name)) for name in names}
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    for module.i in range(5):
        module.scale = 10
        for name in names:
            body = getattr(module, name)
            if kind == "task":
                ctx.task(queued(ctx), x.rw())(body)
            elif kind == "host_launch":
                ctx.host_launch(x.rw())(body)
            else:
                functions[name].on(queued(ctx))(x)
    module.i = 99
    gate.set()
    assert x.numpy().tolist() == [112, 122, 132, 142, 152]
    assert module.numbers == [0, 1, 2, 3, 4]  # the list is the script's
    assert module.counted == 5 * (10 + 1)  # and so is what bodies, and functions that they call, assign to


def test_other_constants_of_a_module_are_taken_as_they_are(ctx, vec, gate):
    kind = enum.IntEnum("kind", "ONE TWO THREE", start=0)
    scope = {"stf": stf}
    exec("def body(x: stf.ReadWrite):\n    x[level] += pair[0] + ratio", scope)
    x = vec(0, 3)
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    for i in range(3):
        scope.update(level=kind(i), pair=(i, "a"), ratio=fractions.Fraction(i, 2))
        ctx.host_launch(x.rw())(scope["body"])
    scope.update(level=0, pair=(50, "b"), ratio=50)
    gate.set()
    assert x.numpy().tolist() == [0, 1.5, 3]


def test_dtypes_dates_durations_and_frozen_sets_of_a_module_are_taken_as_they_are(ctx, vec, gate):
    seen = []
    scope = {"seen": seen}
    exec("def body(x):\n    seen.append((dtype, day, length, some, held))", scope)
    x, kept = vec(0), []
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    for i in range(3):
        day, some = datetime.datetime(2026, 1, 1 + i), frozenset((i, (i, "a")))
        kept.append((np.dtype([("a", f"i{1 << i}")]), day, datetime.timedelta(i), some))
        scope.update(zip(("dtype", "day", "length", "some"), kept[-1], strict=True), held=frozenset((object(),)))
        ctx.host_launch(x.rw())(scope["body"])
    held = frozenset((object(),))  # what it holds may change
    scope.update(dtype=np.dtype("f8"), day=datetime.date(2025, 1, 1), length=None, some=frozenset(), held=held)
    gate.set()
    ctx.wait(x)
    assert seen == [(*values, held) for values in kept]


def test_a_helper_that_is_more_than_called_is_itself(ctx, vec, gate):
    """As a key of a table, or with attributes: a copy of it would be another object."""
    scope = {"rate": 1.0, "stf": stf}
    exec("def helper(x):\n    return x * rate\n", scope)
    exec("def body(x: stf.ReadWrite):\n    x *= table[helper]\n    x[:] = helper(x)\n", scope)
    scope["table"] = {scope["helper"]: 3.0}
    x = vec(2)
    stf.task(scope["body"])(x)
    ctx.host_launch(x.rw())(scope["body"])
    assert x.numpy().tolist() == [18] * 3


def test_nothing_is_kept_of_functions_that_are_gone(ctx, vec):
    x, known = vec(0), []
    for _ in range(5):
        scope = {"k": 1.0}
        exec("def body(x, b=object()):\n    x += k", scope)
        known.append(weakref.ref(scope["body"]))
        ctx.host_launch(x.rw())(scope["body"])
    ctx.synchronize()
    del scope
    gc.collect()
    assert [body() for body in known] == [None] * 5 and x.numpy()[0] == 5


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


def test_data_in_globals_are_refused_in_a_function_of_a_body(monkeypatch):
    monkeypatch.setitem(globals(), "STEP", 2.0)
    told, around = [], globals()

    def body(x):
        x += STEP  # noqa: F821
        with stf.context(devices="cpu") as inner:
            y = inner.logical_data(np.zeros(1))
            monkeypatch.setitem(around, "GLOBAL", inner.logical_data(np.zeros(1)))
            with pytest.raises(stf.AccessError) as error:
                inner.task(y.rw())(lambda y: np.add(y, GLOBAL.shape[0], out=y))  # noqa: F821
        told.append(str(error.value))

    with stf.context(devices="cpu") as ctx:
        ctx.task(ctx.logical_data(np.zeros(1)).rw())(body)
    assert len(told) == 1 and "uses logical data 'GLOBAL' without an access; pass it" in told[0]
