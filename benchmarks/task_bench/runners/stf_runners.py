"""stf: two rows of logical data, of which each step reads one and writes the other.

The same tasks are streamed, or a period of the graph is recorded and launched again and again. The steps before the
first period are streamed in all of them.
"""

from __future__ import annotations

import functools
import linecache
from typing import Any

import numpy as np
from kernel import BUFFER, LENGTH, cuda_source, kernel, python_source

import stf
from stf import con, mem, par

from . import Missing, Runner

__all__ = ["AutoReplay", "Functions", "Kernels", "PersistentGraph", "Replay", "TaskGraph"]


@stf.task(pure=True)
def point(step: int, column: int, iterations: int, out: stf.Write, *inputs: stf.Read) -> None:
    kernel(step, column, iterations, out, *inputs)


@stf.task(pure=True)
def point_on_gpu(step: int, column: int, iterations: int, out: stf.Write, *inputs: stf.Read) -> None:
    compiled(len(inputs))((1,), (BUFFER,), (step, column, iterations, out, *inputs))


class StfRunner(Runner):
    """Tasks of a context. What is recorded calls the kernel by a function on a CPU, and launches it on a GPU."""

    kind = "stf"
    options: dict[str, Any] = {}
    compiles = False  # the body of a task on a CPU, too, so that it needs no Python
    lengths = (1,)  # the periods that are recorded together

    def __init__(self, graph, devices):
        self.graph = graph
        self.context = stf.context(devices=devices, **self.options)
        make = self.context.logical_data_zeros
        self.data = [[make(LENGTH, name=f"row {k}, {i}") for i in range(graph.width)] for k in range(2)]
        self.on_gpu = devices.startswith("cuda")
        self.submit = self.launch if self.on_gpu else self.loop if self.compiles else self.call
        self.steps = 0

    def call(self, first, last, base, iterations):
        """Submit the tasks of some steps, as functions; `base` is added to their step."""
        task = point_on_gpu if self.on_gpu else point
        for step in range(first, last):
            number, outs, before = base + step, self.data[step % 2], self.data[(step - 1) % 2]
            for column, inputs in enumerate(self.graph.row(step)):
                task(number, column, iterations, outs[column], *[before[i] for i in inputs])

    def launch(self, first, last, base, iterations):
        """Submit the tasks of some steps, as launches of a CUDA kernel."""
        launch_kernel = self.context.launch_kernel
        for step in range(first, last):
            number, outs, before = base + step, self.data[step % 2], self.data[(step - 1) % 2]
            for column, inputs in enumerate(self.graph.row(step)):
                accesses = [outs[column].write(), *[before[i].read() for i in inputs]]
                launch_kernel(compiled(len(inputs)), (1, BUFFER), number, column, iterations, *accesses)

    def loop(self, first, last, base, iterations):
        """Submit the tasks of some steps, as loops."""
        parallel_for = self.context.parallel_for
        for step in range(first, last):
            outs, before = self.data[step % 2], self.data[(step - 1) % 2]
            for column, inputs in enumerate(self.graph.row(step)):
                accesses = [outs[column].write(), *[before[i].read() for i in inputs]]
                parallel_for((1,), *accesses, args=(base, step, column, iterations))(body(len(inputs)))

    def run(self, steps, iterations):
        self.steps = steps
        self.submit(0, self.graph.first, 0, iterations)
        base, left = 0, steps - self.graph.first
        for periods in self.lengths:
            while left - base >= periods * self.graph.period:
                self.launch_periods(periods, base, iterations)
                base += periods * self.graph.period
        self.context.synchronize()

    def launch_periods(self, periods, base, iterations):
        """Submit the steps of so many periods, `base` steps after the first one."""
        first = self.graph.first
        self.submit(first, first + periods * self.graph.period, base, iterations)

    def rows(self):
        widths = [len(self.graph.row(self.steps - 1 - back)) for back in range(2)]
        return [
            [data.numpy() for data in self.data[(self.steps - 1 - back) % 2][:width]]
            for back, width in enumerate(widths)
        ]

    def close(self):
        self.context.finalize()


