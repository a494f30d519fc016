"""One array in several live contexts: all may read it, and nobody may write it meanwhile."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from helpers import increment

import stf


@stf.task
def total(x: stf.Read, out: stf.Write):
    out[...] = x.sum()


@pytest.fixture
def two(ctx_factory):
    return ctx_factory(), ctx_factory()


def test_memory_that_another_live_context_writes_is_refused(two):
    """The error names the data there and the line that registered it."""
    one, other = two
    X = np.zeros(4)
    x = one.logical_data(X, name="x")
    increment(x)
    for array in (X, X, X[1:], X[::2]):
        with pytest.raises(stf.errors.AccessError, match=r"'x' .*, registered at test_sharing.py:\d+ in another live"):
            other.logical_data(array)
    one.finalize()
    increment(other.logical_data(X))
    other.finalize()
    assert X.tolist() == [2] * 4


def test_contexts_within_each_other(ctx_factory):
    X = np.zeros(4)
    with ctx_factory() as outer:
        increment(outer.logical_data(x := X))
        y = outer.logical_data(x)
        increment(y)
        with (
            ctx_factory() as inner,
            pytest.raises(stf.errors.AccessError, match="in another live context, which writes"),
        ):
            inner.logical_data(X)
    assert X.tolist() == [2] * 4


def test_all_may_read_and_nobody_may_write(two):
    one, other = two
    X = np.arange(4.0)
    x, y = one.logical_data(X, name="x"), other.logical_data(X[1:], name="y")
    assert not x.readonly and not y.readonly
    for context, data, right in ((one, x, 6), (other, y, 6)):
        result = context.logical_data_empty(())
        total(data, result)
        assert float(result) == right
    for data, rival in ((x, "y"), (y, "x")):
        for write in (
            lambda data=data: increment(data),
            lambda data=data: data.context.fill(data, 1.0),
            lambda data=data: data.tiles(2),
            lambda data=data: data.context.freeze(data, "rw"),
            lambda data=data: data.accumulate(stf.reducer.sum),
        ):
            with pytest.raises(stf.errors.AccessError, match=f"'{rival}' .*, which may read it"):
                write()
    one.check_state()
    y.release()
    increment(x)
    assert x.numpy().tolist() == [1, 2, 3, 4]
    with pytest.raises(stf.errors.AccessError, match="which writes it"):
        other.logical_data(X)


def test_recorded_writes_are_refused_too(two):
    one, other = two
    X = np.zeros(4)
    x = one.logical_data(X)
    g = one.task_graph()
    with g:
        increment(x)
    y = other.logical_data(X, name="y")
    with pytest.raises(stf.errors.AccessError, match="'y' .*, which may read it"):
        g.launch()
    y.release()
    g.launch()
    assert x.numpy().tolist() == [1] * 4
    g.close()


def test_data_that_are_read_only_for_good_are_no_reason_to_refuse_reading(two):
    one, other = two
    X = np.arange(3.0)
    x, y = one.logical_data(X, readonly=True), other.logical_data(X, readonly=True)
    assert x.readonly and y.readonly
    for data in (x, y):
        result = data.context.logical_data_empty(())
        total(data, result)
        assert float(result) == 3
        with pytest.raises(stf.errors.AccessError, match="is read-only and cannot be opened for rw"):
            increment(data)


def test_data_that_one_context_has_dropped_come_before_those_of_the_next(ctx_factory):
    X = np.zeros(4)
    one, other = (ctx_factory() for _ in range(2))
    for _ in range(10):
        increment(one.logical_data(X))
        one.submit()
        gc.collect()
        increment(other.logical_data(X))
        other.submit()
    one.finalize()
    other.finalize()
    assert X.tolist() == [20] * 4


def test_memory_beside_that_of_another_context_is_free(two):
    one, other = two
    X = np.zeros(8)
    increment(one.logical_data(X[:4]))
    increment(other.logical_data(X[4:]))
    increment(other.logical_data(X[4:]))
    one.finalize()
    other.finalize()
    assert X.tolist() == [1] * 4 + [2] * 4
