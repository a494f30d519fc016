"""What tasks on remote workers cost, beside plain Ray tasks and `dask.delayed`, in one run.

    python benchmarks/overhead/remote.py [--tasks 2000] [--workers 2] [--json FILE]

Empty tasks in one chain: CPU time of the submitting thread, and wall time until all are done; the best of five. Tasks of
10 ms (a sleep) in chains beside each other: how much of the workers' time they fill; loopback workers run two bodies at a
time. A recording of 1,000 empty tasks in four chains, on all workers: CPU time of the submitting thread for each task,
and wall time of a launch, the best of twenty; the first row is local devices. "There and back" is a launch with nothing
in it: calls of an engine's own actors, one in each process, and what both answer to a call that waits. Peers that are
not installed are left out.
"""

from __future__ import annotations

import argparse
import asyncio
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


class Echo:
    """An actor that answers a call which waits when another one comes."""

    async def start(self) -> None:
        self.loop, self.bell = asyncio.get_running_loop(), asyncio.Event()

    def ring(self, content: bytes) -> None:
        self.loop.call_soon_threadsafe(self.bell.set)

    async def ring_here(self, content: bytes) -> None:
        self.bell.set()

    async def answer(self) -> bytes:
        await self.bell.wait()
        self.bell.clear()
        return bytes(100)


def there_and_back(rings: list[Any], answers: list[Any], get: Any) -> float:
    """Milliseconds of a call to each actor, and of what they answer; the best of a hundred."""
    times = []
    for _ in range(100):
        waiting = [answer() for answer in answers]
        time.sleep(0.01)  # until they are there
        start = time.perf_counter()
        for ring in rings:
            ring(bytes(100))
        get(waiting)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def ray_there_and_back(ray: Any, workers: int) -> float:
    actors = [ray.remote(Echo).options(num_cpus=0, max_concurrency=4).remote() for _ in range(workers)]
    ray.get([actor.start.remote() for actor in actors])
    return there_and_back([a.ring_here.remote for a in actors], [a.answer.remote for a in actors], ray.get)


def dask_there_and_back(client: Any) -> float:
    options = {"actor": True, "allow_other_workers": False, "pure": False}
    actors = [client.submit(Echo, workers=[each], **options).result() for each in client.nthreads()]
    for actor in actors:
        actor.start().result()

    def get(waiting: list[Any]) -> None:
        for each in waiting:
            each.result()

    return there_and_back([a.ring for a in actors], [a.answer for a in actors], get)


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
        yield "Ray, there and back", {"launch_ms": ray_there_and_back(ray, workers)}
        yield "stf, Ray", measure_stf(f"ray:{workers}", tasks, workers)
        ray.shutdown()
    if importlib.util.find_spec("distributed"):
        from distributed import Client, LocalCluster

        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(LocalCluster(workers, threads_per_worker=1, dashboard_address=":0"))
            client = stack.enter_context(Client(cluster))
            yield "dask.delayed", measure_delayed(client, tasks, workers)
            yield "Dask, there and back", {"launch_ms": dask_there_and_back(client)}
            yield "stf, Dask", measure_stf(stf.remote(client), tasks, workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    found = {}
    print(f"{'':21}{'CPU, µs':>10}{'wall, µs':>10}{'10 ms: filled':>15}{'launch: CPU, µs':>17}{'launch, ms':>12}")
    for name, row in measure_all(options.tasks, options.workers):
        found[name] = row
        cells = [row.get(key) for key in ("cpu_us", "wall_us", "efficiency", "launch_cpu_us", "launch_ms")]
        formats = ("10.1f", "10.1f", "15.1%", "17.2f", "12.2f")
        texts = [
            " " * int(form.split(".")[0]) if cell is None else f"{cell:{form}}"
            for cell, form in zip(cells, formats, strict=True)
        ]
        print(f"{name:21}" + "".join(texts).rstrip(), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
