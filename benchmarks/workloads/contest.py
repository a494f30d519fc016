"""What the workloads share: who takes part, the table of times, and the same program on simulated devices.

A workload has a problem, a program for `stf` and a rival by hand: each in a file of its own. All results are compared
with the rival's. Each contender begins with its data on the devices, and the time ends when these are done: the way
there and back is not in it. ``--on cuda`` runs on GPUs, ``--simulate 1,2,4,8`` plans the program for devices that are
not here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import stf
from stf._port.links import Link
from stf.observe.durations import Duration

CLASSES = range(48)  # of the bytes of a task: the times of a model here do not depend on them


def options(doc: str, sizes: dict[str, int]) -> argparse.Namespace:
    """Return the options of the command line; `sizes` are those of the problem, and their defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--on", choices=("cpu", "cuda"), default="cpu", help="emulated devices, or GPUs")
    parser.add_argument("--devices", type=counts, default="1,2", help="how many, such as 1,2")
    parser.add_argument("--simulate", type=counts, default="", help="plan for so many H200s, such as 1,2,4,8")
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def counts(text: str) -> list[int]:
    """Return the numbers of a list such as ``1,2``."""
    return [int(item) for item in text.split(",") if item]


def arrays_of(on: str) -> Any:
    """Return the library of a rival's arrays."""
    if on == "cpu":
        return np
    import cupy

    return cupy


def on_devices(on: str, count: int) -> str:
    """Return what a context is told to use."""
    return f"cpu:{count}" if on == "cpu" else "cuda:" + ",".join(map(str, range(count)))


class Taken:
    """How long a block took."""

    seconds = 0.0


@contextlib.contextmanager
def timed(settle: Callable[[], Any]) -> Iterator[Taken]:
    """Measure a block, from when all before is done to when the block is; `settle` waits for the devices."""
    taken = Taken()
    settle()
    start = time.perf_counter()
    yield taken
    settle()
    taken.seconds = time.perf_counter() - start


def by_hand(xp: Any) -> Callable[[], Any]:
    """Return what waits for a rival's device."""
    return (lambda: None) if xp is np else lambda: xp.cuda.Device().synchronize()


def on_host(xp: Any, array: Any) -> np.ndarray:
    """Return a rival's array on the host."""
    return array if xp is np else xp.asnumpy(array)


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, over the largest value."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


class Contest:
    """A table of times: each row is a contender, and how far its result is from the first one's."""

    def __init__(self, given: argparse.Namespace, title: str, tolerance: float) -> None:
        self.given, self.tolerance = given, tolerance
        self.rows: list[dict[str, Any]] = []
        self.wanted: Any = None  # the first one's result,
        self.found: Any = None  # and the last one's
        print(f"{title}, best of {given.repeat} on {given.on}")

    def enter(self, name: str, run: Callable[[], tuple[float, np.ndarray]]) -> None:
        """Run a contender, and print its row; AssertionError if its result is wrong."""
        run()  # once for what is imported and compiled
        runs = [run() for _ in range(self.given.repeat)]
        seconds = min(taken for taken, _ in runs)
        if self.wanted is None:
            self.wanted = runs[0][1]
        self.found = runs[-1][1]
        error = max(difference(result, self.wanted) for _, result in runs)
        assert error <= self.tolerance, f"{name} differs from {self.rows[0]['name']} by {error:.1e}"
        self.rows.append({"name": name, "seconds": seconds, "error": error})
        print(f"  {name:<28}{1e3 * seconds:>10.1f} ms{seconds / self.rows[0]['seconds']:>8.2f} x{error:>10.0e}")

    def simulate(self, program: Callable[..., Any], seconds: Callable[[int], dict[str, float]], **options: Any) -> None:
        """Print what the program would take on simulated devices; `seconds` of their number are what bodies take."""
        if not self.given.simulate:
            return

        def run() -> None:
            with stf.context(**options) as ctx:
                program(ctx)

        first = None
        for count in self.given.simulate:
            found = stf.plan(run, devices=f"{count}xH200", model=model(seconds(count)))
            first = first or found
            speedup = first.makespan / found.makespan
            copies = sum(n for (source, target), n in found.copies.items() if "host" not in (source, target))
            self.rows.append({"name": f"{count} simulated", "seconds": found.makespan, "copies": copies})
            print(
                f"  simulated, {count} x H200{1e3 * found.makespan:>19.1f} ms{speedup:>8.2f} x as fast as the first,"
                f" {copies} copies between devices"
            )

    def close(self) -> None:
        """Write what was asked for."""
        if self.given.json:
            self.given.json.write_text(json.dumps(self.rows, indent=1) + "\n")


def model(seconds: dict[str, float], kinds: Sequence[str] = ("H200", "host")) -> stf.Calibration:
    """Return the times of bodies by name, and those of links: 300 GB/s between devices, 50 GB/s to the host."""
    durations = {
        (name, large, kind): Duration(16, s, s, s) for name, s in seconds.items() for large in CLASSES for kind in kinds
    }
    host = Link(10e-6, 50e9)
    return stf.Calibration(
        durations, {("H200", "H200"): Link(6e-6, 300e9), ("host", "H200"): host, ("H200", "host"): host}
    )
