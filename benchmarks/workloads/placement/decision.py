"""What the choice of a place costs: microseconds for 8 places and 3 accesses, and of a task in a plan of 256.

``python benchmarks/workloads/placement/decision.py`` needs no GPU. The best of several rounds counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import stf
from stf.placement.plans import plan

PLACES, ACCESSES, WINDOW = 8, 3, 256
ROUNDS, CHOICES = 20, 20_000


def best_us(work: Callable[[], object], count: int) -> float:
    """Return the microseconds of one of `count` pieces of work, in the best of several rounds."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        found.append((time.perf_counter() - start) * 1e6 / count)
    return min(found)


def main(show: Callable[[str], None] = print) -> None:
    """Print both figures."""
    with stf.context(devices=f"cpu:{PLACES}", place="auto") as ctx:
        data = [ctx.logical_data(np.zeros(1000)) for _ in range(ACCESSES)]
        for place, x in enumerate(data):
            ctx.task(place, x.rw())(lambda x: None)
        task = ctx.task(data[0].rw(), *[x.read() for x in data[1:]], name="step")
        choose, context = ctx.placement.choose, ctx

        def choices() -> None:
            for _ in range(CHOICES):
                choose(task, context)

        one_us = best_us(choices, CHOICES)
        tasks = [
            ctx.task(data[i % ACCESSES].rw(), *[x.read() for x in data if x is not data[i % ACCESSES]], name="step")
            for i in range(WINDOW)
        ]
        planned_us = best_us(lambda: plan(ctx.placement, tasks, WINDOW), WINDOW)
        for one in (task, *tasks):
            one.warns_if_unused = False
    show(f"a choice among {PLACES} places, {ACCESSES} accesses: {one_us:.2f} us")
    show(f"a task of a plan of {WINDOW}: {planned_us:.2f} us")


if __name__ == "__main__":
    main()
