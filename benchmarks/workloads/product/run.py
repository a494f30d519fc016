"""C = A B by tiles that are placed by stf, beside one call.

    python benchmarks/workloads/product/run.py [--order 2048] [--tile 512] [--simulate 1,2,4,8]

Nothing says where a task runs. The tiles of A and B are on the devices in turn at first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import by_hand
import contest
import stf_tiles

FLOPS = 50e12  # per second, of products of tiles on a simulated device


def main() -> None:
    given = contest.options(__doc__, {"order": 2048, "tile": 512})
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((given.order, given.order)) for _ in range(2))
    table = contest.Contest(given, f"product, {given.order} in tiles of {given.tile}, float64", 1e-12)
    xp = contest.arrays_of(given.on)
    table.enter(f"{xp.__name__}, one call", lambda: by_hand.run(xp, a, b))
    for count in given.devices:
        devices = contest.on_devices(given.on, count)
        table.enter(f"stf, {devices}", lambda devices=devices: stf_tiles.run(devices, a, b, given.tile))
    of_a_tile = 2 * given.tile**3 / FLOPS
    table.simulate(
        lambda ctx: stf_tiles.program(ctx, a, b, np.empty_like(a), given.tile),
        lambda count: {"multiply": of_a_tile, "multiply_add": of_a_tile},
        place="auto",
    )
    table.close()


if __name__ == "__main__":
    main()
