"""Random graphs of compiled bodies, launched as loops, beside the same tasks one by one in NumPy.

A program is a seed: a few data, a graph of random kernels, fills, copies, reductions and assignments, perhaps with
graphs, repetitions and loops in it, and launches with other numbers and other data, between tasks that are no part of
it. Bodies take random time, so that queues run ahead of each other. The last launches may be on their way when the graph
is closed and its data are dropped. All that is read must be equal, bit by bit.

    python tests/properties/native_programs.py 17
    python tests/properties/native_programs.py 0 20000
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import stf
from stf._recording import persistent, schedules

BACKEND = os.environ.get("STF_TEST_GRAPH_BACKEND", "persistent")
SIZE = 6


def delayed(i: int, x: Any, k: int) -> float:
    """Take some time, and return 0: too complicated for a compiler to leave out."""
    found = 0.0
    for j in range(k):
        found += x[i] * j
    return found * 0.0 if found == found and abs(found) < 1e300 else 0.0


class Step:
    """One task of a program: what it does in stf, and what in NumPy."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.kind = rng.choice(["axpy", "axpy", "blend", "shift", "narrow", "fill", "copy", "sum", "bins", "assign"])
        self.x, self.y = rng.sample(range(count), 2)
        self.s = rng.randint(0, 1)
        self.number = rng.choice([0.5, -0.25, 0.125])
        self.is_param = rng.random() < 0.4
        self.wait = rng.choice([0, 0, 0, 30, 300, 3000])
        self.device = rng.random()

    def submit(self, program: Any, params: dict[str, Any]) -> None:
        ctx, x, y, s = program.ctx, program.data[self.x], program.data[self.y], program.scalars[self.s]
        a = params["a"] * self.number if self.is_param else self.number
        k = self.wait
        place = (stf.exec_place.device(int(self.device * program.devices)),) if program.devices > 1 else ()
        if self.kind == "axpy":

            @ctx.parallel_for(*place, x.shape, x.read(), y.rw(), args=(a, k))
            def axpy(i, x, y, a, k):
                y[i] = 0.5 * y[i] + a * x[SIZE - 1 - i] + delayed(i, x, k)

        elif self.kind == "blend":

            @ctx.parallel_for(*place, x.shape, x.rw(), y.rw(), args=(a, k))
            def blend(i, x, y, a, k):
                x[i] = 0.25 * x[i] + a * y[i] + delayed(i, x, k)
                y[i] = y[i] * 0.5 - x[i]

        elif self.kind == "shift":

            @ctx.parallel_for(*place, x.shape, x.rw(), args=(k,))
            def shift(i, x, k):
                x[i] = 0.5 * x[i] + i + delayed(i, x, k)

        elif self.kind == "narrow":

            @ctx.parallel_for(*place, x.shape, x.read(), y.write(), s.read(), args=(a,))
            def narrow(i, x, y, s, a):
                y[i] = a * s + x[i] / 2

        elif self.kind == "fill":
            ctx.fill(x, a)
        elif self.kind == "copy":
            ctx.copy(x, y)
        elif self.kind == "sum":
            ctx.parallel_for(*place, x.shape, x.read(), s.reduce(stf.reducer.sum))(lambda i, x: x[i] * 0.125)
        elif self.kind == "bins":

            @ctx.parallel_for(*place, x.shape, x.read(), y.reduce(stf.reducer.max))
            def bins(i, x, y):
                y[i // 2] = max(y[i // 2], x[i])

            ctx.fill(y, a)  # which are minus infinity where nothing came
        else:
            s.assign(program.scalars[1 - self.s] * 0.5 + a)

    def compute(self, data: list[Any], scalars: list[Any], a: float) -> None:
        """Do the same in NumPy."""
        number = a * self.number if self.is_param else self.number
        x, y = data[self.x], data[self.y]
        if self.kind == "axpy":
            y[:] = 0.5 * y + number * x[::-1] + 0.0
        elif self.kind == "blend":
            x[:] = 0.25 * x + number * y + 0.0
            y[:] = y * 0.5 - x
        elif self.kind == "shift":
            x[:] = 0.5 * x + np.arange(SIZE) + 0.0
        elif self.kind == "narrow":
            y[:] = number * scalars[self.s] + x / 2
        elif self.kind in ("fill", "bins"):
            (x if self.kind == "fill" else y)[:] = number
        elif self.kind == "copy":
            y[:] = x
        elif self.kind == "sum":
            scalars[self.s] = summed(x * 0.125)
        else:
            scalars[self.s] = scalars[1 - self.s] * 0.5 + number


def summed(values: Any) -> float:
    """Return the sum in the order in which a compiled loop adds: four results side by side, then the rest."""
    lanes = [0.0] * 4
    whole = len(values) // 4 * 4
    for i in range(whole):
        lanes[i % 4] += float(values[i])
    for i in range(whole, len(values)):
        lanes[0] += float(values[i])
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


class Program:
    """One program."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.count = rng.randint(2, 6)
        self.devices = rng.choice([1, 1, 1, 2])
        self.workers = rng.randint(1, 8)
        self.steps = [Step(rng, self.count) for _ in range(rng.randint(1, 25))]
        self.inner = [Step(rng, self.count) for _ in range(rng.randint(1, 4))] if rng.random() < 0.3 else []
        self.block = rng.choice(["graph", "repeat", "while"]) if self.inner else ""
        self.turns = rng.randint(1, 4)
        self.at = rng.randint(0, len(self.steps))

    def run(self) -> None:
        """Run it, and compare."""
        rng = self.rng
        arrays = [np.arange(SIZE) * 0.1 + i for i in range(self.count + 1)]
        self.model, self.numbers = [array.copy() for array in arrays], [1.0, 2.0]
        where = list(range(self.count))  # which of the model's arrays stand for the recorded data
        devices = "cpu" if self.devices == 1 else "cpu:2"
        with stf.context(devices=devices, workers=self.workers) as ctx:
            self.ctx = ctx
            self.data = [ctx.logical_data(array.copy()) for array in arrays]
            self.scalars = [ctx.logical_data(np.array(number)) for number in self.numbers]
            self.turn = ctx.logical_data(np.array(0.0))
            graph = self.record(ctx)
            for _ in range(rng.randint(1, 6)):
                a, used = rng.choice([1.0, 0.5, 2.0]), self.used()
                if used and rng.random() < 0.25:
                    k = rng.choice(used)
                    graph.launch({self.data[k]: self.data[self.count]}, a=a)
                    where[k] = self.count
                    self.compute(where, a)
                    where[k] = k
                else:
                    graph.launch(a=a)
                    self.compute(where, a)
                if rng.random() < 0.3:
                    step = Step(rng, self.count)
                    step.is_param = False
                    step.submit(self, {})
                    step.compute(self.model, self.numbers, a)
                if rng.random() < 0.3:
                    self.compare(rng.randrange(self.count + 1))
            self.told = graph.explain()
            self.let_go(graph, where)
            for i in range(self.count + 1):
                self.compare(i)
            found = [float(ctx.wait(s)) for s in self.scalars]
            assert found == self.numbers, (found, self.numbers)
            ctx.check_state()
        if BACKEND == "persistent":
            assert "a persistent loop" in self.told or self.block == "while", self.told

    def let_go(self, graph: Any, where: list[int]) -> None:
        """Perhaps close the graph, and drop some of its data, while launches with other data are on their way."""
        used = self.used()
        if not used or self.rng.random() < 0.5:
            return
        k, other = self.rng.choice(used), self.data[self.count]
        where[k] = self.count
        self.ctx.task(other.rw())(lambda _: time.sleep(0.001))
        for a in (2.0, 0.5):
            graph.launch({self.data[k]: other}, a=a)
            self.compute(where, a)
        graph.close()
        self.data[k] = None
        self.ctx.fill(self.turn, 0.0)  # a call that takes back the memory of what was dropped

    def used(self) -> list[int]:
        """Return the data that the graph uses."""
        found: set[int] = set()
        for step in [*self.steps, *self.inner]:
            found.update([] if step.kind == "assign" else [step.x])
            found.update([] if step.kind in ("assign", "shift", "fill", "sum") else [step.y])
        return sorted(found)

    def record(self, ctx: Any) -> Any:
        """Return the graph."""
        inner = None
        if self.block == "graph":
            inner = ctx.task_graph("inner", backend=BACKEND)
            b = inner.param("b", 1.0)
            with inner:
                for step in self.inner:
                    step.submit(self, {"a": b})
        graph = ctx.task_graph("steps", backend=BACKEND)
        a = graph.param("a", 1.0)
        with graph:
            for number in range(len(self.steps) + 1):
                if number == self.at and self.inner:
                    self.record_inner(ctx, inner, a)
                if number < len(self.steps):
                    self.steps[number].submit(self, {"a": a})
        return graph

    def record_inner(self, ctx: Any, inner: Any, a: Any) -> None:
        """Record what is nested."""
        if self.block == "graph":
            for turn in range(self.turns):
                inner.launch(b=a * (turn + 1))
            return
        if self.block == "while":
            ctx.fill(self.turn, 0.0)
        loop = ctx.repeat(self.turns) if self.block == "repeat" else ctx.while_loop(self.turn < self.turns)
        with loop:
            for step in self.inner:
                step.is_param = False
                step.submit(self, {})
            if self.block == "while":
                self.turn.assign(self.turn + 1)

    def compute(self, where: list[int], a: float) -> None:
        """Do a launch in NumPy."""
        data = [self.model[i] for i in where]
        for number in range(len(self.steps) + 1):
            if number == self.at:
                for turn in range(self.turns if self.inner else 0):
                    for step in self.inner:
                        step.compute(data, self.numbers, a * (turn + 1))
            if number < len(self.steps):
                self.steps[number].compute(data, self.numbers, a)

    def compare(self, i: int) -> None:
        if self.data[i] is None:
            return
        found = self.data[i].numpy()
        assert np.array_equal(found, self.model[i]), (i, found, self.model[i])


def run_program(seed: int) -> None:
    """Run one program; several queues for however little work."""
    with (
        mock.patch.multiple(schedules, WAKE_NS=0.0, HOP_NS=0.0),
        mock.patch.object(persistent, "usable_cores", lambda: 8),
    ):
        try:
            Program(seed).run()
        except BaseException as error:
            raise AssertionError(f"program {seed}: {type(error).__name__}: {error}") from error


def main() -> None:
    first = int(sys.argv[1])
    last = int(sys.argv[2]) if len(sys.argv) > 2 else first + 1
    for seed in range(first, last):
        run_program(seed)
    print(f"{last - first} programs, 0 wrong")


if __name__ == "__main__":
    main()
