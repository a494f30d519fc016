"""Random programs, compared with the same program run one task at a time; a failure prints the program and its seed."""

from __future__ import annotations

import pytest
from drivers import ON_CUDA
from helpers import QUICK
from programs import run_program

from stf import config

PROGRAMS = 150 if QUICK else 400 if config.pure or ON_CUDA else 2400
CHUNK = 50


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_programs_compute_what_one_task_at_a_time_does(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_program(seed)


def test_a_program_is_its_seed() -> None:
    from programs import Program

    assert Program(5).run() == Program(5).run()
