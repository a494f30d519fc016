"""Plant faults in the engine, one at a time, and see that the quick tests find each.

A fault is an edit of a copy of the sources, which runs uncompiled: the ``.py`` is the source of both forms. The tests are
those of ``make test`` that need no CUDA, in their quick form, up to the first failure: first the file that is known to find
the fault, then all.

usage: run.py [--only NAME] [--processes N] [--table]
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
OF_THE_TEXT = (
    "tests/pure/test_layout.py::test_the_table_of_faults_is_the_list_that_is_planted"  # which each edit breaks
)


class Fault(NamedTuple):
    """What is wrong, the edit that makes it so, and the file of tests that finds it."""

    name: str
    module: str
    right: str
    wrong: str
    tests: str


FAULTS = [
    Fault(
        "a writer does not wait for the writer before",
        "_engine/engine.py",
        "            waits.update(version.writers)\n",
        "            waits.update(version.writers) if use.mode != WRITE else None\n",
        "tests/properties/test_programs.py",
    ),
    Fault(
        "a writer does not wait for readers",
        "_engine/engine.py",
        "                waits.update(version.readers)\n",
        "                pass\n",
        "tests/conformance/test_tasks.py",
    ),
    Fault(
        "a copy is lost",
        "_engine/coherency.py",
        "                self.port.copy(slot, target, source, unless if trip is None else trip, number)\n",
        "                (target.place == 0 or data.id % 7) and self.port.copy(slot, target, source, unless, number)\n",
        "tests/properties/test_programs.py",
    ),
    Fault(
        "who reads a copy does not wait for it",
        "_engine/coherency.py",
        "        target.ready.clear()\n        target.ready.add(event)\n",
        "        target.ready.clear()\n",
        "tests/properties/test_order.py",
    ),
    Fault(
        "other replicas stay valid after a write",
        "_engine/versions.py",
        "            other.state = INVALID\n",
        "            pass\n",
        "tests/conformance/test_data.py",
    ),
    Fault(
        "a launch does not give its turn back",
        "_recording/launches.py",
        "            routine.turn.release()\n    return 0\n",
        "            pass\n    return 0\n",
        "tests/conformance/test_graphs.py",
    ),
    Fault(
        "a reader of poisoned data runs",
        "_engine/outcomes.py",
        "    task.inputs.append(outcome)\n",
        "    pass\n",
        "tests/errors/test_failures.py",
    ),
    Fault(
        "a task that is withdrawn keeps its claims",
        "_engine/engine.py",
        "        self.unclaim(task, task.claimed)\n",
        "        pass\n",
        "tests/errors/test_failures.py",
    ),
    Fault(
        "a replay does not see that a variable of its closure has changed",
        "graphs/replay.py",
        "        return (variable.is_watched and variable.name not in self._changed) or not is_container(content)\n",
        "        return False\n",
        "tests/conformance/test_replay_guards.py",
    ),
    Fault(
        "a node of a recording does not wait for the one before",
        "_backends/graph.py",
        "            node.need(self.node_of(waits.items[i]))\n",
        "            node.need(self.node_of(waits.items[i])) if i else None\n",
        "tests/conformance/test_graphs.py",
    ),
    Fault(
        "memory is freed before its last use is over",
        "_engine/coherency.py",
        "            self.waits.clear()\n            self.add_uses(version, replica, self.waits)\n",
        "            self.waits.clear()\n",
        "tests/properties/test_programs.py",
    ),
    Fault(
        "data that are frozen for reading are written",
        "_engine/claims.py",
        "    if version.frozen & WRITE or (version.frozen and use.mode != READ):\n",
        "    if version.frozen & WRITE:\n",
        "tests/conformance/test_data.py",
    ),
    Fault(
        "a task of another thread is part of a recording",
        "_engine/thread_turns.py",
        "    if scope.thread and scope.thread != PyThread_get_thread_ident():\n        raise Other",
        "    if False:\n        raise Other",
        "tests/conformance/test_replay_threads.py",
    ),
    Fault(
        "memory that is registered again is used before its last readers are done",
        "_engine/retiring.py",
        "        last.update(version.writers)\n        last.update(version.readers)\n",
        "        last.update(version.writers)\n",
        "tests/conformance/test_dropped_arrays.py",
    ),
    Fault(
        "a use does not change the order of eviction",
        "_engine/eviction_order.py",
        "                self.move_to_end(replica, key_of_state(version_of(replica), replica))\n",
        "                pass\n",
        "tests/pure/test_eviction_order.py",
    ),
    Fault(
        "all copies come from the first replica",
        "_engine/coherency.py",
        " or (cost_s == least and replica.copy_round < best.copy_round):\n",
        ":\n",
        "tests/pure/test_copy_sources.py",
    ),
    Fault(
        "arrays that overlap are registered",
        "data/registry.py",
        "                if entry.high > wanted.low and shares_memory(wanted, entry):\n",
        "                if entry.is_same(wanted):\n",
        "tests/conformance/test_registration.py",
    ),
    Fault(
        "a replay runs where the first call ran",
        "graphs/call_pattern.py",
        "        if place != self.place:\n            return None\n",
        "",
        "tests/conformance/test_replay_guards.py",
    ),
    Fault(
        "a launch of a loop has the numbers of the one before",
        "_recording/persistent.py",
        "        words = plan.words(frame.values)\n",
        "        words = vars(plan).setdefault('last', plan.words(frame.values))\n",
        "tests/conformance/test_persistent.py",
    ),
    Fault(
        "a block of a loop on a GPU begins a step before all are done that it waits for",
        "_recording/device_loops.py",
        "len(waits), len(step.waits), step.done",
        "len(waits), min(len(step.waits), 1), step.done",
        "tests/pure/test_device_queues.py",
    ),
    Fault(
        "a step does not wait for a queue that it waited for once",
        "_recording/schedules.py",
        "                if place[need] != number and position[need] > last.get(place[need], seen[place[need]]):\n",
        "                if place[need] != number and position[need] > last.get(place[need], 9 * seen[place[need]] + 8):\n",
        "tests/properties/test_schedules.py",
    ),
    Fault(
        "a node that is played does not wait for those before",
        "_recording/playback.py",
        "        for i in range(first, last):\n            needs.add(events.items[program.needs.items[i]])\n",
        "        needs.add(start)\n",
        "tests/conformance/test_graphs.py",
    ),
    Fault(
        "autograd is on in bodies where tasks lie in each other",
        "interop/current.py",
        "        self.grad_before = is_on()\n",
        "        self.grad_before = True\n",
        "tests/pure/test_current.py",
    ),
    Fault(
        "what a lane waited for counts for later work of the other lane too",
        "_backends/lanes.py",
        "            lane.saw(index, sequence)\n        return 0\n",
        "            lane.saw(index, sequence + 1)\n        return 0\n",
        "tests/properties/test_order.py",
    ),
]


def find(fault: Fault, processes: int) -> tuple[str, float]:
    """Return the test that finds a fault, or nothing; and how many seconds that took."""
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
        told = first_failure(copy, [fault.tests]) or first_failure(copy, [*TESTS, "-n", str(processes)])
    return told, time.perf_counter() - start


def first_failure(copy: Path, tests: list[str]) -> str:
    """Return the first of the tests that fails in a copy of the project, or nothing."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "60",
        "-k",
        ROWS,
        *tests,
    ]
    environment = os.environ | {"STF_PURE": "1", "STF_TEST_QUICK": "1", "PYTHONPATH": str(copy / "src")}
    how: dict[str, Any] = {"cwd": copy, "env": environment, "capture_output": True, "text": True}
    try:
        run = subprocess.run(command, timeout=LIMIT_S, check=False, **how)
    except subprocess.TimeoutExpired:
        return f"the tests hang for {LIMIT_S} s"
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else "its process ended" if run.returncode not in (0, 5) else ""


def table() -> list[str]:
    """Return the table of faults, by module."""
    rows = sorted((fault.module, fault.name, fault.tests) for fault in FAULTS)
    head = ["| module | the fault | found by |", "|---|---|---|"]
    return head + [f"| `{module.removesuffix('.py')}` | {name} | `{tests}` |" for module, name, tests in rows]


def main() -> int:
    """Plant each fault; return how many were not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="faults with this in their names")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="print the table of docs/architecture.md, and run nothing")
    options = parser.parse_args()
    missed = 0
    if options.table:
        print(*table(), sep="\n")
        return 0
    for fault in FAULTS:
        if options.only is None or options.only in fault.name:
            found, seconds = find(fault, options.processes)
            missed += not found
            print(f"{fault.name}: {found or 'NOT FOUND'} ({seconds:.0f} s)", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main())
