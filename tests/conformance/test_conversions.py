"""Fills, copies and results of other types: what NumPy stores without loss is stored, everything else is refused."""

from __future__ import annotations

import fractions

import numpy as np
import pytest

import stf

MASKED = np.ma.masked_array([1.0, 2.0], [False, True])
INT64, UINT64 = np.iinfo(np.int64), np.iinfo(np.uint64)


@pytest.mark.parametrize(
    "value, dtype",
    [
        *((2, "i8"), (np.int64(3), "i4"), (np.int64(3), "f4"), (np.array(3), "f4"), (np.float64(1.5), "f4")),
        *((True, "i4"), (1, "?"), (0, "?"), (1, "c8"), ([1, 2], "f4"), ([1.5, 2], "f4"), (np.nan, "f4")),
        *(
            (np.arange(2), "f8"),
            (np.arange(2, dtype="i4"), "i8"),
            (np.inf, "f2"),
            (UINT64.max, "u8"),
            (INT64.min, "i8"),
        ),
        *((fractions.Fraction(1, 2), "f8"), (fractions.Fraction(4, 2), "i4"), ([2**63 + 1, 1], "u8")),
    ],
)
def test_fills_that_fit(ctx, value, dtype):
    wanted = np.empty(2, dtype)
    wanted[...] = np.array(value, dtype)
    x = ctx.logical_data_full(2, value, dtype)
    y = ctx.logical_data_empty(2, dtype)
    ctx.fill(y, value)
    for one in (x, y):
        assert one.numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "value, dtype, error",
    [
        *((1.5, "i8", TypeError), (2.0, "i8", TypeError), (np.nan, "i4", TypeError), (1j, "f8", TypeError)),
        *((np.array(2.0), "i8", TypeError), (np.array([1.5, 2.5]), "f4", TypeError), (np.arange(2), "f4", TypeError)),
        *(([1.5, 2], "i4", TypeError), (2, "?", TypeError), (0.0, "?", TypeError), (MASKED, "f8", TypeError)),
        *(
            (300, "u1", OverflowError),
            (-1, "u8", OverflowError),
            (2**70, "i8", OverflowError),
            ([1, 2**40], "i4", OverflowError),
        ),
        *(
            (1e300, "f4", OverflowError),
            (fractions.Fraction(3, 2), "i4", TypeError),
            (np.datetime64("2020"), "i8", TypeError),
        ),
        ("1", "f8", ValueError),
    ],
)
def test_fills_that_do_not_fit(ctx, value, dtype, error):
    x = ctx.logical_data_ones(2, dtype)
    with pytest.raises(error, match="is filled with what its dtype can hold"):
        ctx.fill(x, value)
    with pytest.raises(error, match="is filled with what its dtype can hold"):
        ctx.logical_data_full(2, value, dtype)
    assert x.numpy().tolist() == [1, 1]


def test_lists_with_masked_numbers(ctx):
    with pytest.raises(TypeError, match="has a mask"):
        ctx.fill(ctx.logical_data_ones(2), [np.ma.masked, 1.0])


def test_parameters_that_do_not_fit(ctx):
    x = ctx.logical_data_zeros(2, np.int32)
    graph = ctx.task_graph()
    with graph:
        ctx.fill(x, graph.param("value", 3))
    graph.launch()
    assert x.numpy().tolist() == [3, 3]
    with pytest.raises((TypeError, stf.TaskFailedError)) as told:
        graph.launch(value=1.5)
        ctx.synchronize()
    assert "is the float 1.5" in str(told.value)


PAIRS = [
    *(("f8", "f4", True), ("i8", "f4", True), ("i4", "i8", True), ("i8", "i4", True), ("f4", "c8", True)),
    *(("?", "i4", True), ("u1", "i2", True), ("f8", "i8", False), ("f4", "u1", False), ("c16", "f8", False)),
    *(("i8", "u8", False), ("i4", "?", False), ("f8", "?", False)),
]


@pytest.mark.parametrize("given, wanted, fits", PAIRS)
def test_copies_between_types(ctx, given, wanted, fits):
    x, y = ctx.logical_data_ones(3, given), ctx.logical_data_zeros(3, wanted)
    if fits:
        ctx.copy(x, y)
    else:
        with pytest.raises(TypeError, match=rf"cannot copy .* without loss: {np.dtype(wanted)} does not hold all"):
            ctx.copy(x, y)
    assert y.numpy().tolist() == [fits] * 3


def test_the_error_of_a_copy_says_what_to_write(ctx):
    x, y = ctx.logical_data(np.array([1.5, 2.7])), ctx.logical_data_zeros(2, np.int64)
    with pytest.raises(TypeError, match=r"`y\[...\] = np.rint\(x\).astype\(y.dtype\)`, or use data of float64"):
        ctx.copy(x, y)

    @stf.task(arrays="numpy")
    def rounded(x: stf.Read, y: stf.Write):
        y[...] = np.rint(x).astype(y.dtype)

    rounded.on("host")(x, y)
    assert y.numpy().tolist() == [2, 3]


def test_copies_of_narrow_floats(ctx):
    pytest.importorskip("ml_dtypes")
    x, h = ctx.logical_data_ones(2, "bfloat16"), ctx.logical_data_zeros(2, "f2")
    for given, wanted in ((x, ctx.logical_data_zeros(2, "i4")), (ctx.logical_data_ones(2, "c8"), x)):
        with pytest.raises(TypeError, match="without loss"):
            ctx.copy(given, wanted)
    assert x.numpy().tolist() == [1, 1]
    assert h.numpy().tolist() == [0, 0]


def test_results_with_a_mask(ctx):
    @stf.task
    def open_shape(x: stf.Read) -> stf.New:
        return np.ma.masked_array(x * 1, mask=x > 1)

    @stf.task
    def known_shape(x: stf.Read) -> stf.Like["x"]:  # noqa: UP037
        return np.ma.masked_array(x * 1, mask=x > 1)

    @stf.task
    def stored(x: stf.ReadWrite):
        return np.ma.masked_array(x * 1, mask=x > 1)

    x = ctx.logical_data(np.arange(3.0))
    if ctx.engine.adopts and ctx.engine.gathering is None:
        with pytest.raises(stf.TaskFailedError, match="the result of task 'open_shape' has a mask"):
            open_shape.on("host")(x).numpy()
    for task in (known_shape, stored):
        y = ctx.logical_data(np.arange(3.0))
        with pytest.raises(stf.TaskFailedError, match=rf"result 0 of task '{task.__name__}' has a mask.*x.filled"):
            made = task.on("host")(y)
            (y if task is stored else made).numpy()
        (y if task is stored else made).accept()
    with pytest.raises(TypeError, match="has a mask"):
        ctx.logical_data(MASKED)


def test_results_in_lists(ctx):
    @stf.task
    def listed(x: stf.Write, values):
        return values

    for dtype, values in (("u8", [2**63 + 1, 1]), ("f4", [0.5, 1.5]), ("c8", [1, 2j])):
        x = ctx.logical_data_empty(2, dtype)
        listed.on("host")(x, values)
        assert x.numpy().tolist() == values
    x = ctx.logical_data_zeros(2, "i4")
    with pytest.raises(stf.TaskFailedError, match="is the float 1.5"):
        listed.on("host")(x, [1.5, 2])
        x.numpy()
    x.accept()
