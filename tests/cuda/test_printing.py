"""What generated kernels print on a GPU: all of it is there when the host has waited."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("cupy")

PROLOGUE = """
import numpy as np, stf
from stf import con, par

ctx = stf.context(devices="cuda:0")
x = ctx.logical_data(np.array([4.0, -1.0, 9.0, -2.5]))
"""


def lines_of(body: str) -> list[str]:
    """Return what a program prints, each line once for each time."""
    command = [sys.executable, "-c", PROLOGUE + body + "\nctx.finalize()\n"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def program_file(tmp_path, body: str) -> list[str]:
    """Return the same of a program in a file, whose source is read."""
    path = tmp_path / "program.py"
    path.write_text(PROLOGUE + body + "\nctx.finalize()\n")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_elements_of_parallel_for(tmp_path):
    pytest.importorskip("numba.cuda")
    body = """
@ctx.parallel_for(x.shape, x.rw())
def root(i, x):
    if x[i] < 0:
        print("negative:", i, x[i])
    x[i] = abs(x[i])
"""
    found = program_file(tmp_path, body)
    assert [line.split()[:2] for line in found] == [["negative:", "1"], ["negative:", "3"]]
    assert [float(line.split()[2]) for line in found] == [-1.0, -2.5]


def test_threads_of_launch(tmp_path):
    pytest.importorskip("numba.cuda")
    body = """
@ctx.launch(par(2, con(4)), x.rw())
def tell(th, x):
    th.sync(1)
    if th.rank(1) == 3:
        print("group", th.rank(0))
"""
    assert program_file(tmp_path, body) == ["group 0", "group 1"]


def test_lambdas_in_cpp():
    text = r"""[](size_t i, auto x) { if (x(i) < 0) printf("negative: %d %.1f\n", int(i), x(i)); }"""
    found = lines_of(f"ctx.parallel_for(x.shape, x.rw())({text!r})")
    assert found == ["negative: 1 -1.0", "negative: 3 -2.5"]


def test_each_launch_of_a_graph_prints():
    text = r"""[](size_t i, auto x) { if (i == 2) printf("two\n"); }"""
    body = f"""
with ctx.task_graph() as g:
    ctx.parallel_for(x.shape, x.rw())({text!r})
for _ in range(3):
    g.launch()
"""
    assert lines_of(body) == ["two"] * 3
