"""What the tasks of all contenders compute, in NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.linalg

Tiles = dict[tuple[int, int], np.ndarray]


def potrf(a: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(a)


def trsm(diagonal: np.ndarray, a: np.ndarray) -> np.ndarray:
    return scipy.linalg.solve_triangular(diagonal, a.T, lower=True).T


def update(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return c - a @ b.T


def tiles_of(A: np.ndarray, tile: int) -> Tiles:
    """The lower tiles of a matrix, as arrays of their own."""
    count = len(A) // tile
    return {
        (i, j): np.ascontiguousarray(A[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile])
        for i in range(count)
        for j in range(i + 1)
    }


def whole(tiles: Tiles, tile: int, count: int) -> np.ndarray:
    """The lower matrix of tiles."""
    A = np.zeros((count * tile, count * tile))
    for (i, j), part in tiles.items():
        A[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = np.tril(part) if i == j else part
    return A


def sums_of(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """For each center the sum of the points that are next to it, and how many these are."""
    distances = (centers**2).sum(axis=1) - 2 * points @ centers.T
    nearest = distances.argmin(axis=1)
    sums = np.zeros((len(centers), centers.shape[1] + 1))
    for k in range(len(centers)):
        mine = points[nearest == k]
        sums[k, :-1], sums[k, -1] = mine.sum(axis=0), len(mine)
    return sums


def centers_of(sums: Iterable[np.ndarray]) -> np.ndarray:
    """The new centers, of the sums of all blocks."""
    total = sum(sums)
    return total[:, :-1] / np.maximum(total[:, -1:], 1)
