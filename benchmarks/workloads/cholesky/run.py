"""The tiled Cholesky factorization beside SciPy's, on the same cores and in turns.

    python benchmarks/workloads/cholesky/run.py
    python benchmarks/workloads/cholesky/run.py --orders 8192 --repeat 7 --check

Each gets the matrix as it likes it best, and is timed from that to the factor in the same memory. The ratio is the
median of the pairs, each taken one after the other. Other work on the machine holds up SciPy's threads, which wait for
each other all the time, more than tasks; so the ratio of the fastest runs is given too. Budget: at n = 8192, stf takes
at most 1.15 of SciPy's time by both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "examples"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "overhead"))

import scipy_lapack
import stf_tiled
from gp.benchmark import synthetic_matrix
from gp.cholesky import factor_flops
from report import show_machine

ORDERS = [2048, 4096, 8192]
MOST_RATIO, AT_ORDER = 1.15, 8192
SPIN_S = 0.1  # OpenBLAS's threads spin for some 30 ms after their work, on the cores that the next one needs


@dataclasses.dataclass
class Result:
    """Seconds of each run at one order, and the norm of the difference between the factors over that of SciPy's."""

    order: int
    tile: int
    stf_s: list[float]
    scipy_s: list[float]
    difference: float

    @property
    def ratio(self) -> float:
        return statistics.median(own / other for own, other in zip(self.stf_s, self.scipy_s, strict=True))

    @property
    def ratio_of_fastest(self) -> float:
        return min(self.stf_s) / min(self.scipy_s)

    @property
    def is_kept(self) -> bool | None:
        return max(self.ratio, self.ratio_of_fastest) <= MOST_RATIO if self.order == AT_ORDER else None


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    show_machine()
    print(f"seconds are medians of {options.repeat}\n")
    print(" order  tile     stf s  GFLOP/s   SciPy s  GFLOP/s  ratio       spread  of fastest  budget")
    results = []
    for order in options.orders:
        results.append(compare(order, options.tile or default_tile(order), options.repeat))
        show(results[-1])
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(
            json.dumps(
                [dataclasses.asdict(r) | {"ratio": r.ratio, "ratio_of_fastest": r.ratio_of_fastest} for r in results],
                indent=1,
            )
        )
    wrong = [r.order for r in results if not r.difference < 1e-10]
    if wrong:
        print(f"the factors differ at order {wrong}", file=sys.stderr)
    return int(bool(wrong) or (options.check and any(r.is_kept is False for r in results)))


def compare(order: int, tile: int, repeat: int) -> Result:
    """Factor the same matrix by both, in turns; the first turn is a warm-up."""
    matrix = synthetic_matrix(order)
    rivals = [(stf_tiled, stf_tiled.storage(order), []), (scipy_lapack, scipy_lapack.storage(order), [])]
    for turn in range(repeat + 1):
        for rival, work, seconds in rivals if turn % 2 else rivals[::-1]:
            np.copyto(work, matrix)
            time.sleep(SPIN_S)
            start = time.perf_counter()
            rival.factorize(work, tile)
            if turn > 0:
                seconds.append(time.perf_counter() - start)
    (_, ours, stf_s), (_, theirs, scipy_s) = rivals
    return Result(order, tile, stf_s, scipy_s, difference_of(ours, theirs))


def difference_of(a: np.ndarray, b: np.ndarray, block: int = 1024) -> float:
    """Return the Frobenius norm of the difference of two lower triangles over that of the second, by rows."""
    difference = norm = 0.0
    for first in range(0, len(a), block):
        rows = slice(first, first + block)
        expected = np.tril(b[rows], first)
        difference += float(((np.tril(a[rows], first) - expected) ** 2).sum())
        norm += float((expected**2).sum())
    return (difference / norm) ** 0.5


def default_tile(order: int) -> int:
    return 512 if order >= 4096 else 256


def show(result: Result) -> None:
    flops = factor_flops(result.order) / 1e9
    own, other = statistics.median(result.stf_s), statistics.median(result.scipy_s)
    pairs = [a / b for a, b in zip(result.stf_s, result.scipy_s, strict=True)]
    budget = "" if result.is_kept is None else f"≤ {MOST_RATIO:g}  {'ok' if result.is_kept else 'MISSED'}"
    print(
        f"{result.order:>6} {result.tile:>5}  {own:>8.3f} {flops / own:>8.1f}  {other:>8.3f} {flops / other:>8.1f}  "
        f"{result.ratio:>5.2f}  {min(pairs):>4.2f} – {max(pairs):>4.2f}  "
        f"{result.ratio_of_fastest:>10.2f}  {budget}".rstrip(),
        flush=True,
    )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--orders", type=int, nargs="*", default=ORDERS, help="orders of the matrices")
    add("--tile", type=int, help="rows and columns of a tile (default: 256, or 512 from order 4096 on)")
    add("--repeat", type=int, default=5, help="pairs of runs after the warm-up (default: 5)")
    add("--json", type=pathlib.Path, help="write the seconds here")
    add("--check", action="store_true", help="exit with 1 if the budget is missed")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
