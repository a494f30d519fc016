"""What tests of every kind share."""

from __future__ import annotations

import ctypes
import sys

import pytest


@pytest.fixture(scope="session")
def cuda_device_count() -> int:
    """Count the CUDA devices; skip where there is no driver or no device. A driver that fails is an error."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        pytest.skip(f"no CUDA driver: {name} is not there")
    no_device = 100  # CUDA_ERROR_NO_DEVICE
    status = driver.cuInit(0)
    if status == no_device:
        pytest.skip("no CUDA device")
    assert status == 0, f"cuInit failed with {status}"
    count = ctypes.c_int()
    assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value
