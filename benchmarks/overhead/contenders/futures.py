"""``concurrent.futures.ThreadPoolExecutor``: a task first waits, on its worker, for the futures that it follows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from . import CORES, Contender, Program, body

__all__ = ["ThreadPool"]


class ThreadPool(Contender):
    """Never a deadlock: workers take tasks in the order of submission, so what they wait for has been taken before."""

    name = "concurrent.futures"

    def prepare(self, case, count):
        return ThreadPoolProgram(case.predecessors(count))


class ThreadPoolProgram(Program):
    def __init__(self, predecessors):
        self.predecessors = predecessors
        self.pool = ThreadPoolExecutor(CORES)
        self.futures = []

    def submit(self):
        submit, futures = self.pool.submit, self.futures
        for before in self.predecessors:
            futures.append(submit(after, [futures[i] for i in before]))

    def finish(self):
        for future in self.futures:
            future.result()

    def close(self):
        self.pool.shutdown()


def after(futures) -> None:
    for future in futures:
        future.result()
    body()
