"""The C of loops, without Python: random loops by several threads, plain and with ThreadSanitizer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "tsan" / "loops.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = pytest.mark.skipif(
    COMPILER is None or sys.platform == "win32" or not SOURCE.exists(), reason="there is no C compiler with pthreads"
)


def built(folder: Path, *flags: str) -> str | None:
    """Return the path of the program; None where the compiler does not know the flags."""
    path = folder / "loops"
    command = [str(COMPILER), "-g", "-O1", "-Wno-unused-function", *flags, str(SOURCE), "-o", str(path), "-pthread"]
    return str(path) if subprocess.run(command, capture_output=True, check=False).returncode == 0 else None


def test_random_loops_order_their_steps(tmp_path: Path) -> None:
    program = built(tmp_path)
    assert program is not None
    told = subprocess.run([program, "400", "7"], capture_output=True, text=True, timeout=120, check=False)
    assert told.stdout == "400 programs, 0 wrong\n", told


def test_random_loops_have_no_race(tmp_path: Path) -> None:
    program = built(tmp_path, "-fsanitize=thread")
    if program is None:
        pytest.skip("the compiler has no ThreadSanitizer")
    fixed = [shutil.which("setarch") or "", "-R"] if shutil.which("setarch") else []  # addresses that it knows
    told = subprocess.run([*fixed, program, "60", "7"], capture_output=True, text=True, timeout=120, check=False)
    if "unexpected memory mapping" in told.stderr or "failed to set personality" in told.stderr:
        pytest.skip("ThreadSanitizer cannot run here")
    assert (told.stdout, told.returncode) == ("60 programs, 0 wrong\n", 0), told
