"""`stf.plan`: the same copies as a run, the times of sleeping bodies, and what a plan tells."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stf

SLEEP_S = 0.01
N = 64


def noted(name: str) -> Callable[..., None]:
    """Return a body that only uses its arrays."""

    def body(*arrays: Any) -> None:
        arrays[-1][...] = 1.0

    body.__name__ = name
    return body


def cholesky(ctx: stf.Context) -> None:
    n = 6
    a = {(i, j): ctx.logical_data(np.ones((N, N)), name=f"{i},{j}") for i in range(n) for j in range(i + 1)}
    for k in range(n):
        ctx.task(k % 2, a[k, k].rw(), name="potrf")(noted("potrf"))
        for i in range(k + 1, n):
            ctx.task(i % 2, a[k, k].read(), a[i, k].rw(), name="trsm")(noted("trsm"))
        for i in range(k + 1, n):
            for j in range(k + 1, i + 1):
                ctx.task((i + j) % 2, a[i, k].read(), a[j, k].read(), a[i, j].rw(), name="gemm")(noted("gemm"))


def ring(ctx: stf.Context) -> None:
    old, new = ([ctx.logical_data(np.ones(N)) for _ in range(6)] for _ in range(2))
    for _ in range(5):
        for i in range(6):
            around = old[i - 1].read(), old[i].read(), old[(i + 1) % 6].read()
            ctx.task(i % 2, *around, new[i].write(), name="step")(noted("step"))
        old, new = new, old


def tree(ctx: stf.Context) -> None:
    leaves = [ctx.logical_data(np.ones(N)) for _ in range(16)]
    width = 1
    while width < 16:
        for i in range(0, 16, 2 * width):
            ctx.task((i // width) % 2, leaves[i + width].read(), leaves[i].rw(), name="add")(noted("add"))
        width *= 2


@pytest.mark.parametrize("program", [cholesky, ring, tree])
def test_a_plan_makes_the_copies_of_the_run(program: Callable[[stf.Context], None]) -> None:
    with stf.context(devices="cpu:2") as ctx:
        program(ctx)
        ctx.synchronize()
    copied = ctx.statistics().copies
    found = stf.plan(program, devices="2xcpu").copies
    assert {pair: count for pair, count in found.items() if count} == {
        pair: count for pair, count in copied.items() if count
    }


def sleeping(ctx: stf.Context) -> None:
    def rest(*arrays: Any) -> None:
        time.sleep(SLEEP_S)
        arrays[-1][...] = 1.0

    x = [ctx.logical_data(np.ones(N), name=f"x{i}") for i in range(6)]
    for step in range(3):
        for i in range(6):
            ctx.task((i + step) % 2, x[i - 1].read(), x[i].rw(), name="rest")(rest)


def test_a_plan_predicts_sleeping_bodies() -> None:
    """Within a tenth on an idle machine; the bounds are for a loaded one, whose best run counts."""
    ratios = []
    for _ in range(5):
        with stf.context(devices="cpu:2", workers=2, observe="durations") as ctx:
            start = time.perf_counter()
            sleeping(ctx)
            ctx.synchronize()
            measured_s = time.perf_counter() - start
            model = ctx.calibrate()
        found = stf.plan(sleeping, devices="2xcpu", model=model, workers=2)
        assert found.guessed == 0
        ratios.append(found.makespan / measured_s)
        if abs(ratios[-1] - 1) <= 0.1:
            return
    pytest.fail(f"predicted / measured: {ratios}")


def test_a_script_is_planned_by_a_command(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, stf\n"
        "with stf.context() as ctx:\n"
        "    x = ctx.logical_data_zeros((), name='x')\n"
        "    for i in range(int(sys.argv[1])):\n"
        "        ctx.task(i % 2, x.rw(), name='step')(lambda x: x + 1)\n"
        "    print(float(x))\n"
    )
    command = [sys.executable, "-m", "stf", "plan", "--devices", "2xH200"]
    failed = subprocess.run([*command, str(script), "4"], capture_output=True, text=True)
    assert failed.returncode == 1 and "program.py:6 asks for values of logical data 'x'" in failed.stderr
    done = subprocess.run([*command, "--value", "x=3", str(script), "4"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("3.0\nstf.plan on 2xH200: "), done.stderr
    assert "4 x step" in done.stdout


def test_fills_at_first_use_are_measured_by_their_size() -> None:
    """They were kept as fills of no bytes, and one of 2 MiB was planned to take 2^21 times as long."""

    def program(ctx: stf.Context) -> None:
        for i in range(4):
            x = ctx.logical_data_zeros((512, 512))
            ctx.task(i % 2, x.rw(), name="step")(noted("step"))

    with stf.context(devices="cpu:2", observe="durations") as ctx:
        program(ctx)
        model = ctx.calibrate()
    assert {large for name, large, _ in model.durations if name == "fill"} == {21}
    found = stf.plan(program, devices="2xcpu", model=model)
    assert found.guessed == found.scaled == 0
    assert found.makespan < 1.0
