"""Kernels that another process has compiled, for which a later one imports no compiler; and first kernels."""

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


TOGETHER = """
import threading
import numpy as np, stf
from stf import con, par

failed, together = [], threading.Barrier(6)

def work(number):
    try:
        together.wait()
        with stf.context(devices="cuda:0" if number % 2 else "cpu") as ctx:
            x, total = ctx.logical_data(np.ones(64)), ctx.logical_data_empty((), float)
            if number < 2:
                ctx.parallel_for(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: np.sqrt(x[i]))
                assert total.numpy() == 64
            elif number < 4:
                ctx.parallel_for(x.shape, x.rw(), ctx.random(1))(step)
                assert (x.numpy() >= 1).all()
            else:
                ctx.launch(par(2, con(32)), x.rw())(more)
                assert x.numpy().sum() == 128
    except BaseException as error:
        failed.append(repr(error))

def step(i, x, r):
    x[i] += r.uniform(i)

def more(th, x):
    x[th.rank()] += 1.0

threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
"""


def test_the_first_kernels_of_threads_are_compiled_side_by_side(tmp_path: pathlib.Path) -> None:
    """Each needs Numba: of two threads that import parts of it, one got what was half made."""
    program = tmp_path / "program.py"
    program.write_text(TOGETHER)
    for turn in range(3):
        environment = {**os.environ, "STF_CACHE_DIR": str(tmp_path / f"cache{turn}")}
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
