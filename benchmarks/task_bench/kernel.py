"""The kernel of a task: multiply-adds over a small buffer, without the GIL, and a checksum of what it was given.

An output is a row of float64: step, column, checksum, the sum of the buffer, and the buffer. The numbers of the first
three are integers, which float64 holds exactly. The buffer begins anew in each task, so its content is known.
"""

from __future__ import annotations

import os
import threading
import time

import numba
import numpy as np
from patterns import MODULUS

__all__ = ["CORES", "FLOPS", "LENGTH", "cpu_peak_s", "cuda_source", "kernel", "make_output", "must_be", "python_source"]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
HEAD, BUFFER = 4, 64
LENGTH = HEAD + BUFFER
FLOPS = 2 * BUFFER  # of an iteration
FACTOR, TERM = 0.999, 0.001 * 3.0  # the buffer goes from 1 towards 3


# What begins and ends a task is to be short beside an iteration: inlined, in integers, with four sums beside each other.
# `work` stays a function of its own: inlined, its loop is other code for each number of inputs, a third slower in some.
@numba.njit(nogil=True, forceinline=True)
def kernel(step, column, iterations, out, *inputs):
    """Write the output of a task."""
    total = 0.0
    if len(inputs) > 0:  # Numba drops the branch of a task without inputs, where it knows no type of them
        for one in inputs:
            total += one[2]
    out[0] = step
    out[1] = column
    out[2] = (7919 * step + 104729 * column + 3 * np.int64(total) + 1) % MODULUS
    out[3] = work(out[HEAD:], iterations)


@numba.njit(nogil=True)
def work(buffer, iterations):
    """Write the buffer; return its sum."""
    for i in range(BUFFER):
        buffer[i] = 1.0
    for _ in range(iterations):
        for i in range(BUFFER):
            buffer[i] = buffer[i] * FACTOR + TERM
    a = b = c = d = 0.0
    for i in range(0, BUFFER, 4):
        a += buffer[i]
        b += buffer[i + 1]
        c += buffer[i + 2]
        d += buffer[i + 3]
    return (a + b) + (c + d)


def make_output(step: int, column: int, iterations: int, *inputs: np.ndarray) -> np.ndarray:
    """Return the output of a task as a new array, where tasks return values."""
    out = np.empty(LENGTH)
    kernel(step, column, iterations, out, *inputs)
    return out


def must_be(graph, steps: int, iterations: int, rows: list[list[np.ndarray]], who: str) -> None:
    """Raise an AssertionError if the outputs of the last steps, the last one first, are not what NumPy computes."""
    value = 3.0 - 2.0 * FACTOR**iterations  # of x = FACTOR * x + TERM from 1, as a formula
    for back, (row, sums) in enumerate(zip(rows, graph.expected(steps), strict=False)):
        found = np.array([np.asarray(out)[:HEAD] for out in row])
        step = steps - 1 - back
        told = f"{who}, {graph.pattern}, step {step} of {steps}"
        assert found[:, 0].tolist() == [step] * len(sums), f"{told}: steps {found[:, 0]}"
        assert found[:, 1].tolist() == list(range(len(sums))), f"{told}: columns {found[:, 1]}"
        assert found[:, 2].tolist() == sums.tolist(), f"{told}: checksums {found[:, 2]}, not {sums}"
        np.testing.assert_allclose(found[:, 3], BUFFER * value, rtol=1e-9, err_msg=told)


def cpu_peak_s(iterations: int, lanes: int = CORES) -> float:
    """Return the seconds that `iterations` take, shared among the cores, in one call on a thread each."""
    outs = [np.empty(LENGTH) for _ in range(lanes)]
    share = iterations // lanes
    ready = threading.Barrier(lanes + 1)

    def work(out):
        ready.wait()
        kernel(0, 0, share, out)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    ready.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def cuda_source(inputs: int) -> str:
    """Return the same kernel in CUDA C++, for a block of `BUFFER` threads, with so many inputs: ``task_<inputs>``.

    It rounds after each operation, as Numba does: with one instruction for both it would be twice as fast.
    """
    parameters = "".join(f", const double* in{i}" for i in range(inputs))
    total = " + ".join(["0.0", *(f"in{i}[2]" for i in range(inputs))])
    return f"""
extern "C" __global__ void task_{inputs}(long long step, long long column, long long iterations, double* out{parameters})
{{
    __shared__ double parts[{BUFFER}];
    double x = 1.0;
    for (long long k = 0; k < iterations; ++k)
        x = __dadd_rn(__dmul_rn(x, {FACTOR!r}), {TERM!r});
    out[{HEAD} + threadIdx.x] = x;
    parts[threadIdx.x] = x;
    __syncthreads();
    if (threadIdx.x == 0) {{
        double sum = 0.0;
        for (int i = 0; i < {BUFFER}; ++i)
            sum += parts[i];
        out[0] = step;
        out[1] = column;
        out[2] = fmod(7919.0 * step + 104729.0 * column + 3.0 * ({total}) + 1.0, {MODULUS}.0);
        out[3] = sum;
    }}
}}
"""


def python_source(inputs: int) -> str:
    """Return the same kernel in Python, for a group of `BUFFER` threads that share as many numbers."""
    parameters = "".join(f", in{i}" for i in range(inputs))
    total = " + ".join(["0.0", *(f"in{i}[2]" for i in range(inputs))])
    return f"""
def task(th, out{parameters}, base, step, column, iterations):
    lane, number = th.rank(1), base + step
    parts = th.storage(1, np.float64)
    x = 1.0
    for k in range(iterations):
        x = x * {FACTOR!r} + {TERM!r}
    out[{HEAD} + lane] = x
    parts[lane] = x
    th.sync(1)
    if lane == 0:
        total = 0.0
        for i in range({BUFFER}):
            total += parts[i]
        out[0] = number
        out[1] = column
        out[2] = (7919.0 * number + 104729.0 * column + 3.0 * ({total}) + 1.0) % {MODULUS}.0
        out[3] = total
"""
