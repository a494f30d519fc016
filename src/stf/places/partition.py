"""Partitions: which part of an index space belongs to which place of a grid.

A partition answers two questions, and the answers agree: `apply` gives the part of a space that belongs to a position
of the grid; `get_executor` gives the position that an element belongs to. All count along the axes, so a space may be
a shape or bounds, with steps too.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Part", "Tiles", "blocked_partition", "cyclic_partition", "null_partition", "tiled_partition"]


# -- what a partition gives ----------------------------------------------------------------------------------------


class Part(tuple[Any, ...]):
    """The part of an index space that belongs to one position of a grid: for each axis a `range` or `Tiles`.

    The elements of the part are the combinations of the elements of its axes.

    Examples
    --------
    >>> import numpy as np, stf
    >>> part = stf.blocked_partition().apply((5, 4), 1, 2)
    >>> part
    Part(range(3, 5), range(0, 4))
    >>> np.arange(20).reshape(5, 4)[part.slices()].shape
    (2, 4)
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return tuple(len(axis) for axis in self)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def has(self, coords: Sequence[int]) -> bool:
        """Tell whether an element belongs to the part."""
        return len(coords) == len(self) and all(i in axis for i, axis in zip(coords, self, strict=True))

    def slices(self) -> tuple[slice, ...]:
        """Return the part as slices, for a view of a NumPy array.

        Raises
        ------
        ValueError
            An axis consists of tiles, or begins below 0; use `indices`, or `boxes`.
        """
        for axis in self:
            if not isinstance(axis, range):
                raise ValueError(f"{axis!r} is no slice; use indices() for a copy, or boxes() for its pieces")
            if axis and axis.start < 0:
                raise ValueError(f"{axis!r} begins below 0, where a slice would count from the end")
        return tuple(slice(axis.start, axis.stop, axis.step) if axis else slice(0, 0) for axis in self)

    def indices(self) -> tuple[Any, ...]:
        """Return the part as index arrays, as ``np.ix_`` makes them: ``a[part.indices()]`` is a copy."""
        return np.ix_(*(np.fromiter(axis, np.intp, len(axis)) for axis in self))

    def boxes(self) -> Iterator[tuple[range, ...]]:
        """Yield the pieces of the part that are ranges along every axis."""
        yield from product(*([axis] if isinstance(axis, range) else axis.ranges() for axis in self))

    def __repr__(self) -> str:
        return f"Part({', '.join(map(repr, self))})"


@dataclass(frozen=True)
class Tiles(Sequence[int]):
    """Every `stride`-th tile of an axis, from tile number `first` on.

    Parameters
    ----------
    axis : range
        The whole axis.
    tile : int
        Elements of a tile; the last of the axis may have fewer.
    first, stride : int
        Which tiles.

    Examples
    --------
    >>> list(Tiles(range(10), 2, first=1, stride=2))
    [2, 3, 6, 7]
    """

    axis: range
    tile: int
    first: int
    stride: int

    def ranges(self) -> Iterator[range]:
        """Yield the tiles, each as a range."""
        for start in range(self.first * self.tile, len(self.axis), self.stride * self.tile):
            yield self.axis[start : start + self.tile]

    def __len__(self) -> int:
        extent = len(self.axis)
        tiles = range(self.first * self.tile, extent, self.stride * self.tile)
        return len(tiles) * self.tile - max(0, tiles[-1] + self.tile - extent) if tiles else 0

    def __contains__(self, item: object) -> bool:
        if item not in self.axis:
            return False
        number = self.axis.index(item) // self.tile - self.first  # type: ignore[arg-type]
        return number >= 0 and number % self.stride == 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        tile, offset = divmod(number, self.tile)
        return self.axis[(self.first + tile * self.stride) * self.tile + offset]

    def __iter__(self) -> Iterator[int]:
        for tile in self.ranges():
            yield from tile


# -- the partitions ------------------------------------------------------------------------------------------------


def blocked_partition(axis: int = 0) -> OneAxisPartition:
    """Make a partition that gives each place one contiguous block along an axis; blocks differ by one element at most.

    A grid of several axes is taken in C order.

    Parameters
    ----------
    axis : int
        The axis that is divided; by default the first, the outermost of an array in C order. Negative ones count from
        the end: ``-1`` is the outermost of an array in Fortran order.

    Raises
    ------
    TypeError
        `axis` is no integer.

    Examples
    --------
    >>> [list(stf.blocked_partition().apply(10, place, 4)[0]) for place in range(4)]
    [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    """
    _check_number("an axis", axis)
    return OneAxisPartition(Policy("blocked"), axis)


