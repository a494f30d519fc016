"""Dask: ``dask.delayed`` on threads, and a distributed cluster in this process whose one worker has a thread per core."""

from __future__ import annotations

from kernel import CORES, make_output

from . import Missing, Runner

__all__ = ["DaskDelayed", "DaskDistributed"]


class DaskDelayed(Runner):
    """The graph is made of delayed calls, and computed at once."""

    name = "dask.delayed"
    most = 2_000

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        try:
            import dask
        except ImportError as error:
            raise Missing(f"pip install dask ({error})") from error
        self.compute = dask.compute
        self.task = dask.delayed(make_output, pure=False)
        self.last = []

    def run(self, steps, iterations):
        kept, row, task = [], [], self.task
        for step in range(steps):
            before, row = row, []
            for column, inputs in enumerate(self.graph.row(step)):
                row.append(task(step, column, iterations, *[before[i] for i in inputs]))
            kept.append(row)  # it computes what it is asked for, and what that needs
        (done,) = self.compute(kept, scheduler="threads", num_workers=CORES)
        self.last = done[:-3:-1]

    def rows(self):
        return self.last


class DaskDistributed(Runner):
    """The tasks are submitted one by one, with the futures that they read."""

    name = "dask.distributed"
    most = 2_000

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        try:
            from dask.distributed import Client, LocalCluster, wait
        except ImportError as error:
            raise Missing(f"pip install distributed ({error})") from error
        self.wait = wait
        self.cluster = LocalCluster(
            n_workers=1, threads_per_worker=CORES, processes=False, dashboard_address=None, protocol="inproc://"
        )
        self.client = Client(self.cluster)
        self.last = []

    def run(self, steps, iterations):
        submit, kept, row = self.client.submit, [], []
        for step in range(steps):
            before, row = row, []
            for column, inputs in enumerate(self.graph.row(step)):
                row.append(submit(make_output, step, column, iterations, *[before[i] for i in inputs], pure=False))
            kept.append(row)  # the scheduler forgets tasks whose future is gone
        self.wait([future for row in kept for future in row])
        self.last = kept[:-3:-1]

    def rows(self):
        return [self.client.gather(row) for row in self.last]

    def close(self):
        self.last = []
        self.client.close()
        self.cluster.close()
