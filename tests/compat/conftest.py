"""Programs for NVIDIA's `cuda.stf`, on this CPU, on two emulated devices, and on CUDA devices."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf
import stf.compat.cuda_stf as cuda_stf
from stf.contexts import callers

ROWS = [os.environ["STF_TEST_DEVICES"]] if ON_CUDA else ["cpu", "cpu:2"]


@pytest.fixture(params=ROWS, autouse=True)
def devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a test on these devices, which contexts find by themselves."""
    monkeypatch.setattr(stf.config, "devices", request.param)
    yield request.param
    if ON_CUDA:
        nothing_is_left()


def nothing_is_left() -> None:
    """Expect that the stand-in for CUDA holds nothing, where the tests run on it."""
    try:
        from fakecuda import leaks
    except ImportError:
        return
    gc.collect()
    callers.shared.close()  # of contexts on callers' streams
    stf.context(devices="cuda:0").finalize()  # which frees what went after its driver
    left = leaks()
    cupy = sys.modules.get("cupy")
    if cupy is not None and "allocations" in left:
        left["allocations"] -= cupy.get_default_memory_pool().n_blocks
    assert {kind: n for kind, n in left.items() if n} == {}


@pytest.fixture
def ctx() -> Iterator[Any]:
    context = cuda_stf.context()
    yield context
    context.finalize()


@pytest.fixture
def stackable() -> Iterator[Any]:
    context = cuda_stf.stackable_context()
    yield context
    context.finalize()


@pytest.fixture
def work() -> Callable[..., Any]:
    """A with-block on the arrays of an open task: ``with work(t) as (x, y): y += x``, as programs for GPUs have it."""

    @contextlib.contextmanager
    def block(task: Any) -> Iterator[tuple[Any, ...]]:
        found = task.args_cai()
        views = () if found is None else found if isinstance(found, tuple) else (found,)
        if any(hasattr(view, "__cuda_array_interface__") for view in views):
            import cupy

            with cupy.cuda.Stream.from_external(stf.Stream("", task.stream_ptr())):
                yield tuple(map(cupy_array, views))
        else:
            yield tuple(np.asarray(view) for view in views)

    return block


def cupy_array(view: Any) -> Any:
    """Return what ``cupy.asarray(view)`` does, which the stand-in for CuPy lacks."""
    import cupy

    address, nbytes = view["data"][0], int(np.prod(view.shape)) * view.dtype.itemsize
    memory = cupy.cuda.UnownedMemory(address, nbytes, view, cupy.cuda.Device().id)
    return cupy.ndarray(view.shape, view.dtype, cupy.cuda.MemoryPointer(memory, 0))


@pytest.fixture
def add_one() -> Callable[..., None]:
    """Submit a task that a graph can hold, on any device."""

    def submit(context: Any, data: Any, amount: float = 1.0) -> None:
        def body(x: Any) -> None:
            x += amount

        context.task(data.rw())(body)

    return submit