def tiled_partition(tile: int, axis: int = 0) -> OneAxisPartition:
    """Make a partition that deals tiles of an axis to the places in turn: the first to place 0, the next to place 1.

    A grid of several axes is taken in C order.

    Parameters
    ----------
    tile : int
        Elements of a tile along the axis.
    axis : int
        As for `blocked_partition`.

    Raises
    ------
    TypeError, ValueError
        `tile` is no integer, or not positive.

    Examples
    --------
    >>> [list(stf.tiled_partition(2).apply(10, place, 3)[0]) for place in range(3)]
    [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5]]
    """
    _check_number("a tile", tile)
    _check_number("an axis", axis)
    if tile < 1:
        raise ValueError(f"a tile has one element or more, got tiled_partition({tile})")
    return OneAxisPartition(Policy("block_cyclic", tile), axis)


def cyclic_partition() -> CyclicPartition:
    """Make a partition that deals single elements to the places in turn, along as many axes as the grid has.

    Axis k of the grid divides axis k of the space. Axes that only the grid has are taken together with its last one
    that the space has too, in C order.

    Examples
    --------
    >>> stf.cyclic_partition().apply((5, 6), (1, 0), (2, 2))
    Part(range(1, 5, 2), range(0, 6, 2))
    """
    return CyclicPartition()


class Policy(NamedTuple):
    """How one axis is divided: by a rule, in blocks of `block` elements, by an axis of the grid, if one was given."""

    rule: str
    block: int = 1
    grid_axis: int | None = None

    def part(self, axis: range, place: int, places: int) -> Any:
        """Return what belongs to a place."""
        if self.rule == "blocked":
            small, larger = divmod(len(axis), places)  # the first blocks have one element more
            start = place * small + min(place, larger)
            return axis[start : start + small + (place < larger)]
        return axis[place::places] if self.rule == "cyclic" else Tiles(axis, self.block, place, places)

    def owner(self, index: int, extent: int, places: int) -> int:
        """Return the place that an element belongs to."""
        if self.rule != "blocked":
            return index // self.block % places
        small, larger = divmod(extent, places)
        border = larger * (small + 1)
        return index // (small + 1) if index < border else larger + (index - border) // small

    def __repr__(self) -> str:
        items = [repr(self.rule), *([str(self.block)] if self.rule == "block_cyclic" else [])]
        items += [] if self.grid_axis is None else [str(self.grid_axis)]
        return items[0] if len(items) == 1 else f"({', '.join(items)})"


class PartitionByAxes:
    """A partition that has a policy for each axis of a space, or None for an axis that stays whole.

    The divided axes take the axes of the grid in order, and the last one takes all that are left, in C order.
    """

    def policies(self, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Policy | None, ...]:
        """Return the policies for a space of a shape; ValueError if it cannot be divided."""
        raise NotImplementedError

    def apply(self, shape: Any, position: Any, grid_dims: Any) -> Part:
        """Return the part of an index space that belongs to a position of the grid.

        Parameters
        ----------
        shape : int, tuple of int, tuple of slice or range, or object with ``bounds``
            The space: extents, or bounds.
        position, grid_dims : int or tuple of int
            A position in a grid of that shape.

        Returns
        -------
        Part
            A `range` or `Tiles` for each axis.

        Raises
        ------
        ValueError
            The space does not have the axes that are divided, or the grid lacks one that divides it.
        IndexError
            There is no such position.
        """
        space, grid = as_space(shape), as_dims(grid_dims)
        where = _position(position, grid)
        shares, unused = _shares(self.policies(tuple(map(len, space)), grid), grid)
        if unused and any([where[k] for k in unused]):
            return Part([axis[:0] for axis in space])
        found: list[Any] = list(space)
        for k, policy, steps, places in shares:
            found[k] = policy.part(space[k], sum([where[i] * step for i, step in steps]), places)
        return Part(found)

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        """Return the position in the grid that an element belongs to.

        Parameters
        ----------
        coords, dims : int or tuple of int
            An element of a space of extents `dims`, counted from 0 along each axis.
        grid_dims : int or tuple of int
            The shape of the grid.

        Returns
        -------
        tuple of int
            One index per axis of the grid.
        """
        where, extents, grid = _element(coords, dims, grid_dims)
        position = [0] * len(grid)
        for k, policy, steps, places in _shares(self.policies(extents, grid), grid)[0]:
            owner = policy.owner(where[k], extents[k], places)
            for i, step in steps:
                position[i] = owner // step % grid[i]
        return tuple(position)


