"""A tiled Cholesky factorization on all the GPUs there are, or on the CPU: the same lines.

     potrf(k) --> trsm(i, k) --> syrk(i, k), gemm(i, j, k) --> potrf(k + 1) --> ...
       one        for i > k         for i > j > k

Each line of `cholesky` is a task on a few tiles. Which must wait for which, and what is copied between devices, follows
from the tiles that they read and write. A block column belongs to one device; its tasks run there.

    python examples/08_cholesky_gpu.py            # n = 512, with a check
    python examples/08_cholesky_gpu.py 16384 1024 # n and tile

`benchmarks/workloads/cholesky_gpu` does it with cuBLAS and cuSOLVER, in larger blocks, and compares.
"""

import sys
import time

import numpy as np

import stf


@stf.task
def potrf(a: stf.ReadWrite) -> None:
    a[...] = np.linalg.cholesky(a)  # CuPy's on a GPU: NumPy's functions ask their arguments


@stf.task
def trsm(triangle: stf.Read, a: stf.ReadWrite) -> None:
    a[...] = np.linalg.solve(triangle, a.T).T


@stf.task
def syrk(a: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ a.T


@stf.task
def gemm(a: stf.Read, b: stf.Read, c: stf.ReadWrite) -> None:
    c -= a @ b.T


def cholesky(tiles: np.ndarray, devices: int) -> None:
    """Replace the lower triangle of tiles by those of the factor."""
    count = len(tiles)
    for k in range(count):
        potrf.on(k % devices)(tiles[k, k])
        for i in range(k + 1, count):
            trsm.on(k % devices)(tiles[k, k], tiles[i, k])
        for j in range(k + 1, count):
            syrk.on(j % devices)(tiles[j, k], tiles[j, j])
            for i in range(j + 1, count):
                gemm.on(j % devices)(tiles[i, k], tiles[j, k], tiles[i, j])


def main(order: int = 512, tile: int = 128) -> None:
    rng = np.random.default_rng(0)
    A = rng.uniform(-0.5, 0.5, (order, order))
    A = A + A.T + 2 * order * np.eye(order)
    L = A.copy()
    with stf.context() as ctx:
        tiles = ctx.logical_data(L, name="A").tiles((tile, tile))
        start = time.perf_counter()
        cholesky(tiles, len(ctx.devices))
        ctx.synchronize()
        seconds = time.perf_counter() - start
        copies = ctx.statistics().total_copies
    print(f"order {order}, tiles of {tile}, {len(ctx.devices)} devices: {1e3 * seconds:.1f} ms,", end=" ")
    print(f"{order**3 / 3 / seconds / 1e9:.1f} GFLOP/s, {copies} copies")

    L, x = np.tril(L), rng.standard_normal(order)
    error = np.linalg.norm(L @ (L.T @ x) - A @ x) / np.linalg.norm(A @ x)
    assert error < 1e-12, error


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
