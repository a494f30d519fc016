"""The peak of the kernel on a GPU: one launch on each of as many streams as a row has columns."""

from __future__ import annotations

import time
from collections.abc import Callable

import cupy
from kernel import BUFFER, LENGTH, cuda_source

__all__ = ["gpu_peak_s"]


def gpu_peak_s(width: int) -> Callable[[int], float]:
    """Return what measures the seconds that so many iterations take, shared among the streams."""
    kernel = cupy.RawKernel(cuda_source(0), "task_0")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(width)]
    outs = [cupy.empty(LENGTH) for _ in range(width)]

    def peak_s(iterations: int) -> float:
        cupy.cuda.runtime.deviceSynchronize()
        start = time.perf_counter()
        for stream, out in zip(streams, outs, strict=True):
            kernel((1,), (BUFFER,), (0, 0, iterations // width, out), stream=stream)
        cupy.cuda.runtime.deviceSynchronize()
        return time.perf_counter() - start

    peak_s(width)  # once for the compiler
    return peak_s
