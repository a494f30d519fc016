"""A five-point stencil over an array that is cut in rows among devices, beside the same by array operations.

    python benchmarks/workloads/stencil/run.py [--rows 2048] [--columns 2048] [--steps 50] [--simulate 1,2,4,8]

Each device has its rows. A step reads one more row from each neighbour, so it copies 2 (P - 1) rows on P devices.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import by_hand
import contest
import stf_parts


def main() -> None:
    given = contest.options(__doc__, {"rows": 2048, "columns": 2048, "steps": 50})
    start = np.random.default_rng(0).random((given.rows, given.columns))
    title = f"stencil, {given.steps} steps of {given.rows} x {given.columns}, float64"
    table = contest.Contest(given, title, 1e-14)
    xp = contest.arrays_of(given.on)
    table.enter(f"{xp.__name__}, by hand", lambda: by_hand.run(xp, start, given.steps))
    for count in given.devices:
        devices = contest.on_devices(given.on, count)
        table.enter(f"stf, {devices}", lambda devices=devices: stf_parts.run(devices, start, given.steps))
    of_a_row = 6 * 8 * given.columns / 3e12  # five reads and a write at 3 TB/s
    table.simulate(
        lambda ctx: stf_parts.program(ctx, start, given.steps),
        lambda count: {"smooth": of_a_row * given.rows / count},
        **stf_parts.OPTIONS,
    )
    table.close()


if __name__ == "__main__":
    main()
