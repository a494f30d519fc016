"""JAX in bodies on a GPU: compiled functions with donated arguments, and foreign functions of ``jax.ffi``."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

import numpy as np
import pytest

import stf

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
N = 1000
X = np.arange(N, dtype=np.float32)


@pytest.fixture(autouse=True, scope="module")
def _on_a_gpu():
    try:
        jax.local_devices(backend="cuda")
    except RuntimeError as error:
        pytest.skip(f"JAX has no CUDA device: {error}")


def test_a_donated_argument(run):
    """JAX reuses the memory of its copy; the logical data keeps its own."""
    import functools

    @functools.partial(jax.jit, donate_argnums=0)
    def advance(y, x):
        return y + 2 * x

    @stf.task(arrays="jax")
    def step(x: stf.Read, y: stf.ReadWrite):
        return advance(y, x)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N, np.float32))

        def check(count):
            np.testing.assert_array_equal(lY.numpy(), 1 + 2 * count * X)
            np.testing.assert_array_equal(lX.numpy(), X)

        return lambda: step(lX, lY), check

    run(prepare)


def test_a_body_that_is_compiled_and_donates(run):
    """The task is the compiled function itself, and what it reads may be donated as well."""
    import functools

    @stf.task(arrays="jax")
    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(x: stf.Read, y: stf.ReadWrite):
        return y + x

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N, np.float32))

        def check(count):
            np.testing.assert_array_equal(lY.numpy(), 1 + count * X)
            np.testing.assert_array_equal(lX.numpy(), X)

        return lambda: step(lX, lY), check

    run(prepare)


def test_a_registered_array_that_is_donated_elsewhere():
    """JAX gives away no memory that others see, or the data say that it is gone: never another content."""
    donate = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
    x = jax.numpy.asarray(X) + 0
    with stf.context(devices="cuda:0") as ctx:
        lX = ctx.logical_data(x)
        try:
            donate(x).block_until_ready()
        except Exception as error:  # JAX refuses, which is as well
            assert "donat" in str(error).lower() or "external" in str(error).lower(), error
        np.testing.assert_array_equal(lX.numpy(), X)


SOURCE = """
#include <cuda_runtime.h>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
__global__ void scale(const float* x, float* y, float a, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
static ffi::Error run(cudaStream_t stream, float a, ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
    long n = x.element_count();
    scale<<<(n + 255) / 256, 256, 0, stream>>>(x.typed_data(), y->typed_data(), a, n);
    return cudaGetLastError() == cudaSuccess ? ffi::Error::Success() : ffi::Error::Internal("the kernel was refused");
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Scale, run, ffi::Ffi::Bind().Ctx<ffi::PlatformStream<cudaStream_t>>()
    .Attr<float>("a").Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory):
    """A foreign function in CUDA C++, registered with JAX."""
    if not hasattr(jax, "ffi"):
        pytest.skip("this JAX has no jax.ffi")
    nvcc = shutil.which("nvcc", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
    if nvcc is None:
        pytest.skip("no nvcc")
    folder = tmp_path_factory.mktemp("ffi")
    source, library = folder / "scale.cu", folder / "libscale.so"
    source.write_text(SOURCE)
    command = [
        nvcc,
        "-std=c++17",
        "-O1",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-arch=native",
        f"-I{jax.ffi.include_dir()}",
    ]
    done = subprocess.run([*command, "-o", str(library), str(source)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(library))
    jax.ffi.register_ffi_target("stf_test_scale", jax.ffi.pycapsule(loaded.Scale), platform="CUDA")
    return lambda x, a: jax.ffi.ffi_call("stf_test_scale", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, a=np.float32(a))


def test_a_foreign_function(run, scale):
    @stf.task(arrays="jax")
    def step(x: stf.Read, y: stf.ReadWrite):
        return y + scale(x, 3.0)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(N, np.float32))
        return (
            lambda: step(lX, lY),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 1 + 3 * count * X),
        )

    run(prepare)


def test_a_compiled_foreign_function(run, scale):
    compiled = jax.jit(lambda x, y: scale(y, 2.0) + x)

    @stf.task(arrays="jax")
    def step(x: stf.Read, y: stf.ReadWrite):
        return compiled(x, y)

    def prepare(ctx):
        lX, lY = ctx.logical_data(X), ctx.logical_data(np.zeros(N, np.float32))
        return (
            lambda: step(lX, lY),
            lambda count: np.testing.assert_array_equal(lY.numpy(), (2**count - 1) * X),
        )

    run(prepare)
