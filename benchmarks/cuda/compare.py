"""Two builds of stf side by side: what tasks cost their caller, burst by burst in turn.

    python benchmarks/cuda/compare.py path/to/old/src src [bursts]

Each build runs in a process of its own, which does a burst of 200 when it is asked to; so a host that is slow for some
seconds is slow for both. Microseconds a task on one GPU: the least and the median of all bursts, and the median with
the device's time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from loops import WIDTH, Loop, chain, cupy_loops, stencil, stencil_steps

import stf

TASKS = 200
CASES = (
    "chain_token",
    "chain_data",
    "stencil_2rows",
    "function_cupy",
    "with_block_cupy",
    "with_block_cupy_view",
    "cupy_by_hand",
)


def main() -> None:
    if sys.argv[1] == "--worker":
        work()
        return
    builds = sys.argv[1:3]
    bursts = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    workers = [start(build) for build in builds]
    spent: dict[tuple[int, str], list[tuple[float, float]]] = {(k, case): [] for k in (0, 1) for case in CASES}
    for burst in range(bursts):
        for case in CASES:
            for k in (0, 1) if burst % 2 else (1, 0):
                spent[k, case].append(ask(workers[k], case))
    print(f"{'':22}{'least':>16}{'median':>16}{'and done':>16}")
    for case in CASES:
        submitted = [[s for s, _ in spent[k, case]] for k in (0, 1)]
        done = [[d for _, d in spent[k, case]] for k in (0, 1)]
        columns = [*map(min, submitted), *map(statistics.median, submitted), *map(statistics.median, done)]
        print(f"{case:22}" + "".join(f"{value:8.3f}" for value in columns))
    for worker in workers:
        worker.communicate()


def start(build: str) -> subprocess.Popen[str]:
    """Start a process that imports stf from the folder `build`."""
    path = os.pathsep.join([os.path.abspath(build), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, os.path.abspath(__file__), "--worker"]
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    where = ask_line(worker)
    assert where.startswith(os.path.abspath(build)), f"stf of {build} is wanted, got {where}"
    return worker


def ask(worker: subprocess.Popen[str], case: str) -> tuple[float, float]:
    """Let a process do a burst; microseconds a task until it was submitted, and until it was done."""
    assert worker.stdin is not None
    worker.stdin.write(case + "\n")
    worker.stdin.flush()
    submitted, done = map(float, ask_line(worker).split())
    return submitted, done


def ask_line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise SystemExit("a worker ended; what it said is above")
    return line


def work() -> None:
    """Do the bursts that are asked for on the standard input."""
    cases, settle = make_cases()
    for case in CASES:
        cases[case](2 * TASKS)
    print(os.path.dirname(stf.__file__), flush=True)
    for line in sys.stdin:
        case = cases[line.strip()]
        settle()
        case(TASKS // 10)
        settle()
        start = time.perf_counter()
        case(TASKS)
        submitted = time.perf_counter()
        settle()
        done = time.perf_counter()
        print((submitted - start) / TASKS * 1e6, (done - start) / TASKS * 1e6, flush=True)


def make_cases() -> tuple[dict[str, Loop], Callable[[], None]]:
    """What is measured, by name, and what waits for all of it."""
    import cupy

    ctx = stf.context(devices="cuda:0")
    stream, data = cupy.cuda.Stream(non_blocking=True), ctx.logical_data(cupy.zeros(1024))
    rows = [[ctx.token() for _ in range(WIDTH)] for _ in range(2)]
    cases = cupy_loops(ctx, data, cupy.zeros(1024), stream)
    cases["chain_token"], cases["chain_data"] = chain(ctx, ctx.token()), chain(ctx, data)
    cases["stencil_2rows"] = stencil(ctx, list(stencil_steps(rows, 2 * TASKS)))

    def settle() -> None:
        ctx.synchronize()
        stream.synchronize()

    return cases, settle


if __name__ == "__main__":
    main()
