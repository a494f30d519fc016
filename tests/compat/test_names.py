"""The names, under both imports, and the helpers of libraries."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf
import stf.compat
import stf.compat.cuda_stf as cuda_stf
from stf.compat.cuda_stf.interop.numba import jit, numba_task


def test_all_names_are_there() -> None:
    for module in (cuda_stf, importlib.import_module("stf.compat.cuda_stf._stf_bindings")):
        assert len(set(module.__all__)) == len(module.__all__)
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert callable(cuda_stf.task_graph)
    assert callable(cuda_stf.green_places)
    assert cuda_stf.__version__ == stf.__version__


def test_there_are_no_headers() -> None:
    for find in (cuda_stf.get_include_paths, cuda_stf.get_library_dir, cuda_stf.get_library_path):
        with pytest.raises(RuntimeError, match="cuda-stf"):
            find()
    assert list(cuda_stf.paths.iter_site_roots())


def test_programs_run_unchanged_after_install() -> None:
    try:
        stf.compat.install()
        stf.compat.install()
        module = importlib.import_module("cuda.stf._experimental")
        assert module is cuda_stf
        assert importlib.import_module("cuda.stf._experimental.interop.numba").jit is jit
        assert module.__spec__ is not None
        assert module.__spec__.name == "stf.compat.cuda_stf"
        importlib.import_module("cuda.bindings")
    finally:
        stf.compat.uninstall()
    stf.compat.uninstall()
    with pytest.raises(ImportError):
        importlib.import_module("cuda.stf._experimental")


def test_a_process_without_cuda_can_install() -> None:
    code = (
        "import sys; sys.path = [p for p in sys.path]\n"
        "import stf, stf.compat; stf.compat.install()\n"
        "import cuda.stf._experimental as s; import cuda.stf._experimental.paths\n"
        "from cuda.stf._experimental import context; assert context is s.context; print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.skipif(ON_CUDA, reason="needs numba-cuda")
def test_a_task_with_arrays_for_numba(ctx: Any) -> None:
    lX = ctx.logical_data(np.zeros(3))
    with numba_task(ctx, lX.rw(), ctx.token().read(), symbol="add") as (arrays, stream):
        arrays[0][:] += 1
        assert isinstance(stream, cuda_stf.CudaStream)
    with numba_task(ctx) as (arrays, _):
        assert arrays == ()
    with ctx.task(lX.rw()) as t:
        assert t.get_arg_numba(0).tolist() == t.numba_arguments().tolist() == [1, 1, 1]


def test_a_kernel_needs_a_configuration(ctx: Any) -> None:
    @jit
    def kernel(x: Any) -> None:
        x[0] = 1

    with pytest.raises(RuntimeError, match="launch configuration missing"):
        kernel(1)
    for config in (1, (1,), (1, 1, 1), (1, 1, None, 1)):
        with pytest.raises(TypeError):
            kernel[config]
    with pytest.raises(TypeError, match="No STF context could be inferred"):
        kernel[1, 1](2)


KERNELS = """
import numpy as np
import stf.compat.cuda_stf as cuda_stf
from stf.compat.cuda_stf.interop.numba import jit
from numba import cuda

@jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]

X, Y = np.ones(10), np.zeros(10)
with cuda_stf.context() as ctx:
    lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
    axpy[1, 16](2.0, lX.read(), lY.rw())
    axpy[1, 16, cuda_stf.exec_place.device(0)](2.0, lX.read(), lY.rw())
    axpy[1, 16, None, ctx](2.0, lX.read(), lY.rw())
with cuda_stf.stackable_context() as ctx:
    lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
    with ctx.repeat(3):
        axpy[1, 16](1.0, lX.read(), lY.rw())
print(Y.tolist() == [9.0] * 10)
"""


@pytest.mark.skipif(ON_CUDA, reason="Numba's simulator works in memory of the host")
def test_kernels_of_numba_in_its_simulator(run_python: Any, devices: str) -> None:
    done = run_python(KERNELS, NUMBA_ENABLE_CUDASIM="1", STF_DEVICES=devices)
    assert done.stdout.strip() == "True", done.stderr


def test_tensors_need_torch(ctx: Any) -> None:
    from stf.compat.cuda_stf.interop import pytorch

    lX = ctx.logical_data(np.zeros(3))
    torch = sys.modules.get("torch") or importlib.util.find_spec("torch")
    if torch is None:
        with pytest.raises(ImportError, match="PyTorch"):
            pytorch.pytorch_task(ctx, lX.rw())
        return
    with pytorch.pytorch_task(ctx, lX.rw()) as (x,):
        x += 1
    assert ctx.wait(lX).tolist() == [1, 1, 1]
