"""Kernels that another process has compiled: a later one finds them, and imports no compiler for that."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("numba_cuda")

PROGRAM = """
import sys
import numpy as np, stf
from stf import con, par

STEP = 2.0

with stf.context(devices="cuda:0") as ctx:
    x, total = ctx.logical_data(np.ones(64)), ctx.logical_data_empty((), float)

    @ctx.parallel_for(x.shape, x.rw())
    def add(i, x):
        x[i] += STEP

    @ctx.launch(par(2, con(32)), x.rw())
    def more(th, x):
        th.sync(1)
        x[th.rank()] += STEP

    print(x.numpy().sum(), sorted(name for name in sys.modules if name.partition(".")[0] in ("numba", "numba_cuda")))
"""


def test_a_second_process_imports_no_compiler(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "STF_CACHE_DIR": str(tmp_path / "cache")}
    found = [
        subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, check=True).stdout
        for _ in range(2)
    ]
    assert found[0].startswith("320.0 ['numba'") and found[1] == "320.0 []\n", found
