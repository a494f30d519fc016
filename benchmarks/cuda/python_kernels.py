"""Kernels written in Python on a GPU: bandwidth, cost at the host, and compile times, beside CuPy, numba-cuda and cuda.compute.

``python benchmarks/cuda/python_kernels.py`` prints a table. Bandwidth is bytes that a kernel has to move, divided by the
time of a launch, of the quickest of several series of launches between two waits for the device; it is shown as a share
of the device's own copy (CuPy's ``copyto``) in the same run. The time at the host is that of a submission of a small
kernel, burst by burst in turn with the driver's launch of an empty one, in C. Budgets: axpy and sums 0.92 of the copy,
the stencil 0.85, a submission 1.12 times the driver's launch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from measuring import costs_of, host
from numba import cuda

import stf

SERIES, LAUNCHES = 7, 20
synchronize = cupy.cuda.runtime.deviceSynchronize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log2", type=int, default=28, help="of the number of elements")
    options = parser.parse_args()
    size, side = 1 << options.log2, 1 << options.log2 // 2
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, {size} float64, {side} x {side} for the stencil")
    x, y = cupy.random.random(size), cupy.zeros(size)
    copy = rate(lambda: cupy.copyto(y, x), 16 * size)
    print(f"{'copy, by CuPy':34} {copy:7.0f} GB/s")
    for label, share, wanted in [*bandwidths(x, y, size, side, copy)]:
        print(f"{label:34} {share * copy:7.0f} GB/s {share:6.3f} of the copy{judged(share, wanted)}")
    for label, cost, ratio in host_costs():
        print(f"{label:34} {cost:7.2f} us at the host, {ratio:5.2f} x the driver's launch")
    for label, seconds in compile_times():
        print(f"{label:34} {seconds:7.2f} s")


def judged(share: float, wanted: float | None) -> str:
    """Whether a budget is kept."""
    return "" if wanted is None else f", budget {wanted}: {'kept' if share >= wanted else 'missed'}"


def rate(launch: Callable[[], object], nbytes: int, wait: Callable[[], object] = synchronize) -> float:
    """GB/s of a kernel that `launch` launches."""
    best = float("inf")
    for number in range(SERIES + 1):
        wait()
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            launch()
        wait()
        if number:  # the first warms up
            best = min(best, time.perf_counter() - start)
    return nbytes * LAUNCHES / best / 1e9


def bandwidths(x: Any, y: Any, size: int, side: int, copy: float) -> Any:
    """(label, share of the copy's bandwidth, budget) of each case."""
    alpha = 2.0
    u, v = x.reshape(-1, side)[:side], y.reshape(-1, side)[:side]

    def share(launch: Callable[[], object], nbytes: int) -> float:
        return rate(launch, nbytes) / copy

    def shared(task: Callable[[], object], nbytes: int) -> float:
        return rate(task, nbytes, ctx.synchronize) / copy

    def step(i, j, u, v):  # type: ignore[no-untyped-def]
        v[i, j] = u[i, j] + 0.1 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4 * u[i, j])

    with stf.context(devices="cuda:0") as ctx:
        lx, ly, ls = ctx.logical_data(x), ctx.logical_data(y), ctx.logical_data_empty((), float)

        def axpy(i, x, y):  # type: ignore[no-untyped-def]
            y[i] += alpha * x[i]

        def dot(i, x, y):  # type: ignore[no-untyped-def]
            return x[i] * y[i]

        yield "axpy, stf", shared(lambda: ctx.parallel_for(lx.shape, lx.read(), ly.rw())(axpy), 24 * size), 0.92
        by_cupy = cupy.ElementwiseKernel("float64 a, float64 x", "float64 y", "y += a * x", "axpy")
        yield "axpy, CuPy's elementwise kernel", share(lambda: by_cupy(alpha, x, y), 24 * size), None
        yield "axpy, numba-cuda's launch", share(numba_axpy(alpha, x, y, size), 24 * size), None
        reduced = ls.reduce(stf.reducer.sum)
        summed = shared(lambda: ctx.parallel_for(lx.shape, lx.read(), reduced)(lambda i, x: x[i]), 8 * size)
        yield "sum, stf", summed, 0.92
        yield "sum, CuPy", share(lambda: cupy.sum(x), 8 * size), None
        by_compute = sum_by_compute(x, size)
        if by_compute is not None:
            yield "sum, cuda.compute", share(by_compute, 8 * size), None
        dotted = shared(lambda: ctx.parallel_for(lx.shape, lx.read(), ly.read(), reduced)(dot), 16 * size)
        yield "dot, stf", dotted, 0.92
    with stf.context(devices="cuda:0") as ctx:
        lu, lv = ctx.logical_data(u), ctx.logical_data(v)
        inner = stf.box[1 : side - 1, 1 : side - 1]
        yield (
            "5-point stencil, stf",
            shared(lambda: ctx.parallel_for(inner, lu.read(), lv.write())(step), 16 * side**2),
            0.85,
        )
        raw = cupy.RawKernel(STENCIL, "step")
        grid = (-(-side // 32), -(-side // 8))
        by_hand = share(lambda: raw(grid, (32, 8), (u, v, side)), 16 * side**2)
        yield "5-point stencil, CUDA C++", by_hand, None


STENCIL = r"""
extern "C" __global__ void step(const double* u, double* v, long long n) {
    long long j = (long long)blockIdx.x * blockDim.x + threadIdx.x, i = (long long)blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= n - 1 || j >= n - 1) return;
    const double* c = u + i * n + j;
    v[i * n + j] = c[0] + 0.1 * (c[-n] + c[n] + c[-1] + c[1] - 4 * c[0]);
}
"""


def numba_axpy(alpha: float, x: Any, y: Any, size: int) -> Callable[[], object]:
    """The launch of the same kernel by numba-cuda."""

    @cuda.jit
    def axpy(a, x, y):  # type: ignore[no-untyped-def]
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.size:
            y[i] += a * x[i]

    stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
    blocks = -(-size // 256)
    return lambda: axpy[blocks, 256, stream](alpha, x, y)


def sum_by_compute(x: Any, size: int) -> Callable[[], object] | None:
    """The sum by cuda.compute (package ``cuda-cccl``), with its scratch memory kept; None if it is not there."""
    try:
        from cuda import compute
    except ImportError:
        return None
    out, start = cupy.empty(1), np.zeros(1)
    reduce = compute.make_reduce_into(d_in=x, d_out=out, op=compute.OpKind.PLUS, h_init=start)
    given = {"d_in": x, "d_out": out, "op": compute.OpKind.PLUS, "num_items": size, "h_init": start}
    room = cupy.empty(reduce(temp_storage=None, **given), cupy.uint8)
    return lambda: reduce(temp_storage=room, **given)


def host_costs() -> Any:
    """(label, microseconds, ratio to the driver's launch) of submissions of small kernels."""
    x, y = cupy.zeros(1024), cupy.zeros(1024)
    alpha = 2.0

    def axpy(i, x, y):  # type: ignore[no-untyped-def]
        y[i] += alpha * x[i]

    library = host().library

    def times(run: Callable[[], object]) -> Callable[[int], None]:
        def launch(n: int) -> None:
            for _ in range(n):
                run()

        return launch

    with stf.context(devices="cuda:0") as ctx:
        lx, ly = ctx.logical_data(x), ctx.logical_data(y)
        kernel = cupy.RawKernel(
            'extern "C" __global__ void axpy(double a, const double* x, double* y) '
            "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1024) y[i] += a * x[i]; }",
            "axpy",
        )
        by_cupy = cupy.ElementwiseKernel("float64 a, float64 x", "float64 y", "y += a * x", "axpy")
        config = (4, 256)

        def settle() -> None:
            ctx.synchronize()
            synchronize()

        cases: dict[str, Callable[[int], None]] = {
            "the driver's launch, in C": library.raw_launch,
            "parallel_for, stf": times(lambda: ctx.parallel_for(lx.shape, lx.read(), ly.rw())(axpy)),
            "the same as a C++ kernel, stf": times(lambda: ctx.launch_kernel(kernel, config, 2.0, lx.read(), ly.rw())),
            "CuPy's elementwise kernel": times(lambda: by_cupy(alpha, x, y)),
            "CuPy's RawKernel": times(lambda: kernel((4,), (256,), (alpha, x, y))),
            "numba-cuda's launch": times(numba_axpy(alpha, x, y, 1024)),
        }
        for run in cases.values():
            run(10)
        costs = costs_of(list(cases.values()), settle, n=2_000, burst=200)
        raw = costs[0].submission
        for label, cost in zip(cases, costs, strict=True):
            yield label, cost.submission, cost.submission / raw


FIRST = """
import time, cupy, stf
with stf.context(devices="cuda") as ctx:
    x = ctx.logical_data(cupy.zeros(1024))
    ctx.fill(x, 0.0)
    ctx.synchronize()
    start = time.perf_counter()
    @ctx.parallel_for(x.shape, x.rw())
    def add(i, x):
        x[i] += i * 0.5
    ctx.synchronize()
    print(time.perf_counter() - start)
"""


def compile_times() -> Any:
    """(label, seconds) until the first kernel of a process has run."""
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(FIRST)
        script.flush()
        for label in ("first kernel of a process, cold", "the same in a second process"):
            environment = {**os.environ, "STF_CACHE_DIR": folder}
            done = subprocess.run(
                [sys.executable, script.name], env=environment, capture_output=True, text=True, check=False
            )
            yield label, float(done.stdout.split()[0]) if done.returncode == 0 else float("nan")


if __name__ == "__main__":
    main()
