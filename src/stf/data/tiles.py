"""Tiles: logical data cut into pieces that share its home memory."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, SupportsIndex, TypeVar, overload

import numpy as np

from stf._engine import recording_caches, retiring
from stf._engine import tiles as engine_tiles
from stf._engine.access import check_mine, shared
from stf._port.replicas import Layout
from stf._support.arguments import is_integer
from stf._support.many_objects import many_objects

_Tile = TypeVar("_Tile")
_Row = TypeVar("_Row")
MANY = 1000  # tiles


def split(parent: Any, shape: int | Sequence[int]) -> Any:
    """Cut `parent` into tiles of `shape`; see `LogicalData.tiles`."""
    if parent.is_token:
        raise TypeError("a token has no tiles; use several tokens")
    extents = tile_extents(parent, shape)
    counts = [-(-n // b) for n, b in zip(parent.shape, extents, strict=True)]
    engine, core = parent.context.engine, parent.core
    check_mine(engine, parent)
    if shared[0] and core.span is not None:  # tiles stay read-only, or writeable
        core.span.book.must_be_alone(core)
    recording_caches.give_up_recordings(engine, core)
    home = engine.patiently(retiring.split, core)
    tiles = np.empty(counts, object).view(Tiles)
    with many_objects() if tiles.size >= MANY else contextlib.nullcontext():
        names = names_of_tiles(parent.name or f"data{core.id}", counts)
        steps = [b * step for b, step in zip(extents, home.layout.strides, strict=True)]
        offsets = outer_sum([np.arange(n) * step for n, step in zip(counts, steps, strict=True)])
        layouts = layouts_of_tiles(parent.shape, extents, counts, home.layout)
        flat = tiles.view(np.ndarray).reshape(-1)
        made = engine.patiently(engine_tiles.cut_all, core, home, type(parent), names, layouts, offsets)
        for i, tile in enumerate(made):
            flat[i] = tile
    return tiles


class Tiles(Generic[_Tile, _Row], np.ndarray[Any, Any]):
    """An array of tiles; also a with-block, at whose end they are released, so that the data are whole again.

    An index for each axis gives a `_Tile`. One index gives a `_Row`: a tile where there is one axis, else the tiles of
    a row.
    """

    if TYPE_CHECKING:  # a method in Python would make each index slower

        @overload  # type: ignore[override]
        def __getitem__(self, index: SupportsIndex) -> _Row: ...
        @overload
        def __getitem__(self, index: tuple[SupportsIndex, ...]) -> _Tile: ...
        @overload
        def __getitem__(self, index: slice) -> Tiles[_Tile, _Row]: ...
        @overload
        def __getitem__(self, index: Any) -> Any: ...
        def __getitem__(self, index: Any) -> Any: ...

        def __iter__(self) -> Iterator[_Row]: ...  # type: ignore[override]
        def ravel(self, order: Any = "C") -> Tiles[_Tile, _Tile]: ...  # type: ignore[override]
        @property
        def flat(self) -> Tiles[_Tile, _Tile]: ...  # type: ignore[override]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"an array of tiles has no '{name}'; take one tile, such as tiles{[0] * self.ndim}, or go through "
            "tiles.ravel()"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for tile in self.view(np.ndarray).ravel():
            if tile is not None:
                tile.release()


def names_of_tiles(whole: str, counts: Sequence[int]) -> list[str]:
    """``A[0,0]``, ``A[0,1]`` and so on, in C order."""
    numbers = [[str(i) for i in range(n)] for n in counts]
    return [f"{whole}[{','.join(index)}]" for index in itertools.product(*numbers)]


def layouts_of_tiles(
    shape: Sequence[int], extents: Sequence[int], counts: Sequence[int], whole: Layout
) -> list[Layout]:
    """Return how each tile lies in memory, in C order: those of one shape share the object."""
    bits = [(np.arange(n) == n - 1) << axis for axis, n in enumerate(counts)]  # which may be smaller
    known: dict[int, Layout] = {}
    codes = outer_sum(bits)
    for code in set(codes):
        size = tuple(
            n - (k - 1) * b if code >> axis & 1 else b
            for axis, (n, k, b) in enumerate(zip(shape, counts, extents, strict=True))
        )
        known[code] = Layout(size, whole.strides, whole.dtype, whole.itemsize, library=whole.library)
    return [known[code] for code in codes]


def outer_sum(terms: list[Any]) -> list[int]:
    """Return the sums of one number of each array, in C order."""
    return functools.reduce(np.add.outer, terms, np.zeros((), np.int64)).ravel().tolist()


def tile_extents(parent: Any, shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the extents of a tile, one per axis of `parent`."""
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
