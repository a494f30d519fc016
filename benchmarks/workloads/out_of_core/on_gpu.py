"""The factorizations on a GPU, by CuPy, with memory for a part of their data, which begin and end in pinned host memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from orders import ORDERS, Result, Tiles, model, moved

import stf

COPIES = 16  # of a tile, by which the bus is measured


class Matrix:
    """A matrix of n by n tiles in pinned memory, and its content."""

    def __init__(self, n: int, tile: int) -> None:
        import cupyx

        self.n, self.tile = n, tile
        generator = np.random.default_rng(0)
        self.tiles = {(i, j): cupyx.empty_pinned((tile, tile)) for i in range(n) for j in range(i + 1)}
        self.content = {at: generator.random((tile, tile)) for at in self.tiles}
        for i in range(n):
            self.content[i, i] = self.content[i, i] + self.content[i, i].T + 2 * n * tile * np.eye(tile)

    @property
    def nbytes(self) -> int:
        """Bytes of all tiles."""
        return sum(tile.nbytes for tile in self.tiles.values())

    def reset(self) -> None:
        """Let the tiles have the matrix again."""
        for at, tile in self.tiles.items():
            tile[...] = self.content[at]

    def residual(self) -> float:
        """Return how far L L^T v is from A v, over A v, for some vector v."""
        v = np.random.default_rng(1).random((self.n, self.tile))
        expected, across, found = np.zeros_like(v), np.zeros_like(v), np.zeros_like(v)
        for (i, j), a in self.content.items():
            expected[i] += a @ v[j]
            expected[j] += a.T @ v[i] if i > j else 0
        factor = {at: np.tril(a) if at[0] == at[1] else a for at, a in self.tiles.items()}
        for (i, j), a in factor.items():
            across[j] += a.T @ v[i]
        for (i, j), a in factor.items():
            found[i] += a @ across[j]
        return float(np.abs(found - expected).max() / np.abs(expected).max())


def bandwidth(matrix: Matrix) -> float:
    """Return how many bytes a second go from pinned memory to the GPU."""
    import cupy

    source, target = matrix.tiles[0, 0], cupy.empty((matrix.tile, matrix.tile))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for count in (1, COPIES):
            start = time.perf_counter()
            for _ in range(count):
                target.set(source, stream)
            stream.synchronize()
    return COPIES * source.nbytes / (time.perf_counter() - start)


def factor(ctx: Any, matrix: Matrix, order: str, fits: bool = False) -> float:
    """Return the seconds of a factorization; where it `fits`, without the way there and back."""
    a: Tiles = {at: ctx.logical_data(tile, name=str(at)) for at, tile in matrix.tiles.items()}
    if fits:
        for data in a.values():
            ctx.prefetch(data, stf.data_place.device(0))
        ctx.synchronize()
    start = time.perf_counter()
    ORDERS[order](a, matrix.n)
    if fits:
        ctx.synchronize()
        return time.perf_counter() - start
    ctx.finalize()
    return time.perf_counter() - start


def measured(matrix: Matrix, order: str, part: float) -> Iterator[Result]:
    """Yield the result of eviction by last use, and of that by next use."""
    limit = int(part * matrix.nbytes)

    def program() -> None:
        with stf.context(memory_limit=limit) as ctx:
            factor(ctx, matrix, order)

    for _ in range(2):  # once for what is compiled and allocated
        matrix.reset()
        with stf.context(devices="cuda:0") as ctx:
            work = factor(ctx, matrix, order, True)
    bus = bandwidth(matrix)
    for plan in (None, stf.plan(program, devices="1xH200", model=model())):
        best = None
        for _ in range(2):
            matrix.reset()
            with stf.context(devices="cuda:0", memory_limit=limit, plan=plan) as ctx:
                seconds = factor(ctx, matrix, order)
            assert (error := matrix.residual()) < 1e-12, error
            best = min(best or seconds, seconds)
            inward, outward = moved(ctx.statistics().copied_bytes)
        yield Result(inward / matrix.nbytes, outward / matrix.nbytes, best, max(work, max(inward, outward) / bus))
