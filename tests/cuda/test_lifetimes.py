"""The ends of data, tasks, contexts and processes on a GPU: the programs of tests/fakecuda/lifetimes.py."""

from __future__ import annotations

import importlib.util
import inspect
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("cupy")
SOURCE = Path(__file__).parents[1] / "fakecuda" / "lifetimes.py"
ON_GPU = """
def calls():
    return 0

guilty = cupy.RawKernel('extern "C" __global__ void guilty(double* x) { *(double*)8 = 1; }', "guilty")

def fault(ctx, data):
    with ctx.task(data.rw(), name="guilty") as t:
        guilty((1,), (1,), t.cupy())
"""


def programs():
    spec = importlib.util.spec_from_file_location("lifetimes", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LIFETIMES = programs()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dropped_in_any_order", "done"),
        ("dropped_in_circles", "done"),
        ("failures_hold_nothing", "done"),
        ("open_at_exit", "2.0 1.0 0 0"),
        ("forked", "child True 11 7.0 0\nparent 2.0 3.0"),
        ("lost", "done"),
    ],
)
def test_lifetimes(run_python, name, expected):
    body = textwrap.dedent("".join(inspect.getsourcelines(getattr(LIFETIMES, name))[0][1:]))
    done = run_python(LIFETIMES.PRELUDE + ON_GPU + body)
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stdout + done.stderr
