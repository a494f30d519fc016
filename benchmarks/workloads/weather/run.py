"""miniWeather: a warm bubble that rises, on columns of cells that are given out, beside array operations.

    python benchmarks/workloads/weather/run.py [--cells 100] [--steps 50] [--simulate 1,2,4,8]

Mass must stay the same to rounding, and energy to 1e-4 of itself, as miniWeather asks.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import by_hand
import contest
import stf_parts
from physics import bubble, mass_and_energy


def main() -> None:
    given = contest.options(__doc__, {"cells": 100, "steps": 50})
    steps, start = given.steps, bubble(given.cells, 2 * given.cells)
    table = contest.Contest(given, f"weather, {steps} steps of {given.cells} x {2 * given.cells}, float64", 1e-9)
    xp = contest.arrays_of(given.on)
    table.enter(f"{xp.__name__}, by hand", lambda: by_hand.run(xp, start, steps))
    for count in given.devices:
        devices = contest.on_devices(given.on, count)
        table.enter(f"stf, {devices}", lambda devices=devices: stf_parts.run(devices, start, steps))
    before, after = mass_and_energy(start), mass_and_energy(table.found)
    mass, energy = (abs(new / old - 1) for old, new in zip(before, after, strict=True))
    print(f"  mass has changed by {mass:.0e} of itself, energy by {energy:.0e}")
    assert mass < 1e-13 and energy < 1e-4
    of_a_stage = 12 * 8 * start[0].size / 3e12  # three states at 3 TB/s
    table.simulate(
        lambda ctx: stf_parts.program(ctx, start, steps),
        lambda count: dict.fromkeys(("stage_x", "stage_z"), 5e-06 + of_a_stage / count),
        **stf_parts.OPTIONS,
    )
    table.close()


if __name__ == "__main__":
    main()
