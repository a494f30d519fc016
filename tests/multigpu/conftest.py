"""Tests here need two CUDA devices."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _two_devices(cuda_device_count: int) -> None:
    if cuda_device_count < 2:
        pytest.skip(f"needs two CUDA devices, there is {cuda_device_count}")
