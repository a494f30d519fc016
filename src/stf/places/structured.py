"""Partitions by axis: a policy for each axis of an index space says which axis of the grid divides it, and how."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from stf._support.arguments import is_integer
from stf.places.partition import Part, Tiles, as_dims, as_space
from stf.places.partition import _block_start as block_start
from stf.places.partition import _element as element_of
from stf.places.partition import _flattened as flattened
from stf.places.partition import _unflattened as unflattened

__all__ = ["StructuredPartition", "partition"]

POLICIES = ("blocked", "cyclic", "block_cyclic")


def partition(*axes: Any) -> StructuredPartition:
    """Make a partition from a policy for each axis of the data, or of the index space.

    Parameters
    ----------
    *axes : None, str or tuple
        For each axis: None leaves it whole. ``"blocked"`` gives each place one contiguous block. ``"cyclic"`` deals
        single elements in turn. ``("block_cyclic", n)`` deals blocks of n elements in turn. A further integer says
        which axis of the grid divides it: ``("blocked", 1)``, ``("block_cyclic", 256, 0)``. By default the divided axes
        take the axes of the grid in order, and the last one takes all that are left, in C order.

    Returns
    -------
    StructuredPartition
        For ``grid.with_partition``, `parallel_for` and ``data_place.composite``.

    Raises
    ------
    TypeError, ValueError
        A policy is none of these.

    Examples
    --------
    >>> rows = stf.partition("blocked", None)
    >>> rows.apply((5, 4), 1, 2)
    Part(range(3, 5), range(0, 4))
    >>> stf.partition("blocked", "cyclic").apply((4, 4), (1, 0), (2, 2))
    Part(range(2, 4), range(0, 4, 2))
    >>> rows.evaluate((5, 4), "float64", 2).nbytes
    (96, 64)
    """
    if not axes:
        raise ValueError('a partition has a policy for each axis, got none; say stf.partition("blocked", None)')
    return StructuredPartition(tuple(map(as_policy, axes)))


class Policy(NamedTuple):
    """How one axis is divided: by a rule, in blocks of `block` elements, by an axis of the grid, if one was given."""

    rule: str
    block: int = 1
    grid_axis: int | None = None

    def part(self, axis: range, place: int, places: int) -> Any:
        """Return what belongs to a place."""
        if self.rule == "blocked":
            extent = len(axis)
            return axis[block_start(place, extent, places) : block_start(place + 1, extent, places)]
        return axis[place::places] if self.rule == "cyclic" else Tiles(axis, self.block, place, places)

    def owner(self, index: int, extent: int, places: int) -> int:
        """Return the place that an element belongs to."""
        if self.rule != "blocked":
            return index // self.block % places
        small, larger = divmod(extent, places)
        border = larger * (small + 1)  # the first blocks have one element more
        return index // (small + 1) if index < border else larger + (index - border) // small

    def __repr__(self) -> str:
        items = [repr(self.rule), *([str(self.block)] if self.rule == "block_cyclic" else [])]
        items += [] if self.grid_axis is None else [str(self.grid_axis)]
        return items[0] if len(items) == 1 else f"({', '.join(items)})"


def as_policy(given: Any) -> Policy | None:
    """Turn what a user gives for an axis into a policy; None for an axis that stays whole."""
    if given is None:
        return None
    items = given if isinstance(given, tuple) else (given,)
    if not items or not isinstance(items[0], str) or items[0] not in POLICIES:
        raise (TypeError if not isinstance(given, (str, tuple)) else ValueError)(
            f'an axis is divided by None, "blocked", "cyclic" or ("block_cyclic", n), got {given!r}'
        )
    rule, numbers = items[0], items[1:]
    if not all(map(is_integer, numbers)):
        raise TypeError(f"the block and the axis of the grid of a policy are integers, got {given!r}")
    most = 2 if rule == "block_cyclic" else 1
    if len(numbers) > most or (rule == "block_cyclic" and not numbers):
        raise ValueError(f'a policy is such as ("blocked", 1) or ("block_cyclic", 256, 0), got {given!r}')
    block = int(numbers[0]) if rule == "block_cyclic" else 1
    axes = [int(n) for n in numbers[most - 1 :]]
    if block < 1:
        raise ValueError(f"a block has one element or more, got {given!r}")
    if axes and axes[0] < 0:
        raise ValueError(f"an axis of the grid is counted from 0, got {given!r}")
    return Policy(rule, block, axes[0] if axes else None)


@dataclass(frozen=True, repr=False)
class StructuredPartition:
    """What `partition` makes.

    Attributes
    ----------
    axes : tuple
        A policy for each axis; None where it stays whole.
    """

    axes: tuple[Policy | None, ...]

    def apply(self, shape: Any, position: Any, grid_dims: Any) -> Part:
        """Return the part of an index space that belongs to a position of the grid; see `blocked_partition`.

        Raises
        ------
        ValueError
            The space has another number of axes, or the grid lacks one that divides it.
        """
        space, grid = as_space(shape), as_dims(grid_dims)
        self._must_suit(tuple(len(axis) for axis in space), grid)
        where = unflattened(flattened(position, grid), grid)
        shares = self._shares(grid)
        used = {axis for share in shares if share is not None for axis in share}
        is_first = all(where[axis] == 0 for axis in range(len(grid)) if axis not in used)
        found = []
        for policy, share, axis in zip(self.axes, shares, space, strict=True):
            if policy is None or share is None:
                found.append(axis if is_first else axis[:0])
                continue
            dims = tuple(grid[k] for k in share)
            place = flattened(tuple(where[k] for k in share), dims)
            found.append(policy.part(axis, place, math.prod(dims)) if is_first else axis[:0])
        return Part(found)

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        """Return the position in the grid that an element belongs to; see `blocked_partition`."""
        where, extents, grid = element_of(coords, dims, grid_dims)
        self._must_suit(extents, grid)
        position = [0] * len(grid)
        for policy, share, index, extent in zip(self.axes, self._shares(grid), where, extents, strict=True):
            if policy is None or share is None:
                continue
            folded = tuple(grid[k] for k in share)
            owner = unflattened(policy.owner(index, extent, math.prod(folded)), folded)
            for k, i in zip(share, owner, strict=True):
                position[k] = i
        return tuple(position)

    def evaluate(self, shape: Any, dtype: Any, grid: Any, halo: Any = 0, halo_mode: str = "none") -> Any:
        """Say what data of a shape cost where this partition puts them, before anything is allocated.

        Parameters
        ----------
        shape : int or tuple of int
            Extents of the data.
        dtype : dtype
            Element type.
        grid : Grid, int or tuple of int
            The places, or the shape of a grid.
        halo : int or tuple of int, optional
            Rows of the neighbours that a part reads, for each axis.
        halo_mode : str, optional
            ``"none"`` or ``"periodic"``.

        Returns
        -------
        Evaluation
            Bytes and pages of each place, allocations, and how much lies where it belongs.

        Raises
        ------
        ValueError
            The shape has another number of axes, or a part is thinner than the halo.

        Examples
        --------
        >>> found = stf.partition("blocked", None).evaluate((1000, 1000), "float64", 4, halo=1)
        >>> found.nbytes, found.halo_nbytes
        ((2000000, 2000000, 2000000, 2000000), 48000)
        """
        from stf.places.evaluation import evaluate

        return evaluate(self, shape, dtype, grid, halo, halo_mode)

    def _must_suit(self, shape: tuple[int, ...], grid: tuple[int, ...]) -> None:
        if len(shape) != len(self.axes):
            raise ValueError(
                f"{self!r} has {len(self.axes)} axes, and shape {shape} has {len(shape)}; give a policy for each axis"
            )
        divided = [policy for policy in self.axes if policy is not None]
        given = [policy.grid_axis for policy in divided if policy.grid_axis is not None]
        if len(set(given)) < len(given):
            raise ValueError(f"{self!r} divides two axes by the same axis of the grid; give each its own")
        if any(axis >= len(grid) for axis in given) or len(divided) > len(grid):
            raise ValueError(
                f"{self!r} divides {len(divided)} axes, and a grid of shape {grid} has {len(grid)}; reshape the grid"
            )

    def _shares(self, grid: tuple[int, ...]) -> list[tuple[int, ...] | None]:
        """Return the axes of the grid that divide each axis; None for one that stays whole."""
        given = {policy.grid_axis for policy in self.axes if policy is not None}
        free = [axis for axis in range(len(grid)) if axis not in given]
        asking = [k for k, policy in enumerate(self.axes) if policy is not None and policy.grid_axis is None]
        shares: list[tuple[int, ...] | None] = []
        for k, policy in enumerate(self.axes):
            if policy is None:
                shares.append(None)
            elif policy.grid_axis is not None:
                shares.append((policy.grid_axis,))
            elif k == asking[-1]:
                shares.append(tuple(free))
            else:
                shares.append((free.pop(0),))
        return shares

    def __repr__(self) -> str:
        return f"partition({', '.join(map(repr, self.axes))})"
