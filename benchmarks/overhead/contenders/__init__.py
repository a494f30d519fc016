"""Who runs the cases: one module per way to run a task, all with the same two classes of methods.

A contender has a `name`, the most tasks that it is given (`most`), and ``prepare(case, count)``, which returns a
program: ``submit()`` hands the tasks over, ``finish()`` waits until they have run, ``close()`` cleans up. Only the
first two are timed. `close` of the contender itself ends what it keeps between programs.
"""

from __future__ import annotations

import os
from typing import Any

from cases import Case

__all__ = ["CORES", "Contender", "Missing", "Program", "body"]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Missing(Exception):
    """A contender is not installed, or can't be built; the message says why."""


class Program:
    """The tasks of one case, ready to be submitted once."""

    def submit(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Wait for what was submitted; nothing to do where a task runs when it is submitted."""

    def close(self) -> None:
        """Give up what the program holds."""


class Contender:
    """One way to run tasks."""

    name = ""
    kind = "rival"
    most = 1_000_000

    def prepare(self, case: Case, count: int) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Give up what is kept between programs."""


def body(*_inputs) -> None:
    """The empty body of a rival's task."""
