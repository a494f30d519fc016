"""``concurrent.futures``: tasks are submitted in order, and wait on their worker for the futures that they read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from kernel import CORES, make_output

from . import Runner

__all__ = ["Futures"]


class Futures(Runner):
    """Never a deadlock: workers take tasks in the order of submission, so what they wait for has been taken before."""

    name = "concurrent.futures"

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        self.pool = ThreadPoolExecutor(CORES)
        self.last = []

    def run(self, steps, iterations):
        submit, before, row = self.pool.submit, [], []
        for step in range(steps):
            before, row = row, []
            for column, inputs in enumerate(self.graph.row(step)):
                row.append(submit(after, step, column, iterations, [before[i] for i in inputs]))
        self.last = [row, before]
        for future in row + before:
            future.result()

    def rows(self):
        return [[future.result() for future in row] for row in self.last]

    def close(self):
        self.pool.shutdown()


def after(step, column, iterations, futures):
    """Run a task when what it reads is there."""
    return make_output(step, column, iterations, *[future.result() for future in futures])
