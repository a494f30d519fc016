"""Partitions of data over grids of places: mappers, partition functions, `cute_partition`, and what they lead to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stf
from stf.compat.cuda_stf.machine import extents

POLICIES = ("whole", "blocked", "cyclic", "block_cyclic")
PAGE = 2 << 20  # bytes of one allocation on a device
PROBES = 10  # samples of a page
WHOLE = 4096  # elements of a page that are all looked at
FIRST_POINTER = 0x1000
MOST_MAPPED = 1 << 14  # elements for which a mapper is asked, each
BLOCKS = stf.blocked_partition(0)

Leaf = tuple[int, int]
PlaceLeaf = tuple[int, int, int]


class partition_function(int):
    """A partition that is known by a number, as those of NVIDIA's library are by their address."""

    partition: Any  # of stf

    @classmethod
    def _of(cls, number: int, partition: Any) -> partition_function:
        made = cls(number)
        made.partition = partition
        return made


def partition_fn_blocked(axis: int = 0, data_rank: int | None = None) -> partition_function:
    """Return the partition into blocks along an axis.

    Raises
    ------
    ValueError
        The axis is not one of `data_rank`, which an axis other than 0 needs.
    """
    if axis != 0 and data_rank is None:
        raise ValueError("partition_fn_blocked requires data_rank for a nonzero axis")
    if data_rank is not None and not 0 <= axis < data_rank:
        raise ValueError(f"partition_fn_blocked axis {axis} is out of range for rank {data_rank}")
    return partition_function._of(FIRST_POINTER + axis, stf.blocked_partition(axis))


def partition_fn_cyclic() -> partition_function:
    """Return the partition that deals elements out in turn."""
    return partition_function._of(FIRST_POINTER - 1, stf.cyclic_partition())


class by_element:
    """A partition that says of each element which place has it."""

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        """Return the position of the place that has an element."""
        raise NotImplementedError

    def apply(self, shape: Any, position: Any, grid_dims: Any) -> Any:
        """Return what lies at a position of the grid: the box of elements that it has.

        Where memory lies changes no value. So elements that are scattered, and more than `MOST_MAPPED`, lie in blocks
        of the first axis instead.
        """
        dims = tuple(shape)
        boxes = self.boxes(dims, tuple(grid_dims)) if 0 < math.prod(dims) <= MOST_MAPPED else None
        if boxes is None:
            return BLOCKS.apply(shape, position, grid_dims)
        return boxes.get(tuple(position), tuple(slice(0, 0) for _ in dims))

    def boxes(self, dims: tuple[int, ...], grid: tuple[int, ...]) -> dict[tuple[int, ...], tuple[slice, ...]] | None:
        """Return the box of elements of each position that has some; None if those of one are no box."""
        bounds: dict[tuple[int, ...], tuple[int, Any, Any]] = {}
        for coords in np.ndindex(*dims):
            owner = self.get_executor(coords, dims, grid)
            count, first, last = bounds.get(owner, (0, coords, coords))
            bounds[owner] = count + 1, tuple(map(min, first, coords)), tuple(map(max, last, coords))
        found = {}
        for owner, (count, first, last) in bounds.items():
            found[owner] = tuple(slice(low, high + 1) for low, high in zip(first, last, strict=True))
            if count != math.prod(axis.stop - axis.start for axis in found[owner]):
                return None
        return found


class mapped_partition(by_element):
    """A partition by a function of the user's, which says the place of each element."""

    def __init__(self, mapper: Callable[..., Any]) -> None:
        self.mapper = mapper

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        """Return the position of the place that has an element."""
        grid = tuple(grid_dims)
        found = self.mapper(tuple(coords), tuple(dims), grid)
        position = (found,) if isinstance(found, (int, np.integer)) else tuple(found)
        if len(position) != len(grid):
            raise ValueError(f"mapper returned {len(position)} grid coordinates, expected {len(grid)}")
        if any(not 0 <= int(i) < n for i, n in zip(position, grid, strict=True)):
            raise ValueError(f"mapper returned out-of-range coordinates {position} for a grid of shape {grid}")
        return tuple(int(i) for i in position)


