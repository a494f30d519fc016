"""nvmath-python in bodies, on the task's stream: transforms, products with a plan, sparse ones, transforms in kernels."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
nvmath = pytest.importorskip("nvmath")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
RNG = np.random.default_rng(7)
SIGNAL = (RNG.random((16, 64)) + 1j * RNG.random((16, 64))).astype(np.complex64)


def test_a_transform(run):
    """It plans in the body, on CuPy's current stream."""

    @stf.task(arrays="cupy")
    def transform(x: stf.Read, y: stf.Write):
        y[...] = nvmath.fft.fft(x, axes=[1])

    def prepare(ctx):
        lX, lY = ctx.logical_data(SIGNAL), ctx.logical_data_empty(SIGNAL.shape, np.complex64)
        return (
            lambda: transform(lX, lY),
            lambda count: np.testing.assert_allclose(lY.numpy(), np.fft.fft(SIGNAL, axis=1), rtol=1e-3, atol=1e-3),
        )

    run(prepare)


def test_a_transform_in_place_with_a_plan(run):
    """The plan and its workspace are made once, outside; each step gives it the array and the stream.

    A token orders the tasks that share the plan, since it has one workspace.
    """
    fft, like = nvmath.fft, cupy.zeros(SIGNAL.shape, cupy.complex64)
    with fft.FFT(like, axes=[1], options={"inplace": True}) as plan:
        plan.plan()
        plan.execute(direction=fft.FFTDirection.FORWARD)

        @stf.task(arrays="cupy")
        def there_and_back(x: stf.ReadWrite, order: stf.ReadWrite, stream: stf.Stream):
            pointer = int(stream)
            plan.reset_operand(x, stream=pointer)
            plan.execute(direction=fft.FFTDirection.FORWARD, stream=pointer)
            plan.execute(direction=fft.FFTDirection.INVERSE, stream=pointer)
            x /= x.shape[1] / 2

        def prepare(ctx):
            lX, order = ctx.logical_data(SIGNAL.copy()), ctx.token()
            return (
                lambda: there_and_back(lX, order),
                lambda count: np.testing.assert_allclose(lX.numpy(), SIGNAL * 2**count, rtol=1e-3, atol=1e-3),
            )

        cupy.cuda.Device().synchronize()
        run(prepare)
        plan.reset_operand(like)  # a plan waits for its last run when it ends, and cannot for one that was captured
        plan.execute(direction=fft.FFTDirection.FORWARD)
        cupy.cuda.Device().synchronize()


def test_a_product_with_a_plan(run):
    """The algorithm is chosen once; each step gives it its operands."""
    advanced = pytest.importorskip("nvmath.linalg.advanced")
    A, B = RNG.random((64, 96), np.float32), RNG.random((96, 32), np.float32)
    dA, dB = cupy.asarray(A), cupy.asarray(B)
    with advanced.Matmul(dA, dB) as plan:
        plan.plan()
        plan.execute()

        @stf.task(arrays="cupy")
        def multiply(a: stf.Read, b: stf.Read, c: stf.ReadWrite, order: stf.ReadWrite, stream: stf.Stream):
            pointer = int(stream)
            plan.reset_operands(a=a, b=b, stream=pointer)
            c += plan.execute(stream=pointer)

        def prepare(ctx):
            lA, lB, lC = ctx.logical_data(A), ctx.logical_data(B), ctx.logical_data_zeros((64, 32), np.float32)
            order = ctx.token()
            return (
                lambda: multiply(lA, lB, lC, order),
                lambda count: np.testing.assert_allclose(lC.numpy(), count * (A @ B), rtol=1e-2),
            )

        cupy.cuda.Device().synchronize()
        run(prepare)
        plan.reset_operands(a=dA, b=dB)
        plan.execute()
        cupy.cuda.Device().synchronize()


def test_a_sparse_product(run):
    """The matrix is three arrays of CSR, each a logical data."""
    sparse = pytest.importorskip("nvmath.sparse")
    csr_matrix = pytest.importorskip("cupyx.scipy.sparse").csr_matrix
    M = np.where(RNG.random((40, 30)) < 0.2, RNG.random((40, 30)), 0).astype(np.float32)
    rows, columns = np.nonzero(M)
    starts = np.searchsorted(rows, np.arange(41)).astype(np.int32)
    B = RNG.random((30, 8), np.float32)
    as_tensor, as_array = sparse.ust.Tensor.from_package, sparse.ust.Tensor.to_package

    @stf.task(arrays="cupy")
    def multiply(values: stf.Read, columns: stf.Read, starts: stf.Read, b: stf.Read, c: stf.Write):
        a = csr_matrix((values, columns, starts), shape=(40, 30), copy=False)
        out = cupy.zeros((40, 8), cupy.float32)
        c[...] = as_array(sparse.matmul(as_tensor(a), as_tensor(b), as_tensor(out), beta=1.0))

    def prepare(ctx):
        lV, lJ, lI = (ctx.logical_data(part) for part in (M[rows, columns], columns.astype(np.int32), starts))
        lB, lC = ctx.logical_data(B), ctx.logical_data_empty((40, 8), np.float32)
        return (
            lambda: multiply(lV, lJ, lI, lB, lC),
            lambda count: np.testing.assert_allclose(lC.numpy(), M @ B, rtol=1e-3, atol=1e-5),
        )

    run(prepare)


# -- in kernels ------------------------------------------------------------------------------------------------------


@pytest.fixture
def device():
    """The device APIs, which need libmathdx and Numba."""
    pytest.importorskip("numba.cuda")
    for folder in sys.path:  # nvmath looks for its wheel where this Python installs, which need not be all
        library = Path(folder) / "nvidia" / "cu13" / "lib" / "libmathdx.so.0"
        if library.exists():
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            break
    try:
        module = pytest.importorskip("nvmath.device")
        module.FFT(size=8, precision=np.float32, fft_type="c2c", direction="forward", execution="Thread").storage_size
    except Exception as error:
        if "mathdx" not in f"{type(error).__name__} {error}".lower():
            raise
        pytest.skip(f"no libmathdx: {str(error).partition(chr(10))[0]}")
    return module


def test_a_transform_of_each_thread(run, device):
    from numba import cuda

    fft = device.FFT(size=8, precision=np.float32, fft_type="c2c", direction="forward", execution="Thread")
    stored, each, kind = fft.storage_size, fft.elements_per_thread, fft.value_type

    @cuda.jit
    def transform(x, y):
        mine = cuda.local.array(stored, kind)
        row = cuda.grid(1)
        if row < x.shape[0]:
            for i in range(each):
                mine[i] = x[row, i]
            fft.execute(mine)
            for i in range(each):
                y[row, i] = mine[i]

    X = SIGNAL.reshape(-1, 8)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data_empty(X.shape, np.complex64)
        return (
            lambda: stf.kernel(transform)[4, 32](lX.read(), lY.write()),
            lambda count: np.testing.assert_allclose(lY.numpy(), np.fft.fft(X, axis=1), rtol=1e-3, atol=1e-3),
        )

    run(prepare)
