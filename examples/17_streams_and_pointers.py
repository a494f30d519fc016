"""Libraries that take streams and pointers, arrays and streams of theirs in, and of stf's out. It needs a CUDA device, and CuPy.

    stream of yours (CuPy) --X--> context on that stream --> X goes on there, with no wait on the host
                                    |
             scale (torch.compile) -> product (nvmath) -> axpy (cuBLAS, by pointers) -> norm (CuPy, by DLPack)

`stf.context(stream=s)` works for a program that has a stream already: all comes after what is on `s`, and what is put there
later comes after all tasks. Anything with ``__cuda_array_interface__`` or DLPack is taken as it lies, after the stream
that made it. In a task, ``t.stream`` speaks ``__cuda_stream__``, ``t.get_arg(i)`` is an address, ``t.get_arg_cai(i)`` an
array for any library. What is not installed is left out.
"""

import ctypes
import importlib.util
import warnings

import numpy as np
from _needs import needs_gpu

import stf

cupy = needs_gpu("cupy")

N = 256


def is_installed(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class Foreign:
    """An array of a library that stf has never heard of, which tells where it lies and what to wait for."""

    def __init__(self, array, stream) -> None:
        self.array = array
        interface = dict(array.__cuda_array_interface__)
        self.__cuda_array_interface__ = {**interface, "stream": stream.ptr}


def scale_compiled(ctx, x) -> None:
    """A body that torch compiles: its kernels go to the task's stream."""
    import torch

    compiled = torch.compile(lambda t: torch.tanh(t) * 0.5 + t)

    @stf.task(arrays="torch")
    def scale(t: stf.ReadWrite):
        t.copy_(compiled(t))

    scale(x)


def multiply(ctx, x, product) -> None:
    """nvmath on torch's current stream."""
    from nvmath.linalg.advanced import matmul

    @stf.task(arrays="torch")
    def multiplied(a: stf.Read, c: stf.Write):
        return matmul(a, a)

    multiplied(x, product)


def find_cublas():
    """The C library, or None."""
    if not is_installed("cuda.pathfinder"):
        return None
    from cuda import pathfinder

    try:
        return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    except (OSError, RuntimeError):
        return None


def add_by_cublas(ctx, library, alpha: float, x, y) -> None:
    """A C library: it is given the stream's address, and the arrays' addresses."""
    handle = ctypes.c_void_p()
    assert library.cublasCreate_v2(ctypes.byref(handle)) == 0
    with ctx.task(x.read(), y.rw(), name="axpy") as t:
        assert library.cublasSetStream_v2(handle, ctypes.c_void_p(t.stream_ptr())) == 0
        code = library.cublasSaxpy_v2(
            *(handle, ctypes.c_int(N * N), ctypes.byref(ctypes.c_float(alpha))),
            *(ctypes.c_void_p(t.get_arg(0)), ctypes.c_int(1), ctypes.c_void_p(t.get_arg(1)), ctypes.c_int(1)),
        )
        assert code == 0
    ctx.synchronize()
    assert library.cublasDestroy_v2(handle) == 0


def main() -> None:
    warnings.filterwarnings("ignore")  # of the compilers
    stream = cupy.cuda.Stream(non_blocking=True)
    rng = np.random.default_rng(1)
    with stream:  # a program that has a stream, and an array in the making there
        array = cupy.asarray(rng.random((N, N), np.float32) / N)
        array += 1 / N
    expected = array.get(stream=stream)
    done = []
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(Foreign(array, stream), name="X")  # read after what made it, and no host waits
        product, norm = ctx.logical_data_zeros((N, N), np.float32, name="P"), ctx.logical_data_empty((), np.float32)
        if is_installed("torch") and is_installed("triton"):
            scale_compiled(ctx, x)
            expected = np.tanh(expected) * 0.5 + expected
            done.append("torch.compile")
        total = np.zeros_like(expected)
        if is_installed("torch") and is_installed("nvmath"):
            multiply(ctx, x, product)
            total = expected @ expected
            done.append("nvmath")
        library = find_cublas()
        if library is not None:
            add_by_cublas(ctx, library, 3.0, x, product)
            total = total + 3 * expected
            done.append("cuBLAS")
        with ctx.task(product.read(), norm.write(), name="norm") as t:  # out: any library that knows the protocols
            p, s = cupy.from_dlpack(t.get_arg_cai(0)), cupy.asarray(t.get_arg_cai(1))
            with cupy.cuda.Stream.from_external(t.stream):
                s[...] = cupy.linalg.norm(p)
        assert np.allclose(product.numpy(), total, rtol=2e-2)
        assert np.isclose(float(norm.numpy()), np.linalg.norm(total), rtol=1e-2)
    with stf.context(stream=stream) as ctx:  # the other way: our tasks are work on that stream
        data = ctx.logical_data(array)
        for _ in range(3):
            with ctx.task(data.rw()) as t:
                t.cupy()[0][...] *= 2
    with stream:
        array += 1  # after the tasks; finalize did not wait for them
    assert np.allclose(array.get(stream=stream), 8 * expected + 1, rtol=1e-2)
    print(f"{N} x {N} numbers through {', '.join(done) or 'CuPy'}, in on one stream and out on it")


if __name__ == "__main__":
    main()
