"""Partitions: what belongs to whom, told from both sides."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stf
from stf.errors import PlaceError
from stf.places.partition import Part, Tiles, executor_of, part_of, positions_of

extents = st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple)
grids = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)  # up to 64 places, often more than elements


class Rows:
    """A partition of a user's: even rows to the first place, odd rows to the last."""

    def apply(self, shape, position, grid_dims):
        last = tuple(n - 1 for n in grid_dims)
        first = 0 if position == (0,) * len(last) else 1 if position == last else None
        rows = range(0) if first is None else range(first, shape[0], 2)
        return (rows if sum(last) else range(shape[0]), *(slice(None) for _ in shape[1:]))

    def get_executor(self, coords, dims, grid_dims):
        return tuple((n - 1) * (coords[0] % 2) for n in grid_dims)


@st.composite
def partitions(draw, ndim):
    axis = draw(st.integers(-ndim, ndim - 1))
    return draw(
        st.sampled_from(
            [
                stf.blocked_partition(axis),
                stf.tiled_partition(draw(st.integers(1, 5)), axis),
                stf.cyclic_partition(),
                stf.null_partition,
                Rows(),
            ]
        )
    )


@settings(deadline=None)
@given(st.data(), extents, grids)
def test_both_sides_agree_and_parts_are_disjoint_and_cover(data, shape, grid):
    partition = data.draw(partitions(len(shape)))
    owners = {}
    for position in positions_of(grid):
        part = part_of(partition, shape, position, grid)
        elements = list(product(*part))
        assert part.size == len(elements) and part.shape == tuple(map(len, part))
        assert sorted(e for box in part.boxes() for e in product(*box)) == sorted(elements)
        for element in elements:
            assert element not in owners, "disjoint"
            owners[element] = position
            assert part.has(element)
    assert sorted(owners) == sorted(np.ndindex(*shape)), "cover"
    first = part_of(partition, shape, (0,) * len(grid), grid)
    for element, position in owners.items():
        assert executor_of(partition, element, shape, grid) == position
        assert first.has(element) == (not any(position))


@settings(deadline=None)
@given(st.data(), extents, grids)
def test_bounds_are_divided_as_the_shape_is(data, shape, grid):
    partition = data.draw(partitions(len(shape)).filter(lambda p: not isinstance(p, Rows)))
    low = data.draw(st.tuples(*(st.integers(-3, 3) for _ in shape)))
    bounds = [(a, a + n) for a, n in zip(low, shape, strict=True)]
    spellings = [
        tuple(slice(*b) for b in bounds),
        tuple(range(*b) for b in bounds),
        SimpleNamespace(bounds=bounds),
    ]
    for position in positions_of(grid):
        expected = [
            tuple(a + i for a, i in zip(low, e, strict=True)) for e in product(*partition.apply(shape, position, grid))
        ]
        for space in spellings:
            assert list(product(*partition.apply(space, position, grid))) == expected


