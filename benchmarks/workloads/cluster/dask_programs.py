"""The same by `dask.delayed`, and by `dask.array`."""

from __future__ import annotations

import time
from typing import Any

import dask
import dask.array as da
import kernels
import numpy as np


def cholesky_delayed(client: Any, A: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Seconds, and the lower factor."""
    potrf, trsm, update = (dask.delayed(fn, pure=False) for fn in (kernels.potrf, kernels.trsm, kernels.update))
    count = len(A) // tile
    client.gather(client.compute([potrf(np.eye(2)) for _ in range(8)]))
    parts = kernels.tiles_of(A, tile)
    start = time.perf_counter()
    tiles: dict[Any, Any] = {key: dask.delayed(part) for key, part in parts.items()}
    for k in range(count):
        tiles[k, k] = potrf(tiles[k, k])
        for i in range(k + 1, count):
            tiles[i, k] = trsm(tiles[k, k], tiles[i, k])
        for i in range(k + 1, count):
            for j in range(k + 1, i + 1):
                tiles[i, j] = update(tiles[i, k], tiles[j, k], tiles[i, j])
    found = dict(zip(tiles, client.gather(client.compute(list(tiles.values()))), strict=True))
    return time.perf_counter() - start, kernels.whole(found, tile, count)


def cholesky_array(client: Any, A: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Seconds, and the lower factor."""
    start = time.perf_counter()
    found = da.linalg.cholesky(da.from_array(A, chunks=(tile, tile)), lower=True).compute(scheduler=client)
    return time.perf_counter() - start, found


def kmeans_delayed(client: Any, blocks: list[np.ndarray], first: np.ndarray, rounds: int) -> tuple[float, np.ndarray]:
    """Seconds of all rounds but the first three, and the centers."""
    data = client.scatter(blocks)
    centers: Any = client.scatter(first)
    start = 0.0
    for round in range(rounds):
        if round == 3:
            client.gather(centers)
            start = time.perf_counter()
        sums = [client.submit(kernels.sums_of, block, centers, pure=False) for block in data]
        centers = client.submit(kernels.centers_of, sums, pure=False)
    found = client.gather(centers)
    return time.perf_counter() - start, found


def kmeans_array(client: Any, blocks: list[np.ndarray], first: np.ndarray, rounds: int) -> tuple[float, np.ndarray]:
    """Seconds of all rounds but the first three, and the centers."""
    points = client.persist(da.concatenate([da.from_array(block, chunks=block.shape) for block in blocks]))
    centers, count = first, len(blocks)
    start = 0.0
    shape = (len(first), first.shape[1] + 1)
    for round in range(rounds):
        if round == 3:
            start = time.perf_counter()
        sums = points.map_blocks(kernels.sums_of, centers, chunks=shape, dtype=float)
        centers = kernels.centers_of(sums.compute(scheduler=client).reshape(count, *shape))
    return time.perf_counter() - start, centers
