"""Tasks on a grid of places whose data lie where none of these places is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from helpers import address, increment, is_cuda

import stf
from stf import data_place
from stf.data import composite

N = 1 << 17


@pytest.fixture
def grid(ctx):
    if len(ctx.devices) < 2:
        pytest.skip("one place is no grid")
    if ctx.engine.gathering is not None:
        pytest.skip("the body looks at memory of the host, which no graph waits for")
    return ctx.devices


@pytest.mark.parametrize("place", [data_place.host(), data_place.managed()], ids=str)
def test_data_of_the_host_are_there_when_the_body_asks_for_them(ctx, grid, place):
    @stf.task
    def add(x: stf.ReadWrite):
        x += 1

    y = ctx.logical_data_zeros(N)
    for k in range(5):
        add.on(grid[k % 2])(y)
        with ctx.task(grid, y.rw(place)) as t:
            (a,) = t.arrays()
            assert isinstance(a, np.ndarray) and (a == 11 * k + 1).all()
            a += 10
    assert (y.numpy() == 55).all()


def test_what_a_task_reads_is_not_writeable(ctx, grid):
    X = np.zeros(3)
    x, y = ctx.logical_data(X, readonly=True), ctx.logical_data(np.zeros(3))
    with ctx.task(grid, x.read(data_place.host()), y.rw(data_place.host())) as t:
        a, b = t.numpy()
        with pytest.raises(ValueError, match="read-only"):
            a[:] = 9
        b += 1
    assert y.numpy().tolist() == [1] * 3 and X.tolist() == [0] * 3


def test_what_a_body_returns_is_stored(ctx, grid):
    x, y = ctx.logical_data(np.arange(3.0)), ctx.logical_data(np.zeros(3))
    ctx.task(grid, x.read(data_place.host()), y.rw(data_place.host()))(lambda x, y: x + 2)
    assert y.numpy().tolist() == [2, 3, 4]
    with pytest.raises(TypeError, match="writes nothing"):
        ctx.task(grid, x.read(data_place.host()))(lambda x: x)


@pytest.fixture
def pairs():
    """Data of several arrays, for one test."""
    before = dict(composite.interfaces)
    stf.register_data_interface(Pair, flatten=tuple, unflatten=lambda a, parts: Pair(*parts))
    yield Pair(np.zeros(3), np.arange(2))
    composite.interfaces.clear()
    composite.interfaces.update(before)


class Pair(NamedTuple):
    left: object
    right: object


def test_the_accesses_of_a_task_on_several_places(ctx, grid, pairs):
    place = data_place.device(0)
    x, token, pair = ctx.logical_data(np.zeros(4)), ctx.token(), ctx.logical_data(pairs)
    with ctx.task(grid, x.rw(place), token.read(), pair.rw(place), name="wide") as t:
        assert len(t) == 3 and t[1] is None and type(t[2]) is type(t.get(-1)) is Pair
        assert [type(value) for value in t.arrays()] == [type(t[0]), Pair]
        assert t.get_arg(0) == t.get_arg(-3) == address(t[0])
        for index in (3, -4):
            with pytest.raises(IndexError, match=f"task 'wide' has 3 accesses, got index {index}"):
                t.get_arg(index)
        with pytest.raises(TypeError, match="access 2 of task 'wide' is to data made of several arrays"):
            t.get_arg(2)
        with pytest.raises(TypeError, match="access 1 of task 'wide' is a token"):
            t.get_arg(1)
        if is_cuda(ctx):
            pointers = [memory.__cuda_array_interface__["data"][0] for memory in t.args_cai()]
            assert pointers == [address(array) for array in (t[0], *t[2])]
            with pytest.raises(TypeError, match="access 1 of task 'wide' is a token; it has no address"):
                t.get_arg_cai(1)
            assert t.stream_ptr() == t.get_stream().__cuda_stream__()[1]
            assert [t.get_stream(i).handle for i in range(len(t.streams))] == t.stream_ptrs()
        else:
            with pytest.raises(stf.PlaceError, match="has no CUDA stream"):
                t.stream_ptr()
            with pytest.raises(stf.PlaceError, match="is the CUDA device of this data"):
                t.get_arg_cai(0)


def test_data_over_the_places_of_a_grid_need_no_data_place(ctx, grid):
    part = stf.partition("blocked", None)
    home = np.arange(8.0).reshape(4, 2)
    expected = home.copy()
    x = ctx.logical_data(home, data_place=data_place.composite(grid, part))
    for _ in range(3):
        with ctx.task(grid, x.rw()) as t:
            (a,) = t.arrays()
            a += 1
        ctx.task(grid[1], x.parts[1].rw())(lambda a: a * 2)
        expected += 1
        expected[x.parts[1].region.indices()] *= 2
        assert x.numpy().tolist() == expected.tolist()


def test_data_at_the_affine_place_of_a_grid(ctx, grid):
    blocks = grid.with_partition(stf.blocked_partition())
    x = ctx.logical_data(np.arange(6.0), data_place=blocks.affine_data_place)
    y = ctx.logical_data(np.zeros(6), data_place=blocks.affine_data_place)
    assert y.parts.shape == (len(grid),)
    with ctx.task(blocks, x.read(), y.rw()) as t:
        a, b = t.arrays()
        b += a
    before = ctx.statistics().copies.get(("device(0)", "device(1)"), 0)
    with ctx.task(blocks, x.read(), y.rw()) as t:
        a, b = t.arrays()
        b += a
    if is_cuda(ctx):
        assert ctx.statistics().copies.get(("device(0)", "device(1)"), 0) == before
    assert y.numpy().tolist() == [0, 2, 4, 6, 8, 10]
    with pytest.raises(stf.PlaceError, match="has no data place"):
        ctx.task(blocks, ctx.logical_data_zeros(3).rw())


def test_a_grid_with_a_place_that_the_context_lacks(ctx, grid):
    x = ctx.logical_data(np.zeros(4))
    with ctx.task(x.rw()) as t:
        t[0][...] += 5
    with pytest.raises(stf.PlaceError, match="is not in this context"):
        ctx.task(stf.exec_place.grid([*grid, 99]), x.rw(data_place.device(0)))
    assert x.numpy().tolist() == [5.0] * 4  # nothing began


@pytest.mark.parametrize("first", ["host", "device"])
def test_a_grid_with_the_host(ctx, first):
    """Whatever comes first in it: what the places do is done before the task ends."""
    places = [stf.exec_place.host(), ctx.devices[0]]
    grid = stf.exec_place.grid(places if first == "host" else places[::-1])
    x = ctx.logical_data(np.zeros(4))
    here = stf.data_place.device(ctx.devices[0].index)
    for _ in range(3):
        with ctx.task(grid, x.rw(here)) as t:
            assert len(t.streams) == len(t.stream_ptrs()) == 2
            (a,) = t.arrays()
            a += 1
        increment(x)
    assert x.numpy().tolist() == [6.0] * 4


def test_a_grid_of_one_place_has_its_stream(ctx):
    """So that a program for all devices runs where there is one."""
    x = ctx.logical_data(np.zeros(4))
    with ctx.task(stf.exec_place.grid([ctx.devices[0]]), x.rw(stf.data_place.device(ctx.devices[0].index))) as t:
        assert t.streams == [t.stream]
        assert t.stream_ptrs() == ([t.stream_ptr()] if is_cuda(ctx) else [None])
        (a,) = t.arrays()
        a += 1
    assert x.numpy().tolist() == [1.0] * 4
    with pytest.raises(stf.TaskStateError):
        t.stream_ptrs()
