"""Plant faults in the engine, one at a time, and see that the quick tests find each.

A fault is an edit of a copy of the sources, which runs uncompiled: the ``.py`` is the source of both forms. The tests are
those of ``make test`` that need no CUDA, in their quick form, up to the first failure.

usage: run.py [--only NAME] [--processes N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["tests/pure", "tests/conformance", "tests/errors", "tests/properties"]
ROWS = "not cpu or cpu3 and stream"
LIMIT_S = 300


class Fault(NamedTuple):
    """What is wrong, and the edit that makes it so."""

    name: str
    module: str
    right: str
    wrong: str


FAULTS = [
    Fault(
        "a writer does not wait for the writer before",
        "_engine/engine.py",
        "            waits.update(version.writers)\n",
        "            waits.update(version.writers) if use.mode != WRITE else None\n",
    ),
    Fault(
        "a writer does not wait for readers",
        "_engine/engine.py",
        "                waits.update(version.readers)\n",
        "                pass\n",
    ),
    Fault(
        "a copy is lost",
        "_engine/coherency.py",
        "                self.port.copy(slot, target, source, unless)\n",
        "                (target.place == 0 or data.id % 7) and self.port.copy(slot, target, source, unless)\n",
    ),
    Fault(
        "who reads a copy does not wait for it",
        "_engine/coherency.py",
        "        target.ready.clear()\n        target.ready.add(event)\n",
        "        target.ready.clear()\n",
    ),
    Fault(
        "other replicas stay valid after a write",
        "_engine/versions.py",
        "            other.state = INVALID\n",
        "            pass\n",
    ),
    Fault(
        "a launch does not give its turn back",
        "_recording/launches.py",
        "            routine.turn.release()\n    return 0\n",
        "            pass\n    return 0\n",
    ),
    Fault(
        "a reader of poisoned data runs",
        "_engine/outcomes.py",
        "    task.inputs.append(outcome)\n",
        "    pass\n",
    ),
    Fault(
        "a task that is withdrawn keeps its claims",
        "_engine/engine.py",
        "        self.unclaim(task, task.claimed)\n",
        "        pass\n",
    ),
    Fault(
        "a replay does not see that a variable of its closure has changed",
        "graphs/replay.py",
        "        return (variable.is_watched and variable.name not in self._changed) or not is_container(content)\n",
        "        return False\n",
    ),
    Fault(
        "a node of a recording does not wait for the one before",
        "_backends/graph.py",
        "            node.need(self.node_of(waits.items[i]))\n",
        "            node.need(self.node_of(waits.items[i])) if i else None\n",
    ),
    Fault(
        "memory is freed before its last use is over",
        "_engine/coherency.py",
        "            self.waits.clear()\n            self.add_uses(version, replica, self.waits)\n",
        "            self.waits.clear()\n",
    ),
]


def find(fault: Fault, processes: int) -> tuple[str, float]:
    """The test that finds a fault, or nothing; and how many seconds that took."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "stf")
        for name in ("src", "tests", "benchmarks", "examples", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for name in ("pyproject.toml", "README.md", "setup.py", "Makefile", "CHANGELOG.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, copy / name)
        module = copy / "src" / "stf" / fault.module
        source = module.read_text()
        if source.count(fault.right) != 1:
            raise SystemExit(f"{fault.name}: {fault.module} has no such line, or several; renew the fault")
        module.write_text(source.replace(fault.right, fault.wrong))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", str(processes), "--dist", "worksteal"]
        command += ["-p", "no:cacheprovider", "--timeout", "60", *TESTS, "-k", ROWS]
        environment = os.environ | {"STF_PURE": "1", "STF_TEST_QUICK": "1", "PYTHONPATH": str(copy / "src")}
        how: dict[str, Any] = {"cwd": copy, "env": environment, "capture_output": True, "text": True}
        try:
            run = subprocess.run(command, timeout=LIMIT_S, check=False, **how)
        except subprocess.TimeoutExpired:
            return f"the tests hang for {LIMIT_S} s", time.perf_counter() - start
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    told = failed[0].split(" - ")[0] if failed else "its process ended" if run.returncode not in (0, 5) else ""
    return told, time.perf_counter() - start


def main() -> int:
    """Plant each fault; return how many were not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="faults with this in their names")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    missed = 0
    for fault in FAULTS:
        if options.only is None or options.only in fault.name:
            found, seconds = find(fault, options.processes)
            missed += not found
            print(f"{fault.name}: {found or 'NOT FOUND'} ({seconds:.0f} s)", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