@dataclass(frozen=True, repr=False)
class OneAxisPartition(PartitionByAxes):
    """What `blocked_partition` and `tiled_partition` make."""

    policy: Policy
    axis: int

    def policies(self, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Policy | None, ...]:
        """Return the policy for the axis that is divided, and None for the others."""
        ndim, axis = len(shape), self.axis
        _checked_ndim(ndim)
        if not -ndim <= axis < ndim:
            raise ValueError(f"the partition divides axis {axis}, and the space has {ndim} axes; give another axis=")
        return (*[None] * (axis % ndim), self.policy, *[None] * (ndim - 1 - axis % ndim))

    def __repr__(self) -> str:
        if self.policy.rule == "blocked":
            return f"blocked_partition(axis={self.axis})"
        return f"tiled_partition({self.policy.block}, axis={self.axis})"


CYCLIC = Policy("cyclic")


@dataclass(frozen=True, repr=False)
class CyclicPartition(PartitionByAxes):
    """What `cyclic_partition` makes."""

    def policies(self, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Policy | None, ...]:
        """Return a policy for as many axes as the grid has."""
        _checked_ndim(len(shape))
        return tuple([CYCLIC if k < len(grid) else None for k in range(len(shape))])

    def __repr__(self) -> str:
        return "cyclic_partition()"


@dataclass(frozen=True, repr=False)
class NullPartition:
    """What `null_partition` is: it divides nothing, all belongs to the first place of the grid."""

    def __call__(self) -> NullPartition:
        return self

    def apply(self, shape: Any, position: Any, grid_dims: Any) -> Part:
        """Return the whole space for the first position of the grid, an empty part for the others."""
        space, where = as_space(shape), _position(position, as_dims(grid_dims))
        _checked_ndim(len(space))
        return Part((space[0][:0], *space[1:])) if any(where) else Part(space)

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        """Return the first position of the grid."""
        _, _, grid = _element(coords, dims, grid_dims)
        return (0,) * len(grid)

    def __repr__(self) -> str:
        return "null_partition"


null_partition = NullPartition()


# -- using any partition -------------------------------------------------------------------------------------------


def is_partition(value: Any) -> bool:
    """Return whether a user means a partition.

    An object or a class with ``apply``, or one of ours that was not called.
    """
    ours = (blocked_partition, cyclic_partition, tiled_partition)
    return hasattr(value, "apply") or any(value is function for function in ours)


def check_partition(partition: Any) -> Any:
    """Return `partition`, of a class an object of it; or raise a TypeError that says what it lacks."""
    missing = [name for name in ("apply", "get_executor") if not callable(getattr(partition, name, None))]
    if missing:
        hint = f"; call it: {partition.__name__}()" if inspect.isfunction(partition) else ""
        raise TypeError(
            "a partition has apply(shape, position, grid_dims) and get_executor(coords, dims, grid_dims); "
            f"{partition!r} lacks {' and '.join(missing)}{hint}"
        )
    return partition() if isinstance(partition, type) else partition


def part_of(partition: Any, shape: Any, position: Any, grid_dims: Any) -> Part:
    """Return the part of a space that any partition, a user's own too, gives to a position.

    Raises
    ------
    TypeError, ValueError
        What its `apply` returned is no part of the space.
    """
    space, grid = as_space(shape), as_dims(grid_dims)
    _position(position, grid)
    result = partition.apply(shape, position, grid_dims)
    return result if isinstance(result, Part) else _as_part(result, space, type(partition).__name__)


