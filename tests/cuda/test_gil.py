"""The policy of the GIL (docs/design): what tasks cost beside a busy thread and beside host bodies, within loose bounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cuda" / "gil.py"


@pytest.mark.timeout(300)
def test_tasks_do_not_give_up_the_gil_one_by_one():
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
