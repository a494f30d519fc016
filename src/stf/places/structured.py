"""Partitions by axis: a policy for each axis of an index space says which axis of the grid divides it, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stf._support.arguments import is_integer
from stf.places.partition import PartitionByAxes, Policy

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
class StructuredPartition(PartitionByAxes):
    """What `partition` makes.

    Attributes
    ----------
    axes : tuple
        A policy for each axis; None where it stays whole.
    """

    axes: tuple[Policy | None, ...]

    def policies(self, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Policy | None, ...]:
        """Return the policies; ValueError for another number of axes, or if the grid lacks one that divides."""
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
        return self.axes

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

    def __repr__(self) -> str:
        return f"partition({', '.join(map(repr, self.axes))})"