def executor_of(partition: Any, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
    """Return the position that any partition, a user's own too, gives an element to.

    Raises
    ------
    TypeError, ValueError
        What its `get_executor` returned is no position of the grid.
    """
    where, extents, grid = _element(coords, dims, grid_dims)
    result = partition.get_executor(where, extents, grid)
    name = type(partition).__name__
    try:
        position = as_dims(result)
    except (TypeError, ValueError):
        raise TypeError(f"{name}.get_executor returned {result!r}; return one index per axis of the grid") from None
    if len(position) != len(grid) or not all(0 <= i < n for i, n in zip(position, grid, strict=True)):
        raise ValueError(
            f"{name}.get_executor gave element {where} of shape {extents} to {result!r}, which is outside a grid of "
            f"shape {grid}"
        )
    return position


def positions_of(grid_dims: Any) -> Iterator[tuple[int, ...]]:
    """Yield the positions of a grid in C order."""
    yield from product(*map(range, as_dims(grid_dims)))


# -- spaces and positions ------------------------------------------------------------------------------------------


def as_space(shape: Any) -> tuple[range, ...]:
    """Turn what says an index space into a range for each axis.

    Parameters
    ----------
    shape : int, sequence of int, slice or range, or object with ``bounds``
        Extents, or bounds: ``slice(5, 8)``, ``range(5, 8)``, or pairs in ``bounds``.
    """
    bounds = getattr(shape, "bounds", None)
    if bounds is not None:
        return tuple(range(int(low), int(high)) for low, high in bounds)
    axes = shape if isinstance(shape, (tuple, list, Part)) else (shape,)
    return tuple(map(_as_axis, axes))


def _as_axis(axis: Any) -> range:
    if isinstance(axis, slice):
        if axis.stop is None:
            raise TypeError(f"an index space needs bounds, got {axis!r}; say where it ends")
        axis = range(axis.start or 0, axis.stop, axis.step or 1)
    if isinstance(axis, range):
        if axis.step < 1:
            raise ValueError(f"an index space runs upwards, got {axis!r}; use a positive step")
        return axis
    if isinstance(axis, (tuple, list)):
        raise TypeError(f"an axis of an index space is an int, a slice or a range, got {axis!r}")
    return range(*as_dims(axis))


def as_dims(dims: Any) -> tuple[int, ...]:
    """Turn an int or a sequence of int into a tuple; none of them negative."""
    items = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    for item in items:
        if isinstance(item, (bool, np.bool_, type)) or not hasattr(item, "__index__"):
            raise TypeError(f"an int or a tuple of int is needed, got {dims!r}")
        if item < 0:
            raise ValueError(f"no number here may be negative, got {dims!r}")
    return tuple(int(item) for item in items)


def _element(coords: Any, dims: Any, grid_dims: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    where, extents, grid = as_dims(coords), as_dims(dims), as_dims(grid_dims)
    _checked_ndim(len(extents))
    if len(where) != len(extents) or not all(i < n for i, n in zip(where, extents, strict=True)):
        raise IndexError(f"element {where} is outside a space of shape {extents}")
    if not math.prod(grid):
        raise ValueError(f"a grid of shape {grid} has no places")
    return where, extents, grid


def _position(position: Any, grid: tuple[int, ...]) -> tuple[int, ...]:
    where = as_dims(position)
    if len(where) != len(grid) or not all(i < n for i, n in zip(where, grid, strict=True)):
        raise IndexError(f"position {where} is outside a grid of shape {grid}")
    return where


@functools.lru_cache(maxsize=256)
def _shares(policies: tuple[Policy | None, ...], grid: tuple[int, ...]) -> tuple[list[Any], list[int]]:
    """Return each axis of a space that is divided: its policy, the axes of the grid that divide it, how many places.

    With the axes of the grid, how many places further one more along them is. The rest are axes that divide nothing.
    """
    divided = [(k, policy) for k, policy in enumerate(policies) if policy is not None]
    free = [axis for axis in range(len(grid)) if axis not in {policy.grid_axis for _, policy in divided}]
    last = max([k for k, policy in divided if policy.grid_axis is None], default=-1)
    shares = []
    for k, policy in divided:
        mine: list[Any] = [policy.grid_axis]
        if policy.grid_axis is None:
            count = len(free) if k == last else 1
            mine, free = free[:count], free[count:]
        dims = [grid[axis] for axis in mine]
        steps = [(axis, math.prod(dims[i + 1 :])) for i, axis in enumerate(mine)]
        shares.append((k, policy, steps, math.prod(dims)))
    return shares, free


def _check_number(what: str, number: Any) -> None:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} of a partition is an integer, got {number!r}")


def _checked_ndim(ndim: int) -> None:
    if ndim == 0:
        raise ValueError("a zero-dimensional space has one element and no axis to divide; run it at one place")


def _as_part(result: Any, space: tuple[range, ...], name: str) -> Part:
    axes = result if isinstance(result, (tuple, list)) else (result,)
    if len(axes) != len(space):
        raise ValueError(f"{name}.apply returned {result!r} for a space of {len(space)} axes; return one item per axis")
    return Part(_as_part_axis(axis, whole, name) for axis, whole in zip(axes, space, strict=True))


def _as_part_axis(axis: Any, whole: range, name: str) -> Any:
    if isinstance(axis, slice):
        start = whole.start if axis.start is None else axis.start
        axis = range(start, whole.stop if axis.stop is None else axis.stop, axis.step or 1)
    if not isinstance(axis, (range, Tiles)):
        raise TypeError(
            f"{name}.apply returned {axis!r} for an axis; return a range, a slice or stf.places.partition.Tiles"
        )
    if len(axis) and not (axis[0] in whole and axis[-1] in whole):
        raise ValueError(f"{name}.apply returned {axis!r}, which is outside the axis {whole!r}")
    return axis
