"""mypy and pyright find what is wrong in a program, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")
SOURCE = Path(__file__).parents[2] / "src"
WRONG = {number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith("# error")}


def lines_found_by_mypy(folder: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder), "--config-file", "", str(PROGRAM)]
    run = subprocess.run(command, cwd=folder, env={"MYPYPATH": str(SOURCE)}, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    return {int(line) for line in re.findall(r"program\.py:(\d+): error", run.stdout)}


def lines_found_by_pyright(folder: Path) -> set[int]:
    command = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if command is None:
        pytest.skip("pyright is not installed")
    rules = {"typeCheckingMode": "standard", "extraPaths": [str(SOURCE)], "include": [str(PROGRAM)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(rules))
    run = subprocess.run(
        [command, "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)], capture_output=True, text=True
    )
    told = json.loads(run.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in told if one["severity"] == "error"}


@pytest.mark.parametrize(
    "checker", [pytest.param(lines_found_by_mypy, marks=pytest.mark.thorough), lines_found_by_pyright]
)
def test_a_checker_finds_the_mistakes_of_a_program(checker, tmp_path):
    assert checker(tmp_path) == WRONG
