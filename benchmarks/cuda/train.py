"""What a build that is guided by a profile learns from: loops of tasks, on CPU and CUDA, and random programs.

    make optimized        # or by hand, with GCC:

    STF_PROFILE=record python setup.py build_ext --inplace --force
    python benchmarks/cuda/train.py
    STF_PROFILE=use python setup.py build_ext --inplace --force

The loops are hot: they say what is inlined and laid out in a row. The programs go nearly everywhere else. Where there is
no GPU, nor the stand-in for CUDA that the tests have, nothing of CUDA is learned.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from loops import WIDTH, Loop, bump, chain, cupy_loops, stencil, stencil_steps

import stf
from stf.devices.make import cuda_devices

PROGRAMS = Path(__file__).resolve().parents[2] / "tests" / "properties"
BURST, ROUNDS = 200, 40
STREAM_PROGRAMS, GRAPH_PROGRAMS = 300, 100


def main() -> None:
    learn("cpu", np.zeros(8), with_arrays)
    run_programs("programs.py", STREAM_PROGRAMS, "cpu")
    if cuda_devices() <= 0:
        print("train: no GPU is here, so nothing of CUDA is learned")
        return
    try:
        import cupy
    except ImportError:
        learn("cuda:0", np.zeros(8), lambda ctx, data: [])
    else:
        stream = cupy.cuda.Stream(non_blocking=True)
        learn("cuda:0", cupy.zeros(8), lambda ctx, data: with_cupy(ctx, data, stream))
    run_programs("programs.py", STREAM_PROGRAMS, "cuda:0")
    run_programs("graph_programs.py", GRAPH_PROGRAMS, "cuda:0")


def learn(devices: str, array: Any, bodies: Callable[[Any, Any], list[Loop]]) -> None:
    """Run the loops in bursts; then record them, and launch what was recorded."""
    with stf.context(devices=devices) as ctx:
        data, scalar = ctx.logical_data(array), ctx.logical_data_zeros(())
        of_arrays = bodies(ctx, data)
        known = [*empty(ctx, data), *of_arrays, *in_python(ctx, data)]
        recorded = of_arrays[:1] if devices == "cpu" else known  # with-blocks run where they stand there
        for _ in range(ROUNDS):
            for loop in known:
                loop(BURST)
                ctx.synchronize()
            for _ in range(BURST // 10):
                with ctx.task(scalar.rw()):
                    pass
                ctx.wait(scalar)
                ctx.logical_data(array)
        for _ in range(ROUNDS // 4):
            with ctx.task_graph() as graph:
                for loop in recorded:
                    loop(BURST)
            for _ in range(BURST):
                graph.launch()
            graph.close()
    shared = stf.Resources()
    for _ in range(BURST):
        stf.context(devices=devices, resources=shared).finalize()
    shared.close()


def empty(ctx: Any, data: Any) -> list[Loop]:
    """Empty tasks in chains and in a stencil."""
    rows = [[ctx.token() for _ in range(WIDTH)] for _ in range(2)]
    return [chain(ctx, ctx.token()), chain(ctx, data), stencil(ctx, list(stencil_steps(rows, BURST)))]


def in_python(ctx: Any, data: Any) -> list[Loop]:
    """Kernels written in Python, where there is a compiler, and what it compiles can be run."""
    factor = 1.0

    def scale(i: int, x: Any) -> None:
        x[i] *= factor

    def loop(n: int) -> None:
        for _ in range(n):
            ctx.parallel_for(data.shape, data.rw())(scale)

    try:
        loop(1)
    except (ImportError, stf.DriverError):  # the stand-in for CUDA runs no such kernels
        return []
    return [loop]


def with_arrays(ctx: Any, data: Any) -> list[Loop]:
    """Tasks with NumPy's arrays."""

    def function(n: int) -> None:
        for _ in range(n):
            bump(data)

    def with_block(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()) as t:
                (x,) = t.numpy()
                x += 1

    return [function, with_block]


def with_cupy(ctx: Any, data: Any, stream: Any) -> list[Loop]:
    """Tasks with CuPy's arrays."""
    known = cupy_loops(ctx, data, None, stream)
    return [known[name] for name in ("function_cupy", "with_block_cupy", "with_block_cupy_view")]


def run_programs(script: str, count: int, devices: str) -> None:
    """Run random programs in a process of its own."""
    path = os.pathsep.join([str(PROGRAMS.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"STF_TEST_DEVICES": devices, "PYTHONPATH": path}
    subprocess.run([sys.executable, str(PROGRAMS / script), "0", str(count)], check=True, env=environment)


if __name__ == "__main__":
    main()
