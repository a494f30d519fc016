"""Tests here need two CUDA devices."""

from __future__ import annotations

import pytest

import stf


@pytest.fixture(autouse=True, scope="session")
def _two_devices(cuda_device_count: int) -> None:
    if cuda_device_count < 2:
        pytest.skip(f"needs two CUDA devices, there is {cuda_device_count}")


@pytest.fixture
def ctx():
    """A context on both, whose state is sound at the end."""
    pytest.importorskip("cupy")
    with stf.context(devices="cuda:0,1") as ctx:
        yield ctx
        ctx.check_state()
