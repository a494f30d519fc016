"""Conjugate gradient for Poisson's equation, with the rows of the matrix given out, beside one sparse matrix.

python benchmarks/workloads/conjugate_gradient/run.py [--points 256] [--steps 50] [--simulate 1,2,4,8]
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import by_hand
import contest
import stf_parts
from matrix import poisson


def main() -> None:
    given = contest.options(__doc__, {"points": 256, "steps": 50})
    if given.steps % 2:
        raise SystemExit(f"--steps is even, since two steps are recorded together; got {given.steps}")
    n, steps = given.points, given.steps
    b = np.random.default_rng(0).standard_normal(n * n)
    table = contest.Contest(given, f"conjugate gradient, {steps} steps on {n} x {n} points, float64", 1e-9)
    xp, matrix = contest.arrays_of(given.on), poisson(n)
    table.enter(f"{xp.__name__}, by hand", lambda: by_hand.run(xp, matrix, b, steps))
    for count in given.devices:
        devices = contest.on_devices(given.on, count)
        table.enter(f"stf, {devices}", lambda devices=devices: stf_parts.run(devices, n, matrix, b, steps))
        again = functools.partial(stf_parts.run, devices, n, matrix, b, steps, True)
        table.enter(f"stf recorded, {devices}", again)
    vector = 8 * n * n / 3e12  # seconds at 3 TB/s
    passes = {"multiply": 8.0, "dot": 2.0, "advance": 6.0, "square": 1.0, "turn": 3.0}
    table.simulate(
        lambda ctx: stf_parts.program(ctx, n, b, steps),
        lambda count: {name: 3e-6 + often * vector / count for name, often in passes.items()},
        **stf_parts.OPTIONS,
    )
    table.close()


if __name__ == "__main__":
    main()
