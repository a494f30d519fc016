"""A recorded stencil of tasks of one block each, as a graph of the driver's and as one loop on the device.

    python benchmarks/cuda/device_loops.py [--tasks 100000]

A row is a width of the stencil and a number of multiply-adds that each element takes. It has the time of a launch both
ways, the time of a task, and what the first two launches took, planning and compiling included. METG(50 %) is the time
of a step of a column of which half is multiply-adds, whose time is that of two long runs.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import cupy
import numpy as np

import stf

N = 64


def submit(ctx: Any, left: Any, own: Any, right: Any, to: Any, count: int) -> None:
    @ctx.parallel_for((N,), left.read(), own.read(), right.read(), to.write(), args=(count,))
    def mix(i, a, b, c, out, count):  # type: ignore[no-untyped-def]
        value = 0.25 * a[i] + 0.5 * b[i] + 0.25 * c[i]
        for _ in range(count):
            value = value * 0.999 + 0.001
        out[i] = value


def measured(backend: str, width: int, depth: int, count: int) -> tuple[float, float, str, Any]:
    """Return the seconds of a launch, of the first two, what the graph says of itself, and the result."""
    with stf.context(devices="cuda:0") as ctx:
        rows = [[ctx.logical_data(np.full(N, float(k % 7))) for k in range(width)] for _ in range(2)]
        g = ctx.task_graph("stencil", backend=backend)
        with g:
            for step in range(depth):
                one, other = rows[step % 2], rows[1 - step % 2]
                for k in range(width):
                    submit(ctx, one[k - 1], one[k], one[(k + 1) % width], other[k], count)
        ctx.synchronize()
        start = time.perf_counter()
        g.launch()
        g.launch()
        ctx.synchronize()
        first = time.perf_counter() - start
        best = float("inf")
        for _ in range(8):
            start = time.perf_counter()
            g.launch()
            ctx.synchronize()
            best = min(best, time.perf_counter() - start)
        return best, first, g.explain().splitlines()[-1].strip(), rows[0][0].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    given = parser.parse_args()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    width = properties["multiProcessorCount"]
    print(f"{properties['name'].decode()}, {width} multiprocessors, tasks of {N} elements")
    print("width  steps  fma     graph      loop   ratio  ns a task  us a step   first two launches")
    for across, count in ((width, 0), (width, 100), (width, 1000), (4 * width, 0), (1, 0)):
        depth = max(given.tasks // across // 2 * 2, 2) if across > 1 else 2000
        graph, first, _, right = measured("graph", across, depth, count)
        loop, second, text, found = measured("persistent", across, depth, count)
        assert np.array_equal(right, found), (right, found)
        print(
            f"{across:5} {depth:6} {count:4} {graph * 1e3:7.2f} ms {loop * 1e3:6.2f} ms {loop / graph:7.3f} "
            f"{loop / across / depth * 1e9:10.1f} {loop / depth * 1e6:10.2f}   {first:.2f} s, {second:.2f} s   {text}",
            flush=True,
        )
    for across in (width, 4 * width):
        show_metg(across, given.tasks // across // 2 * 2)


def show_metg(width: int, depth: int) -> None:
    """Print the time of a step at which half of it is work."""
    low, high = (measured("persistent", width, depth, count)[0] / depth for count in (1000, 2000))
    each = (high - low) / 1000
    before = None
    for count in (40, 60, 80, 100, 130, 160, 200, 250, 300, 400):
        took = measured("persistent", width, depth, count)[0] / depth
        part = count * each / took
        if part >= 0.5:
            if before is not None:  # between the two
                share = (0.5 - before[1]) / (part - before[1])
                took = before[0] + share * (took - before[0])
            print(
                f"METG(50 %) of {width} columns, as many at once: {took * 1e6:.2f} us; {each * 1e9:.1f} ns a multiply-add"
            )
            return
        before = took, part
    print(f"METG(50 %) of {width} columns: more than {took * 1e6:.2f} us")


if __name__ == "__main__":
    main()
