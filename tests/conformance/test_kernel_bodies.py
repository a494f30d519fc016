"""Bodies of kernels: what they read of variables around them stays true, and their mistakes have clear errors."""

from __future__ import annotations

import ctypes
import enum
import os
import sys
import types

import numpy as np
import pytest
from helpers import QUICK, is_cuda

import stf
from stf.kernels.body_checks import must_not_fail
from stf.kernels.compile.python import intrinsics

pytest.importorskip("numba")
if QUICK and (stf.config.pure or os.environ.get("STF_TEST_DEVICES")):
    pytest.skip("it is the same uncompiled, and on the host of a GPU; make test-all shows it", allow_module_level=True)

SCALE, COLUMN = 1.0, 0
WEIGHTS = np.ones(2)
settings = types.ModuleType("settings")  # a module of the user's
settings.inner = types.ModuleType("settings.inner")
exec("rate = 1.0\ndef scaled(a):\n    return rate * a\ndef twice(a):\n    return 2.0 * scaled(a)\n", settings.__dict__)


def fill(x, i, value):
    x[i] = value


# -- numbers ---------------------------------------------------------------------------------------------------------------


LARGE = [1, 1 << 63, (1 << 64) - 1, 5]


def fill_first(x, i, pair):
    x[i] = pair[0]


def test_integers_of_64_bits_without_a_sign(ctx, loop):
    x = ctx.logical_data(np.zeros(2, np.uint64))
    for value in LARGE:
        pair = (value, 1)
        for body in (lambda i, x: fill(x, i, value), lambda i, x: fill_first(x, i, pair)):
            loop(x.shape, x.write())(body)
            assert x.numpy().tolist() == [value] * 2
        loop(x.shape, x.write(), args=(value, pair))(lambda i, x, v, p: fill(x, i, v - p[0]))
        assert x.numpy().tolist() == [0, 0]


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, (1, 1 << 70)])
def test_integers_of_more_bits_are_refused(ctx, loop, value):
    x = ctx.logical_data(np.zeros(2))
    with pytest.raises(TypeError, match="reads 'value', an integer that needs more than 64 bits"):
        loop(x.shape, x.write())(lambda i, x: fill(x, i, value))
    with pytest.raises(TypeError, match="gets args=, an integer that needs more than 64 bits"):
        loop(x.shape, x.write(), args=(value,))(lambda i, x, v: fill(x, i, v))


SIGNED = (0.0,)


def test_zeros_of_both_signs_are_two_numbers_where_they_are_compiled_in(ctx, loop):
    global SIGNED
    x = ctx.logical_data(np.zeros(2))
    for value in (0.0, -0.0, 0.0):
        SIGNED = (value,)
        loop(x.shape, x.write())(lambda i, x: fill(x, i, np.copysign(1.0, SIGNED[0])))
        assert x.numpy().tolist() == [np.copysign(1.0, value)] * 2


class Color(enum.IntEnum):
    RED = 3


class Ends:
    """A space of one index, which depends on the sign of its parameter."""

    ndim, size = 1, 1

    def __init__(self, sign):
        self.parameters = (sign,)

    @staticmethod
    def index_to_coords(index, sign):
        return index if np.copysign(1.0, sign) > 0 else index + 3


def test_zeros_of_both_signs_are_two_parameters_of_a_space(ctx, loop):
    x = ctx.logical_data(np.zeros(4))
    for sign in (0.0, -0.0):
        loop(Ends(sign), x.rw())(lambda i, x: fill(x, i, 1.0))
    assert x.numpy().tolist() == [1.0, 0.0, 0.0, 1.0]


def test_a_parameter_of_a_graph_that_becomes_large(ctx, loop):
    x, g = ctx.logical_data(np.zeros(2, np.uint64)), ctx.task_graph()
    p = g.param("p", 1)
    with g:
        loop(x.shape, x.write(), args=(p,))(lambda i, x, p: fill(x, i, p))
    for value in LARGE:
        try:
            g.launch(p=value)
        except TypeError as error:  # a GPU's kernel was compiled for int64
            assert value >= 1 << 63 and is_cuda(ctx), error
        else:
            assert x.numpy().tolist() == [value] * 2
    g.close()


def test_members_of_enumerations_are_numbers(ctx, loop):
    x, red = ctx.logical_data(np.zeros(2)), Color.RED
    loop(x.shape, x.write())(lambda i, x: fill(x, i, red))
    assert x.numpy().tolist() == [3.0] * 2
    loop(x.shape, x.write(), args=(Color.RED,))(lambda i, x, red: fill(x, i, red + 1))
    assert x.numpy().tolist() == [4.0] * 2
    loop(x.shape, x.write())(lambda i, x: fill(x, i, Color.RED.value + 2))
    assert x.numpy().tolist() == [5.0] * 2


