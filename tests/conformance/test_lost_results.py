"""Results that get lost, and those that fit: what bodies compute, and what of it may go into their data."""

from __future__ import annotations

import types
import warnings
from typing import Any

import numpy as np
import pytest
from helpers import library, told

import stf
from stf._support import code_writing
from stf.tasks import last_values

NEW = "computes a new Foreign for its parameter 'y', .* the same|Unsupported type .*Foreign"  # CuPy may refuse it


class Foreign:
    """A number of a library that makes arrays of its own, as JAX and torch do beside NumPy and CuPy."""

    __array_priority__ = 1e6  # NumPy leaves the sum to it, also in an assignment

    def __init__(self, value: float) -> None:
        self.value = value

    def __radd__(self, array: Any) -> Any:
        return Foreign(array + self.value)


@pytest.fixture
def vec(ctx):
    def make(value, dtype=np.float64, n=3):
        return ctx.logical_data(np.full(n, value, dtype))

    return make


# -- augmented assignments ---------------------------------------------------------------------------------------------


def add(y: stf.ReadWrite, x):
    y += x


def add_or_leave(y: stf.ReadWrite, x):
    if x is None:
        return None
    for _ in range(1):
        y += x
        if y is not None:
            return None
    return 0 * y


def add_in_a_block(y: stf.ReadWrite, x):
    with warnings.catch_warnings():
        y += x


@pytest.mark.parametrize("fn", [add, add_or_leave, add_in_a_block])
def test_an_augmented_assignment_that_leaves_another_object_behind_is_an_error(ctx, vec, fn):
    y = vec(1)
    stf.task(fn)(y, 2.0)
    assert y.numpy().tolist() == [3] * 3
    with told(ctx, lambda: stf.task(fn)(y, Foreign(2.0)), NEW):
        ctx.synchronize()
    assert y.accept().numpy().tolist() == [3] * 3
    stf.task(fn)(y, 1.0)
    assert y.numpy().tolist() == [4] * 3


@pytest.mark.parametrize("line", ["y = np.roll(y, 1)", "y = np.linalg.solve(np.eye(3), y)", "y = ordered(y)"])
def test_what_a_call_gives_is_lost_if_nothing_is_written(ctx, vec, line):
    scope = {"stf": stf, "np": np, "ordered": np.sort}
    exec(f"def f(y: stf.ReadWrite):\n    {line}", scope)
    y = vec(0)
    stf.task(scope["f"]).on("host")(y)
    with pytest.raises(stf.TaskFailedError, match="computes a new ndarray for its parameter 'y'"):
        ctx.synchronize()
    y.accept()


@pytest.mark.parametrize(
    "line", ["y = write(y)", "y = np.asarray(y)", "y = np.sum(y)", "y[...] = 4; y = np.roll(y, 1)", "y = len(y)"]
)
def test_what_a_call_gives_may_be_all_the_same(ctx, vec, line):
    def write(y):
        y[...] = 4
        return y

    scope = {"stf": stf, "np": np, "write": write}
    exec(f"def f(y: stf.ReadWrite):\n    {line}", scope)
    stf.task(scope["f"]).on("host")(vec(0))
    ctx.synchronize()


def test_bodies_of_builders_are_told_of_too(ctx, vec):
    y, foreign = vec(1), Foreign(2.0)

    def body(y):
        y += foreign

    with told(ctx, lambda: ctx.task(y.rw())(body), NEW):
        ctx.synchronize()
    y.accept()
    ctx.host_launch(y.rw())(body)
    with pytest.raises(stf.TaskFailedError, match="computes a new Foreign for its parameter 'y'"):
        ctx.synchronize()
    y.accept()


def test_augmented_assignments_in_recordings(ctx, vec):
    y, step = vec(1), stf.task(add)
    g = ctx.task_graph()
    with g:
        step(y, 1.0)
    for _ in range(3):
        g.launch()
    assert y.numpy().tolist() == [4] * 3
    g.close()


def wide(y: stf.ReadWrite, way):
    if way == 0:
        return
    y += 1
    if way == 1:
        return
    y += 1


LONG = "def f(y, way):\n    if way:\n        return\n" + "    y += 1\n" * 300


