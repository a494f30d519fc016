"""Data that tests of recordings share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import runs_kernels

import stf


@pytest.fixture
def lX(ctx: stf.Context) -> Any:
    return ctx.logical_data(np.zeros(4), name="X")


@pytest.fixture
def lY(ctx: stf.Context) -> Any:
    return ctx.logical_data(np.arange(4.0), name="Y")


@pytest.fixture
def loop(ctx: stf.Context) -> Any:
    """``ctx.parallel_for`` where kernels run."""

    def loop(*arguments: Any, **options: Any) -> Any:
        builder = ctx.parallel_for(*arguments, **options)
        return builder if runs_kernels(ctx) else builder.on("host")

    return loop


@pytest.fixture
def threads(ctx: stf.Context) -> Any:
    """``ctx.launch`` where kernels run."""

    def threads(*arguments: Any, **options: Any) -> Any:
        builder = ctx.launch(*arguments, **options)
        return builder if runs_kernels(ctx) else builder.on("host")

    return threads
