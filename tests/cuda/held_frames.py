"""What compute-sanitizer keeps of Python's frames, in plain CUDA: ``[compute-sanitizer] python tests/cuda/held_frames.py``.

A function with a local object calls the driver and returns. It says after which calls the object lives on, and who
holds it: with memcheck's backtraces on the host (``--show-backtrace yes``, the default), the function's frame.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import cupy
import numpy as np
from cuda.bindings import driver

STORE = 'extern "C" __global__ void store(long long* x, long long value) { x[threadIdx.x] = value; }'


class Local:
    """What a function has in a local variable."""


def ok(result):
    """What a call of the driver returns, if it succeeded."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None


def call_with_local(call: Callable[[], object]) -> weakref.ref[Local]:
    """Call, with an object in a local variable, which ends with this."""
    local = Local()
    call()
    return weakref.ref(local)


def main() -> None:
    kernel = cupy.RawKernel(STORE, "store")
    stream, event, home = cupy.cuda.Stream(non_blocking=True), ok(driver.cuEventCreate(2)), np.zeros(4, np.int64)
    with stream:
        x = cupy.zeros(4, np.int64)
        kernel((1,), (4,), (x, np.int64(0)))
        address = int(x.data.ptr)
        calls: dict[str, Callable[[], object]] = {
            "nothing": lambda: None,
            "cuMemAlloc": lambda: ok(driver.cuMemAlloc(32)),
            "cuMemAllocAsync": lambda: ok(driver.cuMemAllocAsync(32, stream.ptr)),
            "cuMemcpyAsync": lambda: ok(driver.cuMemcpyAsync(home.ctypes.data, address, 32, stream.ptr)),
            "cuLaunchKernel": lambda: kernel((1,), (4,), (x, np.int64(1))),
            "cuEventRecord": lambda: ok(driver.cuEventRecord(event, stream.ptr)),
            "cuStreamSynchronize": stream.synchronize,
        }
        for name, call in calls.items():
            left = [local() for local in [call_with_local(call) for _ in range(100)] if local() is not None]
            holders = {
                type(holder).__name__ for local in left for holder in gc.get_referrers(local) if holder is not left
            }
            print(f"{name}: {len(left)} of 100 locals live on{', held by: ' + ', '.join(holders) if left else ''}")


if __name__ == "__main__":
    main()
