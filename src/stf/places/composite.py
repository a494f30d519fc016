"""Making data places that are several memories: composite and replicated ones."""

from __future__ import annotations

from typing import Any

from stf.errors import PlaceError
from stf.places.partition import blocked_partition, check_partition
from stf.places.places import CompositePlace, Grid, ReplicatedPlace

__all__ = ["composite_place", "replicated_place"]


def composite_place(grid: Any, partition: Any) -> CompositePlace:
    """Make what `data_place.composite` returns."""
    must_be_grid(grid)
    if partition is None:
        partition = grid.partition or blocked_partition()
    for place in grid:
        if place.kind not in ("device", "host"):
            raise PlaceError(f"a composite place is made of devices, or of the host, and {place!r} is neither")
    return CompositePlace(grid, check_partition(partition))


def replicated_place(grid: Any) -> ReplicatedPlace:
    """Make what `data_place.replicated` returns."""
    must_be_grid(grid)
    return ReplicatedPlace(grid)


def must_be_grid(grid: Any) -> None:
    """Raise TypeError for what is no grid."""
    if not isinstance(grid, Grid):
        raise TypeError(f"a grid of places is needed, got {grid!r}; say stf.exec_place.all_devices()")
