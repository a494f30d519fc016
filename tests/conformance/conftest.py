"""Data that tests of recordings share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stf


@pytest.fixture
def lX(ctx: stf.Context) -> Any:
    return ctx.logical_data(np.zeros(4), name="X")


@pytest.fixture
def lY(ctx: stf.Context) -> Any:
    return ctx.logical_data(np.arange(4.0), name="Y")
