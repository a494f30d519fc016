"""Cholesky factorizations in three orders on a device that is smaller than their data, as a simulated one is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import stf
from stf._port.links import Link
from stf.observe.durations import Duration

TILE = 2048  # rows and columns of float64: 32 MiB
NBYTES = 8 * TILE * TILE
BUS = 50e9  # bytes per second, each way
WORK_S = {"potrf": 0.55e-3, "trsm": 0.30e-3, "syrk": 0.34e-3, "gemm": 0.34e-3, "make": 0.0}
Tiles = dict[tuple[int, int], Any]


@stf.task
def make(a: stf.Write) -> None:
    a[...] = 1.0


def linalg_of(array: Any) -> tuple[Any, Any]:
    """Return the linear algebra of an array's library, and SciPy's part of it."""
    names = ("numpy", "scipy.linalg") if isinstance(array, np.ndarray) else ("cupy", "cupyx.scipy.linalg")
    library, further = map(importlib.import_module, names)
    return library.linalg, further


@stf.task
def potrf(a: stf.ReadWrite) -> None:
    a[...] = linalg_of(a)[0].cholesky(a)


@stf.task
def trsm(triangle: stf.Read, b: stf.ReadWrite) -> None:
    b[...] = linalg_of(b)[1].solve_triangular(triangle, b.T, lower=True).T


@stf.task
def syrk(a: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ a.T


@stf.task
def gemm(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ b.T


def update(a: Tiles, i: int, k: int, j: int) -> None:
    """Subtract what column k changes of tile (i, j)."""
    if i == j:
        syrk(a[i, k], a[i, i])
    else:
        gemm(a[i, k], a[j, k], a[i, j])


def right_looking(a: Tiles, n: int) -> None:
    """Update the whole rest after each column: every step uses all tiles that are left."""
    for k in range(n):
        potrf(a[k, k])
        for i in range(k + 1, n):
            trsm(a[k, k], a[i, k])
        for i in range(k + 1, n):
            for j in range(k + 1, i + 1):
                update(a, i, k, j)


def left_looking(a: Tiles, n: int) -> None:
    """Update a column just before it is factored: it is written once, and reads what is left of it."""
    for j in range(n):
        for k in range(j):
            update(a, j, k, j)
        potrf(a[j, j])
        for i in range(j + 1, n):
            for k in range(j):
                update(a, i, k, j)
            trsm(a[j, j], a[i, j])


def block_columns(a: Tiles, n: int, width: int = 4) -> None:
    """Do the same for several columns at a time: each tile to the left is read once for all of them."""
    for first in range(0, n, width):
        columns = range(first, min(first + width, n))
        for k in range(first):
            for i in range(first, n):
                for j in columns:
                    if j <= i:
                        update(a, i, k, j)
        for k in columns:
            potrf(a[k, k])
            for i in range(k + 1, n):
                trsm(a[k, k], a[i, k])
            for j in range(k + 1, columns.stop):
                for i in range(j, n):
                    update(a, i, k, j)


ORDERS: dict[str, Callable[[Tiles, int], None]] = {
    "right-looking": right_looking,
    "left-looking": left_looking,
    "block columns of 4": block_columns,
}


class Result(NamedTuple):
    """A factorization: bytes to the device and back in multiples of the data, its time, and the least it could be."""

    inward: float
    outward: float
    seconds: float
    bound_s: float


def model() -> stf.Calibration:
    """Return the times of bodies and links."""
    durations = {
        (name, large, kind): Duration(16, seconds, seconds, seconds)
        for name, seconds in WORK_S.items()
        for large in range(48)  # of the bytes of a task: its time does not depend on them
        for kind in ("H200", "host")
    }
    link = Link(10e-6, BUS)
    return stf.Calibration(durations, {("host", "H200"): link, ("H200", "host"): link})


def work_s(n: int) -> float:
    """Return the work of a factorization of n by n tiles."""
    below = n * (n - 1) // 2
    updates = n * (n - 1) * (n - 2) // 6
    return n * WORK_S["potrf"] + below * (WORK_S["trsm"] + WORK_S["syrk"]) + updates * WORK_S["gemm"]


def planned(order: str, n: int, part: float, plan: stf.Plan | None = None) -> stf.Plan:
    """Return what a factorization does with memory for a part of its data, evicting as a plan says, or by last use."""
    factor = ORDERS[order]

    def program() -> None:
        with stf.context(memory_limit=int(part * n * (n + 1) // 2 * NBYTES), plan=plan) as ctx:
            a = {(i, j): ctx.logical_data_empty((TILE, TILE), name=f"{i},{j}") for i in range(n) for j in range(i + 1)}
            for tile in a.values():
                make.on(stf.exec_place.host())(tile)
            factor(a, n)

    return stf.plan(program, devices="1xH200", model=model())


def result_of(found: stf.Plan, n: int) -> Result:
    """Return traffic and time of a plan."""
    whole = n * (n + 1) // 2 * NBYTES
    inward, outward = moved(found.bytes)
    return Result(inward / whole, outward / whole, found.makespan, max(work_s(n), max(inward, outward) / BUS))


def moved(nbytes: dict[tuple[str, str], int]) -> tuple[int, int]:
    """Return how many bytes went to the device, and back."""
    return nbytes.get(("host", "device(0)"), 0), nbytes.get(("device(0)", "host"), 0)


def measured(order: str, n: int, part: float) -> Iterator[Result]:
    """Yield the result of eviction by last use, and of that by next use."""
    by_last_use = planned(order, n, part)
    yield result_of(by_last_use, n)
    yield result_of(planned(order, n, part, by_last_use), n)
