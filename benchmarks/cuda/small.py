"""Small work on a GPU: calls that take microseconds, beside what CuPy and the driver take in the same run.

``python benchmarks/cuda/small.py`` prints a row a case: the time of the submitting thread for a call, the least of
several series, and the time of a call when a series is over and waited for. Cases that other benchmarks leave out: a
sum of a few thousand elements, one body over other data each time, NumPy scalars, hierarchies written at the call, a
histogram, and launches of recorded graphs at an idle device.

``--profile CASE`` prints where the submitting thread spends its time in a case.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import numpy as np

import stf
from stf import con, par

SERIES, CALLS, SMALL = 14, 200, 1 << 12
BINS, LARGE, ONE = 256, 1 << 26, (1, 1)

Case = tuple[str, Callable[[], object]]
synchronize = cupy.cuda.runtime.deviceSynchronize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", metavar="CASE")
    options = parser.parse_args()
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    print(f"{'case':44} {'call, us':>9} {'with its work, us':>18}")
    for cases in (calls, waits, launches, histograms, contexts, by_hand):
        with stf.context(devices="cuda:0") as ctx:
            for name, call in cases(ctx):
                if options.profile is None:
                    count = 1 if name.startswith(("histogram", "launch of")) else CALLS
                    print(f"{name:44} {'{:9.2f} {:18.2f}'.format(*cost_of(call, ctx.synchronize, count))}", flush=True)
                elif options.profile == name:
                    profile(call, ctx.synchronize)


def cost_of(call: Callable[[], object], wait: Callable[[], object], count: int) -> tuple[float, float]:
    """Return the time in us of a call for the caller, and until all is done, in the quickest series."""
    for _ in range(3):
        call()
    wait()
    submitted = whole = float("inf")
    for _ in range(SERIES if count > 1 else 3 * SERIES):
        start = time.perf_counter()
        for _ in range(count):
            call()
        between = time.perf_counter()
        wait()
        submitted = min(submitted, (between - start) / count)
        whole = min(whole, (time.perf_counter() - start) / count)
    return submitted * 1e6, whole * 1e6


def profile(call: Callable[[], object], wait: Callable[[], object]) -> None:
    """Print the functions in which a thousand calls spend their time."""
    for _ in range(3):
        call()
    wait()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(1000):
        call()
    profiler.disable()
    wait()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def calls(ctx: stf.Context) -> Iterator[Case]:
    """Submissions of loops and kernels."""
    x, y = ctx.logical_data(np.ones(SMALL)), ctx.logical_data(np.zeros(SMALL))
    others = [ctx.logical_data(np.zeros(SMALL)) for _ in range(8)]
    total = ctx.logical_data_empty((), float)

    def add(i, x, y):  # type: ignore[no-untyped-def]
        y[i] += x[i]

    def scaled(i, y, factor):  # type: ignore[no-untyped-def]
        y[i] *= factor

    def value(i, x):  # type: ignore[no-untyped-def]
        return x[i]

    turn = 0

    def in_turn() -> None:
        nonlocal turn
        turn = (turn + 1) % len(others)
        ctx.parallel_for((SMALL,), x.read(), others[turn].rw())(add)

    one, number = np.float64(1.0), 1.0
    yield "parallel_for, one data", lambda: ctx.parallel_for((SMALL,), x.read(), y.rw())(add)
    yield "parallel_for, eight data in turn", in_turn
    yield "parallel_for, a float", lambda: ctx.parallel_for((SMALL,), y.rw(), args=(number,))(scaled)
    yield "parallel_for, a NumPy float", lambda: ctx.parallel_for((SMALL,), y.rw(), args=(one,))(scaled)
    yield "sum of 2^12", lambda: ctx.parallel_for((SMALL,), x.read(), total.reduce(stf.reducer.sum))(value)
    touch = cupy.RawKernel('extern "C" __global__ void touch(double *x) {}', "touch")
    touch_with = cupy.RawKernel('extern "C" __global__ void touch_with(double *x, double a) {}', "touch_with")

    def block() -> None:
        with ctx.cuda_kernel(y.rw()) as kernels:
            kernels.launch(touch, 1, 1, (kernels.get_arg(0),))

    yield "launch_kernel", lambda: ctx.launch_kernel(touch, ONE, y.rw())
    yield "launch_kernel, a float", lambda: ctx.launch_kernel(touch_with, ONE, y.rw(), number)
    yield "launch_kernel, a NumPy float", lambda: ctx.launch_kernel(touch_with, ONE, y.rw(), one)
    yield "with cuda_kernel, one launch", block
    kept = par(32, con(128))

    def thread(th, y):  # type: ignore[no-untyped-def]
        for i in range(th.rank(), y.size, th.size()):
            y[i] += 1.0

    yield "launch, hierarchy kept", lambda: ctx.launch(kept, y.rw())(thread)
    yield "launch, hierarchy written at the call", lambda: ctx.launch(par(32, con(128)), y.rw())(thread)


def contexts(ctx: stf.Context) -> Iterator[Case]:
    """Contexts of one task on new data, from their opening to their end."""

    def one() -> None:
        with stf.context(devices="cuda:0") as own:
            x = own.logical_data_empty(SMALL)
            with own.task(x.write()):
                pass

    def with_new_streams() -> None:
        stf.config.reuse_devices = False
        one()
        stf.config.reuse_devices = True

    yield "context of a task", one
    yield "the same, with streams and pools of its own", with_new_streams


def waits(ctx: stf.Context) -> Iterator[Case]:
    """Values that the caller waits for."""
    x, total = ctx.logical_data(np.ones(SMALL)), ctx.logical_data_empty((), float)

    def value(i, x):  # type: ignore[no-untyped-def]
        return x[i]

    def wait() -> float:
        ctx.parallel_for((SMALL,), x.read(), total.reduce(stf.reducer.sum))(value)
        return float(total)

    yield "sum of 2^12, and its value", wait


def launches(ctx: stf.Context) -> Iterator[Case]:
    """Launches of recorded graphs at an idle device."""
    y = ctx.logical_data(np.zeros(SMALL))
    touch = cupy.RawKernel('extern "C" __global__ void touch(double *x) {}', "touch")

    for count in (100, 1000):
        graph = ctx.task_graph()
        with graph:
            for _ in range(count):
                ctx.launch_kernel(touch, ONE, y.rw())
        yield f"launch of {count} recorded nodes", graph.launch

        @stf.replay
        def steps(y: Any, count: int = count) -> None:
            for _ in range(count):
                ctx.launch_kernel(touch, ONE, y.rw())

        for _ in range(3):
            steps(y)
        yield f"launch of {count} replayed nodes", lambda steps=steps: steps(y)  # type: ignore[misc]


def histograms(ctx: stf.Context) -> Iterator[Case]:
    """Counts of 2^26 numbers in 256 bins."""
    values = ctx.logical_data(cupy.random.randint(0, BINS, LARGE, dtype=np.int32))
    bins = ctx.logical_data_zeros(BINS, np.int64)

    def count(i, values, bins):  # type: ignore[no-untyped-def]
        bins[values[i]] += 1

    yield (
        "histogram of 2^26 in 256 bins",
        lambda: ctx.parallel_for((LARGE,), values.read(), bins.reduce(stf.reducer.sum))(count),
    )


def by_hand(ctx: stf.Context) -> Iterator[Case]:
    """What CuPy takes for the same."""
    x, y = cupy.ones(SMALL), cupy.zeros(SMALL)
    values = cupy.random.randint(0, BINS, LARGE, dtype=np.int32)
    touch = cupy.RawKernel('extern "C" __global__ void touch(double *x) {}', "touch")
    del ctx
    yield "CuPy: y += x", lambda: cupy.add(x, y, out=y)
    yield "CuPy: sum of 2^12", x.sum
    yield "CuPy: sum of 2^12, and its value", lambda: float(x.sum())
    yield "CuPy: launch of a raw kernel", lambda: touch((1,), (1,), (y,))
    yield "histogram by CuPy's bincount", lambda: cupy.bincount(values, minlength=BINS)


if __name__ == "__main__":
    main()
