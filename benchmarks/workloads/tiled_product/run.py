"""A product of matrices in tiles on a CPU: BLAS as it comes, limited by stf, limited by hand, and one call of NumPy.

Several workers that call BLAS at a time, each with as many threads as there are cores, get in each other's way.

    python benchmarks/workloads/tiled_product/run.py [--order 2048] [--tile 128]
"""

from __future__ import annotations

import argparse
import contextlib
import time

import numpy as np
import threadpoolctl

import stf


@stf.task
def multiply_add(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c += a @ b


def tiled(a: np.ndarray, b: np.ndarray, tile: int, limited: bool) -> tuple[float, np.ndarray]:
    """Return the seconds that the product took, and the product."""
    c = np.zeros_like(a)
    stf.config.limit_blas = limited
    with stf.context(devices="cpu") as ctx:
        tiles_a, tiles_b, tiles_c = (ctx.logical_data(x).tiles((tile, tile)) for x in (a, b, c))
        count = tiles_a.shape[0]
        ctx.synchronize()
        start = time.perf_counter()
        for i in range(count):
            for j in range(count):
                for k in range(count):
                    multiply_add(tiles_a[i, k], tiles_b[k, j], tiles_c[i, j])
        ctx.synchronize()
        seconds = time.perf_counter() - start
    return seconds, c


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--order", type=int, default=2048, help="rows and columns of the matrices")
    parser.add_argument("--tile", type=int, default=128, help="rows and columns of a tile")
    parser.add_argument("--repeat", type=int, default=5, help="the best of so many runs")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((options.order, options.order)) for _ in range(2))
    wanted = a @ b
    forms = {
        "stf, as it comes": (contextlib.nullcontext, True),
        "stf, BLAS limited by hand": (lambda: threadpoolctl.threadpool_limits(1, "blas"), False),
        "stf, BLAS not limited": (contextlib.nullcontext, False),
    }
    best = dict.fromkeys(["NumPy, one call", *forms], float("inf"))
    for _ in range(options.repeat):
        start = time.perf_counter()
        a @ b
        best["NumPy, one call"] = min(best["NumPy, one call"], time.perf_counter() - start)
        for name, (limit, limited) in forms.items():
            with limit():
                seconds, c = tiled(a, b, options.tile, limited)
            np.testing.assert_allclose(c, wanted, rtol=1e-9, atol=1e-9 * options.order)
            best[name] = min(best[name], seconds)
    by_hand = best["stf, BLAS limited by hand"]
    print(f"float64, {options.order} x {options.order} in tiles of {options.tile}, best of {options.repeat}")
    for name, seconds in best.items():
        print(f"{name:28} {1e3 * seconds:9.1f} ms {seconds / by_hand:6.2f} x by hand")


if __name__ == "__main__":
    main()
