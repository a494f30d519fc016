"""Ray on this machine alone: remote functions in worker processes, ordered by the references that they are given."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile

from . import CORES, Contender, Missing, Program, body

__all__ = ["Ray"]

STORE_BYTES = 80 << 20  # the least that Ray takes is 75 MiB


class Ray(Contender):
    """One Ray for all programs: it takes seconds to start."""

    name = "Ray"
    most = 200

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray writes one to the home folder
        try:
            import ray
        except ImportError as error:
            shutil.rmtree(self.folder)
            raise Missing(f"pip install ray ({error})") from error
        self.ray = ray
        ray.init(
            num_cpus=CORES,
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            _temp_dir=os.path.join(self.folder, "ray"),
        )
        self.task = ray.remote(body)

    def prepare(self, case, count):
        return RayProgram(self.ray, self.task, case.predecessors(count))

    def close(self):
        self.ray.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


class RayProgram(Program):
    def __init__(self, ray, task, predecessors):
        self.ray = ray
        self.remote = task.remote
        self.predecessors = predecessors
        self.references = []

    def submit(self):
        remote, references = self.remote, self.references
        for before in self.predecessors:
            references.append(remote(*[references[i] for i in before]))

    def finish(self):
        self.ray.get(self.references)
