"""A hang of plain CUDA: a graph with a host function that takes the GIL, beside a thread that calls CUDA with the GIL held.

    python tests/cuda/gil_and_host_nodes.py

Nothing of stf runs here. One thread creates and destroys events through ``ctypes.PyDLL``, which holds the GIL. Another one
launches a graph 100 times that has a Python function on the host (``cuLaunchHostFunc``). The first thread holds the GIL
and waits for a lock inside CUDA; CUDA's thread has that lock and waits for the GIL to call the function. It hung in the
launch on an H100 (driver 580); it prints what happened, and is no test, since it depends on the time of both.
"""

from __future__ import annotations

import ctypes
import faulthandler
import threading
import time

LAUNCHES = 100
cuda, holding = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
called = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def body(_):
    called.append(1)


def ok(code):
    assert code == 0, f"CUDA says {code}"


def main():
    faulthandler.dump_traceback_later(20, exit=True)
    device, context, stream, graph, executable = ctypes.c_int(), *(ctypes.c_void_p() for _ in range(4))
    ok(cuda.cuInit(0))
    ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    memory, nbytes = ctypes.c_uint64(), ctypes.c_size_t(1 << 20)
    ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), nbytes))
    ok(cuda.cuStreamBeginCapture_v2(stream, 2))
    ok(cuda.cuMemsetD8Async(memory, 1, nbytes, stream))
    ok(cuda.cuLaunchHostFunc(stream, body, None))
    ok(cuda.cuMemsetD8Async(memory, 2, nbytes, stream))
    ok(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
    ok(cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)))
    stop = threading.Event()

    def make_events():
        ok(cuda.cuCtxSetCurrent(context))
        event = ctypes.c_void_p()
        while not stop.is_set():
            holding.cuEventCreate(ctypes.byref(event), 2)
            holding.cuEventDestroy_v2(event)

    threading.Thread(target=make_events, daemon=True).start()
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))
    stop.set()
    print(f"no hang this time: {len(called)} calls in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
