"""What users annotate is a type to a type checker: the first page passes mypy's strictest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stf

PROGRAM = """
import numpy as np
import stf


@stf.task
def axpy(alpha: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += alpha * x


@stf.task
def count(h: stf.Accumulate[stf.reducer.sum], x: stf.Read[np.ndarray], s: stf.Stream) -> None:
    h += x
    print(int(s), x.shape)


@stf.task
def answer(x: stf.Write) -> int:
    return 42


with stf.context(devices="cpu:2") as ctx:
    x, y = ctx.logical_data(np.ones(4), name="x"), ctx.logical_data_zeros(4)
    axpy.on(1)(2.0, x, y)
    with ctx.task(x.read(), y.rw(), name="n") as t:
        a, b = t.arrays()
        b += a
    s = ctx.logical_data(0.0)
    with ctx.while_loop(s < 3) as loop:
        s.assign(s + 1)
    f: float = float(s)
    g = ctx.task_graph()
    p = g.param("a", 1.0)
    with g:
        axpy(p, x, y)
    g.launch(a=2.0)
    total = ctx.logical_data_zeros(())
    total.accumulate(stf.reducer.max)
    again: stf.LogicalData = total.empty_like(symbol="again")
    token = ctx.token()
    wrong: int = token.name
"""


def test_the_first_page_passes_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    where = {"MYPYPATH": str(Path(stf.__file__).parents[1])}
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--cache-dir", str(tmp_path), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=os.environ | where)
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(lines) == 1 and "program.py:41: error: Incompatible types" in lines[0], done.stdout + done.stderr
