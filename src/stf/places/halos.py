"""Halos: which elements of its neighbours a part reads, and where these lie in the padded array."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from stf._support.arguments import is_integer
from stf.places.partition import Part

__all__ = ["Edge", "Margins", "as_halo", "edges_of", "margins_of"]

MODES = ("none", "periodic")


class Edge(NamedTuple):
    """A box of a neighbour that goes into the margin of a part.

    Attributes
    ----------
    owner : int
        The number of the neighbour.
    shape : tuple of int
        Extents of the box.
    source : tuple of int
        Its first element, counted in the neighbour's part.
    target : tuple of int
        Its first element, counted in the padded array.
    """

    owner: int
    shape: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]


class Margins(NamedTuple):
    """How many elements a padded array has before and after its part, along each axis."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def as_halo(halo: Any, ndim: int) -> tuple[int, ...]:
    """Turn a width, or one for each axis, into a tuple.

    A single width is that of every axis; the axes that are not divided have no neighbours, and so no margin.
    """
    items = tuple(halo) if isinstance(halo, (tuple, list)) else (halo,) * ndim
    if not all(map(is_integer, items)):
        raise TypeError(f"halo= is an integer, or one for each axis, got {halo!r}")
    if len(items) != ndim:
        raise ValueError(f"halo= is an integer, or one for each of {ndim} axes, got {halo!r}")
    if min(items, default=0) < 0:
        raise ValueError(f"halo= is not negative, got {halo!r}")
    return tuple(int(n) for n in items)


def check_mode(mode: Any) -> str:
    """Raise ValueError for what is no halo mode."""
    if mode not in MODES:
        raise ValueError(f'halo_mode= is "none" or "periodic", got {mode!r}')
    return str(mode)


def check_parts(parts: Sequence[Part], shape: tuple[int, ...], widths: tuple[int, ...], what: str) -> None:
    """Raise ValueError unless each part is a block that is as wide as the halo, along the axes that are divided."""
    for number, part in enumerate(parts):
        for axis, (along, width) in enumerate(zip(part, widths, strict=True)):
            if not isinstance(along, range) or along.step != 1:
                raise ValueError(
                    f"a halo needs blocks, and part {number} of {what} is {along!r} along axis {axis}; "
                    'partition that axis by "blocked"'
                )
            if len(along) < shape[axis] and len(along) < width:
                fits = shape[axis] // width
                raise ValueError(
                    f"part {number} of {what} has {len(along)} rows along axis {axis}, and a halo of {width} needs as "
                    f"many; a grid of at most {fits} places along that axis would do"
                )


def margins_of(part: Part, shape: tuple[int, ...], widths: tuple[int, ...], mode: str) -> Margins:
    """Return how many elements of neighbours lie before and after a part, along each axis."""
    before, after = [], []
    for along, extent, width in zip(part, shape, widths, strict=True):
        is_divided = len(along) < extent
        wraps = mode == "periodic" and extent > 0
        before.append(width if wraps or (is_divided and along.start > 0) else 0)
        after.append(width if wraps or (is_divided and along.stop < extent) else 0)
    return Margins(tuple(before), tuple(after))


def edges_of(
    parts: Sequence[Part], number: int, shape: tuple[int, ...], widths: tuple[int, ...], mode: str
) -> list[Edge]:
    """Return the boxes that fill the margins of a part, corners among them."""
    mine = parts[number]
    margins = margins_of(mine, shape, widths, mode)
    lows = [along.start - n for along, n in zip(mine, margins.before, strict=True)]
    highs = [along.stop + n for along, n in zip(mine, margins.after, strict=True)]
    turns = [(-1, 0, 1) if mode == "periodic" and (b or a) else (0,) for b, a in zip(*margins, strict=True)]
    found = []
    for shift in itertools.product(*turns):
        for owner, part in enumerate(parts):
            if owner == number and not any(shift):
                continue
            box = []
            for low, high, along, turn, extent in zip(lows, highs, part, shift, shape, strict=True):
                start, stop = max(low, along.start + turn * extent), min(high, along.stop + turn * extent)
                box.append((start, stop - start, start - turn * extent - along.start, start - low))
            if all(size > 0 for _, size, _, _ in box):
                found.append(Edge(owner, tuple(b[1] for b in box), tuple(b[2] for b in box), tuple(b[3] for b in box)))
    return found
