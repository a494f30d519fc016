"""The same by plain Ray tasks."""

from __future__ import annotations

import time

import kernels
import numpy as np
import ray


def cholesky(A: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Seconds, and the lower factor."""
    potrf, trsm, update = (ray.remote(fn) for fn in (kernels.potrf, kernels.trsm, kernels.update))
    count = len(A) // tile
    ray.get([potrf.remote(np.eye(2)) for _ in range(8)])
    parts = kernels.tiles_of(A, tile)
    start = time.perf_counter()
    tiles = {key: ray.put(part) for key, part in parts.items()}
    for k in range(count):
        tiles[k, k] = potrf.remote(tiles[k, k])
        for i in range(k + 1, count):
            tiles[i, k] = trsm.remote(tiles[k, k], tiles[i, k])
        for i in range(k + 1, count):
            for j in range(k + 1, i + 1):
                tiles[i, j] = update.remote(tiles[i, k], tiles[j, k], tiles[i, j])
    found = dict(zip(tiles, ray.get(list(tiles.values())), strict=True))
    return time.perf_counter() - start, kernels.whole(found, tile, count)


def kmeans(blocks: list[np.ndarray], first: np.ndarray, rounds: int) -> tuple[float, np.ndarray]:
    """Seconds of all rounds but the first three, and the centers."""
    sums_of = ray.remote(kernels.sums_of)
    centers_of = ray.remote(lambda *sums: kernels.centers_of(sums))
    data, centers = [ray.put(block) for block in blocks], ray.put(first)
    start = 0.0
    for round in range(rounds):
        if round == 3:
            ray.get(centers)
            start = time.perf_counter()
        centers = centers_of.remote(*[sums_of.remote(block, centers) for block in data])
    found = ray.get(centers)
    return time.perf_counter() - start, found
