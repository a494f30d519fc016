"""The code of the pages that needs a GPU: each page runs as a program, on the first device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import pages  # noqa: E402

PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if any(block.needs for block in pages.blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_for_gpus_runs(page: Path, tmp_path: Path) -> None:
    needed = {name for block in pages.blocks(page) for name in block.needs}
    lacks = list(pages.missing(tuple(sorted(needed - {"a GPU"}))))
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "pages.py", page, "--gpu"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STF_DEVICES": "cuda:0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    if lacks:
        pytest.skip(f"some blocks need {', '.join(lacks)}; the others ran")
