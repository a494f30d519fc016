"""What ``replay="auto"`` costs and saves: microseconds a task of the submitting thread's CPU time.

    python benchmarks/overhead/auto_replay.py [--devices cuda:0] [--turns 100] [--rounds 25]

In each round a program runs as written, with ``replay="auto"``, and as a function of `stf.replay`, in turn. A column is
the median of its rounds, and a difference is the median of the rounds' differences. Programs:

- `walk`: the same eight fills and copies, on data that never repeat. Its difference is the cost of looking.
- `pure walk`: the same, of eight calls of functions, which cost less to submit.
- `loop`: fills and copies that repeat on the same data. They are launched as one task.
- `swap`: they repeat on two data that change places, which each launch binds anew.
- `pure loop`: calls of ``@stf.task(pure=True)`` that repeat, on the same data.
"""

from __future__ import annotations

import argparse
import statistics
import time

import stf

TASKS = 8


@stf.task(pure=True)
def scale(factor, x: stf.ReadWrite):
    x *= factor


@stf.task(pure=True)
def add(x: stf.Read, y: stf.ReadWrite):
    y += x


def fills(ctx, x, y):
    ctx.copy(x, y)
    ctx.fill(x, 1.0)
    ctx.copy(y, x)
    ctx.fill(y, 2.0)
    ctx.fill(x, 3.0)
    ctx.copy(x, y)
    ctx.fill(y, 4.0)
    ctx.copy(y, x)


def calls(ctx, x, y):
    add(x, y)
    scale(0.5, x)
    add(y, x)
    scale(0.5, y)
    scale(0.5, x)
    add(x, y)
    scale(0.5, y)
    add(y, x)


def walk(data, turn):
    place = (7 * turn + turn * turn + 3) % 101
    return data[place], data[(place + turn) % 101 if turn % 101 else (place + 1) % 101]


def loop(data, turn):
    return data[0], data[1]


def swap(data, turn):
    return data[:2] if (turn * turn) % 7 < 3 else (data[1], data[0])


PROGRAMS = {
    "walk": (walk, fills),
    "pure walk": (walk, calls),
    "loop": (loop, fills),
    "swap": (swap, fills),
    "pure loop": (loop, calls),
}
WAYS = ("as written", "automatic", "stf.replay")


class Contender:
    """A context and a program, submitted in one of the ways."""

    def __init__(self, devices, way, choose, body):
        self.ctx = stf.context(devices=devices, replay="auto" if way == "automatic" else None)
        self.step = stf.replay(body) if way == "stf.replay" else body
        self.choose = choose
        self.data = [self.ctx.logical_data_zeros(4) for _ in range(101)]
        self.turn = 0

    def time_of(self, turns):
        """Return microseconds a task."""
        choose, step, ctx, data = self.choose, self.step, self.ctx, self.data
        pairs = [choose(data, turn) for turn in range(self.turn, self.turn + turns)]
        self.turn += turns
        ctx.synchronize()
        start = time.thread_time_ns()
        for x, y in pairs:
            step(ctx, x, y)
        spent = time.thread_time_ns() - start
        ctx.synchronize()
        return spent / (turns * TASKS) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--turns", type=int, default=100, help="of eight tasks, in a round")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS))
    options = parser.parse_args()
    print(f"{'us a task':<10}" + "".join(f"{way:>12}" for way in WAYS) + f"{'difference':>12}{'ratio':>8}")
    for name in options.only:
        contenders = [Contender(options.devices, way, *PROGRAMS[name]) for way in WAYS]
        rounds = [[each.time_of(options.turns) for each in contenders] for _ in range(options.rounds + 2)][2:]
        columns = [statistics.median(column) for column in zip(*rounds, strict=True)]
        difference = statistics.median(each[1] - each[0] for each in rounds)
        ratio = statistics.median(each[1] / each[0] for each in rounds)
        print(f"{name:<10}" + "".join(f"{each:12.2f}" for each in columns) + f"{difference:+12.2f}{ratio:8.2f}")
        for each in contenders:
            each.ctx.finalize()


if __name__ == "__main__":
    main()
