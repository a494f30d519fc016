"""@stf.task functions: annotations, containers, results, places, names, closures."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import re
import subprocess
import sys
from collections import namedtuple
from typing import Any, Optional

import numpy as np
import pytest
from helpers import add_up, is_cuda, queued

import stf
from stf import ReadWrite, Write


@stf.task
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


def plain_axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


@stf.task
def strings(x: "stf.Read", y: "ReadWrite", z: "Write", k=2):  # noqa: UP037
    y += x
    z[:] = k * x


@stf.task
def typed(x: stf.Read[np.ndarray], y: stf.ReadWrite[np.ndarray]):
    assert type(x) is type(y) is np.ndarray and not x.flags.writeable and y.flags.writeable
    y += x


@stf.task
def total(out: stf.Write, *parts: stf.Read):
    out[...] = sum(parts)


@stf.task
def options(x: stf.ReadWrite, *, factor=1, shift: stf.Read, **named: stf.Read):
    x *= factor
    x += shift
    for value in named.values():
        x += value


@pytest.fixture
def vec(ctx):
    def make(value, n=3, name=None):
        return ctx.logical_data(np.full(n, float(value)), name=name)

    return make


def test_modes_and_plain_values(vec):
    x, y = vec(2), vec(1)
    assert isinstance(axpy(10, x, y), stf.Task)
    axpy(a=1, y=y, x=x)
    axpy(0.5, y=y, x=x)
    assert y.numpy().tolist() == [24] * 3 and x.numpy().tolist() == [2] * 3


def test_annotations_as_strings(vec):
    x, y, z = vec(1), vec(2), vec(0)
    strings(x, y, z)
    strings(x, y, z, 7)
    strings(x, y, z, k=5)
    assert y.numpy()[0] == 5 and z.numpy()[0] == 5


def test_annotations_with_a_type(ctx, vec):
    x, y = vec(1), vec(2)
    typed.on(queued(ctx))(x, y)
    assert y.numpy()[0] == 3


def test_annotation_forms_that_mean_no_access(vec):
    @stf.task
    def f(x: ReadWrite, n: int, flag: bool = False, other: Unknown = None, more: np.ndarray | None = None):  # noqa: F821
        x += n

    x = vec(0)
    f(x, 3)
    assert x.numpy()[0] == 3


def test_annotations_of_a_local_name(vec):
    In = stf.Read

    @stf.task
    def f(x: In, y: ReadWrite):
        y += x
        _ = In

    x, y = vec(1), vec(1)
    f(x, y)
    assert y.numpy()[0] == 2


def test_variadic_reads(vec):
    out, parts = vec(0), [vec(k) for k in range(1, 5)]
    for n in range(1, 5):
        total(out, *parts[:n])
        assert out.numpy().tolist() == [sum(range(1, n + 1))] * 3
    total(out)
    assert out.numpy().tolist() == [0] * 3


def test_keyword_only_and_named(vec):
    x = vec(1)
    options(x, shift=vec(1))
    options(x, shift=vec(1), factor=2, more=vec(10), less=vec(-1))
    assert x.numpy()[0] == 2 * 2 + 1 + 10 - 1
    with pytest.raises(TypeError, match="task 'options': too many positional arguments"):
        options(x, 3, vec(1))


def test_copies_and_pickles(vec):
    x = vec(0)
    assert pickle.loads(pickle.dumps(axpy)) is axpy  # as functions are
    renamed = stf.task(plain_axpy, name="renamed")
    for copied in (copy.copy(axpy.named("other")), copy.deepcopy([axpy])[0], pickle.loads(pickle.dumps(renamed))):
        copied(2, vec(1), x)
    assert x.numpy()[0] == 6 and copied.symbol == "renamed"


def test_calls_keep_no_argument(vec):
    """Whether they are given by position or by name, and whether the call is a task or raises."""

    @stf.task
    def scaled(x: stf.ReadWrite, factor, more=None):
        x *= factor[0]

    x, factor, more = vec(1), [3.0], {}
    before = sys.getrefcount(factor), sys.getrefcount(more), sys.getrefcount(x)
    for _ in range(5):
        scaled(x, factor)
        scaled(x, factor=factor, more=more)
        functools.partial(scaled, x, more=more)(factor)
        scaled(*[x], factor=factor)
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            scaled(x, factor, x=x)
        with pytest.raises(TypeError, match="missing a required argument: 'factor'"):
            scaled(x, more=more)
        with pytest.raises(TypeError, match="parameter 'x' of task 'scaled' takes logical data"):
            scaled(factor, factor, more)
    assert x.numpy()[0] == 3.0**20
    assert (sys.getrefcount(factor), sys.getrefcount(more), sys.getrefcount(x)) == before


def test_positional_only_and_defaults(vec):
    @stf.task
    def f(x: stf.ReadWrite, /, n=4, y: stf.Read = None):
        x += n if y is None else y

    x = vec(0)
    f(x)
    f(x, y=vec(2))
    f(x, 5)
    assert x.numpy()[0] == 4 + 2 + 5


@dataclasses.dataclass
class State:
    pos: object
    vel: object
    dt: float = 0.5


@dataclasses.dataclass(frozen=True)
class Pair:
    a: object
    b: object


def object_array(values):
    array = np.empty(len(values), object)
    for i, value in enumerate(values):
        array[i] = value
    return array


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a, b: [a, b],
        lambda a, b: (a, b),
        lambda a, b: {"a": a, "b": b},
        lambda a, b: Point(a, b),
        lambda a, b: Pair(a, b),
        lambda a, b: [[a], {"deep": (b,)}],
        lambda a, b: object_array([a, b]),
    ],
)
def test_containers_of_data(ctx, vec, wrap):
    def leaves(c):
        if hasattr(c, "dtype") and c.dtype != object:
            return [c]
        if isinstance(c, Pair):
            return [c.a, c.b]
        values = c.values() if isinstance(c, dict) else c
        return [leaf for v in values for leaf in leaves(v)]

    kinds = []

    @stf.task
    def f(c: stf.ReadWrite, k):
        kinds.append(type(c))
        for i, leaf in enumerate(leaves(c)):
            leaf += k + i

    a, b = vec(0), vec(0)
    c = wrap(a, b)
    f(c, 1)
    f.on(ctx.devices[-1])(c, 10)
    assert a.numpy()[0] == 11 and b.numpy()[0] == 13
    assert set(kinds) == {type(c)}


def test_dataclass_mixes_data_and_values(vec):
    @stf.task
    def step(s: stf.ReadWrite):
        s.pos += s.dt * s.vel

    pos, vel = vec(0), vec(2)
    step(State(pos, vel))
    step(State(pos, vel, dt=2.0))
    assert pos.numpy()[0] == 5


def test_containers_and_tokens(ctx, vec):
    seen = []

    @stf.task
    def f(c: stf.ReadWrite, after: stf.Read):
        seen.append((c[0] is None, c[1] is not None, after))

    f([ctx.token(), vec(1)], ctx.token())
    ctx.synchronize()
    assert seen == [(True, True, None)]


def test_tiles_as_an_object_array(ctx):
    X = np.zeros((4, 4))
    tiles = ctx.logical_data(X).tiles((2, 2))

    @stf.task
    def number(t: stf.Write):
        for k, tile in enumerate(t.flat):
            tile[...] = k
        assert t.shape == (2, 2)

    number(tiles)
    del tiles
    ctx.finalize()
    assert X[::2, ::2].tolist() == [[0, 1], [2, 3]]


def test_an_access_for_a_place_instead_of_data(ctx, vec):
    x, y = vec(1), vec(0)
    axpy.on(queued(ctx))(1, x.read(None if is_cuda(ctx) else stf.data_place.device(0)), y.rw(stf.data_place.host()))
    assert y.numpy()[0] == 1
    with pytest.raises(
        TypeError, match="parameter 'x' of task 'axpy' is opened for less than the access passed: <rw access"
    ):
        axpy(1, x.rw(), y)
    for less in (y.read(), y.write()):
        with pytest.raises(
            TypeError, match="parameter 'y' of task 'axpy' is opened for more than the access passed: <"
        ):
            axpy(1, x, less)
    assert y.numpy()[0] == 1


def test_an_access_that_accumulates_instead_of_data(ctx):
    total, x = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.ones(2))
    add_up(total.accumulate(stf.reducer.sum), x)
    with pytest.raises(
        TypeError, match="accumulates with stf.reducer.sum, and the access passed with stf.reducer.prod"
    ):
        add_up(total.accumulate(stf.reducer.product), x)
    assert total.numpy().tolist() == [1, 1]


# -- places and names ------------------------------------------------------------------------------------------------


def where_it_ran(ctx):
    return {k: n for k, n in ctx.statistics().tasks_by_place.items() if n}


def test_on_a_place(ctx, vec):
    x, y = vec(1), vec(0)
    last = len(ctx.devices) - 1
    axpy.on(last)(1, x, y)
    axpy.on(stf.exec_place.device(last))(1, x, y)
    axpy.on("host")(1, x, y)
    axpy.on(np.int64(last))(1, x, y)
    ctx.synchronize()
    assert where_it_ran(ctx) == {f"device({last})": 3, "host": 1}
    assert y.numpy()[0] == 4


def test_on_the_place_of_data(ctx, vec):
    x, y = vec(1), vec(0)
    last = len(ctx.devices) - 1
    axpy.on(last)(1, x, y)
    axpy.on(y)(1, x, y)
    axpy.on(ctx.logical_data_empty(3))(1, x, y)
    ctx.synchronize()
    counts = where_it_ran(ctx)
    assert counts[f"device({last})"] == (2 if last else 3) and counts["device(0)"] == (1 if last else 3)


def test_names(ctx_factory):
    ctx = ctx_factory(observe="dot")
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    axpy.named("first")(1, x, y)
    axpy.on("host").named("second")(1, x, y)
    axpy.named("third").on(ctx.devices[0])(1, x, y)

    @stf.task(name="fourth")
    def f(x: stf.ReadWrite):
        x += 1

    f(x)
    text = ctx.dot()
    assert all(name in text for name in ("first", "second", "third", "fourth"))
    assert repr(axpy) == "<stf.task axpy>" and axpy.__name__ == "axpy" and axpy.__wrapped__.__name__ == "axpy"


def test_plain_function_stays_callable():
    y = np.ones(2)
    axpy.__wrapped__(2, np.ones(2), y)
    assert y.tolist() == [3, 3]


# -- injection -------------------------------------------------------------------------------------------------------


def test_stream_and_task_are_injected_wherever_they_stand(ctx, vec):
    seen = []

    @stf.task
    def first(s: stf.Stream, x: stf.ReadWrite, k):
        seen.append(isinstance(s, stf.Stream))
        x += k

    @stf.task
    def last(x: stf.ReadWrite, t: "stf.Task"):  # noqa: UP037
        seen.append((isinstance(t, stf.Task), t.exec_place, t.symbol, t.arrays()[0] is x, t[0] is x))

    @stf.task
    def middle(x: stf.ReadWrite, t: stf.Task, k=2, *, s: stf.Stream):
        x += k

    x = vec(0)
    first(x, 1)
    first(x=x, k=1)
    last.on(ctx.devices[-1])(x)
    middle(x)
    middle(x, 3)
    assert x.numpy()[0] == 1 + 1 + 2 + 3
    assert seen == [True, True, (True, ctx.devices[-1], "last", True, True)]


def test_an_injected_task_tells_what_a_block_would(ctx, vec):
    """On a CPU the body runs when its task has ended for the engine."""
    told, pair = [], ctx.token()

    def tell(t):
        told.append([t.get_arg(0) if not is_cuda(ctx) else 0, repr(t), t.get_stream().place, len(t.streams), len(t)])
        asked = [t.args_cai, lambda: t.get_arg_cai(0), lambda: t.get_arg(1), lambda: t.get_arg(2)]
        if not is_cuda(ctx):  # where a with-block has a stream for callbacks
            asked.append(t.stream_ptr)
        for ask in asked:
            try:
                ask()
            except (TypeError, IndexError, stf.PlaceError) as error:
                told[-1].append((type(error), str(error)))

    @stf.task
    def asks(x: stf.ReadWrite, y: stf.Read, t: stf.Task):
        tell(t)

    x = vec(0)
    asks.on("host")(x, pair)
    ctx.synchronize()
    with ctx.task("host", x.rw(), pair.read(), name="asks") as t:
        tell(t)
    assert told[0] == told[1]
    assert told[0][1] == "<task 'asks' at host, open>" and told[0][2:5] == ["host", 1, 2]
    wanted = [stf.PlaceError] * 2 + [TypeError, IndexError] + ([] if is_cuda(ctx) else [stf.PlaceError])
    assert [error for error, _ in told[0][5:]] == wanted


@pytest.mark.parametrize("how", ["submit_task", "call", "named", "keyword"])
def test_accesses_where_no_annotation_is_given(ctx, vec, how):
    """They say how data are used, as for a builder."""
    x, y, s = vec(1), vec(0), ctx.logical_data(np.zeros(3))

    def body(k, a, b, total=None):
        b += k * a
        if total is not None:
            total += a

    def several(*parts, **named):
        for part in parts[1:]:
            part += parts[0]
        named["more"] += 1

    f = stf.task(body)
    place = ctx.devices[-1]
    for k in (2, 3.0):
        if how == "submit_task":
            ctx.submit_task(body, k, x.read(), y.rw(), place=place)
            ctx.submit_task(body, k, x.read(), y.rw(), s.accumulate(stf.reducer.sum))
        elif how == "call":
            f(k, x.read(), y.rw())
            f.on(place)(k, x.read(), y.rw(), s.accumulate(stf.reducer.sum))
        elif how == "named":
            f.named("mine")(k, a=x.read(), b=y.rw())
            f(k, b=y.rw(), total=s.accumulate(stf.reducer.sum), a=x.read())
        else:
            stf.task(several)(x.read(), y.rw(), more=s.rw())
            f(2 * k - 1, x.read(), y.rw())
    assert y.numpy()[0] == 10 and s.numpy()[0] == 2
    with pytest.raises(
        TypeError, match=r"parameter 'a' of task 'body' has no access mode, .*pass an access, such as x.read"
    ):
        f(1, x, y.rw())
    ctx.check_state()


def test_a_builder_s_body_asks_its_task_by_name(ctx, vec):
    """As the body of a with-block does, and whether it runs at once or later."""
    x, y, order = vec(2), vec(0), ctx.token()
    for place in ("host", ctx.devices[-1]):
        t = ctx.task(place, order.rw(), x.read(), y.rw())

        @t
        def body(a, b):
            assert len(t) == 3 and t.get(0) is None and len(t.arrays()) == 2
            t.get(2)[:] += t[1] + a
            t.arrays()[1][:] += 1

    assert y.numpy()[0] == 2 * (2 + 2 + 1)
    with pytest.raises(stf.TaskStateError, match="which has ended"):
        t.get(1)


def test_a_recorded_builder_s_body_asks_its_task_by_name(ctx, vec):
    x, y = vec(2), vec(0)
    with ctx.task_graph() as g:
        t = ctx.task("host", x.read(), y.rw())

        @t
        def body(a, b):
            t[1][:] += t.get(0)

    for _ in range(3):
        g.launch()
    assert y.numpy()[0] == 6


# -- what is refused -------------------------------------------------------------------------------------------------


def test_submit_task(ctx, vec):
    x, y = vec(1), vec(0)
    ctx.submit_task(axpy.__wrapped__, 2, x, y, place=ctx.devices[-1], name="mine")
    ctx.submit_task(axpy, 1, x, y)
    ctx.submit_task(lambda: None)  # without data, on this context
    assert y.numpy()[0] == 3
    assert where_it_ran(ctx)[f"device({len(ctx.devices) - 1})"] >= 1


def test_refused_calls_cost_nothing(ctx, vec):
    x, y = vec(1, name="x"), vec(0)
    with pytest.raises(TypeError, match="task 'axpy': missing a required argument: 'y'"):
        axpy(1, x)
    with pytest.raises(TypeError, match="task 'axpy': .*unexpected keyword argument 'z'"):
        axpy(1, x, y, z=1)
    with pytest.raises(
        TypeError, match="parameter 'x' of task 'axpy' takes logical data .* got ndarray; register the array"
    ):
        axpy(1, np.ones(3), y)
    with pytest.raises(
        TypeError, match="parameter 'a' of task 'axpy' has no access mode, got .*'x'.*; annotate it stf.Read"
    ):
        axpy(x, x, y)
    with pytest.raises(TypeError, match="@stf.task decorates a function, got int"):
        stf.task(3)
    with pytest.raises(TypeError, match="task 'nothing' was called without logical data, so its context is unknown"):

        @stf.task
        def nothing(n):
            pass

        nothing(1)
    with pytest.raises(TypeError, match="stf.Read is an annotation: write `x: stf.Read`"):
        stf.Read(x)
    with pytest.raises(
        TypeError, match=r"stf.Read\[...\] takes an array type of numpy, .* such as np.float32; got <class 'list'>"
    ):
        stf.Read[list]
    with pytest.raises(TypeError, match=r"stf.Read\[...\] takes an array type of numpy, .*; got .*LinAlgError"):
        stf.Read[np.linalg.LinAlgError]
    for array in (np.zeros(3), np.float32(1)):
        with pytest.raises(TypeError, match=r"stf.Read\[...\] takes a type, got an array \((ndarray|float32)\)"):
            stf.Read[array]
    ctx.check_state()
    axpy(1, x, y)
    assert y.numpy()[0] == 1


def test_unresolvable_annotation_is_named(vec):
    @stf.task
    def f(x: "Missing.Read"):  # noqa: F821, UP037
        pass

    with pytest.raises(
        TypeError, match="annotation .*Missing.Read.* of task 'f' cannot be resolved; import its names at"
    ):
        f(vec(0))


def test_an_annotation_that_cannot_be_is_named(vec):
    @stf.task
    def f(x: stf.Read[list]):
        pass

    with pytest.raises(
        TypeError, match=r"annotation 'stf.Read\[list\]' of task 'f': stf.Read\[...\] takes an array type"
    ):
        f(vec(0))


@pytest.mark.parametrize("lib", ["torch", "cupy"])
def test_a_missing_library_is_an_import_error_with_the_line_to_type(ctx_factory, vec, lib):
    try:
        __import__(lib)
    except ImportError:
        pass
    else:
        pytest.skip(f"{lib} is installed")
    expected = (
        (ImportError, "torch is not installed: pip install torch")
        if lib == "torch"
        else (stf.PlaceError, "cupy arrays")
    )
    ctx = ctx_factory(arrays=lib)
    x = ctx.logical_data(np.zeros(2), name="x")

    @stf.task
    def f(x: stf.ReadWrite):
        x += 1

    @stf.task(arrays="numpy")
    def g(x: stf.ReadWrite):
        x += 1

    with pytest.raises(expected[0], match=expected[1]):
        f(x)
    with pytest.raises(expected[0], match=expected[1]):
        ctx.wait(x, arrays=lib)
    with pytest.raises(expected[0], match=expected[1]), ctx.task(x.read()) as t:
        getattr(t, lib)()
    g.on(queued(ctx))(x)  # the failed call has not cost the data
    assert x.numpy().tolist() == [1, 1]


def test_unknown_library_is_a_value_error(ctx, vec):
    x = vec(1)
    with pytest.raises(ValueError, match="arrays= is 'numpy', 'cupy', 'torch', 'numba' or 'jax', got 'pandas'"):
        stf.task(lambda x: None, arrays="pandas") and ctx.wait(x, arrays="pandas")
    assert x.numpy()[0] == 1


def test_import_of_stf_loads_no_array_library():
    code = "import sys, stf; print([m for m in ('torch', 'cupy', 'numba', 'cuda') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- methods ---------------------------------------------------------------------------------------------------------


def test_a_task_function_in_a_class_is_a_method(ctx, vec):
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @stf.task
        def apply(self, x: stf.ReadWrite, times=1):
            """Scale."""
            x *= self.factor**times

    x = vec(1)
    scale = Scale(3)
    scale.apply(x)
    scale.apply.on(ctx.devices[-1])(x, times=2)
    scale.apply.named("thrice")(x)
    Scale.apply(scale, x)
    assert x.numpy()[0] == 3.0**5
    assert scale.apply.__name__ == "apply"


def test_coroutines_and_generators_are_no_tasks():
    async def later():
        pass

    def values():
        yield 1

    for fn in (later, values):
        with pytest.raises(TypeError, match="an ordinary function, got the coroutine or generator"):
            stf.task(fn)


def test_dataclasses_of_every_kind(ctx):
    """A body gets a copy with arrays in place of data, made of its fields if it can be, so that what they derive is right."""
    made = []

    @dataclasses.dataclass
    class Counting:
        u: Any
        calls: int = dataclasses.field(init=False, default=3)

        def __post_init__(self):
            made.append(type(self.u).__name__)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Frozen:
        u: Any
        k: int

    @dataclasses.dataclass
    class Derived:
        u: Any

        def __post_init__(self):
            self.named = {"u": self.u}

    @dataclasses.dataclass(init=False)
    class Own:
        u: Any

        def __init__(self, data, extra):
            self.u, self.extra = data, extra

    @stf.task
    def step(one: stf.ReadWrite, two: stf.Read, three: stf.Read, four: stf.Read):
        one.u += two.u * two.k + three.u * three.extra + one.calls + four.named["u"] * 0

    u, v, w = (ctx.logical_data(np.full(3, float(k))) for k in range(3))
    step(Counting(u), Frozen(v, 10), Own(w, 100), Derived(v))
    assert u.numpy().tolist() == [213] * 3 and made == ["LogicalData"]


OPTIONAL_READ = Optional[stf.Read]  # noqa: UP045 (as users write it)


@pytest.mark.parametrize("how", ["default", "union", "optional", "ror"])
def test_data_that_may_be_left_out(ctx, how):
    """None, where that is the default or the annotation says so; the body gets it as it is."""
    kinds = {"default": stf.Read, "union": stf.Read | None, "optional": OPTIONAL_READ, "ror": None | stf.Read}

    def body(out: stf.ReadWrite, extra=None, extras: stf.ReadWrite = None):
        out += 1
        if extra is not None:
            out += extra
        if extras is not None:
            extras += 5

    body.__annotations__["extra"] = kinds[how]
    if how != "default":
        body.__defaults__ = (None, None)
    f = stf.task(body)
    x, y, z = ctx.logical_data_zeros(4), ctx.logical_data(np.full(4, 10.0)), ctx.logical_data_zeros(4)
    f(x)
    f(x, None)
    f(x, y)
    f(x, extras=z)
    f(x, y, z)
    assert x.numpy().tolist() == [25.0] * 4 and z.numpy().tolist() == [10.0] * 4
    g = ctx.task_graph()
    with g:
        f(x)
        f(x, y)
    g.launch()
    assert x.numpy().tolist() == [37.0] * 4


def test_data_that_may_not_be_left_out(ctx):
    @stf.task
    def f(out: stf.ReadWrite, extra: stf.Read):
        out += extra

    with pytest.raises(TypeError, match="parameter 'extra' of task 'f' takes logical data .*, got NoneType"):
        f(ctx.logical_data_zeros(4), None)


def rebinding(text):
    """A function of what is read, `x`, and written, `y`, with these lines."""
    scope = {"np": np, "stf": stf}
    exec("def f(x: stf.Read, y: stf.ReadWrite):\n    " + text.replace("; ", "\n    "), scope)
    return scope["f"]


@pytest.mark.parametrize(
    "text",
    [
        "y = 2 * x",
        "y = y + x",
        "y = y * 2 + np.sqrt(x)",
        "for y in x: pass",
        "if x is not None: y = -x",
        "y = 2 * x; y[0] = 1",
        "y = np.maximum(y, 0)",
        "y = np.where(x > 0, x, y)",
        "y = np.sqrt(np.add(2 * x, y))",
        "y = y.clip(0, 1)",
    ],
)
def test_a_written_parameter_that_is_bound_to_something_else_is_refused(ctx, vec, text):
    fn, x, y = rebinding(text), vec(1), vec(2)
    told = (
        r"binds its parameter 'y' to something else \(<string>:2\), .* `y\[...\] = ...`, or return the result, `return"
    )
    with pytest.raises(TypeError, match=f"task 'f' {told}"):
        stf.task(fn)
    with pytest.raises(TypeError, match=told):
        ctx.task(x.read(), y.rw())(functools.partial(fn))
    with pytest.raises(TypeError, match=told):
        ctx.submit_task(fn, x, y)
    fn.__annotations__.clear()
    ctx.task(x.read(), y.read())(fn)
    ctx.check_state()
    assert y.numpy()[0] == 2


@pytest.mark.parametrize(
    "text",
    [
        *("y = y + x; return y", "y += x; y = 0", "np.add(x, y, out=y); y = 0", "y[...] = y + x; y = 0"),
        *("z = y; y = 0; z += x", "y = y.ravel(); y += x", "y = y[:]; y += x", "add = lambda: y; y = add(); y += x"),
        *(
            "[y for y in [0]]; y += x",
            "y += x; del y",
            "for k in range(1): y += x; y = y + x",
            "y = x is not None and y; y += x",
        ),
        *("y = np.add(x, y, out=y)", "y = np.add(x, y, y)", "y = y.T; y += x", "y = y.clip(4, 4, y)"),
        *("y = y if x is None else y; y += x", "y += x if x is not None else 0; y = y * 2"),
    ],
)
def test_a_parameter_that_is_bound_when_it_was_written_is_fine(ctx, vec, text):
    fn, x, y = rebinding(text), vec(1), vec(2)
    stf.task(fn)(x, y)
    ctx.task(x.read(), y.rw())(fn)
    assert y.numpy()[0] == 4


def test_a_parameter_that_is_written_by_way_of_the_task_may_be_bound(ctx, vec):
    def f(x: stf.Read, y: stf.ReadWrite, t: stf.Task):
        y = t.get(1)
        y[...] = x + 3

    x, y = vec(1), vec(2)
    stf.task(f).on("host")(x, y)
    assert y.numpy()[0] == 4


@pytest.mark.parametrize(
    "kind", [np.float64, np.dtype("f8"), float, np.floating, np.typing.NDArray[np.float64]], ids=lambda kind: str(kind)
)
def test_an_element_type_is_checked_at_the_call(ctx, vec, kind):
    def f(x, y=None, *more):
        more[0][...] = x + 1

    f.__annotations__ = {"x": stf.Read[kind], "y": stf.Read[kind] | None, "more": stf.Write[kind]}
    f = stf.task(f, arrays="numpy")
    x, out = vec(1), vec(0)
    whole = ctx.logical_data(np.arange(3), name="whole")
    f.on("host")(x, None, out)
    f.on("host")(x.read(), x, out)
    before = ctx.statistics().tasks
    for wrong in [(whole, None, out), (x, whole, out), (x, x, out, whole), (whole.read(), x, out)]:
        with pytest.raises(
            TypeError, match=r"of task 'f' takes elements of type float.*, got logical data 'whole' \(int64"
        ):
            f.on("host")(*wrong)
    assert ctx.statistics().tasks == before and out.numpy()[0] == 2


def test_what_is_filled_in_may_have_a_default(ctx, lX):
    """As type checkers want it, which do not know that nobody passes it."""
    seen = []

    @stf.task
    def look(x: stf.ReadWrite, k=1, s: stf.Stream | None = None, t: stf.Task | None = None):
        seen.append((isinstance(s, stf.Stream), isinstance(t, stf.Task)))
        x += k

    look(lX, 2)
    look(lX, k=3)

    @ctx.task(lX.rw())
    def again(x, s: stf.Stream | None = None):
        seen.append((isinstance(s, stf.Stream), True))
        x += 1

    assert lX.numpy()[0] == 6
    assert seen == [(True, True)] * 3


def test_a_task_function_called_in_a_body_says_what_to_call(ctx, lX):
    if is_cuda(ctx):
        pytest.skip("bodies for a GPU run in the call")

    @stf.task
    def outer(x: stf.ReadWrite):
        axpy(1.0, x, x)

    outer(lX)
    with pytest.raises(stf.TaskFailedError) as failed:
        ctx.synchronize()
    assert "the body of a task has arrays; call the function itself there, axpy.fn(...)" in str(failed.value.__cause__)
    lX.accept()


@stf.task
def weighted(out: stf.Write, factor, power=1, *parts: stf.Read):
    out[...] = factor * sum(part**power for part in parts)


@stf.task
def scaled(out: stf.Write, *numbers):
    out[...] = sum(numbers)


def test_further_positional_arguments_are_bound_in_place(ctx, monkeypatch):
    """Without Python's own binding, which takes as long as the rest of a task; keywords and defaults need it."""
    out = ctx.logical_data_zeros(2)
    ones, threes = ctx.logical_data_full(2, 1.0), ctx.logical_data_full(2, 3.0)
    weighted(out, 2.0)  # reads the annotations
    scaled(out)
    assert out.numpy().tolist() == [0.0, 0.0]
    bind = inspect.Signature.bind
    bound = []
    monkeypatch.setattr(inspect.Signature, "bind", lambda *args, **kwargs: bound.append(1) or bind(*args, **kwargs))
    for call, value in [
        (lambda: weighted(out, 2.0, 1), 0.0),
        (lambda: weighted(out, 2.0, 1, threes), 6.0),
        (lambda: weighted(out, 2.0, 2, ones, threes), 20.0),
        (lambda: weighted(out, 2.0, 1, threes, threes, threes), 18.0),
        (lambda: scaled(out), 0.0),
        (lambda: scaled(out, 1, 2.5, 3), 6.5),
    ]:
        call()
        assert out.numpy().tolist() == pytest.approx([value] * 2, rel=1e-15)  # a GPU's powers are not exact
    assert not bound
    weighted(out, 3.0)
    assert out.numpy().tolist() == [0.0] * 2 and bound
    weighted(out, factor=3.0)
    assert out.numpy().tolist() == [0.0] * 2
    for wrong, message in [
        (lambda: weighted(out), "task 'weighted': missing a required argument: 'factor'"),
        (lambda: weighted(out, 1.0, 1, ones, factor=2.0), "task 'weighted': multiple values for argument 'factor'"),
        (lambda: weighted(out, 1.0, 1, np.ones(2)), "parameter 'parts' of task 'weighted' takes logical data"),
        (lambda: scaled(out, 1, ones), "parameter 'numbers' of task 'scaled' has no access mode"),
        (lambda: scaled(), "task 'scaled': missing a required argument: 'out'"),
    ]:
        with pytest.raises(TypeError, match=re.escape(message)):
            wrong()