def test_a_member_that_compilers_take_for_no_number_is_told():
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(2))
        with pytest.raises(
            TypeError, match="uses a member of Color as a number, which is none for compilers; write its"
        ):
            ctx.parallel_for(x.shape, x.write())(lambda i, x: fill(x, i, Color.RED))


@pytest.mark.parametrize("default", [None, "text", 1j, (1, 2)])
def test_parameters_of_graphs_are_real_numbers_for_kernels(ctx, loop, default):
    x, g = ctx.logical_data(np.zeros(2)), ctx.task_graph()
    p = g.param("p", default)
    with pytest.raises(TypeError, match="parameter 'p' of a graph is .* by default, and kernels take real numbers"), g:
        loop(x.shape, x.rw(), args=(p,))(lambda i, x, p: fill(x, i, p))
    g.close()


# -- what is read around a body ------------------------------------------------------------------------------------------


def with_default(value):
    def helper(a, factor=value, shift=value):
        return a * factor + shift

    return helper


def test_default_values_of_functions_are_those_of_the_call(ctx, loop):
    x = ctx.logical_data(np.zeros(2))
    for value in (1.0, 2.0):
        helper = with_default(value)
        loop(x.shape, x.rw())(lambda i, x: fill(x, i, helper(10.0)))
        assert x.numpy().tolist() == [11.0 * value] * 2


class Column:
    """A space whose function reads a global variable."""

    ndim, size, parameters = 2, 3, ()

    @staticmethod
    def index_to_coords(index):
        return index, COLUMN


def test_a_space_reads_what_is_there_now(ctx, loop):
    global COLUMN
    x, space = ctx.logical_data(np.zeros((3, 2))), Column()
    for column in (0, 1):
        COLUMN = column
        loop(space, x.rw())(lambda i, j, x: fill(x, (i, j), 1.0))
    assert x.numpy().tolist() == [[1.0, 1.0]] * 3


def scaled_sum(a, b):
    return a + SCALE * b


def test_an_operator_reads_what_is_there_now(ctx, loop):
    global SCALE
    x, total = ctx.logical_data(np.ones(1)), ctx.logical_data_empty((), float)
    own = stf.reducer.define(0.0, scaled_sum)
    found = []
    for scale in (1.0, 4.0):
        SCALE = scale
        loop(x.shape, x.read(), total.reduce(own))(lambda i, x: x[i])
        found.append(ctx.wait(total))
    assert found[0] == 1.0 and found[1] >= 4.0


def first_weight():
    return WEIGHTS[0]


@pytest.mark.at_once("an array of a helper is read when the task is given")
def test_an_array_of_a_function_that_was_changed_in_place(ctx, loop):
    x = ctx.logical_data(np.zeros(1))
    try:
        for value in (1.0, 2.0):
            WEIGHTS[0] = value
            loop(x.shape, x.rw())(lambda i, x: fill(x, i, first_weight()))
            assert x.numpy().tolist() == [value]
    finally:
        WEIGHTS[0] = 1.0


def test_numbers_of_a_module_of_the_users(ctx, loop):
    x, y = ctx.logical_data(np.zeros(1)), ctx.logical_data(np.zeros(1))
    for value in (1.0, 2.0, 3.0):
        settings.alpha = settings.inner.beta = value
        loop(x.shape, x.rw())(lambda i, x: fill(x, i, settings.alpha))
        loop(y.shape, y.rw())(lambda i, y: fill(y, i, settings.inner.beta))
        assert x.numpy().tolist() == y.numpy().tolist() == [value]


def test_functions_of_a_module_of_the_users(ctx, loop):
    x = ctx.logical_data(np.zeros(1))
    for settings.rate in (1.0, 3.0):
        loop(x.shape, x.rw())(lambda i, x: fill(x, i, settings.twice(5.0)))
        assert x.numpy()[0] == 10.0 * settings.rate
    before = settings.twice
    try:
        settings.twice = settings.scaled
        loop(x.shape, x.rw())(lambda i, x: fill(x, i, settings.twice(5.0)))
        assert x.numpy()[0] == 15.0
    finally:
        settings.twice = before


def test_default_values_of_a_body_are_not_used(ctx, loop):
    x = ctx.logical_data(np.zeros(1))
    with pytest.raises(
        TypeError, match="has default values of parameters, which kernels do not use; give a, b by args="
    ):
        loop(x.shape, x.rw())(lambda i, x, a=1.0, b=2.0: fill(x, i, a))


