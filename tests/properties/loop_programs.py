"""Random programs with loops, whose windows of tasks are replayed (``replay="auto"``).

A program is a seed. It is a few loops over a few data. Each loop has a body of random calls: pure functions, kernels,
copies, fills and assignments, with numbers that stay, change in each turn, or change once. Between them, in some turns,
come reads, with-blocks, functions that are not pure, data made anew, swapped or dropped, and failures. The program runs
with and without replay. All that it reads, and all data in the end, must be equal.

    python tests/properties/loop_programs.py 17
    python tests/properties/loop_programs.py 0 1000
    STF_TEST_DEVICES=cuda:0,1 python …
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import stf
from stf._recording import persistent

if os.environ.get("STF_TEST_GRAPH_BACKEND") == "persistent":  # what can be a loop is one from its first launch on
    persistent.runs_before = 0
DEVICES = os.environ.get("STF_TEST_DEVICES", "cpu")
HAVE_KERNELS = importlib.util.find_spec("numba") is not None and os.environ.get("STF_TEST_KERNELS") != "0"
SIZE = 5
OFFSET = 0.25  # a global variable that a body reads


@stf.task(pure=True)
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


@stf.task(pure=True)
def blend(a, b, x: stf.Read, y: stf.ReadWrite):
    y[...] = a * y + b * x


@stf.task(pure=True)
def shift(x: stf.ReadWrite):
    x += OFFSET


@stf.task(pure=True)
def average(parts: stf.Read, y: stf.Write):
    y[...] = sum(parts) / len(parts)


@stf.task(pure=True)
def made(a, x: stf.Read) -> stf.New["(n)->(n)"]:  # noqa: F722
    return a * x


@stf.task(pure=True)
def fragile(limit, x: stf.ReadWrite):
    if limit < 0:
        raise ValueError("too small")
    x *= 0.5


@stf.task
def impure(x: stf.ReadWrite):
    x += 1.0


class Program:
    """One program; `play` runs it in a context, and returns all that it has read."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.seed = seed
        self.count = rng.randint(3, 5)
        self.kernels = rng.random() < 0.3 and HAVE_KERNELS
        self.loops = [self.loop(rng) for _ in range(rng.randint(1, 3))]
        self.device = rng.choice(["cpu", "cpu", "cpu:2"]) if DEVICES == "cpu" else DEVICES

    def loop(self, rng):
        calls = [self.call(rng) for _ in range(rng.randint(2, 9))]
        extras = [(rng.randint(0, len(calls)), *self.extra(rng)) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
        return rng.randint(4, 16), calls, extras

    def call(self, rng):
        names = ["axpy", "axpy", "blend", "shift", "average", "made", "copy", "fill", "assign", "fragile"]
        name = rng.choice(names + (["kernel", "kernel_sum"] if self.kernels else []))
        numbers = [(rng.choice(["same", "same", "turn", "once"]), rng.choice([0.5, -0.25, 0.125])) for _ in range(2)]
        return name, rng.sample(range(self.count), 3), numbers, rng.randint(0, 1)

    def extra(self, rng):
        kinds = ["read", "read", "with", "impure", "swap", "drop", "new", "offset", "done", "fail", "place", "other"]
        return rng.choice(kinds), rng.sample(range(self.count), 2), rng.choice([1, 1, 2, 3, 7])

    def play(self, replay):
        global OFFSET
        OFFSET = 0.25
        seen = []
        with stf.context(devices=self.device, **({"replay": "auto"} if replay else {})) as ctx:
            self.ctx, self.seen = ctx, seen
            self.arrays = [np.arange(SIZE) * 0.1 + i for i in range(self.count)]
            self.data = [ctx.logical_data(a.copy()) for a in self.arrays]
            self.scalars = [ctx.logical_data(np.array(1.0 + i)) for i in range(2)]
            self.handles, self.temporary = [], None
            for turns, calls, extras in self.loops:
                for turn in range(turns):
                    for position in range(len(calls) + 1):
                        for at, kind, which, every in extras:
                            if at == position and turn % every == every - 1:
                                self.do_extra(kind, which, turn)
                        if position < len(calls):
                            self.submit(*calls[position], turn)
            for i in range(self.count):
                self.read(i)
            seen.extend(float(s.numpy()) for s in self.scalars)
            ctx.synchronize()
            assert all(handle.done() for handle in self.handles)
            self.told = ctx.explain() if replay else ""
            ctx.check_state()
        return seen

    def submit(self, name, which, numbers, where, turn):
        ctx = self.ctx
        x, y, z = (self.data[i] for i in which)
        a, b = (v * (1 + turn / 8) if k == "turn" else v + (k == "once" and turn > 6) for k, v in numbers)
        s = self.scalars[where]
        if name == "axpy":
            self.handles.append(axpy(a / 8, x, y))
        elif name == "blend":
            blend(a / 2, b / 2, x, y)
        elif name == "shift":
            shift(x)
        elif name == "average":
            average([x, y], z)
        elif name == "made":
            self.temporary = made(a, x)
            axpy(b / 8, self.temporary, y)
        elif name == "copy":
            ctx.copy(x, y)
        elif name == "fill":
            ctx.fill(x, a)
        elif name == "assign":
            s.assign(self.scalars[1 - where] * 0.5 + 0.25)
        elif name == "fragile":
            self.handles.append(fragile(turn, x))
        elif name == "kernel":

            @ctx.parallel_for(x.shape, x.read(), y.rw(), name="kernel")
            def _(i, x, y):
                y[i] = 0.5 * y[i] + a * x[i]
        else:
            ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum), name="sum")(lambda i, x: x[i] * 0.125)

    def do_extra(self, kind, which, turn):
        global OFFSET
        ctx, (i, j) = self.ctx, which
        if kind == "read":
            self.read(i)
        elif kind == "with":
            with ctx.task(self.data[i].rw()) as t:
                if not ctx.on_cuda:
                    t.numpy()[0][:] += 1.0
        elif kind == "impure":
            impure(self.data[i])
        elif kind == "swap":
            self.data[i], self.data[j] = self.data[j], self.data[i]
        elif kind == "drop":
            self.data[i] = ctx.logical_data_full(SIZE, 0.5)
        elif kind == "new":
            self.data[i] = ctx.logical_data(np.full(SIZE, 0.5 + turn))
        elif kind == "offset":
            OFFSET += 0.125
        elif kind == "done" and self.handles:
            with contextlib.suppress(stf.TaskFailedError):  # of another task in its window
                self.handles[-1].result()
        elif kind == "fail" and turn > 4:
            self.fail(i)
        elif kind == "place":
            axpy.on("host")(0.125, self.data[i], self.data[j])
        elif kind == "other":
            other = ctx.logical_data(np.full(SIZE, 2.0))
            axpy(0.125, other, self.data[i])

    def read(self, i):
        self.seen.append(self.data[i].numpy().copy())

    def fail(self, i):
        """Fail, be told, and write all anew."""
        with contextlib.suppress(stf.TaskFailedError, ExceptionGroup):
            fragile(-1, self.data[i])
            self.ctx.synchronize()
        for k, data in enumerate(self.data):
            self.ctx.fill(data, 0.5 + k)
        for s in self.scalars:
            s.assign(1.0)
        with contextlib.suppress(stf.TaskFailedError, ExceptionGroup):
            self.ctx.check_errors()


def run_program(seed):
    """Run a program with and without replay, compare, and return how many tasks were replayed."""
    program = Program(seed)
    expected = program.play(False)
    found = program.play(True)
    assert len(expected) == len(found)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert np.array_equal(one, other, equal_nan=True), f"{seed}, {number}: {one} != {other}\n{program.told}"
    words = program.told.split()
    return int(words[1]) if words[0].startswith("replay=") else 0


def main():
    first, last = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(sys.argv[1]) + 1
    replayed = 0
    for seed in range(first, last):
        try:
            replayed += run_program(seed)
        except BaseException:
            print(f"program {seed} failed", flush=True)
            raise
    print(f"{last - first} programs, {replayed} tasks replayed, 0 mismatches")


if __name__ == "__main__":
    main()
