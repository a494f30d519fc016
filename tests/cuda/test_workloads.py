"""The workloads on one GPU, as on a CPU: each script compares its results with those of CuPy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[2] / "benchmarks" / "workloads"


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("product", ("--order", 512, "--tile", 128)),
        ("lu", ("--order", 512, "--tile", 128)),
        ("stencil", ("--rows", 256, "--columns", 256, "--steps", 6)),
        ("conjugate_gradient", ("--points", 64, "--steps", 8)),
        ("weather", ("--cells", 24, "--steps", 3)),
    ],
)
def test_workload(name: str, sizes: tuple[object, ...], tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    if name in ("weather", "conjugate_gradient"):
        pytest.importorskip("numba_cuda")
    out = tmp_path / "rows.json"
    options = ("--on", "cuda", "--devices", "1", "--repeat", "1", "--json", out)
    command = [sys.executable, WORKLOADS / name / "run.py", *sizes, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["name"].split(",")[0] for row in json.loads(out.read_text())][:2] == ["cupy", "stf"]