@pytest.mark.parametrize("names", [("y",), ("y", "way")])
def test_code_that_tells_is_the_same_else(names):
    """Lines, constants, and what it returns; a return that is too far from the end for a jump stays as it is."""
    scope: dict[str, Any] = {}
    exec(LONG, scope)
    for fn, ways in ((wide, (0, 1, 2)), (scope["f"], (0,))):
        values = last_values.LastValues(names, range(len(names)), frozenset())
        code = code_writing.returning(fn.__code__, values, names)
        told = types.FunctionType(code, fn.__globals__)
        for way in ways:
            result = told(np.zeros(1), way)
            assert isinstance(result[0], last_values.LastValues) and result[0].names == names
            assert len(result) == 1 + len(names) and (len(names) == 1 or result[2] == way)
        assert [line for *_, line in code.co_lines() if line] == [line for *_, line in fn.__code__.co_lines() if line]
        assert len(list(code.co_positions())) == len(code.co_code) // 2
    assert types.FunctionType(code, {})(np.zeros(1), 1) is None


# -- containers --------------------------------------------------------------------------------------------------------


class Model:
    """An object whose attributes are data."""

    def __init__(self, ctx):
        self.x, self.y, self.rate = ctx.logical_data_ones(3), ctx.logical_data_zeros(3), 3.0

    @stf.task
    def step(self: stf.ReadWrite, factor):
        self.y += factor * self.rate * self.x

    @stf.task
    def binds(self: stf.ReadWrite):
        self.y = self.y + 1

    @stf.task
    def counts(self: stf.ReadWrite):
        self.rate += 1


def test_methods_of_objects_whose_attributes_are_data(ctx):
    model = Model(ctx)
    handle = model.step(2.0)
    handle.result()
    assert model.y.numpy().tolist() == [6] * 3 and model.step == model.step
    for method, what in ((model.binds, "self.y"), (model.counts, "self.rate")):
        with told(ctx, method, f"binds '{what}' to something else, and that ends with the body"):
            ctx.synchronize()
        model.x.accept(), model.y.accept()
    assert model.rate == 3.0


def test_a_new_array_in_a_container_is_an_error(ctx, vec):
    def in_list(xs: stf.ReadWrite):
        xs[1] = 2 * xs[1]

    def in_dict(xs: stf.ReadWrite):
        xs["a"][0] = 2 * xs["a"][0]

    def swaps(xs: stf.ReadWrite):
        xs[0], xs[1] = xs[1], xs[0]

    def grows(xs: stf.ReadWrite):
        xs.append(xs[0] + 1)

    def in_place(xs: stf.ReadWrite):
        while xs:
            one = xs.pop()
            one += 1

    x, y = vec(1), vec(2)
    stf.task(in_place)([x, y])
    assert (x.numpy()[0], y.numpy()[0]) == (2, 3)
    cases = (
        *((in_list, [x, y], r"xs\[1\]"), (in_dict, {"a": [y]}, r"xs\['a'\]\[0\]")),
        *((swaps, [x, y], r"xs\[0\]"), (swaps, {0: x, 1: y}, r"xs\[0\]"), (grows, [x, y], r"xs\[2\]")),
    )
    for fn, given, what in cases:
        with told(ctx, lambda fn=fn, given=given: stf.task(fn)(given), f"binds '{what}' to something else"):
            ctx.synchronize()
        x.accept(), y.accept()


class Trainer:
    """An object with more than data: what is shared stays shared."""

    def __init__(self, ctx):
        self.w, self.u, self.history, self.statistics = ctx.logical_data_ones(3), ctx.logical_data_zeros(3), [], {}

    def __call__(self):
        return self.w

    @stf.task
    def train(self: stf.ReadWrite):
        self.w += 1
        self.history.append(1)
        self.statistics["n"] = 1

    @stf.task
    def swaps(self: stf.ReadWrite):
        self.w, self.u = self.u, self.w

    @stf.task
    def adds(self: stf.ReadWrite):
        self.extra = 5


def test_lists_and_dicts_of_an_object_are_its_own(ctx):
    one = Trainer(ctx)
    one.train()
    one.train()
    assert one.w.numpy()[0] == 3 and one.history == [1, 1] and one.statistics == {"n": 1}
    for method, what in ((one.swaps, "self.w"), (one.adds, "self.extra")):
        with told(ctx, method, f"binds '{what}' to something else"):
            ctx.synchronize()
        one.w.accept(), one.u.accept()


