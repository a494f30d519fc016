"""One sum of two vectors by kernels of five kinds, each launch a task. It needs a CUDA device, and CuPy.

    A, B --> RawKernel (CuPy) -------> C0 --.
       \\--> template (cuda.core) ----> C1 --+
       \\--> @cuda.jit (Numba) -------> C2 --+--> all equal A + B
       \\--> @triton.jit (Triton) ----> C3 --+
       \\--> body with temporaries ---> C4 --'

Accesses stand where the arrays would: a kernel gets addresses (Numba's also shapes and strides) on the task's device,
and is launched on the task's stream. The five tasks may run at the same time. What is not installed is left out.
"""

import importlib.util
import warnings

import numpy as np
from _needs import needs_gpu

import stf

cupy = needs_gpu("cupy")

N, BLOCK = 1 << 20, 256
GRID = N // BLOCK


def is_installed(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def by_raw_kernel(ctx, a, b, c) -> None:
    """CuPy compiles C++; a Python int takes the size of its parameter."""
    add = cupy.RawKernel(
        'extern "C" __global__ void add(const float* a, const float* b, float* c, int n) '
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }",
        "add",
    )
    ctx.launch_kernel(add, (GRID, BLOCK), a.read(), b.read(), c.write(), N)


def by_template(ctx, a, b, c) -> None:
    """cuda.core compiles a template, launched with its own configuration."""
    from cuda import core

    code = (
        "template<typename T> __global__ void add(const T* a, const T* b, T* c, size_t n) "
        "{ size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }"
    )
    device = core.Device(0)
    device.set_current()
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    compiled = core.Program(code, code_type="c++", options=options).compile("cubin", name_expressions=("add<float>",))
    config = core.LaunchConfig(grid=GRID, block=BLOCK)
    ctx.launch_kernel(compiled.get_kernel("add<float>"), config, a.read(), b.read(), c.write(), N)


def by_numba(ctx, a, b, c) -> None:
    """Numba compiles Python; `stf.kernel` launches it with the arrays of the task."""
    from numba import cuda

    @cuda.jit
    def add(x, y, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + y[i]

    stf.kernel(add)[GRID, BLOCK](a.read(), b.read(), c.write())


def by_triton(ctx, a, b, c) -> None:
    """Triton launches itself, on torch's current stream, which is the task's."""
    from _triton_add import add

    stf.kernel(add)[(GRID,)](a.read(), b.read(), c.write(), N, BLOCK=BLOCK)


def by_body(ctx, a, b, c) -> None:
    """A chain of launches and elementwise operations in one task: the temporary lives on the task's stream."""
    with ctx.task(a.read(), b.read(), c.write(), name="body") as t:
        x, y, out = t.cupy()
        twice = 2 * x + 2 * y  # allocated, used and given back in the order of the stream
        out[...] = twice / 2


WAYS = {
    "CuPy's RawKernel": (by_raw_kernel, True),
    "cuda.core": (by_template, is_installed("cuda.core")),
    "Numba": (by_numba, is_installed("numba") and is_installed("numba.cuda")),
    "Triton": (by_triton, is_installed("triton") and is_installed("torch")),
    "a CuPy body": (by_body, True),
}


def main() -> None:
    warnings.filterwarnings("ignore", message=".*Grid size")  # Numba's
    A, B = np.random.default_rng(0).random((2, N), np.float32)
    ways = {name: way for name, (way, is_there) in WAYS.items() if is_there}
    with stf.context(devices="cuda:0") as ctx:
        a, b = ctx.logical_data(A, name="A"), ctx.logical_data(B, name="B")
        results = {name: ctx.logical_data_empty(N, np.float32, name=f"C{i}") for i, name in enumerate(ways)}
        for name, way in ways.items():
            way(ctx, a, b, results[name])
        for name, result in results.items():
            assert np.array_equal(result.numpy(), A + B), name
    print(f"{N} sums by {', '.join(ways)}: all equal")


if __name__ == "__main__":
    main()
