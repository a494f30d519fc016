"""STF_VALIDATE=1 on a GPU: launches on CUDA's default streams, by the libraries that make them."""

from __future__ import annotations

import textwrap

import pytest

PRELUDE = """
import re
import cupy, numpy as np, stf

def name_of(error):
    return re.search(r"task '(\\w+)' launched on CUDA's default stream \\((\\w+\\.py):(\\d+)\\)", str(error)).groups()

"""


def test_every_library_that_launches_on_it_is_named(run_python):
    pytest.importorskip("cupy")
    pytest.importorskip("torch")
    pytest.importorskip("numba.cuda")
    done = run_python(
        PRELUDE
        + textwrap.dedent("""
        import torch
        from numba import cuda as numba_cuda

        @numba_cuda.jit
        def add(x):
            x[numba_cuda.grid(1)] += 1

        X = cupy.zeros(32)
        add[1, 32](X)
        tensor = torch.zeros(32, device="cuda")
        kernel = cupy.RawKernel('extern "C" __global__ void k(double* x) { x[threadIdx.x] += 1; }', "k")

        def by_cupy():
            X.__iadd__(1)

        def by_torch():
            tensor.add_(1)

        def by_numba():
            add[1, 32](X)

        def by_kernel():
            kernel((1,), (32,), (X,))

        @stf.task
        def function(x: stf.ReadWrite, n):
            with cupy.cuda.Stream.null:
                x += n

        with stf.context(devices="cuda:0") as ctx:
            for stray in (by_cupy, by_torch, by_numba, by_kernel):
                data = ctx.logical_data(np.zeros(32))
                try:
                    with ctx.task(data.rw(), name=stray.__name__):
                        stray()
                except stf.AccessError as error:
                    name, file, line = name_of(error)
                    assert name == stray.__name__ and int(line) == stray.__code__.co_firstlineno + 1, error
                    print(name)
                data.accept()
            data = ctx.logical_data(np.zeros(32))
            try:
                function(data, 1)
            except stf.TaskFailedError as error:
                print(name_of(error)[0])
            data.accept()
        """),
        STF_VALIDATE="1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["by_cupy", "by_torch", "by_numba", "by_kernel", "function"], (
        done.stdout + done.stderr
    )


def test_libraries_on_the_tasks_stream_pass(run_python):
    """Also as they load what they need: cuBLAS, cuFFT, cuRAND, cuSOLVER."""
    pytest.importorskip("cupy")
    pytest.importorskip("torch")
    done = run_python(
        PRELUDE
        + textwrap.dedent("""
        import torch

        @stf.task(arrays="cupy")
        def many(x: stf.ReadWrite):
            x += cupy.random.random(x.shape)
            x @ x
            cupy.linalg.solve(x + 8 * cupy.eye(len(x)), x)
            cupy.fft.fft(x)
            cupy.asarray(np.ones(4)), x.sum().get()

        @stf.task(arrays="torch")
        def tensors(x: stf.ReadWrite):
            x.mul_(torch.mm(x, x)).add_(torch.rand(len(x), device="cuda"))
            torch.linalg.solve(x + 8 * torch.eye(len(x), device="cuda", dtype=x.dtype), x)
            x.sum().item()

        with stf.context(devices="cuda:0") as ctx:
            for body in (many, tensors):
                data = ctx.logical_data(np.zeros((16, 16)))
                body(data)
                with ctx.task(data.rw()) as t:
                    t.arrays()[0][:] += 1
            g = ctx.task_graph()
            with g:
                with ctx.task(data.rw()) as t:
                    t.cupy()[0][:] += 1
            g.launch()
        print("done")
        """),
        STF_VALIDATE="1",
    )
    assert done.stdout.split() == ["done"], done.stdout + done.stderr
