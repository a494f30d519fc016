"""What an earlier commit and this one cost, asked in turn: CPU time, so that others on the machine count for little.

    make bench AGAINST=COMMIT
    python benchmarks/overhead/against.py COMMIT --rounds 9 --rows wait host_launch

The commit is built in a worktree of its own in ``build/against``, with the same compiler flags as this tree. Each round
asks both in processes of their own, one after the other, and the first round is a warm-up. A row's times are medians
over the rounds, and its ratio the median of the ratios of the rounds. With ``--most R`` a ratio above R is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS: dict[str, tuple[str, Callable[[], float]]] = {}


def row(says: str) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Register a measurement, which returns seconds of CPU time."""

    def register(measure: Callable[[], float]) -> Callable[[], float]:
        ROWS[measure.__name__] = says, measure
        return measure

    return register


def cost(step: Callable[[], Any], count: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of a call; the first tenth warms up."""
    for _ in range(max(count // 10, 1)):
        step()
    start = clock()
    for _ in range(count):
        step()
    return (clock() - start) / count


@functools.cache
def task_function() -> Any:
    import stf

    def inc(x):
        pass

    inc.__annotations__ = {"x": stf.ReadWrite}
    return stf.task(inc)


def submitting(step: Callable[[Any], Callable[[], Any]], count: int) -> float:
    """Seconds that the submitting thread spends in a call; its tasks run beside it."""
    import stf

    with stf.context(devices="cpu", max_pending=1 << 20) as ctx:
        call = step(ctx)
        for _ in range(3):
            cost(call, count // 4, time.thread_time)
            ctx.synchronize()
        return cost(call, count, time.thread_time)


@row("import over NumPy's")
def import_() -> float:
    import numpy  # noqa: F401

    start = time.process_time()
    import stf  # noqa: F401

    return time.process_time() - start


@row("first context of a process")
def first_context() -> float:
    import stf

    start = time.process_time()
    stf.context(devices="cpu").finalize()
    return time.process_time() - start


@row("first parallel_for of a process, compiled before")
def first_kernel() -> float:
    import numpy as np

    import stf

    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(1000))
        start = time.process_time()

        @ctx.parallel_for(x.shape, x.rw())
        def inc(i, x):
            x[i] += 1

        ctx.wait(x)
        return time.process_time() - start


@row("context made and finalized")
def context() -> float:
    import stf

    return cost(lambda: stf.context(devices="cpu").finalize(), 1000)


@row("context, one function task, finalized")
def context_and_task() -> float:
    import numpy as np

    import stf

    array, inc = np.zeros(8), task_function()

    def step():
        with stf.context(devices="cpu") as ctx:
            inc(ctx.logical_data(array))

    return cost(step, 500)


@row("function task, then wait for its value")
def wait() -> float:
    import numpy as np

    import stf

    inc = task_function()
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(8))

        def step():
            inc(x)
            ctx.wait(x)

        return cost(step, 2000)


@row("function task")
def task() -> float:
    import numpy as np

    inc = task_function()

    def on_one(ctx):
        x = ctx.logical_data(np.zeros(8))
        return lambda: inc(x)

    return submitting(on_one, 4000)


@row("function task, 64 data in turn")
def task_64() -> float:
    import itertools

    import numpy as np

    inc = task_function()

    def on_many(ctx):
        take = itertools.cycle([ctx.logical_data(np.zeros(8)) for _ in range(64)]).__next__
        return lambda: inc(take())

    return submitting(on_many, 4000)


@row("host_launch")
def host_launch() -> float:
    import numpy as np

    def launch(ctx):
        x, body = ctx.logical_data(np.zeros(8)), lambda x: None
        return lambda: ctx.host_launch(x.rw(), fn=body)

    return submitting(launch, 4000)


@row("small parallel_for on a CPU")
def small_kernel() -> float:
    import numpy as np

    def run(ctx):
        x = ctx.logical_data(np.zeros(8))

        def body(i, x):
            x[i] += 1

        return lambda: ctx.parallel_for(x.shape, x.rw())(body)

    return submitting(run, 2000)


@row("a list of 1,000 data as an argument")
def list_of_data() -> float:
    import numpy as np

    import stf

    def many(xs):
        pass

    many.__annotations__ = {"xs": stf.Read}
    many = stf.task(many)

    def run(ctx):
        xs = [ctx.logical_data(np.zeros(8)) for _ in range(1000)]
        return lambda: many(xs)

    return submitting(run, 40)


@row("logical_data_zeros(8) and its first function task")
def zeros() -> float:
    inc = task_function()
    return submitting(lambda ctx: lambda: inc(ctx.logical_data_zeros(8)), 2000)


@row("task that evicts, 1,000 data")
def evict_1k() -> float:
    return evicting(1_000)


@row("task that evicts, 10,000 data")
def evict_10k() -> float:
    return evicting(10_000)


@row("task that evicts, 100,000 data")
def evict_100k() -> float:
    return evicting(100_000)


def evicting(count: int) -> float:
    """Seconds that the submitting thread spends on a task that evicts; a device has room for half of the data."""
    import itertools

    import stf

    with stf.context(devices="cpu:1", memory_limit=count // 2 * 64) as ctx:
        data = [ctx.logical_data_empty(8) for _ in range(count)]
        take = itertools.cycle(data).__next__

        def step():
            with ctx.task(take().write()):
                pass

        for _ in range(count // 2):
            step()
        ctx.synchronize()
        return cost(step, 30, time.thread_time)


@row("await handle")
def await_handle() -> float:
    return awaiting(lambda ctx, x, inc: inc(x))


@row("await x")
def await_data() -> float:
    return awaiting(lambda ctx, x, inc: x)


def awaiting(what: Callable[[Any, Any, Any], Any]) -> float:
    import numpy as np

    import stf

    inc = task_function()

    async def main():
        with stf.context(devices="cpu") as ctx:
            x = ctx.logical_data(np.zeros(8))
            for count in (50, 500):
                start = time.process_time()
                for _ in range(count):
                    await what(ctx, x, inc)
            return (time.process_time() - start) / count

    return asyncio.run(main())


def worktree_of(commit: str) -> pathlib.Path:
    """Build a commit in a worktree of its own; a second time it is there."""
    name = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True)
    folder = ROOT / "build" / "against" / name.stdout.strip()[:12]
    if not folder.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--detach", folder, commit], cwd=ROOT, check=True)
    print(f"building {commit} in {folder.relative_to(ROOT)}", flush=True)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=folder, check=True, env=os.environ | {"STF_COMPILE": "always"})
    return folder


def ask(folder: pathlib.Path, name: str) -> float | None:
    """The seconds of a row of a tree; None if that tree cannot run it."""
    cache = {"STF_CACHE_DIR": str(ROOT / "build" / "against" / "kernels")}
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "against" / "pycache")}
    found = subprocess.run(
        [sys.executable, __file__, "--measure", name],
        env=os.environ | cache | bytecode | {"PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
    )
    return json.loads(found.stdout) if found.returncode == 0 else None


def compare(folder: pathlib.Path, name: str, rounds: int) -> tuple[float, float, float] | None:
    """The medians of an earlier tree and of this one, and of the rounds' ratios."""
    pairs = []
    for number in range(rounds + 1):
        order = [folder, ROOT] if number % 2 else [ROOT, folder]
        found = {tree: ask(tree, name) for tree in order}
        if None in found.values():
            return None
        pairs.append((found[folder], found[ROOT]))
    before, now = zip(*pairs[1:], strict=True)
    ratios = [b / a for a, b in pairs[1:]]
    return statistics.median(before), statistics.median(now), statistics.median(ratios)


def in_units(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds > 1e-3 else f"{seconds * 1e6:.2f} us"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD~1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", nargs="+", choices=sorted(ROWS), default=list(ROWS))
    parser.add_argument("--most", type=float, help="the highest ratio that is no error")
    parser.add_argument("--measure", choices=sorted(ROWS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(ROWS[options.measure][1]()))
        return
    folder = worktree_of(options.commit)
    print(f"{'CPU time of':<52}{'before':>12}{'now':>12}{'ratio':>8}")
    worst = 0.0
    for name in options.rows:
        found = compare(folder, name, options.rounds)
        if found is None:
            print(f"{ROWS[name][0]:<52}{'one of the trees cannot run it':>32}", flush=True)
            continue
        before, now, ratio = found
        worst = max(worst, ratio)
        print(f"{ROWS[name][0]:<52}{in_units(before):>12}{in_units(now):>12}{ratio:>8.2f}", flush=True)
    if options.most is not None and worst > options.most:
        sys.exit(f"a ratio of {worst:.2f} is above {options.most}")


if __name__ == "__main__":
    main()
