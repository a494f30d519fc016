"""`import stf` is cheap and loads no library that a program may not need."""

from __future__ import annotations

import statistics
import subprocess
import sys

LIMIT_S = 0.3
FOREIGN = ("numba", "llvmlite", "cuda", "cupy", "torch", "scipy", "matplotlib", "networkx")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout


def test_import_loads_no_foreign_library() -> None:
    loaded = run("import sys, stf; print(*sorted({name.partition('.')[0] for name in sys.modules}))").split()
    assert "stf" in loaded
    assert [name for name in FOREIGN if name in loaded] == []


def test_import_takes_little_beyond_numpy() -> None:
    code = "import time, numpy; t = time.perf_counter(); import stf; print(time.perf_counter() - t)"
    times = [float(run(code)) for _ in range(5)]
    assert statistics.median(times) < LIMIT_S, times
