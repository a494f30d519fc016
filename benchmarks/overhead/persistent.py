"""What a task costs in a graph that is launched again and again, played and as a loop: CPU µs and wall µs a task.

    python benchmarks/overhead/persistent.py [--tasks 2000] [--workers 1 2]

Rows: `empty` is a compiled body that does nothing; `parallel_for` one of 64 elements, on data of its own or in a chain;
`cholesky` a factorization by tiles, whose bodies are loops over a tile, with their arithmetic; `repeat` the same graph,
100 rounds in one launch; `steps` the loop alone, without a context. Each row has the played form of the same run.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import stf
from stf._drivers.loops import Loop


def empty(ctx: Any, tasks: int) -> int:
    data = [ctx.logical_data_zeros(1) for _ in range(16)]
    for k in range(tasks):

        @ctx.parallel_for((1,), data[k % 16].rw())
        def nothing(i, x):
            pass

    return tasks


def independent(ctx: Any, tasks: int) -> int:
    data = [ctx.logical_data_zeros(64) for _ in range(16)]
    for k in range(tasks):

        @ctx.parallel_for((64,), data[k % 16].rw())
        def add(i, x):
            x[i] += 1.0

    return tasks


def chain(ctx: Any, tasks: int) -> int:
    x, y = ctx.logical_data_zeros(64), ctx.logical_data_zeros(64)
    for k in range(tasks):
        one, other = (x, y) if k % 2 else (y, x)

        @ctx.parallel_for((64,), one.read(), other.rw())
        def add(i, x, y):
            y[i] += 0.5 * x[i]

    return tasks


def cholesky(ctx: Any, tasks: int) -> int:
    """As many tiles as give about so many tasks, of 8 x 8 numbers."""
    count = 2
    while (count + 1) * (count + 2) * (count + 3) // 6 <= tasks:
        count += 1
    size = 8
    tiles = {(i, j): ctx.logical_data(tile_of(i, j, size)) for i in range(count) for j in range(i + 1)}
    n = 0
    for k in range(count):

        @ctx.parallel_for((1,), tiles[k, k].rw())
        def potrf(_, a):
            for j in range(size):
                for p in range(j):
                    for i in range(j, size):
                        a[i, j] -= a[i, p] * a[j, p]
                root = np.sqrt(a[j, j])
                for i in range(j, size):
                    a[i, j] /= root

        n += 1
        for i in range(k + 1, count):

            @ctx.parallel_for((1,), tiles[k, k].read(), tiles[i, k].rw())
            def trsm(_, a, b):
                for j in range(size):
                    for p in range(j):
                        for i in range(size):
                            b[i, j] -= b[i, p] * a[j, p]
                    for i in range(size):
                        b[i, j] /= a[j, j]

            n += 1
        for i in range(k + 1, count):
            for j in range(k + 1, i + 1):

                @ctx.parallel_for((1,), tiles[i, k].read(), tiles[j, k].read(), tiles[i, j].rw())
                def gemm(_, a, b, c):
                    for r in range(size):
                        for p in range(size):
                            for s in range(size):
                                c[r, s] -= a[r, p] * b[s, p]

                n += 1
    return n


def tile_of(i: int, j: int, size: int) -> np.ndarray:
    """Return a tile of a matrix that stays positive, however often it is factorized anew."""
    return np.eye(size) * 4.0 if i == j else np.full((size, size), 1e-9)


def time_of(program: Any, backend: str, tasks: int, workers: int, repeat: int) -> tuple[float, float]:
    """Return CPU and wall µs a task, the best of five runs of about 50,000 tasks."""
    with stf.context(devices="cpu", workers=workers) as ctx:
        graph = ctx.task_graph(backend=backend)
        with graph:
            if repeat > 1:
                with ctx.repeat(repeat):
                    count = program(ctx, tasks) * repeat
            else:
                count = program(ctx, tasks)
        launches = max(50_000 // count, 2)
        for _ in range(3):
            graph.launch()
        ctx.synchronize()
        best_cpu = best_wall = float("inf")
        for _ in range(5):
            cpu, wall = time.process_time(), time.perf_counter()
            for _ in range(launches):
                graph.launch()
            ctx.synchronize()
            best_cpu = min(best_cpu, (time.process_time() - cpu) / (launches * count) * 1e6)
            best_wall = min(best_wall, (time.perf_counter() - wall) / (launches * count) * 1e6)
        if backend == "persistent" and repeat == 1:
            assert "a persistent loop" in graph.explain(), graph.explain()
    return best_cpu, best_wall


def time_of_steps(tasks: int) -> float:
    """Return wall µs a step of a loop whose bodies copy nothing."""
    loop = Loop([[("copy", 0, (), -1) for _ in range(tasks)]], [0] * 10, None)
    best = float("inf")
    for _ in range(20):
        loop.open()
        start = time.perf_counter()
        loop.lead(20)
        best = min(best, (time.perf_counter() - start) / (20 * tasks) * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(f"{'':14}{'workers':>8}{'played, CPU':>13}{'wall':>8}{'loop, CPU':>12}{'wall':>8}   µs a task")
    for workers in options.workers:
        rows = [("empty", empty, 1), ("parallel_for", independent, 1), ("chain", chain, 1), ("cholesky", cholesky, 1)]
        rows.append(("repeat", independent, 100))
        for name, program, repeat in rows:
            tasks = options.tasks if repeat == 1 else 20
            played = time_of(program, "play", tasks, workers, repeat)
            found = time_of(program, "persistent", tasks, workers, repeat)
            print(f"{name:14}{workers:>8}{played[0]:>13.2f}{played[1]:>8.2f}{found[0]:>12.4f}{found[1]:>8.4f}")
    print(f"{'steps':14}{1:>8}{'':>13}{'':>8}{'':>12}{time_of_steps(options.tasks):>8.4f}")


if __name__ == "__main__":
    main()
