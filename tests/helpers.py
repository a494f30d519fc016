"""What lets one body of tests run on every driver.

On a CPU, bodies at a device are queued and get NumPy arrays. On CUDA they run inside the call that submits them, since
they only enqueue work, and get CuPy arrays, which refuse to be taken for NumPy's. Bodies on the host are queued on both.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import importlib.util
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import stf

QUICK = bool(os.environ.get("STF_TEST_QUICK"))  # `make test`: less of what repeats itself
ON_CUDA = bool(os.environ.get("STF_TEST_DEVICES"))  # the tests run on CUDA devices, or on the stand-in


def on_stand_in() -> bool:
    """Whether CUDA's driver, and CuPy, are the stand-ins of tests/fakecuda."""
    found = importlib.util.find_spec("fakecuda")
    return found is not None and found.origin is not None  # else it is the folder


def is_cuda(ctx: stf.Context) -> bool:
    """Whether the devices of a context are CUDA's: whether bodies there only enqueue work."""
    return not ctx._driver.runs_inline


def runs_kernels(ctx: stf.Context) -> bool:
    """Whether kernels written in Python run at the first device of a context: at a CPU, or a GPU with numba-cuda."""
    if not is_cuda(ctx):
        return True
    return not on_stand_in() and importlib.util.find_spec("numba_cuda") is not None


def queued(ctx: stf.Context, index: int = 0) -> Any:
    """A place whose bodies are queued, so that they may block and fail late: that device of a CPU, else the host."""
    return stf.exec_place.host() if is_cuda(ctx) else ctx.devices[index]


def content(x: Any) -> np.ndarray:
    """What an array holds, as a NumPy array."""
    if isinstance(x, np.ndarray):
        return x
    return on_host(x).copy() if is_host_memory(x) else x.get()


def is_host_memory(x: Any) -> bool:
    """Whether a CuPy array is over memory of the host, which CuPy does not copy from: it takes it for a device's."""
    from cuda.bindings import driver

    code, kind = driver.cuPointerGetAttribute(
        driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, x.data.ptr if x.size else 0
    )
    return int(code) == 0 and int(kind) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)


def on_host(x: Any) -> np.ndarray:
    """A CuPy array over memory of the host, as NumPy sees it when the current stream is done."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()
    return stf.view(x.data.ptr, x.shape, x.dtype, x.strides)


def put(x: Any, values: np.ndarray) -> None:
    """Overwrite an array by NumPy's `values`."""
    if isinstance(x, np.ndarray):
        x[...] = values
    else:
        axes = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])  # CuPy sets what is contiguous
        x.transpose(axes).set(values.transpose(axes).copy())


def move(x: Any, y: Any) -> None:
    """Overwrite an array by `y`, of the same layout, on the device: it is captured, and CuPy needs no kernel for it."""
    if isinstance(x, np.ndarray):
        x[...] = y
    else:
        assert (x.shape, x.dtype, x.strides) == (y.shape, y.dtype, y.strides)
        x.data.copy_from_device_async(y.data, x.nbytes)


def at(x: Any) -> Any:
    """A with-block in which the device of an array is current."""
    return contextlib.nullcontext() if isinstance(x, np.ndarray) else x.device


def library(x: Any) -> Any:
    """The module that an array is of: NumPy or CuPy."""
    if isinstance(x, np.ndarray):
        return np
    import cupy

    return cupy


def address(x: Any) -> int:
    """Where an array begins."""
    return x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr


def is_read_only(x: Any) -> bool:
    """Whether an array refuses to be written; CuPy's have no such state."""
    return not x.flags.writeable if isinstance(x, np.ndarray) else True


def is_writeable(x: Any) -> bool:
    return x.flags.writeable if isinstance(x, np.ndarray) else True


@contextlib.contextmanager
def told(
    ctx: stf.Context, submit: Callable[[], Any], match: str | None = None, error: Any = stf.TaskFailedError
) -> Iterator[Any]:
    """Expect the failure of a body: in the with-block where bodies are queued, else by the call that submits it."""
    if not is_cuda(ctx) or (ctx.engine.root.spreads and ctx.engine.gathering is None):
        submit()
        with pytest.raises(error, match=match) as caught:
            yield caught
        return
    with pytest.raises(error, match=match) as caught:
        submit()
    yield caught


def csr_of(shape: tuple[int, int], parts: Any) -> Any:
    """A sparse array of its three parts: SciPy's on the host; on a device one of our own, since SciPy wants NumPy's."""
    if isinstance(parts[0], np.ndarray):
        return scipy.sparse.csr_array(tuple(parts), shape, copy=False)
    return DeviceCsr(shape, *parts)


class DeviceCsr:
    """As much of a sparse array on a device as the tests use."""

    def __init__(self, shape: tuple[int, int], data: Any, indices: Any, indptr: Any) -> None:
        self.shape, self.data, self.indices, self.indptr = shape, data, indices, indptr

    def __matmul__(self, x: Any) -> Any:
        """The product with a vector, without a look at the content, so that it is captured."""
        entries, columns = library(x).arange(self.data.size), library(x).arange(x.size)
        products = self.data * ((self.indices[:, None] == columns) * x).sum(axis=1)
        is_in_row = (self.indptr[:-1, None] <= entries) & (entries < self.indptr[1:, None])
        return (is_in_row * products).sum(axis=1)

    def toarray(self) -> Any:
        return scipy.sparse.csr_array(
            (content(self.data), content(self.indices), content(self.indptr)), self.shape
        ).toarray()


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Call all at the same time, each in a thread; their results. What one raises is raised."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index):
        barrier.wait(60)
        try:
            results[index] = calls[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


# -- tasks, and places, that tests of recordings share -----------------------------------------------------------------


@stf.task
def add(x: stf.ReadWrite, y: stf.Read, a=1.0):
    x += a * y


@stf.task
def increment(x: stf.ReadWrite):
    x += 1


@stf.task
def add_up(total: stf.Accumulate[stf.reducer.sum], y: stf.Read):
    total += y


@stf.task
def take(x: stf.Write, y: stf.Read):
    x[...] = y


@stf.task
def set_to(x: stf.Write, value):
    x[...] = value


def everywhere(ctx: stf.Context, n: int) -> list[Any]:
    """Places in turn."""
    return [ctx.devices[i % len(ctx.devices)] for i in range(n)]


def needs_graphviz() -> None:
    """Skip a test that draws a task graph where nothing can."""
    if shutil.which("dot") is None:
        pytest.importorskip("pygraphviz")


def report_content(path: Path) -> dict[str, Any]:
    """What a page of `ctx.report` shows: its packed columns."""
    packed = re.search('id="run">([^<]*)<', path.read_text(encoding="utf-8"))
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))