class cute_partition(by_element):
    """A partition by a policy for each axis, of data of one shape over a grid of one shape; see `from_spec`.

    Attributes
    ----------
    true_dims, padded_dims, grid_dims : tuple of int
        The shape of the data, the same with each divided axis rounded up, and the shape of the grid.
    place_leaves : list of (extent, stride, grid axis)
        Steps from place to place, in elements of the padded data; the last is the fastest.
    local_leaves : list of (extent, stride)
        Steps within the part of a place.
    """

    def __init__(self) -> None:
        raise TypeError("partitions are made by cute_partition.from_spec() or cute_partition.from_leaves()")

    true_dims: tuple[int, ...]
    padded_dims: tuple[int, ...]
    grid_dims: tuple[int, ...]
    place_leaves: list[PlaceLeaf]
    local_leaves: list[Leaf]
    replicated: tuple[int, ...]
    spec: tuple[Any, ...] | None

    @classmethod
    def _of(cls, **fields: Any) -> cute_partition:
        made = cls.__new__(cls)
        vars(made).update(fields)
        return made

    @staticmethod
    def from_spec(true_dims: Any, spec: Sequence[Any], grid_dims: Any, *, replicate_over: Any = ()) -> cute_partition:
        """Return a partition by one entry for each axis of the data.

        Parameters
        ----------
        true_dims, grid_dims : tuple of int
            The shapes of the data and of the grid.
        spec : sequence
            For each axis None, ``("blocked", axis)``, ``("cyclic", axis)`` or ``("block_cyclic", axis, block)``, where
            ``axis`` is one of the grid.
        replicate_over : sequence of int
            Axes of the grid along which each place has a copy.

        Raises
        ------
        ValueError
            A policy is unknown, or an axis of the grid is used twice or not at all.
        """
        dims, grid = extents(true_dims, "true_dims"), extents(grid_dims, "grid_dims")
        if len(spec) != len(dims):
            raise ValueError(f"spec must have one entry per dimension of true_dims ({len(dims)}), got {len(spec)}")
        entries = [checked(entry, grid) for entry in spec]
        copies = tuple(check_axis(axis, grid) for axis in replicate_over)
        used = [axis for policy, axis, _ in entries if policy != "whole"] + list(copies)
        if len(set(used)) < len(used) or any(n > 1 and axis not in used for axis, n in enumerate(grid)):
            raise ValueError(
                f"invalid partition specification {tuple(spec)!r}: each axis of a grid of shape {grid} divides one "
                "axis of the data, or stands in replicate_over"
            )
        steps = [steps_of(entry, n, grid) for entry, n in zip(entries, dims, strict=True)]
        padded = tuple(step[0] for step in steps)
        place_leaves: list[PlaceLeaf] = []
        local_leaves: list[Leaf] = []
        for number, (_, of_places, of_parts) in enumerate(steps):
            stride = math.prod(padded[number + 1 :])
            place_leaves += [(n, step * stride, axis) for n, step, axis in of_places]
            local_leaves += [(n, step * stride) for n, step in of_parts]
        return cute_partition._of(
            true_dims=dims,
            padded_dims=padded,
            grid_dims=grid,
            place_leaves=place_leaves,
            local_leaves=local_leaves,
            replicated=copies,
            spec=tuple(entries),
        )

    @staticmethod
    def from_leaves(
        place_leaves: Sequence[PlaceLeaf],
        local_leaves: Sequence[Leaf],
        padded_dims: Any,
        true_dims: Any,
        grid_dims: Any,
    ) -> cute_partition:
        """Return a partition by its leaves, which must cover the padded data once.

        Raises
        ------
        ValueError
            They do not.
        """
        padded, dims = extents(padded_dims, "padded_dims"), extents(true_dims, "true_dims")
        grid = extents(grid_dims, "grid_dims")
        if len(padded) != len(dims) or any(p < n for p, n in zip(padded, dims, strict=True)):
            raise ValueError(f"padded_dims {padded} are not true_dims {dims}, rounded up")
        for extent, _, axis in place_leaves:
            if grid[check_axis(axis, grid)] != extent:
                raise ValueError(f"a place leaf of extent {extent} is not axis {axis} of a grid of shape {grid}")
        reached = 1  # elements that the leaves so far cover, from the fastest on
        for extent, stride in sorted([(e, s) for e, s, *_ in (*place_leaves, *local_leaves)], key=lambda leaf: leaf[1]):
            if stride != reached and extent != 1:
                raise ValueError("leaves do not describe an exact partition of the padded extents")
            reached *= extent
        if reached != math.prod(padded):
            raise ValueError("leaves do not describe an exact partition of the padded extents")
        return cute_partition._of(
            true_dims=dims,
            padded_dims=padded,
            grid_dims=grid,
            place_leaves=list(map(tuple, place_leaves)),
            local_leaves=list(map(tuple, local_leaves)),
            replicated=(),
            spec=None,
        )

    @property
    def rank(self) -> int:
        """The number of axes of the data."""
        return len(self.true_dims)

    @property
    def grid_rank(self) -> int:
        """The number of axes of the grid."""
        return len(self.grid_dims)

    def place_offset(self, place_index: int) -> int:
        """Return the first element of a place, by its number in the order of `place_leaves`."""
        offset, rest = 0, place_index
        for extent, stride, _ in reversed(self.place_leaves):
            rest, at = divmod(rest, extent)
            offset += at * stride
        return offset

    def grid_place_offset(self, place_index: int) -> int:
        """Return the first element of a place, by its number in the grid."""
        total = math.prod(self.grid_dims)
        if not 0 <= place_index < total:
            raise ValueError(f"place_index {place_index} out of range for {total} places")
        position = np.unravel_index(place_index, self.grid_dims)
        return sum(int(position[axis]) * stride for _, stride, axis in self.place_leaves)

    def owners(self, coords: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return the numbers, in the grid, of the places that have these elements; of copies, the first."""
        flat = np.ravel_multi_index(tuple(coords), self.padded_dims)
        position = [np.zeros(flat.shape, np.int64) for _ in self.grid_dims]
        for extent, stride, axis in self.place_leaves:
            position[axis] = flat // stride % extent
        return np.ravel_multi_index(tuple(position), self.grid_dims)

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        """Return the position of the place that has an element."""
        if tuple(dims) != self.true_dims or tuple(grid_dims) != self.grid_dims:
            raise ValueError(
                f"a partition of data of shape {self.true_dims} over a grid of shape {self.grid_dims} was given data "
                f"of shape {tuple(dims)} and a grid of shape {tuple(grid_dims)}"
            )
        number = self.owners([np.array([int(i)]) for i in coords])[0]
        return tuple(int(i) for i in np.unravel_index(number, self.grid_dims))

    def __repr__(self) -> str:
        return f"cute_partition(true_dims={self.true_dims}, grid_dims={self.grid_dims}, spec={self.spec})"


def check_axis(axis: Any, grid: tuple[int, ...]) -> int:
    """Return an axis of a grid; TypeError or ValueError for anything else."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise TypeError(f"grid axis must be an int, got {axis!r}")
    if not 0 <= axis < len(grid):
        raise ValueError(f"grid axis {axis} is out of range for rank {len(grid)}")
    return axis


def checked(entry: Any, grid: tuple[int, ...]) -> tuple[str, int, int]:
    """Return policy, grid axis and block of an entry of a specification."""
    if entry is None:
        return "whole", -1, 0
    policy = entry[0]
    if policy not in POLICIES:
        raise ValueError(f"unknown policy {policy!r}; expected one of {', '.join(POLICIES)}")
    if policy == "whole":
        return "whole", -1, 0
    if len(entry) != (3 if policy == "block_cyclic" else 2):
        raise ValueError(f"{entry!r} is no entry of a specification: a grid axis, and for block_cyclic a block too")
    block = int(entry[2]) if policy == "block_cyclic" else 0
    if policy == "block_cyclic" and block < 1:
        raise ValueError(f"a block has at least one element, got {block}")
    return policy, check_axis(entry[1], grid), block


def steps_of(entry: tuple[str, int, int], n: int, grid: tuple[int, ...]) -> tuple[int, list[PlaceLeaf], list[Leaf]]:
    """Return the padded extent of an axis, and the steps along it from place to place and within a part."""
    policy, axis, block = entry
    if policy == "whole":
        return n, [], [(n, 1)]
    places = grid[axis]
    if policy == "blocked":
        part = -(-n // places)
        return places * part, [(places, part, axis)], [(part, 1)]
    if policy == "cyclic":
        part = -(-n // places)
        return places * part, [(places, 1, axis)], [(part, places)]
    tiles = -(-n // (places * block))
    return places * block * tiles, [(places, block, axis)], [(tiles, places * block), (block, 1)]


def as_partition(mapper: Any, data_rank: int | None = None) -> Any:
    """Return what stf takes for a partition.

    Raises
    ------
    TypeError, ValueError
        It is neither a function, nor a `cute_partition`, nor what `partition_fn_blocked` returns.
    """
    if isinstance(mapper, cute_partition):
        return mapper
    if isinstance(mapper, partition_function):
        return mapper.partition
    if isinstance(mapper, bool):
        raise TypeError("a mapper is a function or a partition function, got a bool")
    if isinstance(mapper, int):
        raise ValueError(
            "mapper function pointer must not be NULL"
            if mapper == 0
            else f"{mapper:#x} is no partition function of this module; use partition_fn_blocked() or a function"
        )
    if not callable(mapper):
        raise TypeError(
            f"a mapper is callable: (data_coords, data_dims, grid_dims) -> grid coordinates; got {mapper!r}"
        )
    if data_rank is not None and not 1 <= data_rank <= 4:
        raise ValueError(f"data_rank must be between 1 and 4, got {data_rank}")
    return mapped_partition(mapper)


# -- what a partition leads to ---------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class placement_stats:
    """How data lie that are divided page by page: each page is where most of its bytes belong.

    Attributes
    ----------
    total_bytes, vm_bytes, block_size, nblocks, nallocs : int
        Bytes of the data and of their pages, bytes of a page, pages, and runs of pages at one place.
    total_samples, matching_samples : int
        Elements that were looked at, and those that are where they belong.
    bytes_per_grid_index : list of int
        Bytes at each place.
    """

    total_bytes: int
    vm_bytes: int
    block_size: int
    nblocks: int
    nallocs: int
    total_samples: int
    matching_samples: int
    bytes_per_grid_index: list[int]

    @property
    def accuracy(self) -> float:
        """The part of the elements that are where they belong."""
        return self.matching_samples / self.total_samples if self.total_samples else 1.0

    def __repr__(self) -> str:
        return (
            f"placement_stats(total_bytes={self.total_bytes}, nblocks={self.nblocks}, nallocs={self.nallocs}, "
            f"accuracy={self.accuracy:.3f}, bytes_per_grid_index={self.bytes_per_grid_index})"
        )


def placement_evaluate(
    grid: Any, mapper: Any, data_dims: Any, elemsize: int, probes: int = 0, block_size: int = 0
) -> placement_stats:
    """Return how data of a shape would lie on a grid; nothing is allocated.

    Parameters
    ----------
    grid : exec_place
        The places.
    mapper : cute_partition, partition function or callable
        Which place has which element.
    data_dims : tuple of int or None
        The shape; None for that of a `cute_partition`.
    elemsize : int
        Bytes of an element.
    probes, block_size : int
        Samples of a page, and its bytes; 0 for 10 and 2 MiB. Of a small page every element is looked at.
    """
    partition = as_partition(mapper)
    if isinstance(partition, cute_partition):
        dims = partition.true_dims if data_dims is None else extents(data_dims, "data_dims")
        if dims != partition.true_dims:
            raise ValueError(f"data_dims {dims} do not match the partition's {partition.true_dims}; pass None")
        owners = partition.owners
    else:
        dims = extents(data_dims, "data_dims")
        owners = owners_by(partition, dims, tuple(grid.dims))
    page = block_size or PAGE
    count, total = math.prod(dims), math.prod(dims) * elemsize
    pages = -(-total // page)
    held, matching, looked, runs, last = [0] * grid.size, 0, 0, 0, -1
    random = np.random.default_rng(0)  # the same samples each time
    for number in range(pages):
        first, end = number * page // elemsize, min(-(-(number + 1) * page // elemsize), count)
        known = end - first <= max(WHOLE, probes)
        flat = np.arange(first, end) if known else random.integers(first, end, probes or PROBES)
        try:
            found = owners(np.unravel_index(flat, dims))
        except Exception as error:
            raise RuntimeError("the mapper raised during placement evaluation") from error
        votes = np.bincount(found, minlength=grid.size)
        owner = int(votes.argmax())
        held[owner] += min((number + 1) * page, total) - number * page
        matching, looked = matching + int(votes[owner]), looked + len(flat)
        runs, last = runs + (owner != last), owner
    return placement_stats(total, pages * page, page, pages, runs, looked, matching, held)


def owners_by(partition: Any, dims: tuple[int, ...], grid_dims: tuple[int, ...]) -> Callable[..., Any]:
    """Return a function of coordinates that asks a partition for the places, one by one."""

    def owners(coords: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        found = [
            np.ravel_multi_index(at_grid(partition.get_executor(at, dims, grid_dims)), grid_dims)
            for at in zip(*(axis.tolist() for axis in coords), strict=True)
        ]
        return np.array(found, np.int64)

    def at_grid(position: Any) -> tuple[int, ...]:
        return (int(position),) if isinstance(position, (int, np.integer)) else tuple(map(int, position))

    return owners
