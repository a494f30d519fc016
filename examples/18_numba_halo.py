"""Heat in slabs on all GPUs, by Numba kernels, which exchange the rows at their borders. It needs a CUDA device.

    slab 0 --> publish --> first0, last0 --.         .--> step 0 --> slab 0
                                            >--rows-<
    slab 1 --> publish --> first1, last1 --'         '--> step 1 --> slab 1

A slab stays on its device; of its neighbours a step reads one row each, and only those rows travel. Nobody says so: the
kernels run where `on(k)` puts them, and data follow. With one device the slabs share it.
"""

import importlib.util
import warnings

import numpy as np
from _needs import needs_gpu

import stf

SLABS, ROWS, COLUMNS, STEPS = 4, 64, 256, 20
THREADS = (16, 16)
GRID = (ROWS // THREADS[0], COLUMNS // THREADS[1])


def kernels():
    """The two kernels, as Numba compiles them."""
    from numba import cuda

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

    return stf.kernel(step), stf.kernel(publish)


def heat(U: np.ndarray) -> np.ndarray:
    """The same on one array, with NumPy."""
    result = U.copy()
    for _ in range(STEPS):
        p = np.pad(result, ((1, 1), (0, 0)))
        result[:, 1:-1] += 0.2 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * p[1:-1, 1:-1])
    return result


def main() -> None:
    needs_gpu()
    if importlib.util.find_spec("numba") is None:
        print("nothing done: Numba is not installed")
        return
    warnings.filterwarnings("ignore", message=".*Grid size")
    step, publish = kernels()
    U = np.random.default_rng(4).random((SLABS * ROWS, COLUMNS))
    U[:, [0, -1]] = 0.0
    expected = heat(U)
    with stf.context(devices="cuda") as ctx:
        count = len(ctx.devices)
        place = [k * count // SLABS for k in range(SLABS)]
        slabs = [U[k * ROWS : (k + 1) * ROWS].copy() for k in range(SLABS)]
        now = [ctx.logical_data(slab, write_back=False, name=f"slab {k}") for k, slab in enumerate(slabs)]
        new = [ctx.logical_data_zeros((ROWS, COLUMNS)) for _ in range(SLABS)]
        edge = ctx.logical_data_zeros((1, COLUMNS), name="edge")
        first, last = ([ctx.logical_data_empty((1, COLUMNS)) for _ in range(SLABS)] for _ in range(2))
        for _ in range(STEPS):
            for k in range(SLABS):
                publish.on(place[k])[COLUMNS // 128, 128](now[k].read(), first[k].write(), last[k].write())
            for k in range(SLABS):
                above = last[k - 1] if k else edge
                below = first[k + 1] if k < SLABS - 1 else edge
                step.on(place[k])[GRID, THREADS](now[k].read(), above.read(), below.read(), new[k].rw())
            now, new = new, now
        result = np.concatenate([slab.numpy() for slab in now])
        copies = ctx.statistics().total_copies
    assert np.allclose(result, expected)
    assert copies <= 2 * (count - 1) * STEPS + 6 * SLABS + count, copies  # the rows at borders of devices, and no slab
    print(f"{SLABS} slabs on {count} device(s), {STEPS} steps: {copies} copies")


if __name__ == "__main__":
    main()
