"""Dask's threaded scheduler: a graph by hand (``dask.threaded.get``), and one made of ``dask.delayed``."""

from __future__ import annotations

from . import CORES, Contender, Missing, Program, body

__all__ = ["DaskDelayed", "DaskGet"]


class Dask(Contender):
    most = 1_000

    def __init__(self):
        try:
            import dask
            import dask.threaded
        except ImportError as error:
            raise Missing(f"pip install dask ({error})") from error
        self.dask = dask


class DaskGet(Dask):
    """Everything is submitted as one dict; tasks that nobody follows are asked for."""

    name = "dask.threaded.get"

    def prepare(self, case, count):
        predecessors = case.predecessors(count)
        ends = set(range(len(predecessors))).difference(*predecessors)
        return GraphProgram(self.dask.threaded.get, predecessors, [f"t{i}" for i in ends])


class GraphProgram(Program):
    def __init__(self, get, predecessors, ends):
        self.get = get
        self.predecessors = predecessors
        self.ends = ends
        self.graph = {}

    def submit(self):
        for i, before in enumerate(self.predecessors):
            self.graph[f"t{i}"] = (body, *[f"t{j}" for j in before])

    def finish(self):
        self.get(self.graph, self.ends, num_workers=CORES)


class DaskDelayed(Dask):
    name = "dask.delayed"

    def prepare(self, case, count):
        return DelayedProgram(self.dask, case.predecessors(count))


class DelayedProgram(Program):
    def __init__(self, dask, predecessors):
        self.dask = dask
        self.predecessors = predecessors
        self.ends = set(range(len(predecessors))).difference(*predecessors)
        self.tasks = []

    def submit(self):
        task, tasks = self.dask.delayed(body, pure=False), self.tasks
        for before in self.predecessors:
            tasks.append(task(*[tasks[i] for i in before]))

    def finish(self):
        self.dask.compute(*[self.tasks[i] for i in self.ends], scheduler="threads", num_workers=CORES)