@given(st.integers(0, 30), st.integers(1, 7), st.integers(0, 5), st.integers(1, 5))
def test_tiles_are_a_sequence(extent, tile, first, stride):
    axis = range(5, 5 + 2 * extent, 2)
    tiles = Tiles(axis, tile, first, stride)
    expected = [v for n, v in enumerate(axis) if n // tile >= first and (n // tile - first) % stride == 0]
    assert list(tiles) == expected and len(tiles) == len(expected)
    assert [tiles[i] for i in range(-len(tiles), len(tiles))] == expected * 2
    assert tiles[1:] == expected[1:] and tiles[::-1] == expected[::-1]
    assert [v for v in range(-2, 5 + 2 * extent + 3) if v in tiles] == expected
    assert "x" not in tiles
    with pytest.raises(IndexError):
        tiles[len(tiles)]


def test_the_blocks_are_balanced():
    blocks = [stf.blocked_partition().apply(10, p, 4)[0] for p in range(4)]
    assert blocks == [range(3), range(3, 6), range(6, 8), range(8, 10)]
    assert [stf.blocked_partition().apply(2, p, 4).size for p in range(4)] == [1, 1, 0, 0]


def test_the_outermost_axis_of_c_order_is_divided_by_default():
    assert stf.blocked_partition().apply((4, 6), 1, 2) == (range(2, 4), range(6))
    assert stf.blocked_partition(axis=-1).apply((4, 6), 1, 2) == (range(4), range(3, 6))
    assert stf.tiled_partition(2).apply((5, 2), 0, 2) == (Tiles(range(5), 2, 0, 2), range(2))


def test_a_part_is_an_index_of_an_array():
    a = np.arange(30).reshape(5, 6)
    block = stf.blocked_partition().apply(a.shape, 1, 2)
    assert np.shares_memory(a[block.slices()], a)
    assert a[block.slices()].tolist() == a[3:5].tolist() == a[block.indices()].tolist()
    cyclic = stf.cyclic_partition().apply(a.shape, (1, 0), (2, 2))
    assert a[cyclic.slices()].tolist() == a[1::2, ::2].tolist() == a[cyclic.indices()].tolist()
    tiled = stf.tiled_partition(2).apply(a.shape, 0, 2)
    assert a[tiled.indices()].tolist() == a[[0, 1, 4]].tolist()
    assert [box[0] for box in tiled.boxes()] == [range(2), range(4, 5)]
    with pytest.raises(ValueError, match=r"is no slice; use indices\(\)"):
        tiled.slices()
    empty = stf.blocked_partition().apply(a.shape, 5, 6)
    assert a[empty.slices()].shape == (0, 6) == a[empty.indices()].shape
    with pytest.raises(ValueError, match="begins below 0"):
        Part([range(-1, 2)]).slices()
    assert not block.has((3,)) and not block.has((0, 0))


def test_partitions_are_values():
    assert stf.blocked_partition(1) == stf.blocked_partition(axis=1) != stf.blocked_partition()
    assert len({stf.cyclic_partition(), stf.cyclic_partition(), stf.tiled_partition(2), stf.tiled_partition(2)}) == 2
    assert stf.null_partition() is stf.null_partition
    assert list(map(repr, (stf.blocked_partition(1), stf.tiled_partition(2), stf.cyclic_partition()))) == [
        "blocked_partition(axis=1)",
        "tiled_partition(2, axis=0)",
        "cyclic_partition()",
    ]
    assert repr(stf.null_partition) == "null_partition"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: stf.blocked_partition().apply(4, 3, 2), IndexError, r"position \(3,\) is outside a grid of shape \(2,\)"),
        (lambda: stf.blocked_partition().apply(4, (0, 0), 2), IndexError, r"position \(0, 0\)"),
        (lambda: stf.blocked_partition(1).apply(4, 0, 2), ValueError, "divides axis 1, and the space has 1 axes"),
        (lambda: stf.blocked_partition().apply((), 0, 2), ValueError, "zero-dimensional"),
        (lambda: stf.cyclic_partition().apply((), 0, 2), ValueError, "zero-dimensional"),
        (lambda: stf.null_partition.apply((), 0, 2), ValueError, "zero-dimensional"),
        (lambda: stf.blocked_partition("x"), TypeError, "an axis of a partition is an integer, got 'x'"),
        (lambda: stf.blocked_partition().apply(2.5, 0, 2), TypeError, "an int or a tuple of int is needed, got 2.5"),
        (lambda: stf.blocked_partition().apply(-1, 0, 2), ValueError, "negative"),
        (lambda: stf.blocked_partition().apply(((1, 2), 3), 0, 2), TypeError, r"an int, a slice or a range, got \(1, 2\)"),
        (lambda: stf.blocked_partition().apply(slice(3, None), 0, 2), TypeError, "say where it ends"),
        (lambda: stf.blocked_partition().apply(range(5, 0, -1), 0, 2), ValueError, "use a positive step"),
        (lambda: stf.blocked_partition().get_executor(4, 4, 2), IndexError, r"element \(4,\) is outside a space of shape \(4,\)"),
        (lambda: stf.blocked_partition().get_executor(1, 4, 0), ValueError, "no places"),
        (lambda: stf.tiled_partition(0), ValueError, "one element or more"),
        (lambda: stf.tiled_partition(2.0), TypeError, "a tile of a partition is an integer, got 2.0"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- own partitions ------------------------------------------------------------------------------------------------


class Static:
    @staticmethod
    def apply(shape, position, grid_dims):
        return stf.null_partition.apply(shape, position, grid_dims)

    @staticmethod
    def get_executor(coords, dims, grid_dims):
        return 0


def make(**methods):
    return type("Mine", (), {name: (lambda self, *args, result=result: result) for name, result in methods.items()})()


def test_own_classes_are_checked_by_what_they_have():
    grid = stf.exec_place.n_devices(2)
    assert grid.with_partition(Static).owner(3, 5) == grid[0]
    with pytest.raises(TypeError, match=r"lacks get_executor"):
        grid.with_partition(make(apply=1))
    with pytest.raises(TypeError, match=r"lacks apply and get_executor; call it: blocked_partition\(\)"):
        grid.with_partition(stf.blocked_partition)
    assert isinstance(stf.exec_place.grid([0, 1], partition=Rows).partition, Rows)


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        ((range(2), range(2)), ValueError, r"Mine.apply returned .* for a space of 1 axes"),
        ((7,), TypeError, "Mine.apply returned 7 for an axis; return a range, a slice"),
        ((range(3, 9),), ValueError, r"which is outside the axis range\(0, 4\)"),
    ],
)
def test_what_an_own_apply_returns_is_checked(result, error, message):
    grid = stf.exec_place.grid([0, 1], partition=make(apply=result, get_executor=0))
    with pytest.raises(error, match=message):
        grid.parts(4)


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (2, ValueError, r"Mine.get_executor gave element \(1,\) of shape \(4,\) to 2, which is outside a grid"),
        ((0, 0), ValueError, r"to \(0, 0\), which is outside a grid of shape \(2,\)"),
        ("x", TypeError, "Mine.get_executor returned 'x'; return one index per axis"),
        (-1, TypeError, "Mine.get_executor returned -1; return one index per axis"),
    ],
)
def test_what_an_own_get_executor_returns_is_checked(result, error, message):
    grid = stf.exec_place.grid([0, 1], partition=make(apply=(), get_executor=result))
    with pytest.raises(error, match=message):
        grid.owner(1, 4)


