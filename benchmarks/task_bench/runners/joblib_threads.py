"""joblib's threads: a step is one parallel call. joblib knows no dependences, so each step waits for the one before."""

from __future__ import annotations

from kernel import CORES, make_output

from . import Missing, Runner

__all__ = ["Joblib"]


class Joblib(Runner):
    name = "joblib threads"
    most = 4_000

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        try:
            import joblib
        except ImportError as error:
            raise Missing(f"pip install joblib ({error})") from error
        self.delayed = joblib.delayed(make_output)
        self.pool = joblib.Parallel(CORES, backend="threading")
        self.pool.__enter__()
        self.last = []

    def run(self, steps, iterations):
        before, row, delayed = [], [], self.delayed
        for step in range(steps):
            calls = [
                delayed(step, column, iterations, *[row[i] for i in inputs])
                for column, inputs in enumerate(self.graph.row(step))
            ]
            before, row = row, self.pool(calls)
        self.last = [row, before]

    def rows(self):
        return self.last

    def close(self):
        self.pool.__exit__(None, None, None)
