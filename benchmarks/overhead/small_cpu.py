"""Small work on a CPU: short loops, a hierarchy whose threads wait, observing, and tasks of graphs.

    python benchmarks/overhead/small_cpu.py [ROW ...]

Each row is a program, and a rival beside it: Numba's own call on the same arrays, or the same tasks without what the row
is about. The two run in turn. Times are CPU time of the whole process, least of the rounds, so that other work on the
machine changes them little. The last column is a goal, where there is one.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from report import print_table, show_machine

import stf
from stf import con, par

MICRO, MILLI = 1e6, 1e3
CALLS, TASKS, FEW = 1000, 10_000, 8
alpha = 2.0


class Row(NamedTuple):
    """A program of `count` pieces of work, and its rival.

    Attributes
    ----------
    number : str
    says, rival_says : str
    ours, rival : callable
        Run all pieces once; return what is shown beside the time, or None.
    count : int
    unit : float
        By which seconds are multiplied.
    goal : float
        Of `ours`, or, if `is_added`, of the difference; 0 for none.
    """

    number: str
    says: str
    rival_says: str
    ours: Callable[[], Any]
    rival: Callable[[], Any]
    count: int
    unit: float
    goal: float
    is_added: bool = False


@numba.njit
def axpy_by_numba(a, x, y):
    for i in range(x.size):
        y[i] += a * x[i]


@numba.njit
def sum_by_numba(x):
    total = 0.0
    for i in range(x.size):
        total += x[i]
    return total


@numba.njit(parallel=True)
def reversed_by_prange(x, y, width):
    for group in numba.prange(x.size // width):
        first = group * width
        for i in range(width):
            y[first + i] = 2.0 * x[first + i]
        for i in range(width):
            x[first + i] = y[first + width - 1 - i]


@stf.task
def empty(x: stf.ReadWrite):
    pass


def axpy(i, x, y):
    y[i] += alpha * x[i]


def reverse_groups(th, x, y):
    i = th.rank()
    y[i] = 2.0 * x[i]
    th.sync(1)
    x[i] = y[i - th.rank(1) + th.size(1) - 1 - th.rank(1)]


def double_in_strides(th, x, y):
    for i in range(th.rank(), x.size, th.size()):
        y[i] = 2.0 * x[i]
    th.sync(1)


def loops(ctx: stf.Context) -> list[Row]:
    """Rows of `parallel_for` and `launch`."""
    X, Y, Z, U = np.arange(64.0), np.ones(64), np.arange(1000.0), np.ones(1 << 22)
    V, width = U.copy(), 32
    x, y, z, u, v = map(ctx.logical_data, (X.copy(), Y.copy(), Z, U.copy(), V.copy()))
    s = ctx.logical_data_empty((), float)
    threads = par(U.size // width, con(width))

    def small_loops():
        for _ in range(CALLS):
            ctx.parallel_for(x.shape, x.read(), y.rw())(axpy)
        ctx.synchronize()

    def small_sums():
        for _ in range(CALLS):
            ctx.parallel_for(z.shape, z.read(), s.reduce(stf.reducer.sum))(lambda i, z: z[i])
        ctx.synchronize()

    def sums_alone():
        for _ in range(CALLS):
            ctx.parallel_for(z.shape, z.read(), s.reduce(stf.reducer.sum))(lambda i, z: z[i])
            ctx.synchronize()

    def small_launches():
        for _ in range(FEW):
            ctx.launch(threads, u.rw(), v.write())(reverse_groups)
        ctx.synchronize()

    def strided_launches():
        for _ in range(FEW):
            ctx.launch(par(con(width)), u.rw(), v.write())(double_in_strides)
        ctx.synchronize()

    def axpy_calls():
        for _ in range(CALLS):
            axpy_by_numba(alpha, X, Y)

    def sum_calls():
        for _ in range(CALLS):
            sum_by_numba(Z)

    def prange_calls():
        for _ in range(FEW):
            reversed_by_prange(U, V, width)

    def row(number: str, says: str, ours: Any, by: str, rival: Any, count: int, unit: float, goal: float) -> Row:
        return Row(number, says, by, ours, rival, count, unit, goal)

    total = "a sum of 1,000 elements"
    return [
        row("11", "us, parallel_for of 64 elements", small_loops, "Numba's call", axpy_calls, CALLS, MICRO, 4.0),
        row("12", "ms, launch of 2**22 in groups of 32", small_launches, "prange", prange_calls, FEW, MILLI, 10.0),
        row(
            "12", "ms, the same, each thread a stride apart", strided_launches, "prange", prange_calls, FEW, MILLI, 10.0
        ),
        row("13", f"us, {total}", small_sums, "Numba's call", sum_calls, CALLS, MICRO, 10.0),
        row("13", f"us, {total}, waited for", sums_alone, "Numba's call", sum_calls, CALLS, MICRO, 0.0),
    ]


def observed(plain: stf.Context, context: stf.Context, what: Any) -> Row:
    """Return the row of empty tasks that are observed."""
    data = [ctx.logical_data(np.ones(4)) for ctx in (context, plain)]

    def tasks(which: int) -> Callable[[], None]:
        x, ctx = data[which], (context, plain)[which]

        def run() -> None:
            for _ in range(TASKS):
                empty(x)
            ctx.synchronize()

        return run

    return Row(
        "14", f"us, a task with observe={what!r}", "observe=False", tasks(0), tasks(1), TASKS, MICRO, 2.0, is_added=True
    )


def graphs() -> list[Row]:
    """Return the row of tasks of a graph context: to submit them, and all."""

    def calls(gather: bool) -> None:
        with stf.context(devices="cpu", use_graph=gather) as ctx:
            x = ctx.logical_data(np.ones(4))
            for _ in range(TASKS):
                empty(x)

    def blocks() -> None:
        with stf.context(devices="cpu", use_graph=True) as ctx:
            x = ctx.logical_data(np.ones(4))
            for _ in range(TASKS):
                with ctx.task(x.rw()):
                    pass

    says = "us, a function task of a graph context"
    return [
        Row("15", says, "with-block", lambda: calls(True), blocks, TASKS, MICRO, 4.0),
        Row("15", says, "streamed", lambda: calls(True), lambda: calls(False), TASKS, MICRO, 4.0),
    ]


def bytes_of_graph_tasks() -> float:
    """Return the bytes of memory that each function task of a graph context holds until it is launched."""
    counts = []
    for _ in range(2):
        with stf.context(devices="cpu", use_graph=True) as ctx:
            x = ctx.logical_data(np.ones(4))
            empty(x)
            gc.collect()
            before = resident()
            for _ in range(10 * TASKS):
                empty(x)
            counts.append((resident() - before) / (10 * TASKS))
    return min(counts)


def resident() -> int:
    """Return the bytes of memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def measured(row: Row, rounds: int) -> tuple[float, float]:
    """Return the least CPU times of a piece, of both ways in turn."""
    least = [float("inf")] * 2
    for number in range(rounds + 1):
        for which, way in enumerate((row.ours, row.rival)):
            start = time.process_time()
            way()
            if number:
                least[which] = min(least[which], time.process_time() - start)
    scale = row.unit / row.count
    return least[0] * scale, least[1] * scale


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="numbers of rows; all by default")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    show_machine()
    table = []
    with (
        stf.context(devices="cpu") as ctx,
        stf.context(devices="cpu", observe=True) as seen,
        stf.context(devices="cpu", observe="trace") as traced,
    ):
        rows = [*loops(ctx), observed(ctx, seen, True), observed(ctx, traced, "trace"), *graphs()]
        for row in rows:
            if not options.rows or row.number in options.rows:
                ours, rival = measured(row, options.rounds)
                found = ours - rival if row.is_added else ours
                goal = f"{'+' if row.is_added else ''}{row.goal:g} {'kept' if found <= row.goal else 'missed'}"
                table.append(
                    [row.number, row.says, f"{ours:.2f}", row.rival_says, f"{rival:.2f}", f"{ours / rival:.2f}", goal]
                )
    if not options.rows or "15" in options.rows:
        nbytes = bytes_of_graph_tasks()
        table.append(
            ["15", "bytes, the same", f"{nbytes:.0f}", "", "", "", f"200 {'kept' if nbytes <= 200 else 'missed'}"]
        )
    print_table(["row", "what", "ours", "beside", "", "ratio", "goal"], table, "llrlrrl", grouped=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
