"""The stencil on the parts of a partitioned array: each step copies one row from each neighbour.

`smooth` and `program` are all that several devices take, and nothing in them says how many there are.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import stf

OPTIONS = {"place": "auto", "placement": stf.placement.owner()}


@stf.task
def smooth(a: stf.Read, b: stf.ReadWrite, first: bool, last: bool) -> None:
    inner = b[1 if first else 0 : -1 if last else None, 1:-1]  # the first and the last row of the whole stay
    inner[...] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) * 0.25


def program(ctx: stf.Context, start: np.ndarray, steps: int) -> Any:
    """Return the grid after so many steps, as data."""
    place = stf.data_place.composite(ctx.devices, stf.partition("blocked", None))
    old, new = (ctx.logical_data(start.copy(), data_place=place, name=name) for name in ("old", "new"))
    for _ in range(steps):
        for a, b in zip(old.parts, new.parts, strict=True):
            smooth(a.read(halo=1), b, a is old.parts[0], a is old.parts[-1])
        old, new = new, old
    return old


def run(devices: str, start: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, without the way there and back, and the grid."""
    with stf.context(devices=devices, **OPTIONS) as ctx:
        program(ctx, start, 2)  # the parts get their margins
        ctx.synchronize()
        begin = time.perf_counter()
        found = program(ctx, start, steps)
        ctx.synchronize()
        return time.perf_counter() - begin, found.numpy()
