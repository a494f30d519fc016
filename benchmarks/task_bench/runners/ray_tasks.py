"""Ray on this machine alone: remote functions in worker processes, which get the outputs of others by reference."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile

from kernel import CORES

from . import Missing, Runner

__all__ = ["Ray"]

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STORE_BYTES = 80 << 20  # the least that Ray takes is 75 MiB


class Ray(Runner):
    name = "Ray"
    most = 400
    is_here = False

    def __init__(self, graph, devices):
        super().__init__(graph, devices)
        try:
            import ray
        except ImportError as error:
            raise Missing(f"pip install ray ({error})") from error
        self.ray = ray
        if not ray.is_initialized():
            start(ray)
        self.task = ray.remote(remote_output)
        self.last = []

    def run(self, steps, iterations):
        remote, kept, row = self.task.remote, [], []
        for step in range(steps):
            before, row = row, []
            for column, inputs in enumerate(self.graph.row(step)):
                row.append(remote(HERE, step, column, iterations, *[before[i] for i in inputs]))
            kept.append(row)
        every = [reference for row in kept for reference in row]
        self.ray.wait(every, num_returns=len(every))
        self.last = kept[:-3:-1]

    def rows(self):
        return [self.ray.get(row) for row in self.last]

    def close(self):
        self.last = []


def start(ray) -> None:
    """Start Ray once: it takes seconds, and ends with this process."""
    import atexit

    folder = tempfile.mkdtemp()
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray writes one to the home folder
    ray.init(
        num_cpus=CORES,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _temp_dir=os.path.join(folder, "ray"),
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(ray.shutdown)


def remote_output(folder, *task):
    """Return the output of a task, in a worker that may not have found the kernel yet."""
    import sys

    if folder not in sys.path:
        sys.path.insert(0, folder)
    from kernel import make_output

    return make_output(*task)
