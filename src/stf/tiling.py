"""Tiles: logical data cut into pieces that share its home memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stf.options import is_integer


def split(parent: Any, shape: int | Sequence[int]) -> Any:
    """Cut `parent` into tiles of `shape`; see `LogicalData.tiles`."""
    if parent.is_token:
        raise TypeError("a token has no tiles; use several tokens")
    extents = tile_extents(parent, shape)
    counts = [-(-n // b) for n, b in zip(parent.shape, extents, strict=True)]
    home = parent.context.begin_split(parent)
    tiles = np.empty(counts, object)
    for index in itertools.product(*(range(c) for c in counts)):
        start = [i * b for i, b in zip(index, extents, strict=True)]
        size = [min(b, n - s) for b, n, s in zip(extents, parent.shape, start, strict=True)]
        offset = sum(s * step for s, step in zip(start, home.layout.strides, strict=True))
        name = f"{parent.name or f'data{parent.core.id}'}[{','.join(map(str, index))}]"
        tiles[index] = parent.context.make_tile(parent, home, offset, tuple(size), name)
    return tiles


def tile_extents(parent: Any, shape: int | Sequence[int]) -> tuple[int, ...]:
    """The extents of a tile, one per axis of `parent`."""
    items: Any = shape if isinstance(shape, Iterable) and not isinstance(shape, str) else (shape,)
    items = tuple(items)
    whole = f"{parent!r} has {parent.ndim} axes, and tiles() takes one positive integer for each"
    if not all(is_integer(b) for b in items):
        raise TypeError(f"{whole}, got {shape!r}")
    extents = tuple(int(b) for b in items)
    if len(extents) != parent.ndim:
        raise ValueError(f"{whole}, got {len(extents)}: {extents}")
    if any(b < 1 for b in extents):
        raise ValueError(f"{whole}, got {extents}; an axis that is not cut has its own extent: {parent.shape}")
    return extents
