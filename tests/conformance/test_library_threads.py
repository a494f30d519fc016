"""Bodies that run at the same time share the cores in BLAS and OpenMP, whose threads are as before afterwards."""

from __future__ import annotations

import ctypes
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import stf


def blas_threads() -> set[int]:
    return {library.get_num_threads() for library in ThreadpoolController().select(user_api="blas").lib_controllers}


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: Any) -> Iterator[None]:
    """Two workers, and two threads of BLAS, on whatever machine; without a limit of pytest's."""
    monkeypatch.setattr(stf.config, "cpu_workers", 2)
    with threadpool_limits(2):
        if blas_threads() != {2}:
            pytest.skip("this NumPy has no BLAS whose threads can be counted")
        yield


def seen_in_a_body(ctx: Any) -> set[int]:
    seen: list[set[int]] = []
    lX = ctx.logical_data(np.zeros(4))
    for _ in range(3):
        ctx.host_launch(lX.rw(), fn=lambda x: seen.append(blas_threads()))
    ctx.synchronize()
    assert len(seen) == 3
    return set().union(*seen)


def share() -> int:
    """Cores per worker."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max((cores or 1) // 2, 1)


def least() -> int:
    return min(share(), 2)


def test_bodies_share_the_cores_in_blas(ctx_factory: Any) -> None:
    with ctx_factory() as ctx:
        assert seen_in_a_body(ctx) == {least()}
        assert blas_threads() == {2}  # no worker runs
        assert seen_in_a_body(ctx) == {least()}
    assert blas_threads() == {2}


def test_several_contexts_set_back_what_was_before(ctx_factory: Any) -> None:
    with ctx_factory() as one, ctx_factory() as other:
        assert seen_in_a_body(one) | seen_in_a_body(other) == {least()}
    assert blas_threads() == {2}


def test_a_lower_limit_of_the_program_stays(ctx_factory: Any) -> None:
    with threadpool_limits(1), ctx_factory() as ctx:
        assert seen_in_a_body(ctx) == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_one_worker_has_all_threads(ctx_factory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(stf.config, "cpu_workers", 1)
    with ctx_factory() as ctx:
        assert seen_in_a_body(ctx) == {2}


def test_the_limit_can_be_turned_off(ctx_factory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(stf.config, "limit_blas", False)
    with ctx_factory() as ctx:
        assert seen_in_a_body(ctx) == {2}


def test_openmp_of_a_worker_is_limited_and_not_that_of_the_program(ctx_factory: Any, monkeypatch: Any) -> None:
    try:
        openmp = ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("no libgomp here")
    monkeypatch.setitem(sys.modules, "its_module", types.ModuleType("its_module"))  # a library comes with a module
    openmp.omp_set_num_threads(2)
    seen: list[int] = []
    with ctx_factory() as ctx:
        lX = ctx.logical_data(np.zeros(4))
        for _ in range(3):
            ctx.host_launch(lX.rw(), fn=lambda x: seen.append(openmp.omp_get_max_threads()))
    # a worker is a new thread, whose number is not what the program has set for its own
    assert seen == [share()] * 3 and openmp.omp_get_max_threads() == 2


def test_a_body_that_fails_sets_back_what_was_before(ctx_factory: Any) -> None:
    ctx = ctx_factory()
    lX = ctx.logical_data(np.zeros(4), write_back=False)
    ctx.host_launch(lX.rw(), fn=lambda x: 1 / 0)
    with pytest.raises(stf.TaskFailedError):
        ctx.finalize()
    assert blas_threads() == {2}
