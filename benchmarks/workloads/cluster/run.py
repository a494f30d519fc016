"""Cholesky in tiles, and k-means, on the workers of a Ray or Dask cluster on this machine.

    python benchmarks/workloads/cluster/run.py [--workers 4] [--n 2048] [--tile 256] [--points 200000] [--rounds 13]

Each contender runs the same kernels on as many workers of one thread: stf on Ray, on Dask and on processes of its own,
plain Ray tasks, `dask.delayed` (k-means: futures) and `dask.array`. They take turns in one run, and the best of
``--repeat`` counts. Results are compared. What is not installed is left out. stf's k-means is recorded.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
HERE = os.path.dirname(os.path.abspath(__file__))
os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])  # of the workers

import argparse  # noqa: E402
import contextlib  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import stf_programs  # noqa: E402

import stf  # noqa: E402

Contender = tuple[str, Callable[[], tuple[float, np.ndarray]], Callable[[], tuple[float, np.ndarray]]]


def contenders(given: argparse.Namespace, A: Any, blocks: Any, first: Any) -> Iterator[Contender]:
    """Who takes part: a name, the Cholesky factorization, and k-means."""
    tile, rounds = given.tile, given.rounds

    def of_stf(name: str, devices: Any) -> Contender:
        return (
            name,
            lambda: stf_programs.cholesky(devices(), A, tile),
            lambda: stf_programs.kmeans(devices(), blocks, first, rounds),
        )

    yield of_stf("stf, own processes", lambda: f"loopback:{given.workers}")
    if importlib.util.find_spec("ray"):
        import ray
        import ray_programs

        ray.init(num_cpus=given.workers, include_dashboard=False, log_to_driver=False)
        yield "Ray tasks", lambda: ray_programs.cholesky(A, tile), lambda: ray_programs.kmeans(blocks, first, rounds)
        yield of_stf("stf, Ray", lambda: f"ray:{given.workers}")
        ray.shutdown()
    if importlib.util.find_spec("distributed"):
        import dask_programs
        from distributed import Client, LocalCluster

        with contextlib.ExitStack() as stack:
            cluster = LocalCluster(given.workers, threads_per_worker=1, dashboard_address=":0")
            client = stack.enter_context(Client(stack.enter_context(cluster)))
            yield (
                "dask.delayed",
                lambda: dask_programs.cholesky_delayed(client, A, tile),
                lambda: dask_programs.kmeans_delayed(client, blocks, first, rounds),
            )
            yield (
                "dask.array",
                lambda: dask_programs.cholesky_array(client, A, tile),
                lambda: dask_programs.kmeans_array(client, blocks, first, rounds),
            )
            yield of_stf("stf, Dask", lambda: stf.remote(client))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"workers": 4, "n": 2048, "tile": 256, "points": 200_000, "rounds": 13, "repeat": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json")
    given = parser.parse_args()
    chance = np.random.default_rng(0)
    A = chance.random((given.n, given.n))
    A = A @ A.T + given.n * np.eye(given.n)
    points = chance.random((given.points, 8))
    blocks = np.array_split(points, 2 * given.workers)
    first = points[:16].copy()
    factor, centers, found = np.linalg.cholesky(A), None, {}
    print(f"{'':20}{'Cholesky, s':>12}{'a round of k-means, ms':>24}")
    for name, cholesky, kmeans in contenders(given, A, blocks, first):
        times = []
        for _ in range(given.repeat):
            first_time, result = cholesky()
            assert np.allclose(np.tril(result), factor), name
            second_time, last = kmeans()
            centers = last if centers is None else centers
            assert np.allclose(last, centers), name
            times.append((first_time, second_time / (given.rounds - 3)))
        best = [min(each) for each in zip(*times, strict=True)]
        found[name] = {"cholesky_s": best[0], "round_ms": best[1] * 1e3}
        print(f"{name:20}{best[0]:12.3f}{best[1] * 1e3:24.1f}", flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
