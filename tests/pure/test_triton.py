"""What `stf.kernel` makes of a Triton function, without Triton: a stand-in that notes how it is launched."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf.kernels.foreign_kernels import OwnLaunch, launch_triton


class Function:
    """As Triton's: indexed with a grid, then called."""

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        return lambda *args, **options: self.launches.append((grid, args, options))


Function.__module__ = "triton.runtime.jit"


def test_tensors_and_values_go_where_they_were():
    function = Function()
    OwnLaunch(launch_triton, function, 4, [0, 2, 4], ["out", "BLOCK"])("a", "b", "c", 1.5, 7, 256)
    assert function.launches == [((4,), ("a", 1.5, "b", 7), {"out": "c", "BLOCK": 256})]

    def grid(meta):
        return (meta["BLOCK"],)

    OwnLaunch(launch_triton, function, grid, [1], [])("a", 2)
    assert function.launches[1] == (grid, (2, "a"), {})


def test_a_host_launches_none():
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(4))
        with pytest.raises(stf.PlaceError, match=r"runs on a CUDA device, and this place is .*stf.context\(devices"):
            stf.kernel(Function())[(1,)](x.rw(), BLOCK=4)
        assert x.numpy().tolist() == [0] * 4
