"""Kernels written in Python on a CPU: axpy, a stencil and a sum, beside Numba's `prange` and NumPy.

    python benchmarks/overhead/python_loops.py --check

Each round runs the three of them on the same arrays, in another order each time: a pause, one that warms up its threads,
then five, of which the median counts. `parallel_for` has its wait each time. What is shown is the quickest round of each,
and the median of the rounds' ratios to `prange`. Alone, after other work, it takes longer: its workers wake up first.
In the last row two threads submit at once, in contexts of their own, an axpy of half of the elements each; Numba's default
threads abort a process that does so, and are given one axpy of all.

Budget: 1.1 times `prange`, and quicker than NumPy.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from report import print_table, show_machine

import stf

BUDGET = 1.1
BURST = 5  # runs of one after the other, of which the median counts; the first of them warms up its threads
PAUSE = 0.02  # seconds: the threads of `prange` go on spinning for a while, on cores that the next one needs
alpha = 2.0


@numba.njit(parallel=True)
def axpy_by_prange(a, x, y):
    for i in numba.prange(x.size):
        y[i] += a * x[i]


@numba.njit(parallel=True)
def stencil_by_prange(x, y):
    for i in numba.prange(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@numba.njit(parallel=True)
def dot_by_prange(x, y):
    total = 0.0
    for i in numba.prange(x.size):
        total += x[i] * y[i]
    return total


def axpy(i, x, y):
    y[i] += alpha * x[i]


def stencil(i, j, x, y):
    y[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


def product(i, x, y):
    return x[i] * y[i]


def by_numpy(x, y):
    y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def add_scaled(x, y):
    y += alpha * x


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log2", type=int, default=24, help="of the number of elements")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="fail where a budget is missed")
    options = parser.parse_args()
    show_machine()
    size, side = 1 << options.log2, 1 << options.log2 // 2
    rows, missed = [], 0
    with stf.context(devices="cpu") as ctx:
        for name, ways in programs(ctx, size, side).items():
            ours, prange, numpy, ratio = measured(ways, options.rounds)
            kept = ratio <= BUDGET and ours < numpy
            missed += not kept
            row = [name, f"{1e3 * ours:.2f}", f"{1e3 * prange:.2f}", f"{1e3 * numpy:.2f}", f"{ratio:.2f}"]
            rows.append([*row, "kept" if kept else "missed"])
    print_table(["ms", "parallel_for", "prange", "NumPy", "ratio", "budget"], rows, "lrrrrl", grouped=False)
    return missed if options.check else 0


def programs(ctx: stf.Context, size: int, side: int) -> dict[str, tuple[Callable[[], Any], ...]]:
    """For each row: by `parallel_for`, by `prange`, by NumPy."""
    X, Y = np.random.default_rng(1).random(size), np.ones(size)
    U, V = X[: side * side].reshape(side, side).copy(), np.ones((side, side))
    x, y, u, v = map(ctx.logical_data, (X, Y, U, V))
    s = ctx.logical_data_empty((), float)

    def run(space: Any, body: Any, *accesses: Any) -> None:
        ctx.parallel_for(space, *accesses)(body)
        ctx.synchronize()

    inner = stf.box((1, side - 1), (1, side - 1))
    return {
        "axpy": (
            lambda: run(x.shape, axpy, x.read(), y.rw()),
            lambda: axpy_by_prange(alpha, X, Y),
            lambda: add_scaled(X, Y),
        ),
        "stencil of 5 points": (
            lambda: run(inner, stencil, u.read(), v.rw()),
            lambda: stencil_by_prange(U, V),
            lambda: by_numpy(U, V),
        ),
        "dot": (
            lambda: run(x.shape, product, x.read(), y.read(), s.reduce(stf.reducer.sum)),
            lambda: dot_by_prange(X, Y),
            lambda: np.sum(X * Y),
        ),
        "axpy, from two threads": (
            from_two_threads(X, Y),
            lambda: axpy_by_prange(alpha, X, Y),
            lambda: add_scaled(X, Y),
        ),
    }


def from_two_threads(X: np.ndarray, Y: np.ndarray) -> Callable[[], None]:
    """Two threads, each with a context and half of the elements."""
    pool, half = concurrent.futures.ThreadPoolExecutor(2), X.size // 2
    contexts = [stf.context(devices="cpu") for _ in range(2)]
    halves = (slice(None, half), slice(half, None))
    data = [[c.logical_data(a[h]) for a in (X, Y)] for c, h in zip(contexts, halves, strict=True)]

    def submit(ctx: stf.Context, x: Any, y: Any) -> None:
        ctx.parallel_for(x.shape, x.read(), y.rw())(axpy)
        ctx.synchronize()

    def run() -> None:
        for done in [pool.submit(submit, ctx, *both) for ctx, both in zip(contexts, data, strict=True)]:
            done.result()

    return run


def measured(ways: tuple[Callable[[], Any], ...], rounds: int) -> tuple[float, float, float, float]:
    """The quickest round of each way, and the median of the ratios of the first to the second."""
    for way in ways * 2:
        way()
    times = []
    for number in range(rounds):
        row = [0.0] * len(ways)
        for position in range(len(ways)):
            which = (position + number) % len(ways)
            time.sleep(PAUSE)
            burst = []
            for _ in range(1 + BURST):
                start = time.perf_counter()
                ways[which]()
                burst.append(time.perf_counter() - start)
            row[which] = statistics.median(burst[1:])
        times.append(row)
    ours, prange, numpy = (min(column) for column in zip(*times, strict=True))
    return ours, prange, numpy, statistics.median(row[0] / row[1] for row in times)


if __name__ == "__main__":
    sys.exit(main())
