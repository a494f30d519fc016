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


def make_cases() -> tuple[dict[str, Callable[[int], None]], Callable[[], None]]:
    """What is measured, by name, and what waits for all of it."""
    import cupy

    ctx = stf.context(devices="cuda:0")
    stream, target = cupy.cuda.Stream(non_blocking=True), cupy.zeros(1024)
    data, token = ctx.logical_data(cupy.zeros(1024)), ctx.token()
    rows = [ctx.token() for _ in range(64)]

    @stf.task
    def bump(x: stf.ReadWrite) -> None:
        x += 1

    def chain_token(n: int) -> None:
        for _ in range(n):
            with ctx.task(token.rw()):
                pass

    def chain_data(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()):
                pass

    def stencil_2rows(n: int) -> None:
        for i in range(n):
            k = i % 62
            with ctx.task(rows[k].read(), rows[k + 1].rw(), rows[k + 2].read()):
                pass

    def function_cupy(n: int) -> None:
        for _ in range(n):
            bump(data)

    def with_block_cupy(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()) as t:
                (x,) = t.cupy()
                x += 1

    def with_block_cupy_view(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()) as t:
                t.cupy()

    def cupy_by_hand(n: int) -> None:
        array = target
        for _ in range(n):
            with stream:
                array += 1

    def settle() -> None:
        ctx.synchronize()
        stream.synchronize()

    found = locals()
    return {case: found[case] for case in CASES}, settle


if __name__ == "__main__":
    main()