def test_an_object_that_closes_something_when_it_goes_is_refused(ctx):
    class Connection:
        def __init__(self):
            self.w = ctx.logical_data_zeros(3)

        def __del__(self):
            pass

        @stf.task
        def step(self: stf.ReadWrite):
            self.w += 1

    with pytest.raises(TypeError, match="Connection has __del__, which would run for the copy"):
        Connection().step()


@pytest.mark.parametrize("before", ["y = y.astype('f4')", "if x: y = y.copy()"])
def test_an_augmented_assignment_to_something_else_is_an_error(ctx, vec, before):
    scope = {"stf": stf}
    exec(f"def f(x, y: stf.ReadWrite):\n    {before}\n    y += x", scope)
    y = vec(0)
    with told(ctx, lambda: stf.task(scope["f"])(1, y), "computes a new .* for its parameter 'y'"):
        ctx.synchronize()
    y.accept()


def test_many_data_in_a_list(ctx):
    @stf.task
    def total(xs: stf.Read, out: stf.Write):
        assert type(xs) is list
        out[...] = sum(x[0] for x in xs)

    data = [ctx.logical_data(np.full(2, float(i))) for i in range(100)]
    out = ctx.logical_data_empty(())
    total(data, out)
    assert float(out) == sum(range(100))
    g = ctx.task_graph()
    with g:
        total(data, out)
    g.launch({data[0]: ctx.logical_data(np.full(2, 5.0))})
    assert float(out) == sum(range(100)) + 5
    g.close()


# -- parameters that nobody writes -------------------------------------------------------------------------------------


def forgotten_return(x: stf.Read, y: stf.Write):
    np.add(x, 1)


def empty(x: stf.Read, y: stf.Write):
    pass


def one_of_two(x: stf.Read, y: stf.Write, z: stf.Write):
    y[...] = x


@pytest.mark.parametrize("fn", [forgotten_return, empty, one_of_two])
def test_a_written_parameter_that_is_never_used_is_refused(ctx, vec, fn):
    told = "is to write its parameter '[yz]', and neither uses it nor returns a value"
    with pytest.raises(TypeError, match=told):
        stf.task(fn)
    if fn is empty:
        with pytest.raises(TypeError, match=told):
            ctx.task(vec(1).read(), vec(2).write())(fn)
    ctx.check_state()


def test_what_only_orders_says_so_by_its_name(ctx, vec):
    @stf.task
    def first(_token: stf.Write, y: stf.ReadWrite):
        y += 1

    @stf.task
    def fails(y: stf.Write):
        raise ValueError("no")

    y = vec(1)
    first(ctx.token(), y)
    assert y.numpy()[0] == 2
    with told(ctx, lambda: fails(y), "ValueError"):
        ctx.synchronize()
    y.accept()


def test_a_way_through_the_function_that_returns_nothing_is_an_error_of_the_task(ctx, vec):
    @stf.task
    def f(x: stf.Read, y: stf.Write, doubles):
        if doubles:
            return 2 * x

    x, y = vec(3), vec(0)
    f(x, y, True)
    assert y.numpy().tolist() == [6] * 3
    with told(ctx, lambda: f(x, y, False), "returned None this time, and does not use all the arrays that it writes"):
        ctx.synchronize()
    y.accept()


@pytest.mark.parametrize("line", ["y + x", "-y", "np.maximum(y, 0)", "y.clip(0, 1)"])
def test_a_result_that_is_dropped_is_a_warning_at_its_line(line):
    scope = {"np": np, "stf": stf}
    exec(compile(f"def f(x: stf.Read, y: stf.ReadWrite):\n    {line}", "program.py", "exec"), scope)
    with pytest.warns(RuntimeWarning, match="task 'f' computes something from 'y' and drops it") as caught:
        stf.task(scope["f"])
    assert (caught[0].filename, caught[0].lineno) == ("program.py", 2)


@pytest.mark.parametrize(
    "line", ["np.maximum(y, 0, out=y)", "y.fill(1)", "print(y + x)", "y[0]", "y.sort()", "x.sum()"]
)
def test_calls_that_may_write_are_none(line):
    scope = {"np": np, "stf": stf}
    exec(f"def f(x: stf.Read, y: stf.ReadWrite):\n    {line}", scope)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stf.task(scope["f"])


