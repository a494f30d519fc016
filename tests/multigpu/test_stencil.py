"""A Numba stencil whose slabs lie on several devices and exchange the rows at their borders."""

from __future__ import annotations

import numpy as np
import pytest

import stf

ROWS, COLUMNS, STEPS = 64, 80, 10


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_numba_stencil_with_halos_on_two_devices():
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def step(u, above, below, v):
        i, j = cuda.grid(2)
        if i < u.shape[0] and 0 < j < u.shape[1] - 1:
            up = above[0, j] if i == 0 else u[i - 1, j]
            down = below[0, j] if i == u.shape[0] - 1 else u[i + 1, j]
            v[i, j] = u[i, j] + 0.2 * (up + down + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j])

    @cuda.jit
    def publish(u, first, last):
        j = cuda.grid(1)
        if j < u.shape[1]:
            first[0, j] = u[0, j]
            last[0, j] = u[u.shape[0] - 1, j]

    U = np.random.default_rng(4).random((2 * ROWS, COLUMNS))
    U[:, [0, -1]] = 0.0
    expected = U.copy()
    for _ in range(STEPS):
        p = np.pad(expected, ((1, 1), (0, 0)))
        expected[:, 1:-1] += 0.2 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * p[1:-1, 1:-1])
    with stf.context(devices="cuda:0,1") as ctx:
        now = [ctx.logical_data(U[k * ROWS : (k + 1) * ROWS].copy(), write_back=False) for k in range(2)]
        new = [ctx.logical_data_zeros((ROWS, COLUMNS)) for _ in range(2)]
        border = ctx.logical_data_zeros((1, COLUMNS))
        first, last = ([ctx.logical_data_empty((1, COLUMNS)) for _ in range(2)] for _ in range(2))
        for _ in range(STEPS):
            for k in range(2):
                stf.kernel(publish).on(k)[1, 128](now[k].read(), first[k].write(), last[k].write())
            for k in range(2):
                above, below = (border, first[1]) if k == 0 else (last[0], border)
                stf.kernel(step).on(k)[(4, 5), (16, 16)](now[k].read(), above.read(), below.read(), new[k].rw())
            now, new = new, now
        result = np.concatenate([slab.numpy() for slab in now])
        copies = ctx.statistics().total_copies
    assert np.allclose(result, expected)
    assert copies <= 2 * STEPS + 12  # two rows a step; the slabs, the zeros and the results once
