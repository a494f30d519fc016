"""Task Bench: how small tasks may be, by pattern of dependence and by who runs them.

    python benchmarks/task_bench/run.py                       # all patterns, all runners that are installed
    python benchmarks/task_bench/run.py --quick               # short runs, on a machine that others use
    python benchmarks/task_bench/run.py --devices cuda:0      # stf on a GPU
    python benchmarks/task_bench/run.py --patterns stencil_1d --runners streamed futures --json FILE --plot FILE

The table holds METG(50 %) in microseconds: the smallest granularity (wall time x cores / tasks) at which the kernel runs
at half of its peak rate or more. Each run is compared with NumPy. Slaughter et al., "Task Bench", SC 2020.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import platform
import sys
from collections.abc import Callable

import numpy
from kernel import CORES, cpu_peak_s
from metg import Curve, Point, check, measure
from patterns import PATTERNS, Graph
from runners import Missing, Runner
from runners.cuda_streams import Streams
from runners.dask_runners import DaskDelayed, DaskDistributed
from runners.futures import Futures
from runners.joblib_threads import Joblib
from runners.ray_tasks import Ray
from runners.stf_runners import AutoReplay, Functions, Kernels, PersistentGraph, Replay, TaskGraph

import stf

RUNNERS: tuple[type[Runner], ...] = (
    Functions,
    Kernels,
    TaskGraph,
    Replay,
    AutoReplay,
    PersistentGraph,
    Streams,
    Futures,
    Joblib,
    DaskDelayed,
    DaskDistributed,
    Ray,
)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.read is not None:
        return report(*read_json(options.read), options.plot)
    cores, peak_s = CORES, cpu_peak_s
    if options.devices != "cpu":
        from gpu_peak import gpu_peak_s

        cores, peak_s = 1, gpu_peak_s(options.width)
    show_machine(options, cores)
    if options.check:
        return check_all(options)
    curves, missing = run_all(options, cores, peak_s)
    if options.json is not None:
        write_json(options.json, options, cores, curves)
    for name, why in missing.items():
        print(f"left out: {name}: {why}")
    return report(curves, cores, options.plot)


def report(curves: list[Curve], cores: int, plot: pathlib.Path | None) -> int:
    """Print the tables, and draw the picture."""
    print_table("METG(50 %), us", curves, [curve.metg_us for curve in curves])
    print_table("CPU time of a task beside its kernel, us", curves, [curve.beside_us for curve in curves])
    print()
    for curve in curves:
        if curve.note:
            print(f"{curve.runner}, {curve.pattern}: {curve.note}")
    if plot is not None:
        from chart import draw

        draw(curves, cores, plot)
        print(f"picture: {plot}")
    return 0


def run_all(
    options: argparse.Namespace, cores: int, peak_s: Callable[[int], float]
) -> tuple[list[Curve], dict[str, str]]:
    """Measure each runner on each pattern; return the curves, and why runners are left out."""
    curves: list[Curve] = []
    missing: dict[str, str] = {}
    for pattern in options.patterns:
        graph = Graph(pattern, options.width)
        for made in chosen(options):
            try:
                runner = made(graph, options.devices)
            except Missing as error:
                missing[made.name] = str(error)
                continue
            try:
                curves.append(measure(runner, peak_s, cores, options.budget_s, options.repeat))
            finally:
                runner.close()
            show_curve(curves[-1])
    return curves, missing


def check_all(options: argparse.Namespace) -> int:
    """Run each pattern on each runner, a few tasks of a few iterations, and compare with NumPy."""
    for pattern in options.patterns:
        graph = Graph(pattern, options.width)
        for made in chosen(options):
            try:
                runner = made(graph, options.devices)
            except Missing as error:
                print(f"{pattern}: {made.name}: left out, {error}")
                continue
            try:
                check(runner, 16)
            finally:
                runner.close()
            print(f"{pattern}: {made.name}: as NumPy")
    return 0


def chosen(options: argparse.Namespace) -> list[type[Runner]]:
    """Return the runners whose names hold one of the words that were asked for."""
    return [made for made in RUNNERS if not options.runners or any(word in made.name for word in options.runners)]


def show_machine(options: argparse.Namespace, cores: int) -> None:
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"stf {stf.__version__}, {platform.python_implementation()} {platform.python_version()}, {CORES} cores{load}")
    print(f"width {options.width}, on {options.devices}, which counts as {cores} core{'s' * (cores > 1)}\n")


def show_curve(curve: Curve) -> None:
    """Print a curve in one line: granularity in us and efficiency, from large to small."""
    told = "  ".join(f"{p.granularity_us:.4g}:{p.efficiency:.2f}" for p in reversed(curve.points))
    print(f"{curve.pattern:<20}{curve.runner:<22}{describe(curve.metg_us):>8} us   {told}", flush=True)


def print_table(title: str, curves: list[Curve], values: list[float]) -> None:
    """Print a value for each curve, by pattern and runner."""
    names = list(dict.fromkeys(curve.runner for curve in curves))
    found = {(curve.pattern, curve.runner): describe(value) for curve, value in zip(curves, values, strict=True)}
    widths = [max(len(name), 7) + 2 for name in names]
    print(f"\n{title}")
    print(" " * 20 + "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True)))
    for pattern in dict.fromkeys(curve.pattern for curve in curves):
        cells = [f"{found.get((pattern, name), '-'):>{width}}" for name, width in zip(names, widths, strict=True)]
        print(f"{pattern:<20}" + "".join(cells))


def describe(us: float) -> str:
    """Return microseconds with three digits."""
    if not math.isfinite(us):
        return "-" if math.isnan(us) else "none"
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def write_json(path: pathlib.Path, options: argparse.Namespace, cores: int, curves: list[Curve]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [dataclasses.asdict(curve) | {"metg_us": curve.metg_us, "beside_us": curve.beside_us} for curve in curves]
    machine = {"cores": cores, "width": options.width, "devices": options.devices}
    path.write_text(json.dumps(machine | {"numpy": numpy.__version__, "curves": rows}, indent=1))


def read_json(path: pathlib.Path) -> tuple[list[Curve], int]:
    """Return the curves of an earlier run, and as how many cores its devices counted."""
    told = json.loads(path.read_text())
    known = [field.name for field in dataclasses.fields(Curve)]
    curves = []
    for row in told["curves"]:
        points = [Point(**point) for point in row["points"]]
        curves.append(Curve(**{name: row[name] for name in known} | {"points": points}))
    return curves, told["cores"]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--patterns", nargs="*", default=list(PATTERNS), choices=PATTERNS, help="only these")
    add("--runners", nargs="*", default=[], help="only runners with one of these words in their names")
    add("--width", type=int, help="columns (default: 4 for each core, 16 on a GPU)")
    add("--devices", default="cpu", help="of stf's contexts: cpu, or cuda:0 (default: cpu)")
    add("--budget-s", type=float, help="seconds of a run (default: 0.1; 0.03 with --quick)")
    add("--repeat", type=int, help="runs of a point (default: 5; 3 with --quick)")
    add("--quick", action="store_true", help="short runs")
    add("--check", action="store_true", help="compare a few tasks with NumPy, and time nothing")
    add("--json", type=pathlib.Path, help="write the curves here")
    add("--plot", type=pathlib.Path, help="write the picture here (PNG)")
    add("--read", type=pathlib.Path, help="measure nothing: show the curves of this file, of an earlier --json")
    options = parser.parse_args(arguments)
    options.width = options.width or (4 * CORES if options.devices == "cpu" else 16)
    options.budget_s = options.budget_s or (0.03 if options.quick else 0.1)
    options.repeat = options.repeat or (3 if options.quick else 5)
    return options


if __name__ == "__main__":
    sys.exit(main())
