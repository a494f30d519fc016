"""Lets the tests here import `programs`, and closes what these share on CUDA after each module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """What programs shared is closed, and leaves nothing behind: tests that come next look for leaks."""
    import drivers

    yield
    assert drivers.close_shared() == {}
