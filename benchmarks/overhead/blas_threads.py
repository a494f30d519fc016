"""What the threads of BLAS cost inside of tasks: a product in tiles, with BLAS at one thread and at all cores.

    python benchmarks/overhead/blas_threads.py
    python benchmarks/overhead/blas_threads.py --size 2048 --tile 256

Workers of stf run on all cores. If each calls a BLAS that starts as many threads again, the threads take turns on the
cores and wait for each other. Each line is a process of its own, since BLAS reads its variable when it is loaded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import numpy as np

import stf

VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@stf.task
def multiply(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c += a @ b


def product(size: int, tile: int, repeat: int) -> float:
    """Return the shortest time in seconds of a product in tiles."""
    count = size // tile
    with stf.context(devices="cpu") as ctx:
        a, b, c = (
            [[ctx.logical_data(np.ones((tile, tile))) for _ in range(count)] for _ in range(count)] for _ in range(3)
        )
        times = []
        for _ in range(repeat + 1):
            start = time.perf_counter()
            for k in range(count):
                for i in range(count):
                    for j in range(count):
                        multiply(a[i][k], b[k][j], c[i][j])
            ctx.synchronize()
            times.append(time.perf_counter() - start)
    return min(times[1:])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--tile", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--alone", action="store_true", help="print the seconds, with the threads that the variables say"
    )
    options = parser.parse_args(arguments)
    if options.alone:
        print(product(options.size, options.tile, options.repeat))
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print(f"{options.size} x {options.size} in tiles of {options.tile}, {cores} workers")
    given = [f"--{name}={getattr(options, name)}" for name in ("size", "tile", "repeat")]
    for threads in dict.fromkeys((1, cores)):
        environment = {**os.environ, **dict.fromkeys(VARIABLES, str(threads))}
        command = [sys.executable, __file__, "--alone", *given]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        print(f"BLAS with {threads} thread{'s' * (threads > 1)}: {1e3 * float(done.stdout):.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
