"""A cost model of the factorization: which tile and chunk to begin with, and what bounds the time.

    python benchmarks/workloads/cholesky_gpu/plan.py 16384 1

The tasks of `stf_tiled` are scheduled on GPUs that are fluids: an operation needs so many seconds of a whole GPU, and
can use at most a share of it, since it has that many thread blocks; what is urgent is served first, the rest share
what is left in the order of submission. None begins before the host has submitted it, one task after the other. The model
leaves out memory and clocks that drop under load, so it is for comparing; `run.py --tune` measures.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import sys
from collections import defaultdict
from dataclasses import dataclass

from kernels import CHAIN
from stf_tiled import Blocks, operations

__all__ = ["CHOOSING", "Machine", "Plan", "choose", "simulate"]


@dataclass(frozen=True)
class Machine:
    """A GPU and the links between GPUs; the figures are of an H200, in SI units."""

    processors: int = 132
    rate: float = 57e12  # of products, where all processors are busy all the time
    overhead_s: float = 4e-6  # of a kernel
    potrf_s: float = 0.1e-3  # of a diagonal block: as many of its columns, one after the other,
    potrf_column_s: float = 0.75e-6  # take that long each, alone
    trsm_share: float = 0.6  # of the rate of products
    link: float = 300e9  # bytes a second, to another GPU
    link_s: float = 10e-6
    task_s: float = 30e-6  # that the host takes to submit an operation
    trsm_s: float = 280e-6  # or that one, of some eighty kernels


CHOOSING = Machine(task_s=40e-6)  # where stf chooses places, and copies more


@dataclass(frozen=True)
class Plan:
    """Settings, the time that the model gives, and what bounds it."""

    tile: int
    chunk: int
    seconds: float
    busy: float
    critical_s: float


@dataclass
class Work:
    """A task: seconds of a whole GPU, the share it can use, its data."""

    place: int
    level: int
    seconds: float
    share: float
    reads: list[object]
    writes: object
    submission_s: float
    nbytes: int = 0


def choose(order: int, devices: int, machine: Machine | None = None) -> Plan:
    """The plan that the model likes best; of those within a hundredth of its time, the one with the shortest chain."""
    plans = [
        simulate(order, tile, chunk, devices, machine)
        for tile in ((1024, 2048) if order >= 8192 else (256, 512, 1024))
        for chunk in (2, 4, 8)
    ]
    least = min(plan.seconds for plan in plans)
    return min((plan for plan in plans if plan.seconds <= 1.01 * least), key=lambda plan: plan.critical_s)


def tasks(order: int, tile: int, chunk: int, devices: int, machine: Machine) -> list[Work]:
    """The tasks in the order of submission."""
    blocks = Blocks(order, tile, chunk)
    found = []

    def rows(c: int, j: int) -> int:
        return blocks.end((c + 1) * chunk) - blocks.first_row(c, j)

    def product(m: int, n: int, k: int) -> tuple[float, float]:
        groups = -(-m // 128) * -(-n // 64)
        waves = groups / machine.processors
        share = min(1.0, waves)
        loss = -(-groups // machine.processors) / waves if waves > 1 else 1.0
        return 2 * m * n * k / machine.rate * loss + machine.overhead_s * share, share

    for name, k, j, level in operations(blocks.count, "right"):
        place = j % devices
        width = blocks.end(j + 1) - j * tile
        if name == "panel":
            alone_s = machine.potrf_s + machine.potrf_column_s * width
            found.append(Work(place, CHAIN, alone_s * 0.15, 0.15, [], ("D", j), machine.task_s))
            for c in blocks.chunks(j):
                seconds, share = product(rows(c, j), width, width // 2)
                seconds /= machine.trsm_share
                found.append(Work(place, level, seconds, share, [("D", j)], ("L", c, j), machine.trsm_s))
        else:
            across = ("L", j // chunk, k)
            seconds, share = product(width, width, tile)
            found.append(Work(place, level, seconds, share, [across], ("D", j), machine.task_s))
            for c in blocks.chunks(j):
                seconds, share = product(rows(c, j), width, tile)
                found.append(Work(place, level, seconds, share, [("L", c, k), across], ("L", c, j), machine.task_s))
    for work in found:
        if isinstance(work.writes, tuple) and work.writes[0] == "L":
            _, c, j = work.writes
            work.nbytes = 8 * rows(c, j) * (blocks.end(j + 1) - j * tile)
    return found


def simulate(order: int, tile: int, chunk: int, devices: int, machine: Machine | None = None) -> Plan:
    """Schedule the tasks; the most urgent first, then in the order of submission."""
    machine = machine or Machine()
    works = tasks(order, tile, chunk, devices, machine)
    after, missing, earliest, critical = dependencies(works, machine)
    ready: list[list[tuple[int, int]]] = [[] for _ in range(devices)]
    waiting = [(earliest[i], i) for i, count in enumerate(missing) if count == 0]
    heapq.heapify(waiting)
    left = [work.seconds for work in works]
    now, busy, open_tasks = 0.0, 0.0, len(works)
    while open_tasks:
        while waiting and waiting[0][0] <= now + 1e-12:
            _, i = heapq.heappop(waiting)
            bisect.insort(ready[works[i].place], (works[i].level, i))
        rates = speeds(ready, works)
        step = min([left[i] / rate for i, rate in rates.items()], default=float("inf"))
        if waiting:
            step = min(step, waiting[0][0] - now)
        now += step
        finished = []
        for i, rate in rates.items():
            left[i] -= rate * step
            busy += rate * step
            if left[i] <= 1e-12:
                finished.append(i)
        for i in finished:
            queue = ready[works[i].place]
            del queue[bisect.bisect_left(queue, (works[i].level, i))]
            open_tasks -= 1
            for follower, delay in after[i]:
                missing[follower] -= 1
                earliest[follower] = max(earliest[follower], now + delay)
                if missing[follower] == 0:
                    heapq.heappush(waiting, (earliest[follower], follower))
    return Plan(tile, chunk, now, busy / now / devices, critical)


def speeds(ready: list[list[tuple[int, int]]], works: list[Work]) -> dict[int, float]:
    """What share of its GPU each running task has."""
    rates = {}
    for queue in ready:
        free = 1.0
        for _, i in queue:
            if free <= 1e-9:
                break
            rates[i] = min(works[i].share, free)
            free -= rates[i]
    return rates


def dependencies(
    works: list[Work], machine: Machine
) -> tuple[dict[int, list[tuple[int, float]]], list[int], list[float], float]:
    """(task → tasks that wait for it, with the time of the copy between), counts, submissions, the critical path."""
    after: dict[int, list[tuple[int, float]]] = defaultdict(list)
    missing = [0] * len(works)
    end = [0.0] * len(works)
    submitted = list(itertools.accumulate(work.submission_s for work in works))
    writer: dict[object, int] = {}
    for i, work in enumerate(works):
        start = 0.0
        for data in dict.fromkeys([*work.reads, work.writes]):
            if data in writer:
                source = works[writer[data]]
                delay = machine.link_s + source.nbytes / machine.link if source.place != work.place else 0.0
                after[writer[data]].append((i, delay))
                missing[i] += 1
                start = max(start, end[writer[data]] + delay)
        end[i] = start + work.seconds / work.share
        writer[work.writes] = i
    return after, missing, submitted, max(end)


def main(order: int, devices: int) -> None:
    print(f"n = {order} on {devices}: tile, chunk, ms, TFLOP/s, busy, critical path in ms")
    for tile in (512, 1024, 2048):
        for chunk in (1, 2, 4, 8):
            plan = simulate(order, tile, chunk, devices)
            rate = order**3 / 3 / plan.seconds / 1e12
            print(
                f"{tile:>6} {chunk:>3} {1e3 * plan.seconds:>8.1f} {rate:>6.1f} {plan.busy:>6.0%} "
                f"{1e3 * plan.critical_s:>6.1f}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
