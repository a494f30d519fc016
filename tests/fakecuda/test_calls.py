"""The order of random programs, proven from the calls that CUDA's driver library got (tests/cudatrace)."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRACE = HERE.parent / "cudatrace"

pytestmark = pytest.mark.timeout(300)  # two libraries are built


def module(path):
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="session")
def check(tmp_path_factory):
    """Run tests/cudatrace/check.py on the stand-in; return (exit status, what it printed)."""
    stand_in, trace = module(HERE / "build.py"), module(TRACE / "build.py")
    if what := stand_in.missing_for_stf() or trace.missing():
        pytest.skip(f"not there: {what}")
    kept = os.environ.get("FAKECUDA_FOLDER")  # where both libraries are
    folder = Path(kept) if kept else stand_in.build(tmp_path_factory.mktemp("fakecuda")).parent
    library = Path(kept, "trace") if kept else trace.build(tmp_path_factory.mktemp("cudatrace")).parent

    def check(*options, **settings):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FAKECUDA_", "STF_"))}
        environment |= {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(HERE)} | settings
        command = [sys.executable, str(TRACE / "check.py"), f"--library={library}", *options]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=170)
        return done.returncode, done.stdout + done.stderr

    return check


@pytest.mark.parametrize("devices", [pytest.param("cuda:0", marks=pytest.mark.thorough), "cuda:0,1"])
def test_every_call_that_must_be_ordered_is(check, devices):
    status, text = check("--devices", devices, "--count", "60", FAKECUDA_SEED="3")
    assert status == 0, text
    pairs, waits = re.search(r"([\d,]+) pairs, ([\d,]+) waits of streams; 0 failed", text).groups()
    assert int(pairs.replace(",", "")) > 1500 and int(waits.replace(",", "")) > 200


@pytest.mark.thorough
def test_each_wait_that_is_missing_is_found(check):
    status, text = check("--planted")
    assert status == 0, text
    assert "5 waits of streams: found that they miss [1, 2, 3, 4, 5], implied by others []" in text


@pytest.mark.thorough
def test_waits_missing_in_random_programs_are_found(check):
    """Each program without its second wait: for many, another wait or the host's own implies it."""
    status, text = check("--count", "24", "--drop", "2", FAKECUDA_SEED="1")
    assert status == 1 and len(re.findall(r"is not ordered after|CUDA_ERROR|AssertionError", text)) >= 3, text
