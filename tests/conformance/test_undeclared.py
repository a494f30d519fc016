"""Registered arrays that a body uses besides the data of its task."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import stf

X = np.zeros(4)  # what a global variable is, which tests replace


def through(how, array):
    """A body that uses an array, and that only asks for what never changes of it."""

    def closing(y):
        y += array

    def table(y):
        y += tables["a"]

    def default(y, a=array):
        y += a

    def named(y, *, a=array):
        y += a

    def bound(a, y):
        y += a

    def around(y):
        y += X

    tables = {"a": array, "b": 1}
    bodies = {"closure": closing, "dict": table, "default": default, "named": named, "global": around}
    bodies["partial"] = functools.partial(bound, array)
    bodies["wrapped"] = functools.wraps(closing)(lambda *args: closing(*args))
    return bodies[how]


@pytest.mark.parametrize("how", ["closure", "dict", "default", "named", "global", "partial", "wrapped"])
def test_a_registered_array_in_a_body_is_an_undeclared_access(ctx, lY, monkeypatch, how):
    mine = np.ones(4)
    monkeypatch.setitem(globals(), "X", mine)
    lX = ctx.logical_data(mine, name="X")
    told = (
        r"task .* \(test_undeclared.py:\d+\) uses the array of logical data 'X' .*, registered at test_undeclared.py:"
    )
    fn = through(how, mine)
    with pytest.raises(stf.AccessError, match=told):
        ctx.host_launch(lY.rw())(fn)
    with pytest.raises(stf.AccessError, match=told):
        ctx.task(stf.exec_place.host(), lY.rw(), lX.read())(fn)
    part = through(how, mine[2:])
    monkeypatch.setitem(globals(), "X", mine[2:])
    with pytest.raises(stf.AccessError, match="pass the data to the task"):
        ctx.host_launch(lX.read(), lY.rw())(part)
    ctx.check_state()
    monkeypatch.setitem(globals(), "X", mine)
    lX.release()
    ctx.host_launch(lY.rw())(fn)  # it is the user's again
    assert lY.numpy().tolist() == [1, 2, 3, 4]


def test_task_functions_use_no_registered_arrays(ctx, lY, monkeypatch):
    mine = np.ones(4)
    lX = ctx.logical_data(mine, name="X")
    monkeypatch.setitem(globals(), "X", mine)

    @stf.task
    def closing(y: stf.ReadWrite):
        y += mine

    @stf.task
    def around(y: stf.ReadWrite):
        y += X

    @stf.task
    def given(y: stf.ReadWrite, a=mine):
        y += a

    calls = [
        lambda: closing(lY),
        lambda: around(lY),
        lambda: given(lY),
        lambda: given(lY, [mine]),
        lambda: given(lY, a=mine),
    ]
    for call in calls:
        with pytest.raises(stf.AccessError, match="uses the array of logical data 'X'"):
            call()
    ctx.check_state()
    del lX
    given.on("host")(lY, mine)
    assert lY.numpy().tolist() == [1, 2, 3, 4]


def test_the_shape_of_a_registered_array_may_be_asked_for(ctx, lY):
    mine = np.ones(4)
    lX = ctx.logical_data(mine)
    others = [np.ones(4), "text"]

    @ctx.host_launch(lY.rw())
    def body(y):
        y += mine.shape[0] + len(mine) + others[0]

    assert lY.numpy()[0] == 9 and lX.shape == (4,)


def held(array):
    """Bodies that reach an array by way of a function or a container, by name."""
    scope = {"array": array, "table": {"k": [(array,)]}, "mixed": {"array": array, "n": 2.0}, "np": np}
    exec(
        "def first(): return array[0]\n"
        "def helper(y): y += first()\n"
        "def nested(y): y += table['k'][0][0]\n"
        "def other_key(y): y += mixed['n']\n"
        "def this_key(y): y += mixed['array']\n"
        "def like(y): y += 2 + np.zeros_like(array)\n"
        "def is_there(y): y += 2 if array is not None else 0\n",
        scope,
    )

    def inner():
        return array[0]

    def closing(y):
        y += inner()

    return scope | {"closing": closing}


@pytest.mark.parametrize("how", ["helper", "closing", "nested", "this_key"])
def test_a_registered_array_is_found_behind_functions_and_containers(ctx, lY, how):
    mine = np.ones(4)
    lX = ctx.logical_data(mine, name="X")
    with pytest.raises(stf.AccessError, match="uses the array of logical data 'X'"):
        ctx.host_launch(lY.rw())(held(mine)[how])
    lX.release()
    ctx.host_launch(lY.rw())(held(mine)[how])


@pytest.mark.parametrize("sequence", [[1.0], (1.0,), {}])
def test_an_array_in_a_container_is_found_after_a_container_was_refused(ctx, lY, sequence):
    with pytest.raises(TypeError):
        ctx.logical_data(sequence)
    mine = np.ones(4)
    _lX = ctx.logical_data(mine, name="X")
    with pytest.raises(stf.AccessError, match="uses the array of logical data 'X'"):
        ctx.host_launch(lY.rw())(held(mine)["nested"])


@pytest.mark.parametrize("how", ["other_key", "like", "is_there"])
def test_what_reads_no_content_of_a_registered_array_is_fine(ctx, lY, how):
    mine = np.ones(4)
    _lX = ctx.logical_data(mine, name="X")
    before = lY.numpy().tolist()
    ctx.host_launch(lY.rw())(held(mine)[how])
    assert lY.numpy().tolist() == [value + 2 for value in before]
