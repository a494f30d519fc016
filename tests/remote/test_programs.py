"""Random programs on remote workers: see `remote_programs`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers import QUICK

sys.path.insert(0, str(Path(__file__).parent))
pytest.importorskip("cloudpickle")


@pytest.mark.parametrize("first", range(0, 20 if QUICK else 100, 10))
def test_programs_agree_with_numpy(first: int) -> None:
    from remote_programs import run_program

    for seed in range(first, first + 10):
        run_program(seed)
