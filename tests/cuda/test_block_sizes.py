"""The block of a kernel in Python has as many threads as lets the most run at once."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf.kernels import gpu_tasks

cuda = pytest.importorskip("numba.cuda")


@pytest.mark.usefixtures("cuda_device_count")
@pytest.mark.parametrize("shape", [(1000,), (37, 50), (3, 5, 70), (2, 3, 4, 5), (2048, 2049)])
@pytest.mark.parametrize(("full", "half", "expected"), [(8, 16, 256), (2, 5, 128)], ids=["alike", "more of half"])
def test_a_block_is_half_as_large_where_more_threads_run_then(monkeypatch, shape, full, half, expected):
    monkeypatch.setattr(gpu_tasks, "blocks_at_once", lambda kernel, task, threads: full if threads == 256 else half)

    def mark(x, where):
        x[where] += cuda.blockDim.x * cuda.blockDim.y * cuda.blockDim.z

    bodies = {
        1: lambda i, x: mark(x, (i,)),
        2: lambda i, j, x: mark(x, (i, j)),
        3: lambda i, j, k, x: mark(x, (i, j, k)),
        4: lambda i, j, k, m, x: mark(x, (i, j, k, m)),
    }
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data_zeros(shape, np.int64)
        ctx.parallel_for(x.shape, x.rw())(bodies[len(shape)])
        found = x.numpy()
    assert found.min() == found.max() <= expected
    assert found.max() == expected or len(shape) > 1  # fewer where an axis is short
