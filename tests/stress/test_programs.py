"""The random programs of tests/properties, a hundred thousand of them (`make stress`); run.py has them in several processes."""

from __future__ import annotations

import pytest
from programs import run_program

PROGRAMS = 100_000
CHUNK = 1000

pytestmark = pytest.mark.stress


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(10_000, 10_000 + PROGRAMS, CHUNK))
def test_programs(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_program(seed)
