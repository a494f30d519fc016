"""Arithmetic and conditions of scalar data: whatever computes them, they are what NumPy gives."""

from __future__ import annotations

import operator
import random

import numpy as np
import pytest
from helpers import QUICK, is_cuda

import stf
from stf.kernels import scalars

KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, stf.equal]
FUNCTIONS = [np.maximum, np.minimum]
UNARY = [operator.neg, operator.abs, np.sqrt]
EDGES = {
    "f": [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 65504.0, 6e-8, 1e-3],
    "i": [0, 1, -1, 3, -7],
    "u": [0, 1, 3, 9],
}


def some_value(rng, kind):
    """A scalar of a type: an edge, or any."""
    kind = np.dtype(kind)
    if kind.kind == "b":
        return kind.type(rng.random() < 0.5)
    if rng.random() < 0.3:
        return kind.type(rng.choice(EDGES[kind.kind]))
    if kind.kind == "f":
        return kind.type(rng.uniform(-100, 100))
    limits = np.iinfo(kind)
    return kind.type(rng.randint(max(limits.min, -(2**62)), min(limits.max, 2**62)))


def some_expression(rng, leaves, depth):
    """Functions of the leaves: of logical data the expression, of arrays its value."""
    if depth == 0 or rng.random() < 0.2:
        i = rng.randrange(leaves)
        return lambda given: given[i]
    if rng.random() < 0.25:
        function, inner = rng.choice(UNARY), some_expression(rng, leaves, depth - 1)
        return lambda given: function(inner(given))
    function = rng.choice(BINARY + FUNCTIONS)
    one, other = some_expression(rng, leaves, depth - 1), some_expression(rng, leaves, depth - 1)
    if rng.random() < 0.3:
        number, turned = rng.choice([2, 3, -1, 0.5, np.float32(0.1), np.int16(5)]), rng.random() < 0.5
        return lambda given: function(number, one(given)) if turned else function(one(given), number)
    return lambda given: function(one(given), other(given))


def compare(rng, inner, other):
    """The same for a condition."""
    function = rng.choice(COMPARISONS)
    plain = operator.eq if function is stf.equal else function
    return lambda given: (plain if isinstance(given[0], np.ndarray) else function)(inner(given), other(given))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of divisions by zero, on whatever thread