def test_data_in_a_container_around_a_body_are_named(ctx, loop, threads):
    x = ctx.logical_data(np.zeros(1))
    inside, table = [x], {"a": (x,)}
    for body in (lambda i, x: fill(x, i, inside[0][i]), lambda i, x: fill(x, i, table["a"][0][i])):
        with pytest.raises(TypeError, match="uses logical data .* through '(inside|table)' without an access; pass it"):
            loop(x.shape, x.rw())(body)


def test_a_method_in_place_of_an_access(ctx):
    x = ctx.logical_data(np.zeros(1))
    y, told = (
        ctx.logical_data(np.zeros(1)),
        r"takes accesses, got the method read of logical data .*; call it: .read\(\)",
    )
    for build in (
        lambda: ctx.parallel_for(x.shape, x.read),
        lambda: ctx.parallel_for(4, x.read, y.rw()),
        lambda: ctx.launch(x.read),
        lambda: ctx.launch(y.rw(), x.read),
    ):
        with pytest.raises(TypeError, match=told):
            build()


def test_data_and_arrays_in_place_of_an_access(ctx):
    x, y, told = np.zeros(4), ctx.logical_data(np.zeros(4)), r"got logical data .*; say how it is used: .read\(\)"
    for build in (lambda thing: ctx.parallel_for(4, thing, y.rw()), lambda thing: ctx.launch(thing, y.rw())):
        with pytest.raises(TypeError, match=told):
            build(ctx.logical_data(np.zeros(4)))
        with pytest.raises(TypeError, match="got an array of type ndarray; register it, lX = ctx.logical_data"):
            build(x)


def test_what_a_body_and_its_function_both_read(ctx, loop):
    global SCALE
    x = ctx.logical_data(np.zeros(1))
    for SCALE in (1.0, 2.0):
        loop(x.shape, x.rw())(lambda i, x: fill(x, i, SCALE + scaled_sum(0.0, 1.0)))
        assert x.numpy().tolist() == [2 * SCALE]


@pytest.mark.thorough
def test_named_tuples_with_fields_in_another_order_are_other_kernels(run_python, tmp_path):
    program = """
import collections, numpy as np, stf
Grid = collections.namedtuple("Grid", {fields!r})
with stf.context(devices="cpu") as ctx:
    x = ctx.logical_data(np.zeros(1))
    def body(i, x, grid):
        x[i] = grid.dx
    ctx.parallel_for(x.shape, x.rw(), args=(Grid(dx=1.0, dt=100.0),))(body)
    print(x.numpy()[0])
"""
    for fields in ("dx dt", "dt dx"):
        done = run_python(program.format(fields=fields), STF_CACHE_DIR=str(tmp_path / "cache"))
        assert done.stdout.split() == ["1.0"], done.stderr


@pytest.mark.thorough
def test_threads_that_wait_are_compiled_once_for_all_processes(run_python, tmp_path):
    program = """
import numpy as np, stf
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, found): compiled.append(found.data["dispatcher"].py_func.__name__)
    def on_end(self, found): pass
event.register("numba:compile", Listener())
with stf.context(devices="cpu") as ctx:
    x = ctx.logical_data(np.zeros(4))
    @ctx.launch(stf.con(4), x.rw())
    def body(th, x):
        th.sync()
        x[th.rank()] = 1
    print(x.numpy().sum(), len(compiled))
"""
    found = [run_python(program, STF_CACHE_DIR=str(tmp_path / "cache")).stdout.split() for _ in range(2)]
    assert found[0][0] == found[1][0] == "4.0"
    assert int(found[0][1]) > 0 and found[1][1] == "0"


# -- what a body returns -------------------------------------------------------------------------------------------------


def some(i, x):
    if x[i] > 3:
        return x[i]


def large(value):
    if value > 3:
        return value


RETURNS = [
    (some, 1, "returns nothing in line"),
    (lambda i, x: large(x[i]), 1, "returns nothing on one path"),
    (lambda i, x: None, 1, "returns nothing in line"),
    (lambda i, x: (x[i], x[i], 1.0), 2, "returns 3 values in line .* for 2 scalars"),
    (lambda i, x: x[i] * 2, 0, "returns a value in line .* which nothing takes"),
]


@pytest.mark.parametrize(("body", "count", "message"), RETURNS)
def test_a_body_returns_what_its_reductions_take(ctx, loop, body, count, message):
    x = ctx.logical_data(np.arange(6.0))
    sums = [ctx.logical_data_empty((), float) for _ in range(count)]
    with pytest.raises(TypeError, match=message):
        loop(x.shape, x.read(), *[s.reduce(stf.reducer.sum) for s in sums])(body)
    assert x.numpy().sum() == 15.0


