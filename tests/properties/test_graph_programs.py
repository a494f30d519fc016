"""Random recorded programs beside NumPy; `graph_programs` runs more of them, and on GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from graph_programs import run_program
from helpers import QUICK

CHUNK = 20


@pytest.mark.parametrize("first", range(0, 40 if QUICK else 400, CHUNK))
def test_recorded_programs(first):
    for seed in range(first, first + CHUNK):
        run_program(seed)
