"""Tiles: logical data cut into pieces that share its home memory."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from stf._port.replicas import Layout
from stf._support.arguments import is_integer

MANY = 1000  # tiles


def split(parent: Any, shape: int | Sequence[int]) -> Any:
    """Cut `parent` into tiles of `shape`; see `LogicalData.tiles`."""
    if parent.is_token:
        raise TypeError("a token has no tiles; use several tokens")
    extents = tile_extents(parent, shape)
    counts = [-(-n // b) for n, b in zip(parent.shape, extents, strict=True)]
    home = parent.context.begin_split(parent)
    tiles = np.empty(counts, object)
    with without_collections(tiles.size):
        names = names_of_tiles(parent.name or f"data{parent.core.id}", counts)
        steps = [b * step for b, step in zip(extents, home.layout.strides, strict=True)]
        offsets = outer_sum([np.arange(n) * step for n, step in zip(counts, steps, strict=True)])
        layouts = layouts_of_tiles(parent.shape, extents, counts, home.layout)
        flat = tiles.reshape(-1)
        for i, tile in enumerate(parent.context.make_tiles(parent, home, names, layouts, offsets)):
            flat[i] = tile
    return tiles


@contextlib.contextmanager
def without_collections(count: int) -> Iterator[None]:
    """Make many objects that all live: each collection meanwhile would look at all of them, and find nothing."""
    pause = count >= MANY and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def names_of_tiles(whole: str, counts: Sequence[int]) -> list[str]:
    """``A[0,0]``, ``A[0,1]`` and so on, in C order."""
    numbers = [[str(i) for i in range(n)] for n in counts]
    return [f"{whole}[{','.join(index)}]" for index in itertools.product(*numbers)]


def layouts_of_tiles(
    shape: Sequence[int], extents: Sequence[int], counts: Sequence[int], whole: Layout
) -> list[Layout]:
    """How each tile lies in memory, in C order: those of one shape share the object."""
    bits = [(np.arange(n) == n - 1) << axis for axis, n in enumerate(counts)]  # which may be smaller
    known: dict[int, Layout] = {}
    codes = outer_sum(bits)
    for code in set(codes):
        size = tuple(
            n - (k - 1) * b if code >> axis & 1 else b
            for axis, (n, k, b) in enumerate(zip(shape, counts, extents, strict=True))
        )
        known[code] = Layout(size, whole.strides, whole.dtype, whole.itemsize)
    return [known[code] for code in codes]


def outer_sum(terms: list[Any]) -> list[int]:
    """The sums of one number of each array, in C order."""
    result: list[int] = functools.reduce(np.add.outer, terms, np.zeros((), np.int64)).ravel().tolist()
    return result


def tile_extents(parent: Any, shape: int | Sequence[int]) -> tuple[int, ...]:
    """The extents of a tile, one per axis of `parent`."""
    items: Any = shape if isinstance(shape, Iterable) and not isinstance(shape, str) else (shape,)
    items = tuple(items)
    whole = f"{parent!r} has {parent.ndim} axes, and tiles() takes one positive integer for each"
    if not all(map(is_integer, items)):
        raise TypeError(f"{whole}, got {shape!r}")
    extents = tuple(map(int, items))
    if len(extents) != parent.ndim:
        raise ValueError(f"{whole}, got {len(extents)}: {extents}")
    if min(extents, default=1) < 1:
        raise ValueError(f"{whole}, got {extents}; an axis that is not cut has its own extent: {parent.shape}")
    return extents
