"""Values that are not finite are looked for on the device, where CuPy is there."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf.tasks import validation

cupy = pytest.importorskip("cupy")
N = 1 << 14


@stf.task
def divide(x: stf.Read, y: stf.ReadWrite):
    with np.errstate(all="ignore"):
        y /= x


def test_finite_data_are_not_copied_to_the_host(monkeypatch):
    copies = []
    content = validation.OnDevice.content
    monkeypatch.setattr(validation.OnDevice, "content", lambda self: copies.append(self) or content(self))
    with stf.context(devices="cuda:0", nan="error") as ctx:
        x, y = ctx.logical_data(np.ones((N, 2))[:, 0], name="x"), ctx.logical_data(np.ones(N), name="y")
        for _ in range(3):
            divide(x, y)
        assert y.numpy().tolist() == [1.0] * N
        assert not copies
        ctx.fill(x, 0.0)
        with pytest.raises(stf.TaskFailedError, match=f"divide.* wrote inf at 0 in 'y', the first of {N} values"):
            divide(x, y)
        assert len(copies) == 1
        y.accept()
