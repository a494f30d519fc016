"""Workers of a context on a CPU go to the next one; and small data are filled without a task."""

from __future__ import annotations

import contextvars
import decimal
import gc
import os
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import stf
from stf._drivers import queues
from stf._support.loader import compiled_modules

own = contextvars.ContextVar("own", default=0)


def thread_of_a_body(body: Any = None, **options: Any) -> int:
    """Return on which thread the one body of a new context ran."""
    seen: list[int] = []
    with stf.context(devices="cpu", **options) as ctx:
        x = ctx.logical_data(np.zeros(1))

        def run(x: Any) -> None:
            seen.append(threading.get_ident())
            if body is not None:
                body()

        ctx.host_launch(x.rw(), fn=run)
    return seen[0]


@pytest.fixture(autouse=True)
def nobody_waits() -> Any:
    thread_of_a_body()  # the first one of a process imports what looks for libraries, which leaves something
    gc.collect()
    queues.reserve.let_go()
    yield
    queues.reserve.let_go()


def test_a_worker_goes_to_the_next_context() -> None:
    first = thread_of_a_body()
    assert queues.reserve.count == 1
    assert thread_of_a_body() == first and thread_of_a_body() == first
    assert queues.reserve.count == 1


def test_two_contexts_at_a_time_have_workers_of_their_own() -> None:
    inner: list[int] = []
    outer = thread_of_a_body(lambda: inner.append(thread_of_a_body()))
    assert inner != [outer] and queues.reserve.count >= 1


def test_no_context_sees_the_variables_of_the_one_before() -> None:
    def leave() -> None:
        own.set(1)
        decimal.setcontext(decimal.Context(prec=5))

    found: list[Any] = []
    thread_of_a_body(leave)
    thread_of_a_body(lambda: found.append((own.get(), decimal.getcontext().prec)))
    assert found == [(0, decimal.DefaultContext.prec)]


@pytest.mark.skipif(not any(compiled_modules().values()), reason="uncompiled, thread-local values are not seen")
def test_no_context_sees_the_thread_local_values_of_the_one_before() -> None:
    local, found = threading.local(), []
    thread_of_a_body(lambda: setattr(local, "value", 1))
    assert queues.reserve.count == 0
    thread_of_a_body(lambda: found.append(getattr(local, "value", 0)))
    assert found == [0]


def test_a_thread_has_the_stack_that_is_asked_for() -> None:
    first = thread_of_a_body()
    before = threading.stack_size(64 << 20)
    try:
        assert thread_of_a_body() != first
    finally:
        assert threading.stack_size(before) == 64 << 20  # it stays what it was


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2, reason="there is one core")
def test_a_thread_has_the_cores_of_who_starts_it() -> None:
    found: list[Any] = []
    before = os.sched_getaffinity(0)
    thread_of_a_body()
    try:
        os.sched_setaffinity(0, {min(before)})
        thread_of_a_body(lambda: found.append(os.sched_getaffinity(0)))
    finally:
        os.sched_setaffinity(0, before)
    thread_of_a_body(lambda: os.sched_setaffinity(0, {min(before)}))  # of that thread
    thread_of_a_body(lambda: found.append(os.sched_getaffinity(0)))
    assert found == [{min(before)}, before]


def test_a_worker_that_waits_keeps_no_context_alive() -> None:
    with stf.context(devices="cpu") as ctx:
        ctx.host_launch(ctx.logical_data(np.zeros(1)).rw(), fn=lambda x: None)
        driver = weakref.ref(ctx._driver) if hasattr(type(ctx._driver), "__weakref__") else None
        context = weakref.ref(ctx)
    del ctx
    gc.collect()
    assert context() is None and (driver is None or driver() is None) and queues.reserve.count == 1


def test_no_more_wait_than_there_are_cores() -> None:
    with stf.context(devices="cpu", workers=4) as ctx:
        together = threading.Barrier(4)
        for _ in range(4):
            ctx.host_launch(ctx.logical_data(np.zeros(1)).rw(), fn=lambda x: together.wait(30))
    assert queues.reserve.count == min(4, os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_workers_of_its_own() -> None:
    thread_of_a_body()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if thread_of_a_body() and thread_of_a_body() else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread_of_a_body()
    assert queues.reserve.count == 1


def test_new_data_are_filled_while_all_workers_are_busy() -> None:
    goes_on = threading.Event()
    with stf.context(devices="cpu", workers=1) as ctx:
        other = ctx.logical_data(np.zeros(1))
        ctx.host_launch(other.rw(), fn=lambda x: goes_on.wait(30))
        x, y = ctx.logical_data_ones((2, 3), np.int16), ctx.logical_data_full(4, 7.0)
        start = time.monotonic()
        assert ctx.wait(x).tolist() == [[1, 1, 1]] * 2 and ctx.wait(y).tolist() == [7.0] * 4
        assert time.monotonic() - start < 20
        goes_on.set()
        assert ctx.statistics().tasks["fill"] == 2


def test_filled_data_have_memory_of_their_own() -> None:
    with stf.context(devices="cpu") as ctx:
        data = [ctx.logical_data_zeros(8) for _ in range(3)]
        for i, each in enumerate(data):
            ctx.host_launch(each.rw(), fn=lambda x, i=i: x.__iadd__(i))
        assert [each.numpy().tolist() for each in data] == [[float(i)] * 8 for i in range(3)]
        assert ctx.logical_data_zeros(8).numpy().tolist() == [0.0] * 8
