"""Random programs with loops, with and without ``replay="auto"``; `loop_programs` runs more of them."""

from __future__ import annotations

import pytest
from drivers import ON_CUDA
from helpers import QUICK
from loop_programs import run_program

from stf import config

PROGRAMS = 40 if QUICK else 100 if config.pure or ON_CUDA else 400
CHUNK = 20


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_programs_do_the_same_with_replay(first: int) -> None:
    assert sum(run_program(seed) for seed in range(first, first + CHUNK)) > 0