def test_floats_are_not_reduced_into_integers(ctx, loop):
    x, total = ctx.logical_data(np.full(6, 0.6)), ctx.logical_data_empty((), np.int64)
    with pytest.raises(TypeError, match=r"contributes float64, which data of int64 cannot take; convert it, np.int64"):
        loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])
    narrow = ctx.logical_data_empty((), np.int32)
    with pytest.raises(TypeError, match=r"contributes float64, which data of int32 cannot take; convert it, np.int32"):
        loop(x.shape, x.read(), narrow.reduce(stf.reducer.sum))(lambda i, x: x[i])
    loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: int(10 * x[i]))
    assert ctx.wait(total) == 36
    loop(x.shape, x.read(), total.reduce(stf.reducer.logical_or))(lambda i, x: x[i])
    assert ctx.wait(total) == 1


UNSIGNED = ["u8", *([] if QUICK else ["u1", "u2", "u4"])]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_signed_numbers_are_reduced_into_unsigned_ones_bit_by_bit(ctx, loop, dtype):
    values = np.array([(1 << 60) + 1, -3, (1 << 60) + 7, 5])
    x, total = ctx.logical_data(values), ctx.logical_data_full((), 2, dtype)
    loop(x.shape, x.read(), total.reduce(stf.reducer.sum, accumulate=True))(lambda i, x: x[i])
    assert ctx.wait(total) == np.array(values.sum() + 2).astype(dtype)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        loop(x.shape, x.read(), total.reduce(getattr(stf.reducer, name)))(lambda i, x: x[i])
        assert ctx.wait(total) == getattr(np, name).reduce(values).astype(dtype)


@pytest.mark.parametrize("op", [stf.reducer.minval, stf.reducer.maxval, stf.reducer.define(0, scaled_sum)])
def test_what_may_be_negative_is_not_compared_with_unsigned_numbers(ctx, loop, op):
    least = ctx.logical_data_empty((), np.uint64)
    with pytest.raises(TypeError, match=r"contributes int64, which data of uint64.* negative; convert it, np.uint64"):
        loop(stf.box(8), least.reduce(op))(lambda i: i - 5)
    loop(stf.box(8), least.reduce(stf.reducer.minval))(lambda i: np.uint64(i + 5))
    assert ctx.wait(least) == 5


def test_what_is_beyond_the_range_is_the_end_of_it(ctx, loop):
    least, most = (ctx.logical_data_empty((), np.int32) for _ in range(2))
    loop(stf.box(8), least.reduce(stf.reducer.minval), most.reduce(stf.reducer.maxval))(
        lambda i: (i - (1 << 40), np.uint64(i) + np.uint64(1 << 40))
    )
    assert ctx.wait(least) == np.iinfo(np.int32).min and ctx.wait(most) == np.iinfo(np.int32).max


def test_numbers_are_no_truth_values(ctx, loop):
    x, flag = ctx.logical_data(np.arange(4)), ctx.logical_data_empty((), bool)
    with pytest.raises(TypeError, match="contributes int64, which data of bool cannot take; return whether it is true"):
        loop(x.shape, x.read(), flag.reduce(stf.reducer.maxval))(lambda i, x: x[i])
    loop(x.shape, x.read(), flag.reduce(stf.reducer.maxval))(lambda i, x: x[i] != 0)
    assert ctx.wait(flag)


# -- arrays that are reduced into ----------------------------------------------------------------------------------------


def plus(i, x, h):
    h[x[i]] += (1 << 60) + x[i]


def minus(i, x, h):
    h[x[i]] = h[x[i]] - x[i] + 1


def plus_in_a_function(i, x, h):
    add_at(h, x[i] + 0 * (h.size + len(h) + h.shape[0]), 2)


def add_at(h, k, value):
    h[k] += value


def least_of(i, x, h):
    h[x[i]] = min(np.uint64(x[i] + 7), h[x[i]])


def bits_of(i, x, h):
    h[x[i]] |= x[i]


CONTRIBUTING = [
    (plus, "sum", lambda k, n: n * ((1 << 60) + k)),
    (minus, "sum", lambda k, n: n * (1 - k)),
    (plus_in_a_function, "sum", lambda k, n: 2 * n),
    (least_of, "minval", lambda k, n: k + 7),
    (bits_of, "bitwise_or", lambda k, n: k),
]


