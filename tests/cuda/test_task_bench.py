"""Task Bench on one GPU: each pattern as launches, as a recorded graph and as a replayed function, beside NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "task_bench" / "run.py"


def test_checksums() -> None:
    pytest.importorskip("cupy")
    pytest.importorskip("numba")
    options = ("--devices", "cuda:0", "--width", "16", "--check")
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": as NumPy") >= 10 * 5
