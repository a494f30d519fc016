"""Libraries at work in bodies, each on the task's stream: CCCL, nvmath, cuBLAS by pointers, one's own C++."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import stf

N = 10_000


@pytest.fixture
def ctx():
    with stf.context(devices="cuda:0") as context:
        yield context
    assert context._driver.leaks()[2:] == (0, 0)  # the next one has its streams and events


def test_algorithms_of_cccl(ctx):
    compute = pytest.importorskip("cuda.compute")
    pytest.importorskip("cupy")
    X = np.random.default_rng(1).integers(0, 100, N).astype(np.int64)
    lX, lS, lP = ctx.logical_data(X), ctx.logical_data_empty(1, np.int64), ctx.logical_data_empty(N, np.int64)

    @stf.task(arrays="cupy")
    def total(x: stf.Read, s: stf.Write, stream: stf.Stream):
        init = np.zeros(1, np.int64)
        compute.reduce_into(d_in=x, d_out=s, num_items=x.size, op=compute.OpKind.PLUS, h_init=init, stream=stream)

    total(lX, lS)
    with ctx.task(lX.read(), lP.write()) as t:
        x, p = t.args_cai()
        init = np.zeros(1, np.int64)
        compute.inclusive_scan(d_in=x, d_out=p, op=compute.OpKind.PLUS, init_value=init, num_items=N, stream=t.stream)
    assert lS.numpy()[0] == X.sum() and (lP.numpy() == np.cumsum(X)).all()


def test_a_product_by_nvmath(ctx):
    advanced = pytest.importorskip("nvmath.linalg.advanced")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    A, B = rng.random((64, 96), np.float32), rng.random((96, 32), np.float32)
    lA, lB, lC = ctx.logical_data(A), ctx.logical_data(B), ctx.logical_data_empty((64, 32), np.float32)

    @stf.task(arrays="torch")
    def product(a: stf.Read, b: stf.Read, c: stf.Write):
        return advanced.matmul(a, b)  # on torch's current stream, which is the task's

    product(lA, lB, lC)
    assert np.allclose(lC.numpy(), A @ B, rtol=1e-2)
    with ctx.task(lA.read(), lB.read(), lC.write()) as t:
        a, b, c = t.torch()
        c.copy_(advanced.matmul(a, b, stream=t.stream_ptr()))
    assert np.allclose(lC.numpy(), A @ B, rtol=1e-2) and torch.is_grad_enabled()


@pytest.fixture
def cublas():
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        path = pathfinder.load_nvidia_dynamic_lib("cublas").abs_path
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("no cuBLAS")
    library = ctypes.CDLL(path)
    handle = ctypes.c_void_p()
    assert library.cublasCreate_v2(ctypes.byref(handle)) == 0
    yield library, handle
    assert library.cublasDestroy_v2(handle) == 0


def test_cublas_by_pointers(ctx, cublas):
    """A C library that takes addresses and a stream."""
    library, handle = cublas
    X, Y = np.arange(float(N)), np.ones(N)
    lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
    for factor in (2.0, 3.0):
        with ctx.task(lX.read(), lY.rw()) as t:
            alpha = ctypes.c_double(factor)
            assert library.cublasSetStream_v2(handle, ctypes.c_void_p(t.stream_ptr())) == 0
            code = library.cublasDaxpy_v2(
                *(handle, ctypes.c_int(N), ctypes.byref(alpha)),
                *(ctypes.c_void_p(t.get_arg(0)), ctypes.c_int(1), ctypes.c_void_p(t.get_arg(1)), ctypes.c_int(1)),
            )
            assert code == 0
    assert (lY.numpy() == 1 + 5 * np.arange(N)).all()


SOURCE = """
__global__ void scale(double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
extern "C" int scale_on(double *x, double a, int n, cudaStream_t stream) {
    scale<<<(n + 255) / 256, 256, 0, stream>>>(x, a, n);
    return cudaGetLastError();
}
"""


def test_a_library_compiled_by_nvcc(ctx, tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    source, library = tmp_path / "scale.cu", tmp_path / "libscale.so"
    source.write_text(SOURCE)
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-arch=native", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    scale_on = ctypes.CDLL(str(library)).scale_on
    scale_on.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_int, ctypes.c_void_p]
    lX = ctx.logical_data(np.arange(float(N)))
    for _ in range(3):
        with ctx.task(lX.rw()) as t:
            assert scale_on(t.get_arg(0), 2.0, N, t.stream_ptr()) == 0
    assert (lX.numpy() == 8 * np.arange(N)).all()


def test_cublas_of_cupy_and_solvers_of_torch(ctx):
    """Libraries within libraries follow the current stream."""
    pytest.importorskip("cupy")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    A, b = rng.random((50, 50)) + 50 * np.eye(50), rng.random(50)
    lA, lB, lX, lR = ctx.logical_data(A), ctx.logical_data(b), ctx.logical_data_empty(50), ctx.logical_data_empty(50)

    @stf.task
    def solve(a: stf.Read[torch.Tensor], b: stf.Read[torch.Tensor], x: stf.Write[torch.Tensor]):
        return torch.linalg.solve(a, b)

    @stf.task(arrays="cupy")
    def residual(a: stf.Read, x: stf.Read, b: stf.Read, r: stf.Write):
        return b - a @ x

    solve(lA, lB, lX)
    residual(lA, lX, lB, lR)
    assert np.abs(lR.numpy()).max() < 1e-12
