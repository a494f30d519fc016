"""The product of two matrices by tiles; nothing says where."""

from __future__ import annotations

from typing import Any

import contest
import numpy as np

import stf


@stf.task
def multiply(a: stf.Read, b: stf.Read, c: stf.Write) -> None:
    c[...] = a @ b


@stf.task
def multiply_add(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c += a @ b


def tiles_of(ctx: stf.Context, tile: int, **arrays: np.ndarray) -> list[Any]:
    """Return matrices as tiles."""
    return [ctx.logical_data(array, name=name).tiles((tile, tile)) for name, array in arrays.items()]


def multiply_all(x: Any, y: Any, z: Any) -> None:
    """Let z be x y."""
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            multiply(x[i, 0], y[0, j], z[i, j])
            for k in range(1, x.shape[1]):
                multiply_add(x[i, k], y[k, j], z[i, j])


def program(ctx: stf.Context, a: np.ndarray, b: np.ndarray, c: np.ndarray, tile: int) -> None:
    """Let C be A B."""
    multiply_all(*tiles_of(ctx, tile, A=a, B=b, C=c))


def run(devices: str, a: np.ndarray, b: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, the tiles being on the devices in turn at first, and the product."""
    c = np.zeros((a.shape[0], b.shape[1]))
    with stf.context(devices=devices, place="auto") as ctx:
        x, y, z = tiles_of(ctx, tile, A=a, B=b, C=c)
        for item in (x, y):
            for (i, j), known in np.ndenumerate(item):
                ctx.prefetch(known, ctx.devices[(i + j) % len(ctx.devices)].affine_data_place)
        with contest.timed(ctx.synchronize) as taken:
            multiply_all(x, y, z)
    return taken.seconds, c
