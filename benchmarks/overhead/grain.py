"""From which grain on tasks pay: how long a body has to take for function tasks on all cores to beat a loop.

    python benchmarks/overhead/grain.py
    python benchmarks/overhead/grain.py --plot build/grain.png --json build/grain.json

A body is ``np.sin`` over an array, in place of its own: NumPy releases the GIL for it. The tasks are independent, on
64 arrays in turn. Beside them the same bodies from a ThreadPoolExecutor, which orders nothing. What is compared runs in
turn, and a round's speed-up is taken from the loop of the same round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from contenders import CORES
from report import print_table, show_machine

import stf

ARRAYS = 64
SIZES = [2**k for k in range(6, 18)]
WELL = 0.8  # of the cores


@dataclasses.dataclass
class Point:
    """One size of array: microseconds of a body in a loop, and how much faster the tasks are done."""

    size: int
    tasks: int
    body_us: float
    speedup: float
    peer_speedup: float


@stf.task
def sine(x: stf.Read, y: stf.ReadWrite) -> None:
    np.sin(x, out=y)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    show_machine()
    points = [measure(size, options.budget_s, options.repeat) for size in options.sizes]
    print_table(
        ("elements", "tasks", "body µs", "speed-up", "of futures"),
        [
            (f"{p.size:,}", f"{p.tasks:,}", f"{p.body_us:.2f}", f"{p.speedup:.2f}", f"{p.peer_speedup:.2f}")
            for p in points
        ],
        "rrrrr",
        grouped=False,
    )
    floor, well = grain(points, 1.0), grain(points, WELL * CORES)
    print(f"\nfunction tasks pay from bodies of {describe(floor)} on ({CORES} cores)")
    print(f"and use {WELL:.0%} of the cores from {describe(well)} on")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        result = {"cores": CORES, "pays_us": floor, "well_us": well, "points": [dataclasses.asdict(p) for p in points]}
        options.json.write_text(json.dumps(result, indent=1))
    if options.plot is not None:
        from chart import draw_grain

        draw_grain(points, CORES, floor, options.plot)
        print(f"picture: {options.plot}")
    return 0


def measure(size: int, budget_s: float, repeat: int) -> Point:
    """Time the loop, the tasks and the pool in turn."""
    xs = [np.linspace(0.1, 1.0, size) for _ in range(ARRAYS)]
    ys = [np.zeros(size) for _ in range(ARRAYS)]
    probe = loop(xs, ys, 200) / 200
    count = min(max(int(budget_s / probe), ARRAYS), 20_000)
    alone, tasks, pool = [], [], []
    with stf.context(devices="cpu") as ctx, ThreadPoolExecutor(CORES) as executor:
        lx = [ctx.logical_data(x) for x in xs]
        ly = [ctx.logical_data(y) for y in ys]
        for turn in range(repeat + 1):
            times = (loop(xs, ys, count), submit(ctx, lx, ly, count), submit_futures(executor, xs, ys, count))
            if turn > 0:
                for into, seconds in zip((alone, tasks, pool), times, strict=True):
                    into.append(seconds)
    return Point(
        size,
        count,
        statistics.median(alone) / count * 1e6,
        statistics.median(a / t for a, t in zip(alone, tasks, strict=True)),
        statistics.median(a / t for a, t in zip(alone, pool, strict=True)),
    )


def loop(xs, ys, count: int) -> float:
    start = time.perf_counter()
    for i in range(count):
        np.sin(xs[i % ARRAYS], out=ys[i % ARRAYS])
    return time.perf_counter() - start


def submit(ctx, xs, ys, count: int) -> float:
    start = time.perf_counter()
    for i in range(count):
        sine(xs[i % ARRAYS], ys[i % ARRAYS])
    ctx.synchronize()
    return time.perf_counter() - start


def submit_futures(executor, xs, ys, count: int) -> float:
    start = time.perf_counter()
    futures = [executor.submit(np.sin, xs[i % ARRAYS], ys[i % ARRAYS]) for i in range(count)]
    for future in futures:
        future.result()
    return time.perf_counter() - start


def grain(points: list[Point], speedup: float) -> float:
    """Return the shortest body from which on the speed-up stays at least `speedup`, between two sizes by logarithm."""
    below = [i for i, point in enumerate(points) if point.speedup < speedup]
    if not below:
        return points[0].body_us
    if below[-1] == len(points) - 1:
        return math.inf
    a, b = points[below[-1]], points[below[-1] + 1]
    part = (speedup - a.speedup) / (b.speedup - a.speedup)
    return a.body_us * (b.body_us / a.body_us) ** part


def describe(body_us: float) -> str:
    return f"{body_us:.1f} µs" if body_us < math.inf else "more than was measured"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--sizes", type=int, nargs="*", default=SIZES, help="elements per array")
    add("--budget-s", type=float, default=0.1, help="seconds of bodies per round (default: 0.1)")
    add("--repeat", type=int, default=9, help="rounds after the warm-up (default: 9)")
    add("--plot", type=pathlib.Path, help="write the picture here (PNG)")
    add("--json", type=pathlib.Path, help="write the points here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
