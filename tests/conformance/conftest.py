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


def where_kernels_run(ctx: stf.Context, construct: Any) -> Any:
    """A construct, at the host of a device that runs no kernels."""

    def build(*arguments: Any, **options: Any) -> Any:
        builder = construct(*arguments, **options)
        return builder if runs_kernels(ctx) else builder.on("host")

    return build


@pytest.fixture
def loop(ctx: stf.Context) -> Any:
    """``ctx.parallel_for`` where kernels run."""
    return where_kernels_run(ctx, ctx.parallel_for)


@pytest.fixture
def threads(ctx: stf.Context) -> Any:
    """``ctx.launch`` where kernels run."""
    return where_kernels_run(ctx, ctx.launch)