@pytest.mark.parametrize("seed", range(6 if QUICK else 12))
def test_random_expressions_are_what_numpy_gives(ctx, seed):
    rng, done = random.Random(seed), 0
    kinds = rng.choice(
        [KINDS, ["f8"], ["f4", "f8"], ["f2", "f4"], ["i4", "i8", "f8"], ["u1", "u8"], ["i1", "i2", "i4", "i8"]]
    )
    for _ in range(40):
        arrays = [np.array(some_value(rng, rng.choice(kinds))) for _ in range(3)]
        data = [ctx.logical_data(array.copy()) for array in arrays]
        make = some_expression(rng, 3, 3)
        if rng.random() < 0.4:
            make = compare(rng, make, some_expression(rng, 3, 1))
        target = np.array(0, rng.choice(["f8", "i8", "?", "f4", "i4"]))
        with np.errstate(all="ignore"):
            try:
                found, expected = np.asarray(make(arrays)), target.copy()
                expected[...] = found
            except (TypeError, OverflowError):
                continue
            if found.dtype.kind == "f" and target.dtype.kind != "f" and not abs(float(found)) < 1e9:
                continue  # NumPy does not say what that is
            if found.dtype.kind not in "fiub":
                continue
            result = ctx.logical_data(target)
            try:
                result.assign(make(data))
            except TypeError:
                continue  # no expression of data
            got = result.numpy()
        assert np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f"), (arrays, found, got, expected)
        assert expected.dtype.kind != "f" or np.signbit(got) == np.signbit(expected) or np.isnan(expected)
        done += 1
    assert done > 10


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_floor_division_and_remainders_of_floats_are_numpys(ctx, kind):
    """Signs of zeros, infinities and quotients next to a whole number too, in which array libraries differ from NumPy."""
    edges = [np.array(value, kind) for value in (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 0.1, 0.3, -7.0, 6e4)]
    data = [ctx.logical_data(x.copy()) for x in edges]
    whole, left = ctx.logical_data(np.array(0, kind)), ctx.logical_data(np.array(0, kind))
    for x, dividend in zip(edges, data, strict=True):
        for y, divisor in zip(edges, data, strict=True):
            whole.assign(dividend // divisor)
            left.assign(dividend % divisor)
            for got, expected in ((whole.numpy(), x // y), (left.numpy(), x % y)):
                assert np.array_equal(got, expected, equal_nan=True), (x, y, got, expected)
                assert np.isnan(expected) or np.signbit(got) == np.signbit(expected), (x, y, got, expected)


def test_one_launch_of_a_kernel_of_ours_computes_an_expression(ctx, monkeypatch):
    """On a device nothing else is needed: no array library, and no memory of its own."""
    if not is_cuda(ctx):
        pytest.skip("a CPU computes it by NumPy")
    monkeypatch.setattr("stf.values.conditions.Computation.__call__", None)
    a, b, c = (ctx.logical_data(np.array(value)) for value in (3.0, 4.0, 0.0))
    n = ctx.logical_data(np.array(0, np.int32))
    c.assign(np.sqrt(a * a + b**2) / 2 - 1)
    n.assign(n + 7 // 2)
    with ctx.while_loop((a < 100.0) & ~(b > 1e9), max_iterations=20) as loop:
        a.assign(a * 2 + c * 0)
    with ctx.if_(a > b):
        n.assign(n + 10)
    assert (c.numpy(), n.numpy(), a.numpy(), loop.iterations) == (1.5, 13, 192.0, 6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_narrow_numbers_are_rounded_to_nearest_even(ctx, name):
    """Of all their bits some, as they are and in a sum; ties, numbers next to the largest and below the smallest one."""
    kind = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name)
    codes = [*range(0, 0x8000, 613), 0x7BFF, 0x7F7F, 1, 2, 0x3FF, 0x400]
    step, result = ctx.logical_data(np.array(0.0)), ctx.logical_data(np.array(0, kind))
    for code in codes:
        x = np.array(code, np.uint16).view(kind)
        if not np.isfinite(x.astype("f8")):
            continue
        after = np.array(code + 1, np.uint16).view(kind).astype("f8")
        middle = (x.astype("f8") + after) / 2
        for number in (x.astype("f8"), middle, np.nextafter(middle, 0), -np.nextafter(middle, np.inf)):
            step.assign(float(number))
            result.assign(step + 0)
            with np.errstate(all="ignore"):
                expected = np.array(number).astype(kind)
            assert result.numpy().view("u2") == expected.view("u2"), (number, result.numpy(), expected)


def test_what_the_kernel_has_no_instruction_for_is_left_to_a_library():
    from stf.values.conditions import ConditionArgument, ConditionPlan

    f8, c16 = np.dtype("f8"), np.dtype("c16")
    assert (
        scalars.program_of(ConditionPlan(operator.add, (ConditionArgument(1), ConditionArgument(2))), [f8, f8, f8], f8)
        is not None
    )
    assert (
        scalars.program_of(ConditionPlan(operator.add, (ConditionArgument(1), ConditionArgument(2))), [f8, c16, f8], f8)
        is None
    )
    assert (
        scalars.program_of(ConditionPlan(operator.pow, (ConditionArgument(1), ConditionArgument(2))), [f8, f8, f8], f8)
        is None
    )
    assert scalars.program_of(ConditionPlan(np.exp, (ConditionArgument(1),)), [f8, f8], f8) is None
    deep = ConditionArgument(1)
    for _ in range(60):
        deep = ConditionPlan(operator.add, (deep, 1.5))
    assert scalars.program_of(deep, [f8, f8], f8) is None


@pytest.mark.parametrize(
    "mixed",
    [lambda a, b: a + b, lambda a, b: 1 + (b * a) * 2, lambda a, b: np.maximum(a, b), lambda a, b: a - np.int32(1)],
)
def test_signed_with_unsigned_integers_are_no_integers(ctx, mixed):
    """NumPy makes floats of them, which lose bits."""
    a, b = ctx.logical_data(np.array(2**60 + 1, np.uint64)), ctx.logical_data(np.array(1))
    exact, rounded = ctx.logical_data(np.array(0, np.uint64)), ctx.logical_data(np.array(0.0))
    with pytest.raises(
        TypeError, match="computes it as float64, as it does .* signed with unsigned integers; convert it"
    ):
        exact.assign(mixed(a, b))
    assert rounded.assign(mixed(a, b)).numpy() == mixed(np.uint64(2**60 + 1), np.int64(1))
    with ctx.task_graph() as g:
        exact.assign(a * g.param("factor", 2))
    g.launch(factor=4)
    assert exact.numpy() == 2**62 + 4


NARROWED = [  # a dtype, and what it does not hold all values of
    ("u8", lambda i8, f8: i8),
    ("i1", lambda i8, f8: i8),
    ("i4", lambda i8, f8: i8 + 1),
    ("i4", lambda i8, f8: np.int64(3)),
    ("i4", lambda i8, f8: f8),
    ("i8", lambda i8, f8: i8 / 2),
    ("i8", lambda i8, f8: np.floor(f8)),
    ("?", lambda i8, f8: i8),
    ("f4", lambda i8, f8: f8 * np.complex64(1j)),
]


@pytest.mark.parametrize("number", range(len(NARROWED)))
def test_an_assignment_that_would_lose_values_is_refused(ctx, number):
    """By the rule of what tasks return, at the call; floats may be rounded, and integers to floats."""
    kind, make = NARROWED[number]
    i8, f8, target = (
        ctx.logical_data(np.array(-1)),
        ctx.logical_data(np.array(1.5)),
        ctx.logical_data(np.ones((), kind)),
    )
    with pytest.raises(
        TypeError, match=r"cannot hold this expression without loss: .*; convert it in a task, `y\[\.\.\.\]"
    ):
        target.assign(make(i8, f8))
    assert target.numpy() == 1


def test_an_assignment_that_keeps_values_is_taken(ctx):
    """Numbers of Python's take the dtype of what they are combined with; those that are alone, that of the data."""
    make = {"i1": 100, "u1": 200, "i4": 7, "f4": 0.5, "f8": 1.5, "?": True}
    data = {kind: ctx.logical_data(np.array(value, kind)) for kind, value in make.items()}
    for kind, expression, expected in (
        ("i4", (data["i4"] * 3 + 1) % 11, 0),
        ("i4", data["i1"] + data["u1"], 300),
        ("f4", data["f8"] * 2, 3.0),
        ("f4", data["i4"], 7.0),
        ("u1", data["u1"] + 1, 201),
        ("u1", 255, 255),
        ("i4", data["?"], 1),
        ("f8", 1 << 40, 2.0**40),
    ):
        target = ctx.logical_data(np.zeros((), kind))
        assert target.assign(expression).numpy() == expected
    for wrong, error in ((256, OverflowError), (-1, OverflowError), (1.5, TypeError), (1j, TypeError)):
        with pytest.raises(error, match="the number for logical data .* is "):
            data["u1"].assign(wrong)
    assert data["u1"].numpy() == 200


@pytest.mark.parametrize("number", [2**53 + 1, 2**60 + 2**36 + 1, -(2**60 + 2**36 + 1), 2**63 - 1, 2**24 + 1], ids=str)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_large_integers_are_rounded_once(ctx, number, kind):
    data, result = ctx.logical_data(np.array(number)), ctx.logical_data(np.array(0, kind))
    result.assign(data)
    assert result.numpy() == np.array(number).astype(kind)


def test_a_function_of_your_own_is_not_numpys_of_the_same_name(ctx):
    numba = pytest.importorskip("numba")
    if is_cuda(ctx):
        pytest.skip("CuPy has no functions of Numba's")

    @numba.vectorize(["float64(float64, float64)"])
    def add(x, y):
        return x - y

    a, b, found = (ctx.logical_data(np.array(value)) for value in (5.0, 3.0, 0.0))
    found.assign(add(a, b))
    assert float(found) == 2.0
