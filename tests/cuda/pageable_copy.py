"""When a copy to pageable memory is there, in plain CUDA: ``[compute-sanitizer] python tests/cuda/pageable_copy.py``.

A kernel works for a while and counts up, and 32 bytes of what it wrote are copied to an array of NumPy's. It says how
often they were there when the copy's call returned, when the event behind it was complete (asked for, and waited for),
and when the stream was waited for.
"""

from __future__ import annotations

import cupy
import numpy as np
from cuda.bindings import driver

TIMES = 300
COUNT = r"""
extern "C" __global__ void count(long long* x, long long value) {
    long long start = clock64();
    while (clock64() - start < 100000) {}
    x[threadIdx.x] = value;
}
"""


def ok(result):
    """What a call of the driver returns, if it succeeded."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None


def main() -> None:
    kernel = cupy.RawKernel(COUNT, "count")
    stream, event = cupy.cuda.Stream(non_blocking=True), ok(driver.cuEventCreate(2))
    pool, target = cupy.cuda.MemoryAsyncPool(), np.zeros(4, np.int64)
    late = {"the call": 0, "the event": 0, "the stream": 0}
    value = 0
    for is_waited_for in (False, True):
        for _ in range(TIMES):
            value += 1
            with stream, cupy.cuda.using_allocator(pool.malloc):
                x = cupy.zeros(4, np.int64)
                kernel((1,), (4,), (x, np.int64(value)))
                ok(driver.cuMemcpyAsync(target.ctypes.data, int(x.data.ptr), 32, stream.ptr))
                late["the call"] += target[0] != value
                del x  # the memory goes back in the stream's order
                ok(driver.cuEventRecord(event, stream.ptr))
                if is_waited_for:
                    ok(driver.cuEventSynchronize(event))
                else:
                    while int(driver.cuEventQuery(event)[0]):
                        pass
                late["the event"] += target[0] != value
                stream.synchronize()
                late["the stream"] += target[0] != value
    for what, count in late.items():
        print(f"{count} of {2 * TIMES} copies were not there when {what} was done")


if __name__ == "__main__":
    main()
