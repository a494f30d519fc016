"""How long bodies take on GPUs, as automatic placement learns it while a program runs."""

from __future__ import annotations

import numpy as np
import pytest

import stf

pytest.importorskip("cupy")
LARGE = 1 << 22


@stf.task
def grow(x: stf.ReadWrite) -> None:
    for _ in range(8):
        x += 1


def durations_of(ctx: stf.Context, name: str) -> list:
    return [found for (function, _, _), found in ctx.placement.durations.table().items() if function == name]


def test_bodies_are_measured_while_they_run_and_nobody_waits():
    with stf.context(devices="cuda:0,1", place="auto") as ctx:
        data = [ctx.logical_data(np.zeros(LARGE)) for _ in range(4)]
        for _ in range(6):
            for x in data:
                grow(x)
            ctx.synchronize()
        for x in data:
            grow(x)
        found = durations_of(ctx, "grow")
        assert sum(one.n for one in found) >= 4
        least = 8 * 2 * 8 * LARGE / 20e12  # seconds to read and write it eight times, at more than any GPU has
        assert all(one.median_s >= least for one in found)
        assert all((x.numpy() == 56).all() for x in data)
        ctx.check_state()
