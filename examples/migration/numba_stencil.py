"""A stencil in blocks by Numba kernels with events, before and after. It needs a CUDA device and Numba.

    block 0 --.             .--> block 0
    block 1 --+--> step ----+--> block 1
    block 2 --'             '--> block 2

Heat on a ring that is cut into blocks of rows. A step of a block reads the rows at the borders of its neighbours.
`before` has a stream for each block and an event for each step of it. `after` says what a launch reads and writes. Both
print their time.
"""

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import stf

sys.path.insert(0, str(Path(__file__).parents[1]))
from _needs import needs_gpu

BLOCKS, ROWS, COLUMNS, STEPS, REPEATS = 4, 512, 2048, 100, 5
THREADS = (8, 32)
GRID = (ROWS // THREADS[0], COLUMNS // THREADS[1])


def step_kernel(cuda: Any) -> Any:
    """One step of one block, which reads a row of each neighbour."""

    @cuda.jit
    def step(u, above, below, v):
        i, j = cuda.grid(2)
        if i < u.shape[0] and j < u.shape[1]:
            if j == 0 or j == u.shape[1] - 1:
                v[i, j] = u[i, j]
            else:
                up = u[i - 1, j] if i > 0 else above[above.shape[0] - 1, j]
                down = u[i + 1, j] if i < u.shape[0] - 1 else below[0, j]
                v[i, j] = u[i, j] + 0.2 * (up + down + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j])

    return step


def neighbours(k: int) -> tuple[int, int]:
    """Return the blocks above and below one; they form a ring."""
    return (k - 1) % BLOCKS, (k + 1) % BLOCKS


def before(cuda: Any, step: Any, plate: np.ndarray) -> np.ndarray:
    """The steps with streams: a block waits for the last step of its neighbours, which also read what it writes."""
    streams = [cuda.stream() for _ in range(BLOCKS)]
    now, new = [], []
    for k, rows in enumerate(np.split(plate, BLOCKS)):
        now.append(cuda.to_device(rows, stream=streams[k]))
        new.append(cuda.device_array_like(now[k], stream=streams[k]))
    events = [cuda.event(timing=False) for _ in range(BLOCKS)]
    for event, stream in zip(events, streams, strict=True):
        event.record(stream)
    for _ in range(STEPS):
        done = [cuda.event(timing=False) for _ in range(BLOCKS)]
        for k, stream in enumerate(streams):
            above, below = neighbours(k)
            events[above].wait(stream)
            events[below].wait(stream)
            step[GRID, THREADS, stream](now[k], now[above], now[below], new[k])
            done[k].record(stream)
        now, new, events = new, now, done
    results = [block.copy_to_host(stream=stream) for block, stream in zip(now, streams, strict=True)]
    for stream in streams:
        stream.synchronize()
    return np.concatenate(results)


def after(cuda: Any, step: Any, plate: np.ndarray) -> np.ndarray:
    """The same with launches that are tasks."""
    launch = stf.kernel(step)
    with stf.context(devices="cuda:0") as ctx:
        now = [ctx.logical_data(rows, readonly=True) for rows in np.split(plate, BLOCKS)]
        spare = [[ctx.logical_data_empty((ROWS, COLUMNS)) for _ in range(BLOCKS)] for _ in range(2)]
        for n in range(STEPS):
            new = spare[n % 2]
            for k in range(BLOCKS):
                above, below = neighbours(k)
                launch[GRID, THREADS](now[k].read(), now[above].read(), now[below].read(), new[k].write())
            now = new
        return np.concatenate(ctx.wait(now))


def timed(run: Any, *arguments: Any) -> tuple[np.ndarray, float]:
    """Return a result, and the shortest time of some runs in milliseconds; the first is to warm up."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        result = run(*arguments)
        times.append(time.perf_counter() - start)
    return result, 1e3 * min(times[1:])


def main() -> None:
    needs_gpu("numba")
    from numba import cuda

    warnings.filterwarnings("ignore", message=".*Grid size")
    step = step_kernel(cuda)
    plate = np.random.default_rng(0).random((BLOCKS * ROWS, COLUMNS))
    expected, before_ms = timed(before, cuda, step, plate)
    found, after_ms = timed(after, cuda, step, plate)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.allclose(found, plate)
    print(
        f"{STEPS} steps of {BLOCKS} blocks of {ROWS} x {COLUMNS}: streams {before_ms:.1f} ms, tasks {after_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
