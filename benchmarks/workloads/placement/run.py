"""Efficiency of six programs on simulated devices, by who says where tasks run.

``python benchmarks/workloads/placement/run.py`` needs no GPU. A row is a program; its columns are the rules. An entry is
the efficiency, and the number of copies between devices. Data start on the devices of the rule by hand: cyclic over
rows and columns of tiles, or neighbours together where there is one row.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from programs import PROGRAMS, SECONDS, Program

import stf
from stf._port.links import Link
from stf.observe.durations import Duration

CLASSES = range(48)  # of the bytes of a task: its time does not depend on them
RULES: dict[str, dict[str, Any]] = {
    "by hand": {},
    "eft": {"place": "auto", "placement": stf.placement.eft()},
    "eft, moves x 4": {"place": "auto", "placement": stf.placement.eft(move_weight=4)},
    "planned": {"place": "auto", "placement": stf.placement.planned()},
    "one plan of all": {"place": "auto", "placement": stf.placement.planned(window=1 << 20)},
    "owner": {"place": "auto", "placement": stf.placement.owner()},
}


def model() -> stf.Calibration:
    """Return the times of bodies and links."""
    durations = {(name, large, "H200"): Duration(16, s, s, s) for name, s in SECONDS.items() for large in CLASSES}
    host = Link(10e-6, 50e9)
    return stf.Calibration(
        durations, {("H200", "H200"): Link(6e-6, 300e9), ("host", "H200"): host, ("H200", "host"): host}
    )


def planned(program: Program, devices: int, options: dict[str, Any]) -> stf.Plan:
    """Return the plan of a program under a rule."""
    start = program.by_hand(devices)

    def run() -> None:
        with stf.context(**options) as ctx:
            program.run(ctx, start, None if options else start)

    return stf.plan(run, devices=f"{devices}xH200", model=model())


def entry(program: Program, devices: int, options: dict[str, Any]) -> str:
    """Return efficiency and copies as text."""
    found = planned(program, devices, options)
    return f"{program.work_s / found.makespan / devices:.2f} / {sum(found.copies.values())}"


def main(show: Callable[[str], None] = print) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=8)
    devices = parser.parse_args().devices
    show(f"{f'efficiency / copies, {devices} devices':<34}" + "".join(f"{rule:>18}" for rule in RULES))
    for program in PROGRAMS:
        show(f"{program.name:<34}" + "".join(f"{entry(program, devices, RULES[rule]):>18}" for rule in RULES))


if __name__ == "__main__":
    main()