# -- grids ---------------------------------------------------------------------------------------------------------


def test_a_grid_carries_its_partition():
    blocked = stf.blocked_partition()
    grid = stf.exec_place.grid([0, 1, 2, 3], (2, 2), blocked)
    assert grid.partition == blocked and grid.reshape(4).partition == blocked
    assert repr(grid).endswith("dims=(2, 2), partition=blocked_partition(axis=0))")
    assert grid != grid.with_partition(None) and grid == stf.exec_place.grid(range(4), (2, 2)).with_partition(blocked)
    assert hash(grid) == hash(grid.with_partition(stf.blocked_partition()))
    assert grid.with_partition(None).partition is None
    assert [(place.index, part[0]) for place, part in grid.parts(6)] == [
        (0, range(2)),
        (1, range(2, 4)),
        (2, range(4, 5)),
        (3, range(5, 6)),
    ]
    assert [grid.owner(i, 6).index for i in range(6)] == [0, 0, 1, 1, 2, 3]


def test_all_devices_take_a_partition():
    cyclic = stf.cyclic_partition()
    with stf.context(devices="cpu:3"):
        assert stf.exec_place.all_devices(partition=cyclic) == stf.exec_place.n_devices(3, cyclic)
    assert stf.exec_place.all_devices(cyclic).partition == cyclic
    assert stf.exec_place.all_devices().partition is None


def test_a_grid_without_a_partition_says_so():
    grid = stf.exec_place.n_devices(2)
    with pytest.raises(PlaceError, match=r"has no partition; give it one: grid.with_partition"):
        grid.parts(4)
    with pytest.raises(PlaceError, match="has no partition"):
        grid.owner(1, 4)


def test_a_program_divided_among_devices():
    with stf.context(devices="cpu:3") as ctx:
        x = np.zeros((7, 4))
        grid = ctx.devices.with_partition(stf.blocked_partition())
        for number, (place, part) in enumerate(grid.parts(x.shape)):
            with ctx.task(place, ctx.logical_data(x[part.slices()]).rw()) as t:
                t.numpy()[0][:] = number
    assert x[:, 0].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert ctx.statistics().tasks_by_place == {"host": 0, "device(0)": 1, "device(1)": 1, "device(2)": 1}
