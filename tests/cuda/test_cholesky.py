"""The Cholesky benchmark and its library calls on a GPU, and cuSOLVER's beside them, at a small order."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import stf

FOLDER = Path(__file__).parents[2] / "benchmarks" / "workloads" / "cholesky_gpu"
MODULES = ("kernels", "libraries", "matrix", "stf_tiled", "cusolver", "cusolvermg")


@pytest.fixture
def bench(monkeypatch):
    """The modules of the benchmark."""
    cupy = pytest.importorskip("cupy")
    monkeypatch.syspath_prepend(str(FOLDER))
    found = SimpleNamespace(cupy=cupy, **{name: importlib.import_module(name) for name in MODULES})
    try:
        found.libraries.cublas()
        found.libraries.cusolver()
    except OSError as error:
        pytest.skip(str(error))
    yield found
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("how", ["right", "left"])
@pytest.mark.parametrize(("inner", "urgent", "whole"), [(0, True, False), (48, True, False), (0, False, True)])
def test_factor_by_libraries(bench, how, inner, urgent, whole):
    kernels = bench.kernels.CudaKernels(inner, urgent, whole)
    order, tile = 1000, 128
    matrix = bench.matrix.Matrix(bench.cupy, order, tile)
    matrix.fill()
    with stf.context(devices="cuda:0") as ctx:
        blocks = bench.stf_tiled.Blocks.register(ctx, matrix.column, order, tile, 3)
        bench.stf_tiled.factor(blocks, kernels, 1, how)
        ctx.synchronize()
    kernels.check()
    assert bench.matrix.relative_error(matrix) < 1e-14
    expected = bench.matrix.element_block(np, order, 0, order, 0, order)
    expected = np.linalg.cholesky(np.tril(expected) + np.tril(expected, -1).T)
    assert np.allclose(np.tril(matrix.parts[0].get()), expected, rtol=1e-12, atol=1e-12)
    kernels.close()


def test_an_indefinite_block_is_told(bench):
    kernels = bench.kernels.CudaKernels()
    matrix = bench.matrix.Matrix(bench.cupy, 256, 64)
    matrix.fill()
    matrix.parts[0][200, 200] = -1.0
    matrix.synchronize()
    with stf.context(devices="cuda:0") as ctx:
        blocks = bench.stf_tiled.Blocks.register(ctx, matrix.column, 256, 64, 2)
        bench.stf_tiled.factor(blocks, kernels, 1)
    with pytest.raises(np.linalg.LinAlgError, match="of device 0 are not positive definite"):
        kernels.check()
    kernels.close()


@pytest.mark.parametrize("call", ["Dpotrf", "Xpotrf"])
def test_cusolver(bench, call):
    matrix = bench.matrix.Matrix(bench.cupy, 1000, 256)
    rival = bench.cusolver.Factorization(matrix, call)
    for _ in range(2):
        matrix.fill()
        rival.run()
    rival.close()
    assert bench.matrix.relative_error(matrix) < 1e-14
