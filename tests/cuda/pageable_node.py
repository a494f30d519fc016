"""What CUDA does with copies of pageable memory in a graph that calls a function on the host: ``python pageable_node.py``.

Plain CUDA. A host node waits a while, then writes a number; a copy behind it brings that to the device, and another one
back. It says what came, for memory that is pinned and memory that is not, and when the launch returned.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np
from cuda.bindings import driver

SLEEP_S, NEW, OLD = 0.05, 7, 3


def done(result):
    code, *values = result
    assert int(code) == 0, code
    return values[0] if values else None


def run(source, target):
    """What a graph brings from `source`, which a host node writes, to `target`; and how long its launch took."""
    device = done(driver.cuMemAlloc(source.nbytes))
    seen = []

    def write(_):
        time.sleep(SLEEP_S)
        source[:] = NEW

    def look(_):
        seen.append(int(target[0]))

    callbacks = [ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function) for function in (write, look)]
    addresses = [driver.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value) for function in callbacks]
    stream = done(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    done(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    done(driver.cuLaunchHostFunc(stream, addresses[0], 0))
    done(driver.cuMemcpyHtoDAsync(device, source.ctypes.data, source.nbytes, stream))
    done(driver.cuMemcpyDtoHAsync(target.ctypes.data, device, source.nbytes, stream))
    done(driver.cuLaunchHostFunc(stream, addresses[1], 0))
    executable = done(driver.cuGraphInstantiate(done(driver.cuStreamEndCapture(stream)), 0))
    source[:], target[:] = OLD, 0
    start = time.perf_counter()
    done(driver.cuGraphLaunch(executable, stream))
    took = time.perf_counter() - start
    done(driver.cuStreamSynchronize(stream))
    return int(target[0]), seen[0], took


def pinned(count):
    address = done(driver.cuMemHostAlloc(8 * count, 0))
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)), (count,))


def main():
    done(driver.cuInit(0))
    done(driver.cuCtxSetCurrent(done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))))
    for count in (1, 64, 1 << 12, 1 << 16):
        pairs = {
            "pinned": (pinned(count), pinned(count)),
            "pageable source": (np.zeros(count, np.int64), pinned(count)),
            "pageable target": (pinned(count), np.zeros(count, np.int64)),
        }
        for name, (source, target) in pairs.items():
            came, seen, took = run(source, target)
            print(
                f"{8 * count:7} bytes, {name:15}: copied {came}, seen by the host node behind it {seen}, "
                f"launch {took * 1e3:.1f} ms"
            )


if __name__ == "__main__":
    main()
