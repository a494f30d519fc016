"""What a partition costs, before anything is allocated: bytes and pages of each place, and what halos move.

Memory of several devices under one address is mapped in pages, and a page lies on one device: on the one that most of
its bytes belong to. So some bytes lie elsewhere than they belong. How many that are is computed here, from the runs of
bytes that each part has, without looking at single elements: the bytes of a part below each border of a page are a sum
of whole runs and a piece of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from stf.interop.dtypes import dtype_of
from stf.places.halos import as_halo, check_mode, check_parts, edges_of
from stf.places.partition import Part, as_dims, check_partition, part_of, positions_of

__all__ = ["PAGE", "Evaluation", "evaluate", "runs_of_pages"]

PAGE = 2 << 20  # bytes of a page of a device's memory
MOST_RUNS = 1 << 26  # of a part that are looked at
SAMPLES = 32  # pages that are looked at where a part has more runs


class Evaluation(NamedTuple):
    """What a partition of data costs. Made by ``part.evaluate(shape, dtype, grid)``; it needs no GPU.

    Attributes
    ----------
    nbytes : tuple of int
        Bytes of each place's part, in C order of the grid.
    pages : tuple of int
        Pages of 2 MiB that each place would have in one mapped array.
    allocations : int
        Runs of pages on one place: how many pieces such an array is mapped from.
    local_fraction : float
        Which fraction of the bytes lies in a page of the place that they belong to.
    halo_nbytes : int
        Bytes that all parts together copy from their neighbours, in each step.
    halo_copies : int
        How many copies that are.
    is_exact : bool
        Whether pages were counted, or a sample of them was.

    Examples
    --------
    >>> found = stf.partition("blocked").evaluate(1 << 20, "float64", 2)
    >>> found.nbytes, found.pages, found.allocations, found.local_fraction
    ((4194304, 4194304), (2, 2), 2, 1.0)
    """

    nbytes: tuple[int, ...]
    pages: tuple[int, ...]
    allocations: int
    local_fraction: float
    halo_nbytes: int
    halo_copies: int
    is_exact: bool


def evaluate(
    partition: Any, shape: Any, dtype: Any, grid: Any, halo: Any = 0, halo_mode: str = "none", page: int = PAGE
) -> Evaluation:
    """Evaluate any partition, a user's own too; see `StructuredPartition.evaluate`."""
    extents, dims = as_dims(shape), as_dims(getattr(grid, "dims", grid))
    itemsize = int(dtype_of(dtype).itemsize)
    known = check_partition(partition)
    parts = [part_of(known, extents, where, dims) for where in positions_of(dims)]
    widths, mode = as_halo(halo, len(extents)), check_mode(halo_mode)
    edges = []
    if any(widths):
        check_parts(parts, extents, widths, f"shape {extents}")
        edges = [edge for k in range(len(parts)) for edge in edges_of(parts, k, extents, widths, mode)]
    nbytes = tuple(part.size * itemsize for part in parts)
    counts, is_exact = pages_of(parts, extents, itemsize, page)
    owners = counts.argmax(axis=0)
    whole = int(counts.sum())
    weight = 1 if is_exact or not counts.shape[1] else -(-math.prod(extents) * itemsize // page) / counts.shape[1]
    return Evaluation(
        nbytes,
        tuple(round(n * weight) for n in np.bincount(owners, minlength=len(parts)).tolist()),
        int((np.diff(owners) != 0).sum()) + 1 if len(owners) else 0,
        float(counts.max(axis=0).sum() / whole) if whole else 1.0,
        sum(math.prod(edge.shape) * itemsize for edge in edges),
        len(edges),
        is_exact,
    )


def runs_of_pages(
    parts: list[Part], shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> list[tuple[int, int, int]] | None:
    """Return (first page, count, part) of each run of pages of an array without gaps that belong to one part.

    A page belongs to the part with most of its bytes. None if the parts have too many runs to be counted.
    """
    nesting = sorted(range(len(shape)), key=lambda axis: (-abs(strides[axis]), axis))
    turned = [Part(part[axis] for axis in nesting) for part in parts]
    counts, is_exact = pages_of(turned, tuple(shape[axis] for axis in nesting), itemsize, PAGE)
    if not is_exact:
        return None
    owners = counts.argmax(axis=0)
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    lengths = np.diff(starts, append=len(owners))
    return list(zip(starts.tolist(), lengths.tolist(), owners[starts].tolist(), strict=True))


def pages_of(parts: list[Part], shape: tuple[int, ...], itemsize: int, page: int) -> tuple[Any, bool]:
    """Return how many bytes of each part lie in each page, and whether these are all pages."""
    borders = np.arange(-(-math.prod(shape) * itemsize // page) + 1, dtype=np.int64) * page
    found = np.zeros((len(parts), len(borders) - 1), np.int64)
    axis = innermost(parts, shape)
    if max((count_of_runs(part, axis) for part in parts), default=0) > MOST_RUNS:
        chosen = np.unique(np.linspace(0, len(borders) - 2, SAMPLES, dtype=np.int64))
        return np.stack([sampled(part, shape, itemsize, page, chosen) for part in parts]), False
    for number, part in enumerate(parts):
        found[number] = bytes_between(borders, *runs_of(part, shape, itemsize, axis))
    return found, True


def innermost(parts: list[Part], shape: tuple[int, ...]) -> int:
    """Return the last axis that some part does not have as a whole."""
    divided = [k for k, extent in enumerate(shape) if any(part.size and len(part[k]) < extent for part in parts)]
    return max(divided, default=0)


def pieces_along(axis: Any) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of each contiguous piece of an axis of a part."""
    for along in [axis] if isinstance(axis, range) else axis.ranges():
        if along.step == 1:
            yield along.start, along.stop
        else:
            yield from ((i, i + 1) for i in along)


def count_of_runs(part: Part, axis: int) -> int:
    """Return about how many contiguous runs of elements a part has."""
    if not part.size:
        return 0
    last = part[axis]
    along = (1 if last.step == 1 else len(last)) if isinstance(last, range) else len(last) // last.tile + 1
    return math.prod(len(outer) for outer in part[:axis]) * along


def runs_of(part: Part, shape: tuple[int, ...], itemsize: int, axis: int) -> tuple[Any, Any]:
    """Return the first byte of each contiguous run of a part, and the one past its last, in the order of addresses."""
    if not part.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    unit = math.prod(shape[axis + 1 :]) * itemsize
    rows = np.zeros(1, np.int64)
    for extent, along in zip(shape[:axis], part[:axis], strict=True):
        rows = (rows[:, None] * extent + np.fromiter(along, np.int64, len(along))).ravel()
    pieces = np.array(list(pieces_along(part[axis])), np.int64).reshape(-1, 2)
    starts, stops = ((rows[:, None] * shape[axis] + pieces[:, k]).ravel() * unit for k in (0, 1))
    return starts, stops


def bytes_between(borders: Any, starts: Any, stops: Any) -> Any:
    """Return how many bytes of some runs lie between each border and the next."""
    total = np.concatenate(([0], np.cumsum(stops - starts)))
    before = np.searchsorted(starts, borders, "left")
    over = np.where(before > 0, stops[before - 1] - borders if len(stops) else 0, 0)
    return np.diff(total[before] - np.maximum(over, 0))


def sampled(part: Part, shape: tuple[int, ...], itemsize: int, page: int, chosen: Any) -> Any:
    """Return how many bytes of a part lie in each of some pages, by a look at their elements."""
    masks = []
    for extent, along in zip(shape, part, strict=True):
        mask = np.zeros(extent, bool)
        mask[np.fromiter(along, np.int64, len(along))] = True
        masks.append(mask)
    found = np.zeros(len(chosen), np.int64)
    for k, number in enumerate(chosen.tolist()):
        first, last = number * page // itemsize, min((number + 1) * page // itemsize, math.prod(shape))
        where = np.unravel_index(np.arange(first, last), shape)
        found[k] = np.logical_and.reduce([m[w] for m, w in zip(masks, where, strict=True)]).sum() * itemsize
    return found
