"""What `stf.plan` predicts beside what a run takes: a factorization, a ring of blocks, and a partitioned array.

    python benchmarks/workloads/placement/predicted.py [--on cuda] [--devices 1,2]

On a CPU, bodies sleep, so that emulated devices do not share the cores. On GPUs they multiply matrices. A program runs
once to measure its tasks (`Context.calibrate`), is planned with these times, and runs again. The copies of plan and run
must be the same, but for halos on GPUs: a plan copies them, and peers read them where they are. ``--trial`` prints
Cholesky of 16 x 16 tiles beside the first trial of a simulated driver.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import contest
import programs

import stf

SLEEP_S = 4e-3
SIZES = {"cpu": 512, "cuda": 2048}  # rows and columns of a block: a GPU works longer than the host takes to submit it
TRIAL = {  # of the first simulated driver, which kept one time for each stream: by devices (ms, copies)
    16: {1: (275.5, 0), 2: (151.0, 192), 4: (81.5, 449), 8: (48.3, 830)},
    32: {1: (2031, None), 2: (1063, None), 4: (541, None), 8: (281, None)},
}


def work(*arrays: Any) -> None:
    """Take some milliseconds, and write the last array."""
    last = arrays[-1]
    if isinstance(last, np.ndarray):
        time.sleep(SLEEP_S)
        last[...] = 1.0
    else:
        for _ in range(2):
            last[...] = last @ last


def body(name: str) -> Callable[..., None]:
    """Return the body of a task of a name."""

    def run(*arrays: Any) -> None:
        work(*arrays)

    run.__name__ = name
    return run


def cholesky(ctx: stf.Context, size: int) -> None:
    """A factorization of 6 x 6 tiles, each at the place of its row."""
    n, devices = 6, len(ctx.devices)
    a = {(i, j): ctx.logical_data_zeros((size, size), name=f"{i},{j}") for i in range(n) for j in range(i + 1)}
    for k in range(n):
        ctx.task(k % devices, a[k, k].rw(), name="potrf")(body("potrf"))
        for i in range(k + 1, n):
            ctx.task(i % devices, a[k, k].read(), a[i, k].rw(), name="trsm")(body("trsm"))
        for i in range(k + 1, n):
            for j in range(k + 1, i + 1):
                ctx.task(i % devices, a[i, k].read(), a[j, k].read(), a[i, j].rw(), name="gemm")(body("gemm"))


def stencil(ctx: stf.Context, size: int) -> None:
    """Eight blocks in a ring, each of which reads both neighbours."""
    old, new = ([ctx.logical_data_zeros((size, size)) for _ in range(8)] for _ in range(2))
    for _ in range(6):
        for i in range(8):
            around = old[i - 1].read(), old[i].read(), old[(i + 1) % 8].read()
            ctx.task(i * len(ctx.devices) // 8, *around, new[i].write(), name="step")(body("step"))
        old, new = new, old


@functools.cache
def host_arrays(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays of the host, which are made once: a plan knows nothing of what that takes."""
    return np.zeros((rows, columns)), np.zeros((rows, columns))


def halo(ctx: stf.Context, size: int) -> None:
    """A partitioned array, whose parts read the edges of their neighbours."""
    place = stf.data_place.composite(ctx.devices, stf.partition("blocked", None))
    old, new = (ctx.logical_data(a, data_place=place) for a in host_arrays(len(ctx.devices) * size, size))
    for _ in range(60):
        for a, b in zip(old.parts, new.parts, strict=True):
            ctx.task(a.exec_place, a.read(halo=1), b.rw(), name="step")(body("step"))
        old, new = new, old


def timed(program: Callable[[stf.Context], None], devices: str, workers: int, **options: Any) -> Any:
    """Run a program; return its seconds and its context, which has ended all tasks."""
    with stf.context(devices=devices, workers=workers, **options) as ctx:
        ctx.synchronize()
        start = time.perf_counter()
        program(ctx)
        ctx.synchronize()
        seconds = time.perf_counter() - start
        return seconds, between(ctx.statistics().copies), ctx.calibrate() if options else None


def between(copies: dict[tuple[str, str], int]) -> int:
    """Return how many copies were between devices."""
    return sum(n for (source, target), n in copies.items() if "host" not in (source, target) and source != target)


def compare(on: str, devices: list[int], repeat: int) -> list[float]:
    """Print the table; return predicted over measured of each row."""
    print(f"{'program':<12}{'devices':>8}{'predicted':>12}{'measured':>11}{'ratio':>8}{'copies':>8}{'of the run':>12}")
    ratios = []
    for program in (cholesky, stencil, halo):

        def run(ctx: stf.Context, program: Callable[..., None] = program) -> None:
            program(ctx, SIZES[on])

        for count in devices:
            text = contest.on_devices(on, count)
            _, _, model = timed(run, text, count, observe="durations")
            kind = next(kind for kind in model.kinds if kind != "host")
            found = stf.plan(run, devices=f"{count}x{kind}", model=model, workers=count)
            runs = [timed(run, text, count)[:2] for _ in range(repeat)]
            seconds, copies = min(runs)
            ratios.append(found.makespan / seconds)
            print(
                f"{program.__name__:<12}{count:>8}{1e3 * found.makespan:>9.1f} ms{1e3 * seconds:>8.1f} ms"
                f"{ratios[-1]:>8.2f}{between(found.copies):>8}{copies:>12}"
            )
            expected = (
                0 if on == "cuda" and program is halo else between(found.copies)
            )  # peers read halos where they are
            assert copies == expected, f"{program.__name__}: {found.copies}"
    return ratios


def trial() -> None:
    """Print makespan and copies of Cholesky beside those of the first trial, whose rule of places is not known."""
    seconds = {**dict.fromkeys(programs.SECONDS, 0.34e-3), "potrf": 0.22e-3, "make": 0.0}
    link = contest.Link(5e-6, 40e9)
    ends = (("H200", "H200"), ("host", "H200"), ("H200", "host"))
    model = stf.Calibration(contest.model(seconds).durations, dict.fromkeys(ends, link))
    programs.tiles.__defaults__ = (1024,)  # rows and columns of a tile
    rules = {"(i + j) mod P": lambda count: lambda i, j: (i + j) % count, "2-D cyclic": programs.cyclic}
    for n, figures in TRIAL.items():
        for rule, at in rules.items():
            row = []
            for count, (ms, copies) in figures.items():
                start = at(count)

                def run(start: Any = start, n: int = n) -> None:
                    with stf.context() as ctx:
                        programs.cholesky(n)(ctx, start, start)

                found = stf.plan(run, devices=f"{count}xH200", model=model)
                told = "" if copies is None else f" / {copies}"
                row.append(f"{1e3 * found.makespan:.1f} / {between(found.copies)} (trial: {ms}{told})")
            print(
                f"{n} x {n} tiles, {rule}: ms / copies on {', '.join(map(str, figures))} devices\n  " + ", ".join(row)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--devices", type=contest.counts, default="1,2")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs")
    parser.add_argument("--trial", action="store_true")
    given = parser.parse_args()
    if given.trial:
        trial()
    else:
        compare(given.on, given.devices, given.repeat)


if __name__ == "__main__":
    main()
