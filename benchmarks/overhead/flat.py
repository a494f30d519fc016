"""Whether a long run stays flat: processor time and memory per window of a million tasks.

    python benchmarks/overhead/flat.py --check
    python benchmarks/overhead/flat.py --tasks 10000000 --only "with-blocks" --plot build/flat.png

Four programs: with-blocks and function tasks on three arrays that live, and the same with a new temporary every task,
which is written, read and dropped. Processor time, of all threads, does not depend on what else the machine does.

Flat means: half of the windows, the later ones, cost at most a quarter more than the earlier ones (medians; the first
window is a warm-up), and memory grows by less than one pointer per task.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from report import print_table, show_machine

import stf

WINDOWS = 10
MOST_COST = 1.25
MOST_BYTES = 8.0
NOISE_BYTES = 1 << 20  # what an allocator may take more, however few the tasks


@dataclasses.dataclass
class Window:
    """What a window of tasks cost each, and how much more memory the process has than after the first window."""

    tasks: int
    wall_us: float
    cpu_us: float
    rss_bytes: int
    grown_mib: float = 0.0


@stf.task
def update(x: stf.Read, y: stf.ReadWrite) -> None:
    pass


@stf.task
def begin(_x: stf.Read, _temporary: stf.Write) -> None:
    pass


def with_blocks(ctx, data, count):
    x, y, z = data
    for _ in range(count // 2):
        with ctx.task(x.read(), y.rw()):
            pass
        with ctx.task(y.read(), z.rw()):
            pass


def function_tasks(ctx, data, count):
    x, y, z = data
    for _ in range(count // 2):
        update(x, y)
        update(y, z)


def with_blocks_on_temporaries(ctx, data, count):
    x, y, _ = data
    for _ in range(count // 2):
        temporary = ctx.logical_data_empty(16)
        with ctx.task(x.read(), temporary.write()):
            pass
        with ctx.task(temporary.read(), y.rw()):
            pass
        del temporary


def function_tasks_on_temporaries(ctx, data, count):
    x, y, _ = data
    for _ in range(count // 2):
        temporary = ctx.logical_data_empty(16)
        begin(x, temporary)
        update(temporary, y)
        del temporary


PROGRAMS: dict[str, Callable] = {
    "with-blocks": with_blocks,
    "function tasks": function_tasks,
    "with-blocks, temporaries": with_blocks_on_temporaries,
    "function tasks, temporaries": function_tasks_on_temporaries,
}


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    show_machine()
    programs = {name: program for name, program in PROGRAMS.items() if not options.only or name in options.only}
    found = {name: run(program, options.tasks // WINDOWS) for name, program in programs.items()}
    rows, verdicts = [], []
    for name, windows in found.items():
        for window in windows:
            rows.append(
                (
                    name,
                    f"{window.tasks:,}",
                    f"{window.wall_us:.2f}",
                    f"{window.cpu_us:.2f}",
                    f"{window.rss_bytes / 2**20:.1f}",
                    f"{window.grown_mib:+.2f}",
                )
            )
        verdicts.append(verdict(windows))
    print_table(("program", "tasks", "wall µs", "cpu µs", "RSS MiB", "grown"), rows, "lrrrrr")
    print()
    for name, (cost, nbytes, is_flat) in zip(found, verdicts, strict=True):
        print(f"{name}: cost × {cost:.2f}, {nbytes:+.2f} bytes per task: {'flat' if is_flat else 'NOT FLAT'}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps({name: [dataclasses.asdict(w) for w in windows] for name, windows in found.items()}, indent=1)
        )
    if options.plot is not None:
        from chart import draw_flat

        draw_flat(found, options.plot)
        print(f"picture: {options.plot}")
    return int(options.check and not all(is_flat for *_, is_flat in verdicts))


def run(program: Callable, count: int) -> list[Window]:
    """Run the windows in one context."""
    windows: list[Window] = []
    gc.collect()
    with stf.context(devices="cpu") as ctx:
        data = [ctx.logical_data(np.zeros(16)) for _ in range(3)]
        for i in range(WINDOWS):
            wall, cpu = time.perf_counter(), time.process_time()
            program(ctx, data, count)
            ctx.synchronize()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            windows.append(Window((i + 1) * count, wall / count * 1e6, cpu / count * 1e6, resident_bytes()))
            windows[i].grown_mib = (windows[i].rss_bytes - windows[0].rss_bytes) / 2**20
    return windows


def verdict(windows: list[Window]) -> tuple[float, float, bool]:
    """Return later cost over earlier cost, bytes per task, and whether both are flat."""
    after = windows[1:]
    half = len(after) // 2
    cost = statistics.median(w.cpu_us for w in after[-half:]) / statistics.median(w.cpu_us for w in after[:half])
    grown = windows[-1].rss_bytes - windows[0].rss_bytes
    tasks = windows[-1].tasks - windows[0].tasks
    return cost, grown / tasks, cost <= MOST_COST and grown <= max(MOST_BYTES * tasks, NOISE_BYTES)


def resident_bytes() -> int:
    """Return the resident memory of this process: now, where the system says so, else its peak."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--tasks", type=int, default=1_000_000, help="tasks per program (default: 1,000,000)")
    add("--only", nargs="*", default=[], choices=list(PROGRAMS), help="only these programs")
    add("--plot", type=pathlib.Path, help="write the picture here (PNG)")
    add("--json", type=pathlib.Path, help="write the windows here")
    add("--check", action="store_true", help="exit with 1 if a program is not flat")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
