"""Random programs on partitioned data; `part_programs` runs more of them, and on GPUs."""

from __future__ import annotations

import pytest
from drivers import ON_CUDA
from helpers import QUICK
from part_programs import run_loops, run_program

from stf import config

PROGRAMS = 60 if QUICK else 200 if config.pure or ON_CUDA else 1000
CHUNK = 20


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs_on_parts_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_program(seed)


@pytest.mark.skipif(ON_CUDA, reason="the bodies of these loops are compiled for a CPU")
@pytest.mark.parametrize("first", range(0, PROGRAMS // 4, CHUNK))
def test_random_loops_on_grids_agree_with_numpy(first: int) -> None:
    pytest.importorskip("numba")
    for seed in range(first, first + CHUNK):
        run_loops(seed)