@pytest.mark.parametrize(("body", "name", "right"), CONTRIBUTING)
def test_elements_of_an_array_that_are_contributed_to(ctx, loop, body, name, right):
    count = 300_000  # several pieces
    x, h = ctx.logical_data(np.arange(count) % 4), ctx.logical_data_empty(4, np.uint64)
    loop(x.shape, x.read(), h.reduce(getattr(stf.reducer, name)))(body)
    assert h.numpy().tolist() == [right(k, count // 4) % 2**64 for k in range(4)]


def sets(i, x, h):
    h[x[i]] = 1


def doubles(i, x, h):
    h[x[i]] *= 2


def reads(i, x, h):
    h[x[i]] += h[0]


def adds_a_fraction(i, x, h):
    h[x[i]] += 0.5


def adds_to_all(i, x, h):
    h[:] += 1


def compares(i, x, h):
    if x[i] > h[x[i]]:
        h[x[i]] = x[i]


REFUSED = [
    (
        sets,
        r"it sets( in line \d+)? an element of an array that stf.reducer.sum reduces into; write `h\[i\] \+= value`",
    ),
    (doubles, "uses.* the content of an array that stf.reducer.sum reduces into, which is not known yet; change"),
    (reads, "uses.* the content of an array"),
    (adds_a_fraction, "contributes float64, which data of int64 cannot take"),
    (adds_to_all, "takes.* more than one element of an array"),
    (compares, "uses.* the content of an array|it sets"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_an_array_that_is_reduced_into_is_used_for_nothing_else(ctx, loop, body, message):
    x, h = ctx.logical_data(np.arange(8) % 4), ctx.logical_data_full(4, 5, np.int64)
    with pytest.raises(TypeError, match=message):
        loop(x.shape, x.read(), h.reduce(stf.reducer.sum, accumulate=True))(body)
    assert h.numpy().tolist() == [5] * 4


def test_data_are_reduced_into_once(ctx):
    x, total = ctx.logical_data(np.ones(3)), ctx.logical_data_empty((), float)
    for other in (total.reduce(stf.reducer.maxval), total.read()):
        with pytest.raises(ValueError, match="is reduced into, and is another argument"):
            ctx.parallel_for(x.shape, x.read(), total.reduce(stf.reducer.sum), other)


def nothing_of(a, b):
    a += b


@pytest.mark.parametrize(("fn", "message"), [(np.maximum, "got <ufunc"), (nothing_of, "returns nothing in line")])
def test_an_operator_is_a_function_that_returns(ctx, loop, fn, message):
    x, total = ctx.logical_data(np.ones(3)), ctx.logical_data_empty((), float)
    with pytest.raises(TypeError, match=message):
        loop(x.shape, x.read(), total.reduce(stf.reducer.define(0.0, fn)))(lambda i, x: x[i])


# -- what kernels cannot have --------------------------------------------------------------------------------------------


class Model:
    def __init__(self):
        self.g = 9.81


def test_what_kernels_cannot_have_is_named(ctx):
    x, model, table, array = ctx.logical_data(np.ones(3)), Model(), {"a": 1.0}, np.ones(3)
    for body in (lambda i, x: fill(x, i, model.g), lambda i, x: fill(x, i, table["a"])):
        with pytest.raises(TypeError, match="reads '(model|table)', which kernels cannot have"):
            ctx.parallel_for(x.shape, x.rw()).on("host")(body)
    for value in (array, x.read()):
        with pytest.raises(TypeError, match="by args=, which takes numbers"):
            ctx.parallel_for(x.shape, x.rw(), args=(value,)).on("host")(lambda i, x, value: fill(x, i, 1.0))


def test_a_captured_array_is_not_written_to(ctx, loop):
    x, array = ctx.logical_data(np.ones(3)), np.zeros(3)

    def body(i, x):
        array[i] = x[i]

    with pytest.raises(
        TypeError, match=r"writes in line \d+ to 'array', an array around it, of which kernels get a copy"
    ):
        loop(x.shape, x.read())(body)
    assert array.sum() == 0


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def test_functions_that_call_themselves_are_refused(ctx, loop):
    x = ctx.logical_data(np.ones(3))
    with pytest.raises(TypeError, match="'is_even' calls itself"):
        loop(x.shape, x.rw())(lambda i, x: fill(x, i, is_even(i)))


def test_a_name_that_is_not_defined_is_shown_with_its_line(ctx, loop):
    x = ctx.logical_data(np.ones(3))

    def body(i, x):
        x[i] = no_such_name + 1  # noqa: F821

    with pytest.raises(NameError, match=r"reads 'no_such_name', which is not defined, in line \d+: x\[i\] = no_such"):
        loop(x.shape, x.rw())(body)


def test_a_parameter_of_a_graph_comes_by_itself(ctx):
    x = ctx.logical_data(np.ones(3))
    with pytest.raises(TypeError, match="a graph's parameters by themselves"), ctx.task_graph() as graph:
        pair = (graph.param("shift", 1.0), 2.0)
        ctx.parallel_for(x.shape, x.rw(), args=(pair,)).on("host")(lambda i, x, pair: fill(x, i, pair[0]))


def raising(value):
    if value < 0:
        raise ValueError(value)
    return value


def catching(value):
    try:
        return 1 / value
    except ZeroDivisionError:
        return 0.0


@pytest.mark.parametrize("helper", [raising, catching])
def test_gpus_neither_raise_nor_catch(ctx, helper):
    what = "raise or assert" if helper is raising else "try or with"
    x = ctx.logical_data(np.ones(4))

    def of_threads(th, x):
        x[th.rank()] = helper(x[th.rank()])

    for body in (lambda i, x: fill(x, i, helper(x[i])), of_threads):
        with pytest.raises(TypeError, match=f"calls '{helper.__name__}', which has {what}"):
            must_not_fail(body, "the body")
    if is_cuda(ctx):
        with pytest.raises(TypeError, match=what):
            ctx.parallel_for(x.shape, x.rw())(lambda i, x: fill(x, i, helper(x[i])))
        with pytest.raises(TypeError, match=what):
            ctx.launch(stf.par(4), x.rw())(of_threads)
        assert x.numpy().tolist() == [1.0] * 4


# -- how things are said -------------------------------------------------------------------------------------------------


def test_integers_of_numpy(ctx, loop, threads):
    x = ctx.logical_data(np.zeros(8))
    loop(np.int64(8), x.rw())(lambda i, x: fill(x, i, i))

    def of_threads(th, x):
        x[th.thread_id()] += th.get_num_threads()  # the other spelling of rank and size

    threads(stf.par(np.int64(4), stf.con(np.int32(2), stf.mem(np.int64(8)))), x.rw())(of_threads)
    assert x.numpy().tolist() == [8.0 + i for i in range(8)]


class Everything:
    """A partition that gives the first place all."""

    def apply(self, shape, position, grid_dims):
        return shape if position == (0,) else stf.box(0)

    def get_executor(self, coords, dims, grid_dims):
        return (0,)


def test_partitions_are_objects_or_classes(ctx):
    x, grid = ctx.logical_data(np.zeros(8)), stf.exec_place.grid([stf.exec_place.host()] * 2)
    for partition in (Everything, Everything(), stf.cyclic_partition()):
        ctx.parallel_for(grid, partition, x.shape, x.rw())(lambda i, x: fill(x, i, x[i] + 1))

        def of_threads(th, x):
            x[th.rank()] += 1

        ctx.launch(stf.par(8), grid, partition, x.rw())(of_threads)
    assert x.numpy().tolist() == [6.0] * 8
    with pytest.raises(TypeError, match=r"call it: blocked_partition\(\)"):
        ctx.parallel_for(grid, stf.blocked_partition, x.shape, x.rw())
    with pytest.raises(TypeError, match="a partition is for a grid"):
        ctx.launch(stf.par(8), "host", stf.cyclic_partition(), x.rw())


def test_a_body_with_a_text_at_the_margin(ctx, threads):
    x = ctx.logical_data(np.zeros(4))

    def body(th, x):
        """A text whose second line
is at the margin."""  # fmt: skip
        x[th.rank()] = 1

    threads(stf.par(4), x.rw())(body)
    assert x.numpy().tolist() == [1.0] * 4


def test_indices_past_what_32_bits_hold(ctx, loop):
    x, first = ctx.logical_data(np.zeros(5)), 1 << 33
    loop(stf.box[first : first + 5], x.rw())(lambda i, x: fill(x, i - (1 << 33), i / (1 << 33)))
    assert (x.numpy() >= 1.0).all()
    total = ctx.logical_data_empty((), np.int64)
    loop(stf.box[first : first + 5], total.reduce(stf.reducer.sum))(lambda i: i)
    assert ctx.wait(total) == sum(range(first, first + 5))


def test_without_a_compiler_kernels_say_so(run_python):
    program = """
    with stf.context(devices="cpu") as ctx:
        try:
            ctx.parallel_for(4, ctx.logical_data_zeros(4).rw())(lambda i, x: None)
        except RuntimeError as error:
            print(error)
    """
    done = run_python(program, NUMBA_DISABLE_JIT="1")
    assert "compiled by Numba, which NUMBA_DISABLE_JIT=1 forbids; unset it" in done.stdout, done.stderr


def test_without_numba_cuda_kernels_say_how_to_get_it(ctx, monkeypatch):
    if not is_cuda(ctx):
        pytest.skip("kernels of a GPU")
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    intrinsics.cache_clear()
    x = ctx.logical_data(np.zeros(4))

    def thread(th, x):
        x[th.rank()] = 1.0

    for build, body in ((ctx.parallel_for(4, x.rw()), lambda i, x: fill(x, i, 1.0)), (ctx.launch(x.rw()), thread)):
        with pytest.raises(ImportError, match=r"numba-cuda for a GPU, which is not there; pip install 'numba-cuda"):
            build.on(0)(body)


# -- what loses results ----------------------------------------------------------------------------------------------


def add_to_one_place(i, x, s):
    s[0] += x[i]


def add_where_one_may(i, x, s):
    if i == 0:
        s[0] += x[i]


def bind_the_parameter(i, x, y):
    y = x[i] * 2  # noqa: F841


def add_to_a_part_that_is_one(i, x, s):
    s[0:4] += x[i]


def add_without_a_sign(i, x, s):
    s[0] = s[0] + x[i]


def set_all(i, x, y):
    y[:] = 2.0 * x[i]


def compute_with_all(i, x, y):
    y[i] = (y * 2.0).sum()


def add_to_all(i, x, y):
    y += 2.0 * x


def count_around():
    n = 0

    def count(i, x, y):
        nonlocal n
        y[i] += 1
        n += 1

    return count


def count_globally(i, x, y):
    global COLUMN
    COLUMN += 1


async def wait_in_it(i, x, y):
    y[i] = x[i]


def give_more(i, x, y):
    y[i] = x[i]
    yield


def with_a_name_of_ours(i, x, y):
    _stf_a0 = x[i]
    y[i] = _stf_a0


def change_what_is_read(i, x, y):
    x += 1
    y[i] = x[i]


def write_what_is_read(i, x, y):
    k = i if i > 2 else i + 1
    x[k - 1] += y[i]


def write_around():
    table = np.zeros(100)

    def write(i, x, y):
        table[i] = x[i]

    return write


def bind_the_index(i, x, y):
    i = i * 1
    y[i] += x[i]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (add_to_one_place, r"adds to one place of 's' in line \d+, for all elements at the same time.*lS.reduce"),
        (bind_the_parameter, r"binds its parameter 'y' to something else in line \d+, so nothing is written"),
        (add_to_a_part_that_is_one, r"adds to one place of 's' in line \d+"),
        (add_without_a_sign, r"adds to one place of 's' in line \d+"),
        (set_all, r"changes all of 'y' in line \d+, and does so for each element"),
        (
            compute_with_all,
            r"computes with all of 'y' in line \d+, while other elements change it; name an element, `y",
        ),
        (add_to_all, r"changes all of 'y' in line \d+, and does so for each element; change one element, `y\[i\]"),
        (count_around(), r"assigns to 'n', a variable around it, in line \d+, .*reduction, lS.reduce"),
        (count_globally, r"assigns to 'COLUMN', a variable around it, in line \d+"),
        (wait_in_it, "is a coroutine or a generator, which kernels cannot run"),
        (give_more, "is a coroutine or a generator, which kernels cannot run"),
        (with_a_name_of_ours, "has a variable '_stf_a0'; names that begin with _stf_ are those of stf, rename it"),
        (change_what_is_read, r"writes in line \d+ to 'x', which it only reads; pass it with rw\(\) or write\(\)"),
        (write_what_is_read, r"writes in line \d+ to 'x', which it only reads"),
        (write_around(), r"writes in line \d+ to 'table', an array around it, of which kernels get a copy"),
    ],
)
def test_bodies_that_would_lose_what_they_compute_are_errors(body, message):
    with stf.context(devices="cpu") as ctx:
        x, y = ctx.logical_data(np.ones(100)), ctx.logical_data(np.zeros(100))
        with pytest.raises(TypeError, match=message):
            ctx.parallel_for(x.shape, x.read(), y.rw())(body)
        assert y.numpy().sum() == 0


def test_a_write_by_a_function_to_what_is_only_read_says_so():
    with stf.context(devices="cpu") as ctx:
        x, y = ctx.logical_data(np.ones(10)), ctx.logical_data(np.zeros(10))
        with pytest.raises(TypeError, match=r"it writes in line \d+ to an array that it only reads; pass that with rw"):
            ctx.parallel_for(x.shape, x.read(), y.read())(lambda i, x, y: fill(y, i, x[i]))


def test_a_sum_into_zero_dimensional_data_is_a_reduction():
    with stf.context(devices="cpu") as ctx:
        x, s = ctx.logical_data(np.ones(10)), ctx.logical_data(np.zeros(()))

        def add(i, x, s):
            s += x[i]

        with pytest.raises(TypeError, match=r"changes all of 's' in line \d+.*pass a reduction"):
            ctx.parallel_for(x.shape, x.read(), s.rw())(add)
        assert s.numpy() == 0


def test_threads_that_change_all_of_an_array(ctx, threads):
    x = ctx.logical_data(np.zeros(4))

    def body(th, x):
        x += th.rank()

    with pytest.raises(TypeError, match=r"changes all of 'x' in line \d+"):
        threads(x.rw())(body)


def test_bodies_like_them_that_lose_nothing():
    with stf.context(devices="cpu") as ctx:
        x, s, y = (ctx.logical_data(array) for array in (np.ones(100), np.zeros(1), np.zeros(100)))
        h = ctx.logical_data_empty(4)
        ctx.parallel_for(x.shape, x.read(), s.rw())(add_where_one_may)
        ctx.parallel_for(stf.box(1), x.read(), s.rw())(add_to_one_place)
        ctx.parallel_for(x.shape, x.read(), h.reduce(stf.reducer.sum))(add_to_one_place)
        ctx.parallel_for(x.shape, x.read(), y.rw())(bind_the_index)
        assert s.numpy()[0] == 2 and h.numpy()[0] == 100 and y.numpy().sum() == 100
        ctx.parallel_for(x.shape, x.read(), y.rw())(bind_what_is_read)
        assert y.numpy().sum() == 300


def bind_what_is_read(i, x, y):
    row = x * 2.0  # which a CPU can
    row[0] = x.size
    x = x[i] + 0 * row[1]
    x += 1
    y[i] += x


def use_nothing(i, x, y):
    pass


def forget_to_store(i, x, y):
    x[i] * 2


def compute_and_drop(i, x, y):
    y[i] = 1
    -x[i]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (use_nothing, "is to write its parameter 'y', and never uses it, so nothing would write its data"),
        (forget_to_store, "is to write its parameter 'y', and never uses it"),
        (compute_and_drop, r"computes something from 'x' in line \d+ and drops it; store it"),
    ],
)
def test_a_body_that_writes_nothing_is_an_error(ctx, loop, body, message):
    x, y = ctx.logical_data(np.ones(8)), ctx.logical_data(np.full(8, 3.0))
    with pytest.raises(TypeError, match=message):
        loop(x.shape, x.read(), y.write())(body)
    assert y.numpy().tolist() == [3.0] * 8


