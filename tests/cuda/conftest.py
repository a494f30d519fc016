"""Tests here need one CUDA device."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def _cuda(cuda_device_count: int) -> None:
    if cuda_device_count < 1:
        pytest.skip("no CUDA device")


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of the device for itself
sys.path.insert(0, str(Path(__file__).parent))  # for the Triton kernel, whose source Triton reads
