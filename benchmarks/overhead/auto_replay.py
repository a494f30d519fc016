"""What ``replay="auto"`` costs and saves: microseconds a task of the submitting thread, as written, automatic, recorded.

    python benchmarks/overhead/auto_replay.py [--devices cuda:0] [--turns 2000]

Three programs: `walk` never repeats, so its difference is the cost of looking. `loop` repeats eight fills and copies on
the same data. `swap` repeats them on two data that change places, which are bound anew in each launch.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import stf

TASKS = 8


def body(ctx, x, y):
    ctx.copy(x, y)
    ctx.fill(x, 1.0)
    ctx.copy(y, x)
    ctx.fill(y, 2.0)
    ctx.fill(x, 3.0)
    ctx.copy(x, y)
    ctx.fill(y, 4.0)
    ctx.copy(y, x)


def walk(ctx, turns, step):
    data = [ctx.logical_data_zeros(4) for _ in range(101)]
    place = 1
    for turn in range(turns):
        place = (7 * place + turn * turn + 3) % 101
        step(ctx, data[place], data[(place + turn) % 101 if turn % 101 else (place + 1) % 101])


def loop(ctx, turns, step):
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    for _ in range(turns):
        step(ctx, x, y)


def swap(ctx, turns, step):
    x, y = ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
    for turn in range(turns):
        step(ctx, *((x, y) if (turn * turn) % 7 < 3 else (y, x)))


def time_of(program, devices, turns, replay):
    """Microseconds a task, the best of five runs."""
    best = np.inf
    for _ in range(5):
        with stf.context(devices=devices, replay=None if replay == "function" else replay) as ctx:
            step = stf.replay(body) if replay == "function" else body
            program(ctx, 20, step)
            ctx.synchronize()
            start = time.perf_counter()
            program(ctx, turns, step)
            best = min(best, time.perf_counter() - start)
    return best / (turns * TASKS) * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--turns", type=int, default=500)
    options = parser.parse_args()
    print(f"{'us a task':<10}{'as written':>12}{'automatic':>12}{'stf.replay':>12}")
    for program in (walk, loop, swap):
        times = [time_of(program, options.devices, options.turns, way) for way in (None, "auto", "function")]
        print(f"{program.__name__:<10}" + "".join(f"{each:12.2f}" for each in times))


if __name__ == "__main__":
    main()
