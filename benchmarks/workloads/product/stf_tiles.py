"""The product of two matrices by tiles; nothing says where."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import stf


@stf.task
def multiply(a: stf.Read, b: stf.Read, c: stf.Write) -> None:
    c[...] = a @ b


@stf.task
def multiply_add(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c += a @ b


def program(ctx: stf.Context, a: np.ndarray, b: np.ndarray, c: np.ndarray, tile: int) -> Any:
    """Let C be A B; return its data."""
    x, y, z = (ctx.logical_data(item, name=name).tiles((tile, tile)) for item, name in ((a, "A"), (b, "B"), (c, "C")))
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            multiply(x[i, 0], y[0, j], z[i, j])
            for k in range(1, x.shape[1]):
                multiply_add(x[i, k], y[k, j], z[i, j])
    return z


def run(devices: str, a: np.ndarray, b: np.ndarray, tile: int) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, with the way there and back, and the product."""
    c = np.zeros((a.shape[0], b.shape[1]))
    with stf.context(devices=devices, place="auto") as ctx:
        begin = time.perf_counter()
        program(ctx, a, b, c, tile)
        ctx.finalize()
        return time.perf_counter() - begin, c
