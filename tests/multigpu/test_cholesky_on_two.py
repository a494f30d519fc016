"""The Cholesky benchmark on two GPUs, beside cuSOLVERMg, at a small order."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path

import pytest

import stf

FOLDER = Path(__file__).parents[2] / "benchmarks" / "workloads" / "cholesky_gpu"
MODULES = ("kernels", "libraries", "matrix", "stf_tiled", "cusolver", "cusolvermg")


@pytest.fixture
def module(monkeypatch):
    """Import a module of the benchmark."""
    pytest.importorskip("cupy")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in MODULES:
        sys.modules.pop(name, None)


def test_factor_on_two(module):
    import cupy

    matrix = module("matrix").Matrix(cupy, 2000, 256, 2)
    kernels, tiled = module("kernels").CudaKernels(), module("stf_tiled")
    with stf.context(devices="cuda:0,1") as ctx:
        for _ in range(3):
            matrix.fill()
            blocks = tiled.Blocks.register(ctx, matrix.column, 2000, 256, 2)
            tiled.factor(blocks, kernels, 2)
            ctx.synchronize()
            kernels.check()
            assert module("matrix").relative_error(matrix) < 1e-14
            del blocks
    kernels.close()


@pytest.mark.parametrize("is_on_host", [False, True])
def test_cusolvermg(module, is_on_host):
    import cupy
    import cupyx

    host = functools.partial(cupyx.empty_pinned, order="F")
    matrix = module("matrix").Matrix(cupy, 2000, 256, *((1, host) if is_on_host else (2,)))
    try:
        rival = module("cusolvermg").Factorization(matrix, 2)
    except OSError as error:
        pytest.skip(str(error))
    for _ in range(2):
        matrix.fill()
        rival.run()
        assert module("matrix").relative_error(matrix) < 1e-13
    rival.close()
