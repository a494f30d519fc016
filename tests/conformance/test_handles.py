"""Calls of task functions give handles: done, result, exception, cancel, callbacks, concurrent.futures, await."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from helpers import is_cuda

import stf

HOST = stf.exec_place.host()
WAIT_S = 30


class Broken(Exception):
    pass


@stf.task(arrays="numpy")
def increment(x: stf.ReadWrite) -> None:
    x += 1


@stf.task(arrays="numpy")
def raise_broken(x: stf.ReadWrite) -> None:
    raise Broken("on purpose")


def waiting_body(gate: threading.Event) -> Any:
    @stf.task(arrays="numpy")
    def held(x: stf.ReadWrite) -> None:
        assert gate.wait(WAIT_S)
        x += 1

    return held.on(HOST)


def test_a_task_is_done_when_it_has_run(ctx, lX):
    gate = threading.Event()
    handle = waiting_body(gate)(lX)
    assert isinstance(handle, stf.Task) and not handle.done() and not handle.cancelled()
    with pytest.raises(TimeoutError, match="was still running after 0.01 s"):
        handle.result(timeout=0.01)
    gate.set()
    assert handle.result() is None and handle.done() and handle.exception() is None and not handle.running()
    assert lX.numpy()[0] == 1
    ctx.finalize()
    assert handle.done() and handle.result() is None


def test_tasks_on_devices_have_handles(ctx, lX):
    if is_cuda(ctx):
        pytest.importorskip("cupy")

    @stf.task
    def double(x: stf.ReadWrite) -> None:
        x += x

    handles = [double.on(device)(lX) for device in ctx.devices for _ in range(3)]
    for handle in handles:
        handle.result(WAIT_S)
    assert all(handle.done() for handle in handles)


def test_blocks_and_builders_are_handles_too(ctx, lX):
    with ctx.task(HOST, lX.rw()) as t:
        assert not t.done()
        t.numpy()[0][...] += 1
    t.result(WAIT_S)
    builder = ctx.task(HOST, lX.rw())
    with pytest.raises(stf.TaskStateError, match="was not submitted yet"):
        builder.add_done_callback(print)
    builder(lambda x: None)
    builder.result(WAIT_S)
    assert t.done() and builder.done()


def test_who_gets_the_error_is_told(ctx, lX):
    """A later wait does not raise it again; data stay poisoned, and readers say so."""
    handle, reader = raise_broken.on(HOST)(lX), increment.on(HOST)(lX)
    error = handle.exception(WAIT_S)
    assert isinstance(error, stf.TaskFailedError) and isinstance(error.__cause__, Broken)
    with pytest.raises(stf.TaskFailedError, match="task 'increment' reads .*poisoned: task 'raise_broken'"):
        reader.result(WAIT_S)
    lX.accept()
    ctx.synchronize()


def test_a_failure_that_nobody_asked_for_is_raised_by_a_wait(ctx, lX):
    handle = raise_broken.on(HOST)(lX)
    with pytest.raises(stf.TaskFailedError, match="on purpose"):
        ctx.synchronize()
    assert handle.done() and isinstance(handle.exception(), stf.TaskFailedError)
    lX.accept()


@pytest.mark.at_once("it cancels bodies that are on their way")
def test_cancelling_bodies_that_have_not_begun(ctx, lX, lY):
    gate = threading.Event()
    first = waiting_body(gate)(lX)
    second, third, other = increment.on(HOST)(lX), increment.on(HOST)(lX), increment.on(HOST)(lY)
    other.result(WAIT_S)
    assert second.cancel() and not second.done() and not other.cancel()
    gate.set()
    concurrent.futures.wait([first, second, third], WAIT_S)
    assert second.done() and second.cancelled() and not third.cancelled() and not first.cancelled()
    assert isinstance(second.exception(), stf.TaskCancelledError)
    assert isinstance(third.exception(), stf.TaskFailedError)
    assert lX.accept().numpy()[0] == 1 and lY.numpy()[0] == 1


def test_callbacks_are_called_once_with_the_task(ctx, lX, caplog):
    gate, called = threading.Event(), []
    handle = waiting_body(gate)(lX)
    told = threading.Event()
    handle.add_done_callback(lambda task: 1 / 0)  # which is logged
    handle.add_done_callback(lambda task: (called.append(task), told.set()))
    assert called == []
    gate.set()
    assert told.wait(WAIT_S)
    handle.result()
    handle.add_done_callback(called.append)
    assert called == [handle, handle]
    ctx.synchronize()
    assert "a callback of task 'held' raised" in caplog.text and "ZeroDivisionError" in caplog.text
    with pytest.raises(TypeError, match="takes a function"):
        handle.add_done_callback(3)


@pytest.mark.at_once("what was gathered is done at once")
def test_wait_and_as_completed_of_concurrent_futures(ctx, lX, lY):
    gates = [threading.Event(), threading.Event()]
    slow, fast = waiting_body(gates[0])(lX), waiting_body(gates[1])(lY)
    threading.Timer(0.02, gates[1].set).start()
    done, rest = concurrent.futures.wait([slow, fast], WAIT_S, concurrent.futures.FIRST_COMPLETED)
    assert done == {fast} and rest == {slow}
    order = []
    for handle in concurrent.futures.as_completed([slow, fast], WAIT_S):
        order.append(handle)
        gates[0].set()
    assert order == [fast, slow]
    done, rest = concurrent.futures.wait([slow, raise_broken.on(HOST)(lX)], WAIT_S)
    assert len(done) == 2 and rest == set()
    lX.accept()
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()


def test_wait_in_a_graph_context_launches_what_it_gathered(ctx, lX, lY):
    handles = [increment.on(HOST)(lX), increment.on(HOST)(lY)]
    done, rest = concurrent.futures.wait(handles, WAIT_S)
    assert done == set(handles) and rest == set()


def test_await_a_task_and_data(ctx, lX, lY):
    async def main() -> list[Any]:
        gate, turns = threading.Event(), []
        handle = waiting_body(gate)(lX)

        async def others() -> None:
            for i in range(3):
                turns.append(i)
                await asyncio.sleep(0)
            gate.set()

        await asyncio.gather(handle, others())
        increment.on(HOST)(lY)
        found = await ctx.wait_async(lY)
        later = await lY, await ctx.logical_data_full((), 2.5), await ctx.token()
        with pytest.raises(stf.TaskFailedError, match="on purpose"):
            await raise_broken.on(HOST)(lX)
        with pytest.raises(stf.TaskFailedError, match="poisoned"):
            await lX
        return [turns, found.tolist(), later[0].tolist(), later[1], later[2]]

    turns, found, again, scalar, token = asyncio.run(main())
    lX.accept()
    assert turns == [0, 1, 2] and found == again == lY.numpy().tolist() and scalar == 2.5 and token is None
    assert type(scalar) is float
    ctx.synchronize()


def test_ready(ctx, lX):
    gate = threading.Event()
    empty = ctx.logical_data_empty(3)
    assert lX.ready() and not empty.ready() and ctx.token().ready()
    handle = waiting_body(gate)(lX)
    assert not lX.ready()
    gate.set()
    handle.result(WAIT_S)
    assert lX.ready()
    raise_broken.on(HOST)(lX).exception(WAIT_S)
    assert lX.ready()  # who waits for it hears at once that it is poisoned
    lX.accept()
    g = ctx.task_graph()
    with g:
        recorded = increment.on(HOST)(lX)
        with pytest.raises(stf.TaskStateError, match="inside of what is recorded"):
            lX.ready()
    with pytest.raises(stf.TaskStateError, match="is part of a graph, and runs in each launch"):
        recorded.done()


def test_waiting_for_oneself_is_an_error(ctx, lX, lY):
    found: list[Any] = []

    @stf.task(arrays="numpy")
    def ask(x: stf.ReadWrite) -> None:
        handle = found[0]
        with pytest.raises(stf.TaskStateError, match="result of task 'held' inside"):
            handle.result()
        found.append("asked")

    gate = threading.Event()
    try:
        found.append(waiting_body(gate)(lX))
        asking = ask.on(HOST)(lY)
        if ctx.engine.gathering is None:
            asking.result(WAIT_S)
    finally:
        gate.set()
    asking.result(WAIT_S)
    assert found[1:] == ["asked"]


def test_a_handle_keeps_no_data_and_no_context():
    context = stf.context(devices="cpu:2")
    X = np.zeros(4)
    lX = context.logical_data(X)
    handle = increment.on(HOST)(lX)
    gone = weakref.ref(lX), weakref.ref(context)
    handle.result(WAIT_S)
    del lX
    context.finalize()
    del context
    gc.collect()
    assert X[0] == 1 and [reference() for reference in gone] == [None, None] and handle.done()


def test_replays_and_bodies_may_return_what_a_call_gives(ctx, lX, lY):
    step = stf.replay(lambda x: increment.on(HOST)(x))
    for _ in range(4):
        step(lX)
    assert lX.numpy()[0] == 4
