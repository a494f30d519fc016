"""Conjugate gradient on rows of a sparse matrix: each device has some, and reads p at the columns of its neighbours.

The scalars stay on the devices, as data. The host reads nothing before the end, so it submits all steps at once.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np
from matrix import Csr, poisson

import stf

OPTIONS = {"place": "auto", "placement": stf.placement.owner()}
Sum = stf.Accumulate[stf.reducer.sum]


@stf.task
def multiply(values: stf.Read, columns: stf.Read, starts: stf.Read, p: stf.Read, q: stf.Write) -> None:
    library = "scipy.sparse" if isinstance(values, np.ndarray) else "cupyx.scipy.sparse"
    rows = importlib.import_module(library).csr_matrix((values, columns, starts), (q.size, p.size))
    q[...] = rows @ p


@stf.task
def dot(x: stf.Read, y: stf.Read, total: Sum) -> None:
    total += x @ y


@stf.task
def clear(total: stf.Write) -> None:
    total[...] = 0.0


@stf.task
def advance(rr: stf.Read, pq: stf.Read, x: stf.ReadWrite, r: stf.ReadWrite, p: stf.Read, q: stf.Read) -> None:
    alpha = rr / pq
    x += alpha * p
    r -= alpha * q


@stf.task
def turn(new: stf.Read, old: stf.Read, p: stf.ReadWrite, r: stf.Read) -> None:
    p *= new / old
    p += r


def program(ctx: stf.Context, n: int, b: np.ndarray, steps: int) -> Any:
    """Return the solution after so many steps, as data."""
    matrix = poisson(n)
    place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
    x, r, p, q = (
        ctx.logical_data(start, data_place=place, name=name)
        for start, name in ((np.zeros(n * n), "x"), (b.copy(), "r"), (b.copy(), "p"), (np.zeros(n * n), "q"))
    )
    new, old, pq = (ctx.logical_data_empty((), np.float64, name=name) for name in ("new", "old", "pq"))
    blocks = [rows_of(ctx, matrix, part, n) for part in p.parts]
    clear(new)
    for part in r.parts:
        dot(part, part, new)
    for _ in range(steps):
        clear(pq)
        for rows, mine, out in zip(blocks, p.parts, q.parts, strict=True):
            multiply(*rows, mine.read(halo=n), out)
            dot(mine, out, pq)
        for some in zip(x.parts, r.parts, p.parts, q.parts, strict=True):
            advance(new, pq, *some)
        new, old = old, new
        clear(new)
        for part in r.parts:
            dot(part, part, new)
        for mine, rest in zip(p.parts, r.parts, strict=True):
            turn(new, old, mine, rest)
    return x


def rows_of(ctx: stf.Context, matrix: Csr, part: Any, n: int) -> list[Any]:
    """Return the rows of a part as data; their columns count from the first element that its halo has."""
    (owned,) = part.region
    rows = matrix.rows(owned.start, owned.stop, max(owned.start - n, 0))
    return [ctx.logical_data(item) for item in rows]


def run(devices: str, n: int, b: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, with the way there, and the solution."""
    with stf.context(devices=devices, **OPTIONS) as ctx:
        begin = time.perf_counter()
        x = program(ctx, n, b, steps)
        ctx.synchronize()
        return time.perf_counter() - begin, x.numpy()
