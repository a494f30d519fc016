"""Whether a long run on a GPU stays flat: microseconds per task and memory, by windows of the run.

    python benchmarks/cuda/flat.py --tasks 10000000 --check

Half of the tasks are with-blocks on three arrays that live; the others write and read a temporary that is dropped at
once, so that its memory on the device goes round. Flat means: the later half of the windows costs at most a quarter
more than the earlier one (medians, the first window is a warm-up), the process grows by less than one pointer per
task, and nothing is left on the device.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time

import numpy as np

import stf

WINDOWS = 10
MOST_COST, MOST_BYTES = 1.25, 8.0
NOISE_BYTES = 4 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000_000)
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--check", action="store_true", help="fail if the run is not flat")
    options = parser.parse_args()
    with stf.context(devices=options.devices) as ctx:
        windows = run(ctx, options.tasks // WINDOWS)
    driver = ctx._driver
    show(windows)
    problems = judge(windows, options.tasks)
    if any(driver.leaks()):
        problems.append(f"left on the device (streams, events, allocations, registrations): {driver.leaks()}")
    print("flat" if not problems else "; ".join(problems))
    return 1 if options.check and problems else 0


def run(ctx, count) -> list[tuple[float, int]]:
    """(µs per task, resident bytes) of each window."""
    data = [ctx.logical_data(np.zeros(64)) for _ in range(3)]
    windows = []
    for _ in range(WINDOWS):
        gc.collect()
        start = time.perf_counter()
        blocks(ctx, data, count // 2)
        temporaries(ctx, data[0], count // 4)
        ctx.synchronize()
        windows.append(((time.perf_counter() - start) / count * 1e6, resident()))
    return windows


def blocks(ctx, data, count) -> None:
    x, y, z = data
    for _ in range(count // 2):
        with ctx.task(x.read(), y.rw()):
            pass
        with ctx.task(y.read(), z.rw()):
            pass


def temporaries(ctx, x, count) -> None:
    for _ in range(count):
        temporary = ctx.logical_data_empty(64)
        with ctx.task(x.read(), temporary.write()):
            pass
        with ctx.task(temporary.read(), x.rw()):
            pass


def resident() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def show(windows) -> None:
    first = windows[0][1]
    print(f"{'window':>6} {'us/task':>8} {'grown MiB':>10}")
    for number, (cost, memory) in enumerate(windows):
        print(f"{number:6} {cost:8.3f} {(memory - first) / 2**20:10.2f}")


def judge(windows, tasks) -> list[str]:
    """What is not flat."""
    problems = []
    costs = [cost for cost, _ in windows[1:]]
    early, late = statistics.median(costs[: len(costs) // 2]), statistics.median(costs[len(costs) // 2 :])
    if late > early * MOST_COST:
        problems.append(f"cost rises from {early:.3f} to {late:.3f} us per task")
    grown = windows[-1][1] - windows[0][1]
    per_task = grown / (tasks * (WINDOWS - 1) / WINDOWS)
    print(f"memory grows by {per_task:.2f} bytes per task")
    if per_task > MOST_BYTES and grown > NOISE_BYTES:
        problems.append(f"memory grows by {per_task:.1f} bytes per task")
    return problems


if __name__ == "__main__":
    sys.exit(main())
