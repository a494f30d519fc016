"""What tasks on remote workers cost, beside plain Ray tasks and `dask.delayed`, in one run.

    python benchmarks/overhead/remote.py [--tasks 2000] [--workers 2] [--json FILE]

Empty tasks in one chain: CPU time of the submitting thread, and wall time until all are done; the best of five. Tasks of
10 ms (a sleep) in chains beside each other: how much of the workers' time they fill; loopback workers run two bodies at a
time. A recording of 1,000 empty tasks in four chains, on all workers: CPU time of the submitting thread for each task,
and wall time of a launch, the best of twenty; the first row is local devices. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import stf

SLEEP_S = 0.010
RECORDED = 1000


@stf.task
def empty(x: stf.ReadWrite) -> None:
    pass


@stf.task
def sleep(x: stf.ReadWrite) -> None:
    time.sleep(SLEEP_S)


def timed(submit: Any, wait: Any) -> tuple[float, float]:
    """CPU time of this thread while it submits, and wall time, in seconds."""
    start, cpu = time.perf_counter(), time.thread_time()
    submit()
    cpu = time.thread_time() - cpu
    wait()
    return cpu, time.perf_counter() - start


def best(count: int, submit: Any, wait: Any) -> tuple[float, float]:
    """The least CPU time, and the least wall time, of so many runs."""
    runs = [timed(submit, wait) for _ in range(count)]
    return min(cpu for cpu, _ in runs), min(wall for _, wall in runs)


def measure_stf(devices: Any, tasks: int, workers: int) -> dict[str, float]:
    """The figures of a context on these devices."""
    with stf.context(devices=devices) as ctx:
        x = ctx.logical_data(np.zeros(1))
        first = empty.on(0)
        first(x)
        ctx.synchronize()
        cpu, wall = best(5, lambda: [first(x) for _ in range(tasks)], ctx.synchronize)
        four = [ctx.logical_data(np.zeros(1)) for _ in range(4)]
        count = len(ctx.devices)

        @stf.replay
        def recorded(data: Any) -> None:
            for i in range(RECORDED):
                empty.on(i % 4 % count)(data[i % 4])

        for _ in range(3):
            recorded(four)
        ctx.synchronize()
        launch_cpu, launched = best(20, lambda: recorded(four), ctx.synchronize)
        chains = [ctx.logical_data(np.zeros(1)) for _ in range(2 * workers)]
        for i, chain in enumerate(chains):
            empty.on(i % workers)(chain)
        ctx.synchronize()

        def submit() -> None:
            for _ in range(20):
                for i, chain in enumerate(chains):
                    sleep.on(i % workers)(chain)

        _, slept = timed(submit, ctx.synchronize)
    launches = {"launch_ms": launched * 1e3, "launch_cpu_us": launch_cpu / RECORDED * 1e6}
    return figures(cpu, wall, slept, tasks, workers) | launches


def figures(cpu: float, wall: float, slept: float, tasks: int, workers: int) -> dict[str, float]:
    """As they are printed; the sleeps are 20 in each of 2 chains a worker, one at a time on each."""
    return {
        "cpu_us": cpu / tasks * 1e6,
        "wall_us": wall / tasks * 1e6,
        "efficiency": 40 * SLEEP_S / slept,
    }


def measure_ray(ray: Any, tasks: int, workers: int) -> dict[str, float]:
    """Plain Ray tasks: each takes the result of the one before."""

    @ray.remote
    def nothing(x: Any) -> Any:
        return x

    @ray.remote
    def rest(x: Any) -> Any:
        time.sleep(SLEEP_S)
        return x

    def chain(body: Any, length: int, count: int) -> list[Any]:
        last = [0] * count
        for _ in range(length):
            last = [body.remote(each) for each in last]
        return last

    ray.get(chain(nothing, 10, workers))
    ends: list[Any] = []
    cpu, wall = best(5, lambda: ends.extend(chain(nothing, tasks, 1)), lambda: ray.get(ends))
    ends = []
    _, slept = timed(lambda: ends.extend(chain(rest, 20, 2 * workers)), lambda: ray.get(ends))
    return figures(cpu, wall, slept, tasks, workers)


def measure_delayed(client: Any, tasks: int, workers: int) -> dict[str, float]:
    """`dask.delayed` on a distributed client."""
    import dask

    nothing = dask.delayed(lambda x: x, pure=False)

    @dask.delayed(pure=False)
    def rest(x: Any) -> Any:
        time.sleep(SLEEP_S)
        return x

    def chain(body: Any, length: int, count: int) -> list[Any]:
        last: list[Any] = [0] * count
        for _ in range(length):
            last = [body(each) for each in last]
        return list(client.compute(last))

    client.gather(chain(nothing, 10, workers))
    ends: list[Any] = []
    cpu, wall = best(5, lambda: ends.extend(chain(nothing, tasks, 1)), lambda: client.gather(ends))
    ends = []
    _, slept = timed(lambda: ends.extend(chain(rest, 20, 2 * workers)), lambda: client.gather(ends))
    return figures(cpu, wall, slept, tasks, workers)


def measure_all(tasks: int, workers: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the figures of each contender."""
    yield "stf, local", measure_stf(f"cpu:{workers}", tasks, workers)
    yield "stf, loopback", measure_stf(f"loopback:{workers}", tasks, workers)
    if importlib.util.find_spec("ray"):
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        yield "plain Ray tasks", measure_ray(ray, tasks, workers)
        yield "stf, Ray", measure_stf(f"ray:{workers}", tasks, workers)
        ray.shutdown()
    if importlib.util.find_spec("distributed"):
        from distributed import Client, LocalCluster

        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(LocalCluster(workers, threads_per_worker=1, dashboard_address=":0"))
            client = stack.enter_context(Client(cluster))
            yield "dask.delayed", measure_delayed(client, tasks, workers)
            yield "stf, Dask", measure_stf(stf.remote(client), tasks, workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {}
    print(f"{'':18}{'CPU, µs':>10}{'wall, µs':>10}{'10 ms: filled':>15}{'launch: CPU, µs':>17}{'launch, ms':>12}")
    for name, row in measure_all(options.tasks, options.workers):
        found[name] = row
        launched = f"{row['launch_cpu_us']:17.2f}{row['launch_ms']:12.2f}" if "launch_ms" in row else ""
        print(f"{name:18}{row['cpu_us']:10.1f}{row['wall_us']:10.1f}{row['efficiency']:15.1%}{launched}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
