"""LU with partial pivoting by columns of tiles, beside one call.

python benchmarks/workloads/lu/run.py [--order 2048] [--tile 256] [--simulate 1,2,4,8]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import by_hand
import contest
import stf_tiles

FLOPS = 30e12  # per second, of updates on a simulated device


def main() -> None:
    given = contest.options(__doc__, {"order": 2048, "tile": 256})
    n, tile = given.order, given.tile
    if n % tile:
        raise SystemExit(f"--tile {tile} divides --order {n}")
    a = np.random.default_rng(0).standard_normal((n, n))
    table = contest.Contest(given, f"LU, {n} in columns of {tile}, float64", 1e-9)
    xp = contest.arrays_of(given.on)
    table.enter(f"{xp.__name__}, one call", lambda: by_hand.run(xp, a))
    for count in given.devices:
        devices = contest.on_devices(given.on, count)
        table.enter(f"stf, {devices}", lambda devices=devices: stf_tiles.run(devices, a, tile))
    update = n * tile * tile / FLOPS  # the mean over the columns
    table.simulate(
        lambda ctx: stf_tiles.program(ctx, np.empty_like(a), tile),
        lambda count: {"update": update, "factor": 3 * update, "reorder": 16 * n * tile / 3e12},
        place="auto",
    )
    table.close()


if __name__ == "__main__":
    main()