def test_a_body_may_leave_what_it_only_orders(ctx, loop):
    """By a name with an underscore, or by rw(), which keeps what is there."""

    def order(i, x, _y, z):
        x[i] = 2 if 0 < x[i] < 2 else 0

    x, y, z = (ctx.logical_data(np.ones(8)) for _ in range(3))
    loop(x.shape, x.rw(), y.write(), z.rw())(order)
    assert (x.numpy().sum(), z.numpy().sum()) == (16, 8)


# -- printing --------------------------------------------------------------------------------------------------------


def printed(capfd, context):
    """Return the lines that kernels have printed; those of a GPU are in C's buffer when the host has waited."""
    context.synchronize()
    if is_cuda(context):
        ctypes.CDLL(None).fflush(None)
    sys.stdout.flush()
    return sorted(capfd.readouterr().out.splitlines())


def test_elements_print(ctx, loop, capfd):
    x = ctx.logical_data(np.array([4.0, -1.0, 9.0, 2.5]))

    @loop(x.shape, x.rw())
    def root(i, x):
        if x[i] < 0:
            print("negative:", i, 2)
        x[i] = abs(x[i])

    assert printed(capfd, ctx) == ["negative: 1 2"]
    assert x.numpy().tolist() == [4.0, 1.0, 9.0, 2.5]

    @loop(x.shape, x.read())
    def tell(i, x):
        print("each:", i, 2)

    lines = printed(capfd, ctx)  # of several workers, whose words may mix
    assert sorted("".join(lines)) == sorted("".join(f"each: {i} 2" for i in range(4)))


def test_threads_print(ctx, threads, capfd):
    x = ctx.logical_data(np.zeros(4))

    @threads(stf.par(2, stf.con(2)), x.rw())
    def tell(th, x):
        if th.rank(0) == 1 and th.rank(1) == 1:
            print("group", th.rank(0))
        x[th.rank()] = 1

    assert printed(capfd, ctx) == ["group 1"]
    assert x.numpy().sum() == 4
