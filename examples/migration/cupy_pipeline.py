"""A pipeline of CuPy streams, before and after. It needs a CUDA device and CuPy.

    batch 0 --> normalize --> rows 0 --.
    batch 1 --> normalize --> rows 1 --+--> mean
    batch 2 --> normalize --> rows 2 --'

Batches come from the host, are normalized, and go back, while a mean of squares grows on the device. `before` has the streams, the
buffers and the events by hand. `after` says what each function reads and writes. Both print their time.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import stf

sys.path.insert(0, str(Path(__file__).parents[1]))
from _needs import needs_gpu

BATCHES, ROWS, COLUMNS, STREAMS, REPEATS = 32, 256, 4096, 4, 5


def write_normalized(batch: Any, rows: Any) -> None:
    """Write the rows of a batch with mean 0 and deviation 1."""
    centered = batch - batch.mean(axis=1, keepdims=True)
    rows[...] = centered / (centered**2).mean(axis=1, keepdims=True) ** 0.5


def before(cupy: Any, batches: list[np.ndarray], results: list[np.ndarray]) -> np.ndarray:
    """The pipeline with streams and events: each batch on the next stream, the mean in the order of the batches."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
    inputs = [cupy.empty((ROWS, COLUMNS)) for _ in range(STREAMS)]
    outputs = [cupy.empty((ROWS, COLUMNS)) for _ in range(STREAMS)]
    mean = cupy.zeros(COLUMNS)
    added = cupy.cuda.Event(disable_timing=True)
    added.record()  # on the default stream, which has filled `mean`
    for i, batch in enumerate(batches):
        k = i % STREAMS
        with streams[k] as stream:
            inputs[k].set(batch)  # the buffer is free: what used it last is on the same stream
            write_normalized(inputs[k], outputs[k])
            outputs[k].get(out=results[i], blocking=False)
            stream.wait_event(added)  # the batch before has been added
            mean += (outputs[k] ** 2).mean(axis=0) / BATCHES
            added = cupy.cuda.Event(disable_timing=True)
            added.record(stream)
    for stream in streams:
        stream.synchronize()
    return cupy.asnumpy(mean)


def after(cupy: Any, batches: list[np.ndarray], results: list[np.ndarray]) -> np.ndarray:
    """The same with tasks."""

    @stf.task(arrays="cupy")
    def normalize(batch: stf.Read, rows: stf.Write) -> None:
        write_normalized(batch, rows)

    @stf.task(arrays="cupy")
    def add(rows: stf.Read, mean: stf.ReadWrite) -> None:
        mean += (rows**2).mean(axis=0) / BATCHES

    with stf.context(devices="cuda:0") as ctx:
        mean = ctx.logical_data_zeros(COLUMNS)
        for batch, result in zip(batches, results, strict=True):
            rows = ctx.logical_data(result)
            normalize(ctx.logical_data(batch, readonly=True), rows)
            add(rows, mean)
        return mean.numpy()


def timed(run: Any, *arguments: Any) -> tuple[np.ndarray, float]:
    """Return a result, and the shortest time of some runs in milliseconds; the first is to warm up."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        result = run(*arguments)
        times.append(time.perf_counter() - start)
    return result, 1e3 * min(times[1:])


def main() -> None:
    cupy = needs_gpu("cupy")
    import cupyx

    random = np.random.default_rng(0)
    batches = [cupyx.empty_pinned((ROWS, COLUMNS)) for _ in range(BATCHES)]
    for batch in batches:
        batch[...] = random.standard_normal((ROWS, COLUMNS))
    results = [[cupyx.zeros_pinned((ROWS, COLUMNS)) for _ in range(BATCHES)] for _ in range(2)]
    mean_before, before_ms = timed(before, cupy, batches, results[0])
    mean_after, after_ms = timed(after, cupy, batches, results[1])
    np.testing.assert_allclose(mean_after, mean_before, rtol=1e-9)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9)
    print(f"{BATCHES} batches of {ROWS} x {COLUMNS}: streams {before_ms:.1f} ms, tasks {after_ms:.1f} ms")


if __name__ == "__main__":
    main()
