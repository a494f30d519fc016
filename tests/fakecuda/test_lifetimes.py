"""The ends of data, tasks, contexts and processes on the stand-in for CUDA: see lifetimes.py."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ON_STAND_IN = """
import fakecuda

def calls():
    return sum(fakecuda.counts()["calls"].values())

def fault(ctx, data):
    fakecuda.reset_calls("work:1:CUDA_ERROR_ILLEGAL_ADDRESS")
    with ctx.task(data.rw(), name="guilty") as t:
        t.cupy()[0][:] += 1
"""


def module(path):
    spec = importlib.util.spec_from_file_location(f"fakecuda_{path.stem}", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


lifetimes = module(HERE / "lifetimes.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    builder = module(HERE / "build.py")
    if what := builder.missing_for_stf():
        pytest.skip(f"not there: {what}")
    return builder.build(tmp_path_factory.mktemp("fakecuda")).parent


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lifetimes.dropped_in_any_order, "done"),
        (lifetimes.dropped_in_circles, "done"),
        (lifetimes.failures_hold_nothing, "done"),
        (lifetimes.open_at_exit, "2.0 1.0 0 0"),
        (lifetimes.forked, "child True 11 7.0 0\nparent 2.0 3.0"),
        (lifetimes.lost, "done"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_lifetimes(folder, tmp_path, program, expected):
    import stf

    body = textwrap.dedent("".join(inspect.getsourcelines(program)[0][1:]))
    script = tmp_path / "body.py"
    script.write_text(lifetimes.PRELUDE + ON_STAND_IN + body)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FAKECUDA_", "STF_"))}
    path = os.pathsep.join([str(HERE), str(Path(stf.__file__).parents[1])])
    environment |= {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": path, "FAKECUDA_SEED": "1"}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stdout + done.stderr
