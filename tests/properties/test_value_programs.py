"""Random programs whose tasks return data; `value_programs` runs more of them."""

from __future__ import annotations

import pytest
from drivers import ON_CUDA
from helpers import QUICK
from value_programs import run_program

from stf import config

PROGRAMS = 60 if QUICK else 200 if config.pure or ON_CUDA else 800
CHUNK = 20


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs_with_returned_data_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_program(seed)