@stf.task
def count_up(x: stf.Read, *sums: stf.Accumulate[stf.reducer.sum]):
    for one in sums:
        one += x


@stf.task
def swap(factor, *both: stf.ReadWrite):
    first, second = both
    first[...], second[...] = factor * second, factor * first


@stf.task
def add_groups(out: stf.Write, *groups: stf.Read):
    out[...] = sum(sum(group) for group in groups)


@stf.task
def summed(first: stf.Read, *parts: stf.Read) -> stf.Like["first"]:  # noqa: F821, UP037
    return sum(parts, first)


def test_further_arguments_of_each_mode(ctx, vec):
    a, b, c, token = vec(1.0), vec(2.0), vec(5.0), ctx.token()
    total(c, a, b)
    swap(10.0, a, b)
    assert [x.numpy()[0] for x in (a, b, c)] == [20.0, 10.0, 3.0]
    count_up(a, b, c)
    count_up(a, b)
    assert [x.numpy()[0] for x in (a, b, c)] == [20.0, 50.0, 23.0]
    ordered = stf.task(lambda x, *given: x.fill(len(given) + sum(one is None for one in given)))
    ordered(a.write(), token.read(), token.read())
    assert a.numpy()[0] == 4.0
    for wrong in [(c, a, 3.0), (c, a, [b, None]), (c, None, b)]:
        with pytest.raises(TypeError, match="parameter 'parts' of task 'total' takes logical data"):
            total(*wrong)
    add_groups(c, [a, b], (b,))
    assert c.numpy()[0] == 104.0
    made = summed(a, b, b)
    total(c, summed(a), made)  # of data that are new themselves
    assert made.numpy()[0] == 104.0 and c.numpy()[0] == 108.0
