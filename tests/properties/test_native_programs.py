"""Random graphs of compiled bodies beside NumPy; `native_programs` runs more of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytest.importorskip("numba")

from native_programs import run_program


@pytest.mark.parametrize("block", range(6))
def test_loops_of_compiled_bodies_compute_what_numpy_does(block: int) -> None:
    for seed in range(25 * block, 25 * block + 25):
        run_program(seed)
