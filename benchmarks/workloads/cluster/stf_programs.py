"""Cholesky in tiles, and k-means on blocks, on the devices of a context."""

from __future__ import annotations

import time
from typing import Any

import kernels
import numpy as np

import stf


@stf.task
def potrf(a: stf.ReadWrite) -> None:
    a[...] = kernels.potrf(a)


@stf.task
def trsm(diagonal: stf.Read, a: stf.ReadWrite) -> None:
    a[...] = kernels.trsm(diagonal, a)


@stf.task
def update(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ b.T


def cholesky(devices: Any, A: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Seconds, and the lower factor."""
    count = len(A) // tile
    with stf.context(devices=devices) as ctx:
        warm = ctx.logical_data(np.eye(2))
        for place in range(len(ctx.devices)):
            potrf.on(place)(warm)
        ctx.synchronize()
        parts = kernels.tiles_of(A, tile)
        start = time.perf_counter()
        tiles = {key: ctx.logical_data(part) for key, part in parts.items()}
        for k in range(count):
            potrf(tiles[k, k])
            for i in range(k + 1, count):
                trsm(tiles[k, k], tiles[i, k])
            for i in range(k + 1, count):
                for j in range(k + 1, i + 1):
                    update(tiles[i, k], tiles[j, k], tiles[i, j])
        for data in tiles.values():
            data.numpy()
        seconds = time.perf_counter() - start
        found = {key: data.numpy().copy() for key, data in tiles.items()}
    return seconds, kernels.whole(found, tile, count)


@stf.task
def assign(points: stf.Read, centers: stf.Read, sums: stf.Write) -> None:
    sums[...] = kernels.sums_of(points, centers)


@stf.task
def move(centers: stf.Write, *sums: stf.Read) -> None:
    centers[...] = kernels.centers_of(sums)


@stf.replay
def iterate(blocks: Any, centers: Any, sums: Any, workers: int) -> None:
    for i, (block, part) in enumerate(zip(blocks, sums, strict=True)):
        assign.on(i % workers)(block, centers, part)
    move.on(0)(centers, *sums)


def kmeans(devices: Any, blocks: list[np.ndarray], first: np.ndarray, rounds: int) -> tuple[float, np.ndarray]:
    """Seconds of all rounds but the first three, and the centers."""
    with stf.context(devices=devices) as ctx:
        data = [ctx.logical_data(block) for block in blocks]
        centers = ctx.logical_data(first.copy())
        sums = [ctx.logical_data_empty((len(first), first.shape[1] + 1)) for _ in blocks]
        workers = len(ctx.devices)
        for _ in range(3):
            iterate(data, centers, sums, workers)
        ctx.synchronize()
        start = time.perf_counter()
        for _ in range(rounds - 3):
            iterate(data, centers, sums, workers)
        found = centers.numpy().copy()
        return time.perf_counter() - start, found
