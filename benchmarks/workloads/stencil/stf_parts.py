"""The stencil on the parts of a partitioned array: each step copies one row from each neighbour.

`smooth` and `program` are all that several devices take, and nothing in them says how many there are.
"""

from __future__ import annotations

from typing import Any

import contest
import numpy as np

import stf

OPTIONS = {"place": "auto", "placement": stf.placement.owner()}


@stf.task
def smooth(a: stf.Read, b: stf.ReadWrite, first: bool, last: bool) -> None:
    inner = b[1 if first else 0 : -1 if last else None, 1:-1]  # the first and the last row of the whole stay
    inner[...] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) * 0.25


def grids(ctx: stf.Context, start: np.ndarray) -> list[Any]:
    """Return two grids, whose rows are given out."""
    place = stf.data_place.composite(ctx.devices, stf.partition("blocked", None))
    return [ctx.logical_data(start.copy(), data_place=place, name=name) for name in ("old", "new")]


def advance(old: Any, new: Any, steps: int) -> tuple[Any, Any]:
    """Return the grid after so many steps, and the one before."""
    for _ in range(steps):
        for a, b in zip(old.parts, new.parts, strict=True):
            smooth(a.read(halo=1), b, a is old.parts[0], a is old.parts[-1])
        old, new = new, old
    return old, new


def program(ctx: stf.Context, start: np.ndarray, steps: int) -> Any:
    """Return the grid after so many steps, as data."""
    return advance(*grids(ctx, start), steps)[0]


def run(devices: str, start: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the seconds that so many steps took, after two that were not timed, and the grid."""
    with stf.context(devices=devices, **OPTIONS) as ctx:
        old, new = advance(*grids(ctx, start), 2)  # the parts get their margins
        with contest.timed(ctx.synchronize) as taken:
            old, new = advance(old, new, steps)
        return taken.seconds, old.numpy()