# -- which results fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype, value",
    [
        *((np.int8, 127), (np.int8, -128), (np.uint8, 255), (np.uint64, 2**64 - 1), (np.int32, True)),
        *((np.float64, 3), (np.float32, 0.1), (np.float16, 2), (np.complex64, 1.5), (np.bool_, True)),
        *((np.float32, 10**10), (np.complex128, 2j), (np.float64, float("inf")), (np.float32, float("nan"))),
    ],
)
def test_numbers_of_python_take_the_dtype_of_their_array(ctx, vec, dtype, value):
    @stf.task
    def f(y: stf.Write):
        return value

    y = vec(0, dtype)
    f(y)
    expected = np.full(3, value).astype(dtype)
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize(
    "dtype, value, message",
    [
        (np.int8, 300, "result 0 of task 'f' is 300, and its data has dtype int8, which goes from -128 to 127"),
        (np.int32, 10**10, "is 10000000000, and its data has dtype int32"),
        (np.uint16, -1, "is -1, and its data has dtype uint16"),
        (np.int64, 2**63, "and its data has dtype int64"),
        (np.int64, 1.5, "is the float 1.5, its data has dtype int64; convert it"),
        (np.bool_, 1, "is the int 1, its data has dtype bool"),
        (np.float64, 1j, "is the complex 1j"),
        (np.float32, 1e300, "is 1e[+]300, which is infinite in its data's dtype float32"),
        (np.float16, 10**6, "is 1000000, which is infinite"),
    ],
)
def test_numbers_that_do_not_fit_are_errors(ctx, vec, dtype, value, message):
    @stf.task
    def f(y: stf.Write):
        return value

    y = vec(1, dtype)
    with told(ctx, lambda: f(y), message):
        ctx.synchronize()
    y.accept()


@pytest.mark.parametrize(
    "given, dtype, fits",
    [
        *((np.int64, np.float64, True), (np.int32, np.int64, True), (np.float32, np.float64, True)),
        *((np.bool_, np.int8, True), (np.float32, np.complex64, True), (np.uint8, np.int16, True)),
        *((np.float64, np.float32, False), (np.int64, np.int32, False), (np.int64, np.float32, False)),
        *((np.float64, np.int64, False), (np.uint8, np.int8, False), (np.complex64, np.float32, False)),
    ],
)
def test_arrays_fit_if_numpy_casts_them_safely(ctx, vec, given, dtype, fits):
    @stf.task
    def f(x: stf.Read, y: stf.Write):
        return x.astype(given)

    x, y = vec(3), vec(1, dtype)
    if fits:
        f(x, y)
        assert y.numpy().tolist() == np.full(3, 3).astype(given).astype(dtype).tolist()
    else:
        message = f"has dtype {np.dtype(given)}, its data has {np.dtype(dtype)}, which does not hold all of its values"
        with told(ctx, lambda: f(x, y), message):
            ctx.synchronize()
        y.accept()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (1, 3), (1, 2, 3)])
def test_results_broadcast_as_in_an_assignment(ctx, shape):
    @stf.task
    def f(y: stf.Write):
        return library(y).full(shape, 7.0)

    y = ctx.logical_data_empty((2, 3))
    f(y)
    assert (y.numpy() == 7).all()


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 2, 3), (2, 3, 1)])
def test_results_of_other_shapes_are_errors(ctx, shape):
    @stf.task
    def f(y: stf.Write):
        return library(y).full(shape, 7.0)

    y = ctx.logical_data_zeros((2, 3))
    with told(ctx, lambda: f(y), "does not broadcast to the shape of its data"):
        ctx.synchronize()
    y.accept()


def test_a_list_of_integers_is_checked_as_one_of_them():
    with stf.context(devices="cpu") as ctx:
        y = ctx.logical_data_zeros(3, np.int8)
        ctx.task(y.write())(lambda y: [1, 2, 3])
        assert y.numpy().tolist() == [1, 2, 3]
        ctx.task(y.write())(lambda y: [1, 2, 300])
        with pytest.raises(stf.TaskFailedError, match="is 300, and its data has dtype int8"):
            ctx.synchronize()
        y.accept()
