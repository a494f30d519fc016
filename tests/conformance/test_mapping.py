"""Containers of data, waited for at once; functions over many data: `stf.map`, `stf.reduce`."""

import asyncio
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import stf


@stf.task
def square(x: stf.Read) -> stf.Like["x"]:  # noqa: F821
    return x * x


@stf.task
def join(a: stf.Read, b: stf.Read) -> stf.New[lambda a, b: (a.shape[0] + b.shape[0],)]:
    return np.concatenate([a, b])


@stf.task
def add(a: stf.Read, b: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return a + b


@dataclasses.dataclass
class Model:
    weights: Any
    layers: Any
    rate: float = 0.5


class Ends(NamedTuple):
    first: Any
    last: Any


def test_waiting_for_containers(ctx):
    x, y = ctx.logical_data(np.arange(3.0)), ctx.logical_data(np.ones(2))
    found = ctx.wait(Model(x, [y, (square(y), 3)]))
    assert type(found) is Model and found.rate == 0.5 and found.layers[1][1] == 3
    np.testing.assert_array_equal(found.weights, np.arange(3.0))
    np.testing.assert_array_equal(found.layers[1][0], np.ones(2))
    assert type(ctx.wait(Ends(x, y))) is Ends
    assert list(ctx.wait({"b": x, "a": y})) == ["b", "a"]

    async def main():
        return await ctx.wait_async([x, {"y": y}])

    first, second = asyncio.run(main())
    np.testing.assert_array_equal(first, np.arange(3.0))
    np.testing.assert_array_equal(second["y"], np.ones(2))


def test_what_is_no_container_of_data(ctx):
    @stf.task
    def read(x: stf.Read):
        pass

    x = ctx.logical_data(np.arange(3.0))
    for wrong, message in [([], "got list"), (3, "got int"), ([1, 2], "got list")]:
        with pytest.raises(TypeError, match=message):
            ctx.wait(wrong)
    with pytest.raises(TypeError, match=r"the handle of task 'read'; wait for that with result\(\)"):
        ctx.wait([x, read(x)])


def test_a_failure_within_a_container():
    @stf.task
    def fail(x: stf.Read) -> stf.Like["x"]:
        raise ValueError("on purpose")

    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(np.arange(3.0))
        with pytest.raises(stf.TaskFailedError, match="on purpose"):
            ctx.wait({"good": square(x), "bad": [fail(x)]})


def test_map_over_tiles_and_values(ctx):
    X = np.arange(12.0).reshape(4, 3)
    x = ctx.logical_data(X, write_back=False)
    found = stf.map(square, x.tiles((2, 3)))
    np.testing.assert_array_equal(np.concatenate(ctx.wait(found)), X * X)
    assert len(stf.map(square, x.tiles((2, 2)), place="host")) == 4
    assert stf.map(square, []) == []

    @stf.task
    def scale(x: stf.ReadWrite, factor):
        x *= factor

    data = [ctx.logical_data(np.ones(2)) for _ in range(3)]
    handles = stf.map(scale, data, [1.0, 2.0, 3.0, 4.0])
    assert len(handles) == 3 and all(handle.result() is None for handle in handles)
    assert [float(d.numpy()[0]) for d in data] == [1.0, 2.0, 3.0]
    assert {id(d) for d in stf.as_completed(data)} == {id(d) for d in data}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_reduce_keeps_the_order(ctx, count):
    data = [ctx.logical_data(np.array([float(i)]), write_back=False) for i in range(count)]
    found = stf.reduce(join, data, place="host")
    np.testing.assert_array_equal(found.numpy(), np.arange(float(count)))
    np.testing.assert_array_equal(stf.reduce(add, data).numpy(), [sum(range(count))])


def test_reduce_of_tiles_and_of_what_map_returns(ctx):
    X = np.arange(16.0).reshape(4, 4)
    x = ctx.logical_data(X, write_back=False)
    total = stf.reduce(add, stf.map(square, x.tiles((2, 2))))
    blocks = (X * X).reshape(2, 2, 2, 2)
    np.testing.assert_allclose(total.numpy(), blocks.sum(axis=(0, 2)))


def test_functions_that_reduce_refuses(ctx):
    @stf.task
    def into(a: stf.ReadWrite, b: stf.Read):
        a += b

    x, y = (ctx.logical_data(np.ones(2), write_back=False) for _ in range(2))
    with pytest.raises(TypeError, match="'into' does not; annotate its result"):
        stf.reduce(into, [x, y])
    np.testing.assert_array_equal(x.numpy(), np.ones(2))
    with pytest.raises(ValueError, match="got none"):
        stf.reduce(add, [])


def test_dataclasses_from_replayed_functions(ctx):
    @stf.replay
    def program(x):
        return Model(square(x), [square(x)])

    @stf.task
    def bump(x: stf.ReadWrite):
        x += 1

    x = ctx.logical_data(np.arange(3.0), write_back=False)
    held = []
    for _ in range(5):
        held.append(program(x))
        bump(x)
    for k, found in enumerate(held):
        np.testing.assert_array_equal(found.weights.numpy(), (np.arange(3.0) + k) ** 2)
        np.testing.assert_array_equal(found.layers[0].numpy(), (np.arange(3.0) + k) ** 2)
        assert found.rate == 0.5


AUTOMATIC = {"auto": {"place": "auto"}, "planned": {"placement": stf.placement.planned()}}


@pytest.mark.parametrize("options", AUTOMATIC.values(), ids=AUTOMATIC)
def test_reduce_of_arrays_whose_shapes_are_found_at_chosen_places(options):
    @stf.task
    def concatenate(a: stf.Read, b: stf.Read) -> stf.New:
        return np.concatenate([a, b])

    with stf.context(devices="cpu:3", **options) as ctx:
        data = [ctx.logical_data(np.full(i, float(i))) for i in range(6)]
        found = stf.reduce(concatenate, data)
        np.testing.assert_array_equal(found.numpy(), np.repeat(np.arange(6.0), range(6)))
        total = ctx.logical_data_empty(())
        ctx.task(found.read(), total.write())(lambda x, t: x.sum())
        assert float(total) == sum(i * i for i in range(6))
