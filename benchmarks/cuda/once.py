"""What runs once: the start of a process, and graphs of 1,000 kernels that are recorded, launched and thrown away.

``python benchmarks/cuda/once.py`` prints the seconds from the start of a process until its first task is done, beside
CuPy's first kernel and the driver's own start, and the microseconds a node of graphs that run once, beside the same
kernels captured by hand with CuPy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import cupy
import numpy as np

import stf

NODES, REPEAT, STARTS = 1000, 7, 5
ONE = (1, 1)
DRIVER = """
from cuda.bindings import driver as d
d.cuInit(0); _, device = d.cuDeviceGet(0); d.cuDevicePrimaryCtxRetain(device)
"""
NUMPY = "import numpy"
CUPY = "import cupy\nx = cupy.ones(64); x += 1; cupy.cuda.runtime.deviceSynchronize()"
TASK = """
import numpy as np, stf
with stf.context(devices="cuda:0") as ctx:
    x = ctx.logical_data(np.ones(64))
    with ctx.task(x.rw()):
        pass
    ctx.synchronize()
"""
LOOP = """
import numpy as np, stf
with stf.context(devices="cuda:0") as ctx:
    x = ctx.logical_data(np.ones(64))

    @ctx.parallel_for(x.shape, x.rw())
    def add(i, x):
        x[i] += 1
    ctx.synchronize()
"""


def seconds_of(program: str, folder: str) -> float:
    """Return the least time of a process with this program, the first one left out, which compiles."""
    best = float("inf")
    with open(os.path.join(folder, "program.py"), "w") as file:
        file.write(program)
    environment = {**os.environ, "STF_CACHE_DIR": folder, "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for turn in range(STARTS + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, file.name], env=environment, check=True)
        best = min(best, time.perf_counter() - start) if turn else best
    return best


def node_of(run: Callable[[], None]) -> float:
    """Return the microseconds a node of what makes a graph, launches it once and waits, at least."""
    best = float("inf")
    for _ in range(REPEAT):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best / NODES * 1e6


def main() -> None:
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    touch = cupy.RawKernel('extern "C" __global__ void touch(double *x) {}', "touch")
    array, stream = cupy.ones(8), cupy.cuda.Stream(non_blocking=True)
    with tempfile.TemporaryDirectory() as folder:
        programs = {"NumPy imported": NUMPY, "the driver's context": DRIVER, "CuPy: its first kernel": CUPY}
        programs |= {"stf: its first task": TASK, "stf: a parallel_for from disk": LOOP}
        for name, program in programs.items():
            print(f"start of a process, {name:32} {seconds_of(program, folder):8.2f} s", flush=True)

    def by_hand(anew: bool) -> None:
        pointer, one = array.data.ptr, array
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        with stream:
            for _ in range(NODES):
                if anew:  # as a task gets it
                    memory = cupy.cuda.UnownedMemory(pointer, array.nbytes, array)
                    one = cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0))
                touch((1,), (1,), (one,))
        stream.end_capture().launch(stream)
        stream.synchronize()

    resources = stf.Resources()

    def kernels(shared: stf.Resources | None) -> None:
        with stf.context(devices="cuda:0", resources=shared) as ctx:
            x = ctx.logical_data(array)
            g = ctx.task_graph()
            with g:
                for _ in range(NODES):
                    ctx.launch_kernel(touch, ONE, x.rw())
            g.launch()

    def bodies(shared: stf.Resources | None) -> None:
        with stf.context(devices="cuda:0", resources=shared) as ctx:
            x = ctx.logical_data(array)
            g = ctx.task_graph()
            with g:
                for _ in range(NODES):
                    with ctx.task(x.rw()) as t:
                        touch((1,), (1,), (t.cupy()[0],))
            g.launch()

    def gathered(shared: stf.Resources | None) -> None:
        with stf.context(devices="cuda:0", use_graph=True, resources=shared) as ctx:
            x = ctx.logical_data(array)
            for _ in range(NODES):
                ctx.launch_kernel(touch, ONE, x.rw())

    rows: dict[str, Callable[[], None]] = {
        "CuPy: captured by hand": lambda: by_hand(False),
        "CuPy: the same, an array for each": lambda: by_hand(True),
        "stf: kernels, shared resources": lambda: kernels(resources),
        "stf: kernels, own resources": lambda: kernels(None),
        "stf: use_graph=True, shared resources": lambda: gathered(resources),
        "stf: use_graph=True, own resources": lambda: gathered(None),
        "stf: with-blocks, shared resources": lambda: bodies(resources),
        "stf: with-blocks, own resources": lambda: bodies(None),
    }
    for name, run in rows.items():
        run()
        print(f"a graph of {NODES} nodes run once, {name:38} {node_of(run):8.2f} us a node", flush=True)
    assert np.array_equal(array.get(), np.ones(8))


if __name__ == "__main__":
    main()
