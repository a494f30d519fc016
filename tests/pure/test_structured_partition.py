"""Partitions by axis, what they cost, and where halos lie."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import stf
from stf.places import evaluation, halos
from stf.places.partition import executor_of, part_of, positions_of

CASES: list[tuple[Any, Any, Any]] = [
    (stf.partition("blocked"), (10,), (3,)),
    (stf.partition("blocked"), (2,), (4,)),
    (stf.partition("cyclic", None), (7, 3), (2,)),
    (stf.partition(("block_cyclic", 3)), (20,), (3,)),
    (stf.partition("blocked", "cyclic"), (7, 9), (2, 3)),
    (stf.partition(("blocked", 1), ("cyclic", 0)), (7, 9), (2, 3)),
    (stf.partition(None, "blocked", ("cyclic", 0)), (3, 6, 7), (2, 2)),
    (stf.partition("blocked"), (11,), (2, 2)),
    (stf.partition(("blocked", 1)), (11,), (2, 2)),
    (stf.cyclic_partition(), (9, 4), (2, 2)),
    (stf.null_partition, (9, 4), (3,)),
    (stf.tiled_partition(2, axis=1), (3, 9), (2,)),
]


@pytest.mark.parametrize(("part", "shape", "dims"), CASES, ids=repr)
def test_each_element_has_one_owner(part: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    owned = np.zeros(shape, int)
    for where in positions_of(dims):
        region = part_of(part, shape, where, dims)
        owned[region.indices()] += 1
        for element in itertools.product(*region):
            assert executor_of(part, element, shape, dims) == where
    assert (owned == 1).all()


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize(("part", "shape", "dims"), CASES, ids=repr)
def test_pages_are_counted_as_by_looking_at_each_byte(
    part: Any, shape: tuple[int, ...], dims: tuple[int, ...], samples: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = 48
    places = list(positions_of(dims))
    counts = np.zeros((len(places), -(-int(np.prod(shape)) * 8 // page)), int)
    for number, element in enumerate(itertools.product(*map(range, shape))):
        counts[places.index(executor_of(part, element, shape, dims)), number * 8 // page] += 8
    if samples:
        monkeypatch.setattr(evaluation, "MOST_RUNS", 0)
        monkeypatch.setattr(evaluation, "SAMPLES", 1000)
    found = evaluation.evaluate(part, shape, np.float64, dims, page=page)
    owners = counts.argmax(axis=0)
    assert found.nbytes == tuple(counts.sum(axis=1))
    assert found.pages == tuple(np.bincount(owners, minlength=len(places)))
    assert found.local_fraction == pytest.approx(counts.max(axis=0).sum() / counts.sum())
    assert found.allocations == 1 + np.count_nonzero(np.diff(owners))
    assert found.is_exact != samples


def test_a_large_array_is_evaluated_at_once() -> None:
    found = stf.partition("blocked", None).evaluate((1 << 20, 1 << 14), np.float32, 8, halo=(1, 0))
    assert found.nbytes == (1 << 33,) * 8
    assert found.pages == (1 << 12,) * 8
    assert found.allocations == 8
    assert found.local_fraction == 1.0
    assert found.halo_copies == 14
    assert found.halo_nbytes == 14 * (1 << 16)


class Halves:
    """The first half of an axis is the last place's, the second the first one's: what a user may write."""

    def apply(self, shape: Any, position: Any, grid_dims: Any) -> Any:
        whole = range(*shape) if isinstance(shape, tuple) else range(shape)
        return whole[: len(whole) // 2] if position != (0,) else whole[len(whole) // 2 :]

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> Any:
        return (int(coords[0] < dims[0] // 2),)


def test_a_users_partition_is_evaluated() -> None:
    found = evaluation.evaluate(Halves(), (10,), np.float64, (2,), halo=1)
    assert found.nbytes == (40, 40)
    assert found.halo_nbytes == 16


@pytest.mark.parametrize("mode", ["none", "periodic"])
@pytest.mark.parametrize(
    ("part", "shape", "dims", "widths"),
    [
        (stf.partition("blocked"), (10,), (3,), (2,)),
        (stf.partition("blocked"), (4,), (1,), (2,)),
        (stf.partition("blocked", None), (8, 3), (4,), (2, 1)),
        (stf.partition("blocked", "blocked"), (7, 8), (2, 3), (1, 2)),
        (stf.partition("blocked", "blocked"), (7, 8), (2, 3), (0, 1)),
        (Halves(), (9,), (2,), (3,)),
    ],
    ids=repr,
)
def test_edges_fill_the_margins(part: Any, shape: Any, dims: Any, widths: Any, mode: str) -> None:
    whole = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    regions = [part_of(part, shape, where, dims) for where in positions_of(dims)]
    halos.check_parts(regions, shape, widths, "it")
    for number, region in enumerate(regions):
        before, after = halos.margins_of(region, shape, widths, mode)
        padded = np.zeros([a + n + b for a, n, b in zip(before, region.shape, after, strict=True)], int)
        padded[tuple(slice(a, a + n) for a, n in zip(before, region.shape, strict=True))] = whole[region.slices()]
        for edge in halos.edges_of(regions, number, shape, widths, mode):
            source = whole[regions[edge.owner].slices()]
            box = tuple(slice(i, i + n) for i, n in zip(edge.source, edge.shape, strict=True))
            target = tuple(slice(i, i + n) for i, n in zip(edge.target, edge.shape, strict=True))
            assert (padded[target] == 0).all()  # no element is copied twice
            padded[target] = source[box]
        rows = [
            np.arange(axis.start - a, axis.stop + b) % n
            for axis, a, b, n in zip(region, before, after, shape, strict=True)
        ]
        assert (padded == whole[np.ix_(*rows)]).all()
        if mode == "periodic":
            assert before == after == widths


@pytest.mark.parametrize(
    ("axes", "error", "match"),
    [
        ((), ValueError, "a policy for each axis"),
        (("rows",), ValueError, "divided by None"),
        ((3,), TypeError, "divided by None"),
        ((("block_cyclic",),), ValueError, "block_cyclic"),
        ((("block_cyclic", 0),), ValueError, "one element or more"),
        ((("blocked", -1),), ValueError, "counted from 0"),
        ((("blocked", "x"),), TypeError, "integers"),
    ],
)
def test_what_is_no_policy_is_refused(axes: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        stf.partition(*axes)


def test_a_partition_suits_data_and_grid() -> None:
    with pytest.raises(ValueError, match=r"2 axes, and shape \(4,\) has 1"):
        stf.partition("blocked", None).apply((4,), 0, 2)
    with pytest.raises(ValueError, match="reshape the grid"):
        stf.partition("blocked", "blocked").apply((4, 4), 0, 2)
    with pytest.raises(ValueError, match="by the same axis"):
        stf.partition(("blocked", 0), ("cyclic", 0)).apply((4, 4), (0, 0), (2, 2))
    with pytest.raises(ValueError, match=r"part 0 of shape \(6,\) has 2 rows .* at most 2 places"):
        stf.partition("blocked").evaluate(6, np.float64, 3, halo=3)
    with pytest.raises(ValueError, match="a halo needs blocks"):
        stf.partition("cyclic").evaluate(6, np.float64, 3, halo=1)


def test_axes_of_a_grid_are_taken_together() -> None:
    grid = stf.exec_place.n_devices(24).reshape(2, 3, 4)
    assert grid.collapse_axes(0, 1).dims == (6, 4)
    assert grid.collapse_axes(1, 2).dims == (2, 12)
    assert grid.collapse_axes(1, 1).dims == (2, 3, 4)
    assert grid.collapse_axes(0, 2)[13] == grid[1, 0, 1]
    with pytest.raises(IndexError, match="it has the axes 0 to 2"):
        grid.collapse_axes(1, 3)
    with pytest.raises(IndexError, match="axes 2 to 1"):
        grid.collapse_axes(2, 1)
