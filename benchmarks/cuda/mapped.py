"""What memory under one address costs, on one GPU: making it, making it again, and using it, beside a plain array.

    python benchmarks/cuda/mapped.py

The grid names the GPU several times, so every access is local: the rows show the cost of pages and of the tasks, not that
of a link.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import stf

SHAPE = 1 << 14, 1 << 12  # 512 MiB of float64
PARTS, STEPS = 8, 20


def main() -> None:
    """Print the rows."""
    home = np.zeros(SHAPE)
    grid = stf.exec_place.grid([0] * PARTS)
    place = stf.data_place.composite(grid, stf.partition("blocked", None))
    with stf.context(devices="cuda:0") as ctx:

        def make() -> None:
            ctx.logical_data(home, data_place=place, write_back=False).release()

        print(f"made for the first time  {1e3 * seconds(make):9.2f} ms")
        print(f"made again               {1e3 * median(make):9.2f} ms")
        plain = ctx.logical_data(home, write_back=False)
        parted = ctx.logical_data(home, data_place=place, write_back=False)

        def fill_plain() -> None:
            ctx.fill(plain, 1.0)
            ctx.synchronize()

        def fill_parts() -> None:
            ctx.fill(parted, 1.0)
            ctx.synchronize()

        def fill_whole() -> None:
            with ctx.task(0, parted.write(parted.data_place)) as t:
                t.cupy()[0].fill(1.0)
            ctx.synchronize()

        for name, body in (("plain", fill_plain), ("parts", fill_parts), ("whole", fill_whole)):
            print(f"fill of {name:16} {home.nbytes / median(body) / 1e9:9.0f} GB/s")
        print(f"task on all parts        {1e6 * median(lambda: empty(ctx, parted)) / STEPS:9.2f} us to submit")
        print(f"task on a plain array    {1e6 * median(lambda: empty(ctx, plain)) / STEPS:9.2f} us to submit")


def empty(ctx: stf.Context, data: stf.LogicalData) -> None:
    """Submit tasks that do nothing."""
    for _ in range(STEPS):
        access = data.rw(data.data_place) if isinstance(data, stf.PartitionedData) else data.rw()
        with ctx.task(0, access):
            pass


def seconds(body: Callable[[], None]) -> float:
    """Return what one call takes."""
    start = time.perf_counter()
    body()
    return time.perf_counter() - start


def median(body: Callable[[], None]) -> float:
    """Return the median of some calls."""
    body()
    return statistics.median(seconds(body) for _ in range(9))


if __name__ == "__main__":
    main()
