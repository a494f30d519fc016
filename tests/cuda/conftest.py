"""Tests here need one CUDA device."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _cuda(cuda_device_count: int) -> None:
    if cuda_device_count < 1:
        pytest.skip("no CUDA device")
