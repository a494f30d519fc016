"""Several threads register memory, and give it up, in one context at the same time."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers import QUICK, together

import stf

ROUNDS = 50 if QUICK else 200


@stf.task
def add(x: stf.ReadWrite):
    x += 1


@pytest.fixture(autouse=True)
def switch_often():
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_same_array_is_the_same_data(ctx):
    for _ in range(ROUNDS):
        X = np.zeros(4)
        handles = together(*[lambda X=X: ctx.logical_data(X)] * 4)
        assert all(handle is handles[0] for handle in handles)
        add(handles[0])
        assert handles[0].numpy().tolist() == [1] * 4
        del handles
    ctx.check_state()


def test_views_of_the_same_array_are_the_same_data_or_overlap(ctx):
    def register(array):
        try:
            return ctx.logical_data(array)
        except ValueError as error:
            assert "overlaps that of" in str(error)
            return None

    for _ in range(ROUNDS):
        X = np.zeros(4)
        whole, part, again, tail = together(
            lambda X=X: register(X),
            lambda X=X: register(X[:3]),
            lambda X=X: register(X[:]),
            lambda X=X: register(X[3:]),
        )
        assert whole is again
        assert (whole is None) == (part is not None or tail is not None)
    ctx.check_state()


def test_registration_while_the_data_is_released(ctx):
    for _ in range(ROUNDS):
        X = np.zeros(4)
        old = ctx.logical_data(X)
        add.on(ctx.devices[-1])(old)
        _, one, two = together(old.release, lambda X=X: ctx.logical_data(X), lambda X=X: ctx.logical_data(X))
        new = ctx.logical_data(X)
        assert new is not old and not new.core.released
        assert {one, two} <= {old, new}
        add.on(ctx.devices[-1])(new)
        assert new.numpy().tolist() == [2] * 4
        new.release()
        ctx.synchronize()
        assert X.tolist() == [2] * 4
    ctx.check_state()


def test_registration_while_the_data_is_dropped(ctx):
    for _ in range(ROUNDS):
        X = np.zeros(4)
        held = [ctx.logical_data(X)]
        add.on(ctx.devices[-1])(held[0])
        (_, new) = together(held.clear, lambda X=X: ctx.logical_data(X))
        try:
            add.on(ctx.devices[-1])(new)
            assert new.numpy().tolist() == [2] * 4
        except stf.AccessError:
            assert stf.config.pure  # uncompiled, a finalizer is not atomic: the handle was found while it ran
            assert new.core.released
        del new
    ctx.check_state()


@pytest.mark.thorough
def test_threads_register_arrays_of_their_own_side_by_side(ctx):
    def work():
        for _ in range(30):
            arrays = [np.zeros(3) for _ in range(8)]
            datas = [ctx.logical_data(array) for array in arrays]
            for data in datas:
                add(data)
            for data in datas[::2]:
                data.release()
            datas.clear()

    together(*[work] * 4)
    ctx.synchronize()
    assert ctx.statistics().tasks["task"] == 4 * 30 * 8
    ctx.check_state()


def test_what_was_released_and_is_held_still_stands_in_no_way(ctx):
    empty, X = np.zeros((0, 3)), np.zeros(4)
    for array in (empty, X):
        old = ctx.logical_data(array)
        old.release()
        new = ctx.logical_data(array)
        assert new is not old and ctx.logical_data(array) is new
        new.release()
    part = ctx.logical_data(X[:2])
    with pytest.raises(ValueError, match="overlaps that of"):
        ctx.logical_data(X)
    part.release()
    assert ctx.logical_data(X).numpy().tolist() == [0] * 4