class Functions(StfRunner):
    """Every task is submitted in each step, as a call of a task function."""

    name = "stf, streamed"

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        self.submit = self.call


class Kernels(StfRunner):
    """The same by `launch_kernel`; on a CPU by `parallel_for`, over one element."""

    name = "stf, kernels"
    compiles = True


class TaskGraph(StfRunner):
    """A period is recorded, and launched with the number of its first step as a parameter."""

    name = "stf, task_graph"
    graph_options: dict[str, Any] = {}

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        try:
            self.recorded = {periods: self.record(periods) for periods in self.lengths}
        except (TypeError, ValueError) as error:
            self.context.finalize()
            raise Missing(str(error)) from error

    def record(self, periods):
        """Return a graph of so many periods."""
        first, recorded = self.graph.first, self.context.task_graph("period", **self.graph_options)
        base, iterations = recorded.param("base", 0), recorded.param("iterations", 1)
        with recorded:
            self.submit(first, first + periods * self.graph.period, base, iterations)
        return recorded

    def launch_periods(self, periods, base, iterations):
        self.recorded[periods].launch(base=base, iterations=iterations)


class PersistentGraph(TaskGraph):
    """The same of compiled bodies, launched without Python; on a GPU as one kernel, by bodies in Python."""

    name = "stf, persistent graph"
    compiles = True
    graph_options = {"backend": "persistent"}
    lengths = (16, 1)  # a launch costs what some hundred tasks cost

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        self.most = 65_536 * graph.width  # in a short run the first step, which is streamed, would be much of the time

    def launch(self, first, last, base, iterations):
        hierarchy = par(1, con(BUFFER, mem(8 * BUFFER)))
        for step in range(first, last):
            outs, before = self.data[step % 2], self.data[(step - 1) % 2]
            for column, inputs in enumerate(self.graph.row(step)):
                accesses = [outs[column].write(), *[before[i].read() for i in inputs]]
                numbers = (base, step, column, iterations)
                self.context.launch(hierarchy, *accesses, args=numbers)(body_of_threads(len(inputs)))

    def note(self):
        return self.recorded[self.lengths[0]].explain().splitlines()[-1].strip()


class Replay(StfRunner):
    """A period is a replayed function."""

    name = "stf, @stf.replay"

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        submit, first, last = self.submit, graph.first, graph.first + graph.period

        @stf.replay
        def period(base, iterations):
            submit(first, last, base, iterations)

        self.launch_periods = lambda periods, base, iterations: period(base, iterations)


class AutoReplay(StfRunner):
    """The program of `Functions`, whose windows the context finds."""

    name = 'stf, replay="auto"'
    options = {"replay": "auto"}

    def note(self):
        return self.context.explain().partition("\n")[0]


@functools.cache
def compiled(inputs: int) -> Any:
    """Return the CUDA kernel for so many inputs."""
    import cupy

    return cupy.RawKernel(cuda_source(inputs), f"task_{inputs}")


@functools.cache
def body_of_threads(inputs: int) -> Any:
    """Return the same kernel as a body of `ctx.launch`, which reads its source."""
    text, name = python_source(inputs), f"<threads of {inputs} inputs>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = {"np": np}
    exec(compile(text, name, "exec"), scope)
    return scope["task"]


@functools.cache
def body(inputs: int) -> Any:
    """Return the body of a loop with so many inputs: `parallel_for` gives each array to a parameter of its own."""
    names = "".join(f", in{i}" for i in range(inputs))
    text = f"def task(_, out{names}, base, step, column, iterations):\n    kernel(base + step, column, iterations, out{names})\n"
    scope = {"kernel": kernel}
    exec(compile(text, f"<a task of {inputs} inputs>", "exec"), scope)
    return scope["task"]
