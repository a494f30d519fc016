"""What a task costs that returns new data, beside the same task into data that are there.

    python benchmarks/overhead/returned_data.py [--tasks 1000] [--rounds 41] [--devices cpu]

Microseconds a task of the submitting thread's CPU time. Both programs are timed in turn, in each round, and the ratio is
the median of the rounds' ratios. A first task keeps all bodies back until all is submitted: so no worker is woken or has
the GIL meanwhile. With ``--running`` they run at once. The garbage collector is on, as it is for users.

- `chain`: each task reads what the one before returned, which nobody else holds. So each submission frees data, too.
- `fan`: each task reads the same data, and what it returns is dropped at once. The other program writes 64 data in turn.
- `kept`: as `fan`, and all that is returned is held until the round is over.
"""

import argparse
import statistics
import threading
import time

import numpy as np

import stf


@stf.task
def plus_one(x: stf.Read) -> stf.Like["x"]:  # noqa: F821
    return x + 1


@stf.task
def plus_one_into(x: stf.Read, y: stf.Write):
    return x + 1


@stf.task
def keep_back(x: stf.ReadWrite, may_go):
    may_go.wait()


def new_chain(x, spare, tasks):
    for _ in range(tasks):
        x = plus_one(x)


def old_chain(x, spare, tasks):
    y = spare[0]
    for _ in range(tasks):
        plus_one_into(x, y)
        x, y = y, x


def new_fan(x, spare, tasks):
    for _ in range(tasks):
        plus_one(x)


def old_fan(x, spare, tasks):
    for i in range(tasks):
        plus_one_into(x, spare[i & 63])


def new_kept(x, spare, tasks):
    return [plus_one(x) for _ in range(tasks)]


def old_kept(x, spare, tasks):
    return [plus_one_into(x, spare[i]) for i in range(tasks)]


PROGRAMS = {"chain": (new_chain, old_chain), "fan": (new_fan, old_fan), "kept": (new_kept, old_kept)}


def time_of(ctx, program, x, spare, tasks, running=False):
    """Return microseconds a task of this thread's CPU time."""
    ctx.synchronize()
    may_go = threading.Event()
    if not running:
        keep_back(x, may_go)
    start = time.thread_time_ns()
    kept = program(x, spare, tasks)
    spent = time.thread_time_ns() - start
    may_go.set()
    ctx.synchronize()
    del kept
    return spent / tasks / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--extent", type=int, default=4, help="elements of each array")
    parser.add_argument("--running", action="store_true", help="let bodies run while others are submitted")
    options = parser.parse_args()
    print(f"{'us a task':<10}{'new data':>10}{'existing':>10}{'ratio':>8}")
    with stf.context(devices=options.devices, max_pending=10 * options.tasks) as ctx:
        x = ctx.logical_data(np.zeros(options.extent))
        spare = [ctx.logical_data_zeros(options.extent) for _ in range(options.tasks)]
        for name, programs in PROGRAMS.items():
            found = [
                [time_of(ctx, program, x, spare, options.tasks, options.running) for program in programs]
                for _ in range(options.rounds + 2)
            ][2:]
            new, old = (statistics.median(column) for column in zip(*found, strict=True))
            ratio = statistics.median(one / other for one, other in found)
            print(f"{name:<10}{new:10.2f}{old:10.2f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
