"""Eight pipelines of upload, product and download: beside CuPy and torch as one writes them, and streams by hand.

    python benchmarks/workloads/pipelines/run.py [--check]

Each round, each pipeline copies 16 MiB to the device, computes ``tanh`` and a matrix product, and copies 16 MiB back. The
times are of 20 rounds, in ms: the median of some repetitions, all ways in turn in one process. ``--check`` fails where a
budget is not kept.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import stf

try:
    import cupy as cp
except ImportError:
    raise SystemExit("this compares ways to use a GPU, and needs one, with CuPy") from None

try:
    import torch
except ImportError:
    torch = None

PIPELINES, ROUNDS, SIDE = 8, 20, 1448  # float64: 16 MiB
RESOURCES = stf.Resources()  # so that streams, and CuPy's memory for each, are there after the first time


@stf.task
def work(x: stf.Read, y: stf.Write):
    cp.matmul(cp.tanh(x), x, out=y)


def pinned(shape):
    memory = cp.cuda.alloc_pinned_memory(int(np.prod(shape)) * 8)
    return np.frombuffer(memory, np.float64, int(np.prod(shape))).reshape(shape)


def pageable(shape):
    return np.empty(shape)


def plain_cupy(inputs, outputs):
    for _ in range(ROUNDS):
        for x, y in zip(inputs, outputs, strict=True):
            a = cp.asarray(x)
            y[...] = cp.asnumpy(cp.tanh(a) @ a)


def by_hand(inputs, outputs):
    """A stream per pipeline, with buffers of its own on the device."""
    streams = [cp.cuda.Stream(non_blocking=True) for _ in inputs]
    buffers = [[cp.empty((SIDE, SIDE)) for _ in range(3)] for _ in inputs]
    for _ in range(ROUNDS):
        for x, y, stream, (a, b, c) in zip(inputs, outputs, streams, buffers, strict=True):
            with stream:
                a.set(x, stream)
                cp.tanh(a, out=b)
                cp.matmul(b, a, out=c)
                c.get(stream, out=y, blocking=False)
    for stream in streams:
        stream.synchronize()


def plain_torch(inputs, outputs):
    for _ in range(ROUNDS):
        for x, y in zip(inputs, outputs, strict=True):
            a = torch.from_numpy(x).cuda()
            torch.from_numpy(y).copy_(torch.tanh(a) @ a)


def torch_by_hand(inputs, outputs):
    """A stream per pipeline; tensors that torch's allocator keeps for each stream."""
    streams = [torch.cuda.Stream() for _ in inputs]
    for _ in range(ROUNDS):
        for x, y, stream in zip(inputs, outputs, streams, strict=True):
            with torch.cuda.stream(stream):
                a = torch.from_numpy(x).to("cuda", non_blocking=True)
                torch.from_numpy(y).copy_(torch.tanh(a) @ a, non_blocking=True)
    for stream in streams:
        stream.synchronize()


@stf.task(arrays="torch")
def work_in_torch(x: stf.Read, y: stf.Write):
    torch.matmul(torch.tanh(x), x, out=y)


def with_stf_and_torch(inputs, outputs):
    with stf.context(devices="cuda:0", resources=RESOURCES) as ctx:
        for _ in range(ROUNDS):
            for x, y in zip(inputs, outputs, strict=True):
                work_in_torch(ctx.logical_data(x, readonly=True), ctx.logical_data(y))


def with_stf(home):
    def run(inputs, outputs):
        with stf.context(devices="cuda:0", resources=RESOURCES) as ctx:
            for _ in range(ROUNDS):
                for x, y in zip(inputs, outputs, strict=True):
                    a, b = ctx.logical_data(x, readonly=True), ctx.logical_data(y)
                    work(a, b)
                    if home == "write_back":
                        b.write_back()
                    elif home == "prefetch":
                        ctx.prefetch(b, stf.data_place.host())

    return run


def fresh_arrays(_inputs, _outputs):
    """Arrays that are made, and dropped, in every round."""
    with stf.context(devices="cuda:0", resources=RESOURCES) as ctx:
        for _ in range(ROUNDS):
            inputs = [np.ones((SIDE, SIDE)) for _ in range(PIPELINES)]
            outputs = [np.empty((SIDE, SIDE)) for _ in range(PIPELINES)]
            for x, y in zip(inputs, outputs, strict=True):
                work(ctx.logical_data(x, readonly=True), ctx.logical_data(y))


WAYS = {
    "CuPy, plainly": plain_cupy,
    "by hand": by_hand,
    "stf, handles dropped": with_stf("drop"),
    "stf, write_back()": with_stf("write_back"),
    "stf, prefetch": with_stf("prefetch"),
}
if torch is not None:
    WAYS |= {
        "torch, plainly": plain_torch,
        "torch, by hand": torch_by_hand,
        "stf, with torch": with_stf_and_torch,
    }


def measure(ways, inputs, outputs, repeat):
    """Median times of all ways, in ms, in turn."""
    times = {name: [] for name in ways}
    for turn in range(repeat + 1):
        for name, way in ways.items():
            cp.cuda.Device().synchronize()
            start = time.perf_counter()
            way(inputs, outputs)
            cp.cuda.Device().synchronize()
            if turn:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    missed = []
    print(
        f"{PIPELINES} pipelines, {ROUNDS} rounds, on one {cp.cuda.runtime.getDeviceProperties(0)['name'].decode()}, ms"
    )
    for kind, allocate in (("pinned", pinned), ("pageable", pageable)):
        inputs, outputs = ([allocate((SIDE, SIDE)) for _ in range(PIPELINES)] for _ in range(2))
        for x in inputs:
            x[...] = np.random.default_rng(0).random(x.shape) / SIDE
        ways = dict(WAYS) if kind == "pinned" else {**WAYS, "stf, new arrays each round": fresh_arrays}
        for name, ms in (times := measure(ways, inputs, outputs, options.repeat)).items():
            print(f"{kind:9} {name:28} {ms:8.1f}  {ms / times['by hand']:5.2f} x by hand")
        expected = cp.asnumpy(cp.tanh(cp.asarray(inputs[0])) @ cp.asarray(inputs[0]))
        assert np.allclose(outputs[0], expected)
        if kind == "pinned":
            missed += [name for name, ms in times.items() if name.startswith("stf") and ms > 1.1 * times["by hand"]]
    print("budget of 1.1 x by hand, pinned:", "kept" if not missed else f"missed by {', '.join(missed)}")
    raise SystemExit(1 if missed and options.check else 0)


if __name__ == "__main__":
    main()
