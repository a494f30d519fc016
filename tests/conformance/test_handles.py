"""Calls of task functions give handles: done, result, exception, cancel, callbacks, concurrent.futures, await."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import itertools
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from helpers import is_cuda, queued, together

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


class Counter:
    @stf.task(arrays="numpy")
    def count(self, x: stf.ReadWrite) -> None:
        x += 1


def test_methods_have_handles(ctx, lX):
    counter = Counter()
    handles = [counter.count.on(HOST)(lX), counter.count.on(HOST).named("count again")(lX)]
    assert [handle.symbol for handle in handles] == ["count", "count again"]
    handles[-1].result(WAIT_S)
    assert lX.numpy()[0] == 2


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
    assert second.cancel() and second.done() and second.cancel() and not other.cancel()
    gate.set()
    concurrent.futures.wait([first, second, third], WAIT_S)
    assert second.done() and second.cancelled() and not third.cancelled() and not first.cancelled()
    assert isinstance(second.exception(), stf.TaskCancelledError)
    assert isinstance(third.exception(), stf.TaskFailedError)
    assert lX.accept().numpy()[0] == 1 and lY.numpy()[0] == 1


@pytest.mark.at_once("it cancels bodies that are on their way")
def test_a_launch_is_not_cancelled(ctx, lX, lY):
    """It runs after the body that it waits for, and says so."""
    gate = threading.Event()
    with ctx.task_graph() as graph:
        increment.on(HOST)(lX)
    graph.launch().result()
    waiting_body(gate)(lX)
    launch = graph.launch()
    assert not launch.cancel() and not launch.cancelled()
    gate.set()
    assert launch.result() is None and not launch.cancelled()
    assert ctx.wait(lX)[0] == 3


@pytest.mark.at_once("it cancels bodies that are on their way")
def test_who_waits_for_a_cancelled_task_hears_at_once(ctx, lX):
    """Though the task before it still runs; its data come in order."""
    gate, called = threading.Event(), []
    first = waiting_body(gate)(lX)
    second = increment.on(HOST)(lX)
    second.add_done_callback(called.append)

    def wait_for_result() -> Any:
        with pytest.raises(stf.TaskCancelledError, match="'increment' .* was cancelled before it began"):
            second.result()
        return "heard"

    async def wait_in_a_loop() -> Any:
        with pytest.raises(stf.TaskCancelledError):
            await second
        return "heard"

    def cancel_when_all_wait() -> bool:
        deadline = time.monotonic() + WAIT_S
        while len(second._waiters) < 4 and time.monotonic() < deadline:
            time.sleep(0.001)
        return second.cancel()

    try:
        heard = together(
            wait_for_result,
            lambda: asyncio.run(wait_in_a_loop()),
            lambda: concurrent.futures.wait([second], WAIT_S).done == {second},
            lambda: list(concurrent.futures.as_completed([second], WAIT_S)) == [second],
            cancel_when_all_wait,
        )
        assert heard == ["heard", "heard", True, True, True] and called == [second]
        assert second.done() and not second.running() and not first.done() and not lX.ready()
    finally:
        gate.set()
    assert lX.accept().numpy()[0] == 1
    second.add_done_callback(called.append)
    assert called == [second, second]


@pytest.mark.at_once("what was gathered is cancelled as one")
def test_handles_know_that_their_context_was_cancelled(ctx, lX, lY):
    gate = threading.Event()
    first, rest = waiting_body(gate)(lX), [increment.on(HOST)(lX) for _ in range(3)]
    other = increment.on(HOST)(lY)
    other.result(WAIT_S)
    threading.Timer(0.02, gate.set).start()
    assert ctx.cancel() == 3
    assert [task.cancelled() for task in (first, *rest, other)] == [False, True, True, True, False]
    assert all(task.done() for task in rest)
    with pytest.raises(stf.TaskCancelledError):
        rest[-1].result()
    increment.on(HOST)(lX.accept())
    assert lX.numpy()[0] == 2


def test_handles_know_that_what_was_gathered_was_cancelled(ctx_factory):
    ctx = ctx_factory(use_graph=True)
    x = ctx.logical_data(np.zeros(4))
    handles = [increment.on(HOST)(x), increment.on(HOST)(x)]
    ctx.cancel()
    assert all(handle.cancelled() and handle.done() for handle in handles)
    with pytest.raises(stf.TaskCancelledError):
        handles[0].result(WAIT_S)
    x.accept()
    ctx.finalize()


def test_a_handle_is_true(ctx, lX):
    handle = increment.on(HOST)(lX)
    handle.result(WAIT_S)
    assert len(handle) == 0 and bool(handle)


def in_a_callback(handle: Any, do: Any) -> Any:
    """What ``do()`` returns or raises in a callback, which a worker calls."""
    box: list[Any] = []
    told = threading.Event()

    def callback(task: Any) -> None:
        try:
            box.append(do())
        except BaseException as error:
            box.append(error)
        finally:
            told.set()

    handle.add_done_callback(callback)
    return box, told


@pytest.mark.at_once("what was gathered runs when a callback is added")
@pytest.mark.parametrize("what", ["synchronize", "finalize", "cancel", "fence"])
def test_a_callback_cannot_wait_for_everything(ctx, lX, what):
    gate = threading.Event()
    box, told = in_a_callback(waiting_body(gate)(lX), getattr(ctx, what))
    gate.set()
    assert told.wait(WAIT_S)
    with pytest.raises(stf.TaskStateError, match=f"{what} inside a callback of task 'held' .*it would wait for itself"):
        raise box[0]
    increment.on(HOST)(lX)
    assert lX.numpy()[0] == 2


@pytest.mark.at_once("what was gathered runs when a callback is added")
def test_a_callback_reads_data_and_submits(ctx, lX, lY):
    gate = threading.Event()
    box, told = in_a_callback(
        waiting_body(gate)(lX), lambda: (increment.on(HOST)(lY).done(), lX.numpy()[0], lY.numpy().tolist())
    )
    gate.set()
    assert told.wait(WAIT_S)
    assert box[0][1:] == (1, [1, 2, 3, 4])


@pytest.mark.at_once("what was gathered runs when a callback is added")
@pytest.mark.parametrize("what", ["numpy", "synchronize", "cancel", "fence", "as_completed"])
def test_the_end_of_a_context_waits_for_callbacks(ctx, what):
    """Outside of the engine, so that a callback can use it."""
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.ones(4))
    gate, begun = threading.Event(), threading.Event()

    def use() -> Any:
        begun.set()
        time.sleep(0.1)  # the other thread waits by now
        if what == "numpy":
            return x.numpy().tolist(), y.numpy().tolist()
        if what == "as_completed":
            return [item is y for item in stf.as_completed([y], timeout=WAIT_S)]
        return getattr(ctx, what)()

    box, _ = in_a_callback(waiting_body(gate)(x), use)
    gate.set()
    assert begun.wait(WAIT_S)  # so that no body is waited for any more
    ctx.finalize()
    if what == "numpy":
        assert box == [([1] * 4, [1] * 4)]
    elif what == "as_completed":
        assert box == [[True]]
    else:
        with pytest.raises(stf.TaskStateError, match=f"{what} inside a callback of task 'held'"):
            raise box[0]


@pytest.mark.at_once("what was gathered runs when a callback is added")
def test_a_callback_takes_what_is_completed(ctx, lX, lY):
    gate = threading.Event()
    box, told = in_a_callback(
        waiting_body(gate)(lX), lambda: list(stf.as_completed([increment.on(HOST)(lY), lX], timeout=WAIT_S))
    )
    gate.set()
    assert told.wait(WAIT_S)
    assert len(box[0]) == 2 and any(item is lX for item in box[0])


@pytest.mark.at_once("a new task is done when the callback has ended")
def test_the_only_worker_waits_in_a_callback_for_what_is_completed(ctx_factory):
    ctx = ctx_factory(workers=1)
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
    gate = threading.Event()
    box, told = in_a_callback(
        waiting_body(gate)(x), lambda: len(list(stf.as_completed([increment.on(HOST)(y)], timeout=WAIT_S)))
    )
    gate.set()
    assert told.wait(WAIT_S) and box == [1]


@pytest.mark.parametrize("wait", ["result", "exception", "futures", "await", "as_completed"])
def test_a_callback_that_would_wait_for_itself_is_told(ctx_factory, wait):
    """In a graph context a new task is done when all is that was submitted, so when the callback has ended."""
    ctx = ctx_factory(use_graph=True)
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
    gate = threading.Event()

    async def main(task: Any) -> None:
        await task

    def submit_and_wait() -> Any:
        task = increment.on(HOST)(y)
        if wait == "as_completed":
            return list(stf.as_completed([task]))
        if wait == "futures":
            return concurrent.futures.wait([task])
        return asyncio.run(main(task)) if wait == "await" else getattr(task, wait)()

    box, told = in_a_callback(waiting_body(gate)(x), submit_and_wait)
    gate.set()
    assert told.wait(WAIT_S)
    with pytest.raises(stf.TaskStateError, match="inside a callback of task 'held'"):
        raise box[0]
    ctx.synchronize()
    assert y.numpy()[0] == 1


@pytest.mark.at_once("bodies wait for events of the test")
def test_bodies_cannot_wait_by_futures_for_what_comes_after_them(ctx, lX, lY):
    found: list[Any] = []
    gate = threading.Event()

    @stf.task(arrays="numpy")
    def ask(x: stf.ReadWrite) -> None:
        assert gate.wait(WAIT_S)
        with pytest.raises(stf.TaskStateError, match="a wait for task 'increment' .* inside the body of a task"):
            concurrent.futures.wait([found[0]])

    asking = ask.on(HOST)(lX)
    found.append(increment.on(HOST)(lX))
    gate.set()
    asking.result(WAIT_S)


def test_what_a_callback_raises_to_a_worker_is_logged(ctx, lX, caplog):
    gate, told = threading.Event(), threading.Event()
    handle = waiting_body(gate)(lX)

    def leave(task: Any) -> None:
        raise SystemExit("as an exception that is no Exception")

    def interrupt(task: Any) -> None:
        raise KeyboardInterrupt("as another one")

    handle.add_done_callback(leave)
    handle.add_done_callback(interrupt)
    handle.add_done_callback(lambda task: told.set())
    gate.set()
    handle.result(WAIT_S)
    ctx.synchronize()
    assert caplog.text.count("a callback of task 'held' raised") == 2
    assert "SystemExit" in caplog.text and "KeyboardInterrupt" in caplog.text
    assert told.wait(WAIT_S)


@pytest.mark.at_once("the other task is done at once")
def test_each_handle_has_a_condition_of_its_own(ctx, lX, lY):
    """So that what goes wrong while one is held concerns no other."""
    first, second = increment.on(HOST)(lX), increment.on(HOST)(lY)
    assert first._condition is not second._condition and first._condition is first._condition
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with first._condition:
            held.set()
            assert free.wait(WAIT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(WAIT_S)
        assert concurrent.futures.wait([second], WAIT_S).done == {second}
    finally:
        free.set()
        thread.join()


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


def first_of(coroutine):
    """Return what a coroutine returns that does not wait; None where it does, and close it then."""

    async def begin():
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        coroutine.close()
        return None

    return asyncio.run(begin())


def test_awaiting_data_that_the_host_has_does_not_suspend():
    gate = threading.Event()
    with stf.context(devices="cpu") as ctx:
        x, scalar = ctx.logical_data(np.ones(3)), ctx.logical_data(np.array(2.5))
        found = first_of(ctx.wait_async(x))
        found += 1
        np.testing.assert_array_equal(x.numpy(), 1.0)  # what it returns is a copy
        assert first_of(ctx.wait_async(scalar)) == 2.5
        assert len(first_of(ctx.wait_async([x, scalar]))) == 2

        @stf.task
        def held(x: stf.ReadWrite):
            assert gate.wait(30)
            x += 1

        handle = held(x)
        assert first_of(ctx.wait_async(x)) is None
        gate.set()
        handle.result()
        ctx.synchronize()
        np.testing.assert_array_equal(first_of(ctx.wait_async(x)), 2.0)


def test_awaiting_data_of_a_device_that_is_busy_suspends():
    gate = threading.Event()
    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(np.ones(3))
        ctx.task(1, x.rw())(waiting_for(gate))
        assert first_of(ctx.wait_async(x)) is None
        gate.set()
        np.testing.assert_array_equal(ctx.wait(x), 2.0)


def waiting_for(gate):
    """Return a body that waits before it adds one."""

    def add_later(x):
        assert gate.wait(WAIT_S)
        x += 1

    return add_later


def test_coroutines_that_await_short_tasks_take_turns():
    turns = []

    async def submits(name, inc, x):
        for _ in range(100):
            await inc(x)
            turns.append(name)

    async def main():
        with stf.context(devices="cpu") as ctx:
            inc = stf.task(add_one)
            await asyncio.gather(*[submits(name, inc, ctx.logical_data(np.zeros(3))) for name in "ab"])

    asyncio.run(main())
    changes = sum(one != other for one, other in itertools.pairwise(turns))
    assert len(turns) == 200 and changes >= 10


def add_one(x: stf.ReadWrite):
    x += 1


def test_awaiting_spoilt_data_raises():
    async def main():
        with stf.context(devices="cpu") as ctx:
            x = ctx.logical_data(np.ones(3))

            @stf.task
            def fails(x: stf.ReadWrite):
                raise ZeroDivisionError("on purpose")

            with pytest.raises(stf.TaskFailedError, match="on purpose"):
                fails(x).result()
            with pytest.raises(stf.TaskFailedError):
                await x

    asyncio.run(main())


def test_awaiting_data_of_a_recording_is_an_error(ctx, lX):
    async def main() -> None:
        await lX

    g = ctx.task_graph()
    with g:
        increment.on(HOST)(lX)
        with pytest.raises(stf.CaptureError, match="nothing that is recorded has run yet"):
            asyncio.run(main())
    g.launch()
    assert lX.numpy()[0] == 1


def test_async_with_lets_others_go_on(ctx_factory):
    gate, X, turns = threading.Event(), np.zeros(4), []

    async def compute() -> None:
        async with ctx_factory() as ctx:
            x = ctx.logical_data(X)
            waiting_body(gate)(x)
            turns.append("submitted")
        turns.append("finalized")

    async def other() -> None:
        while not turns:
            await asyncio.sleep(0)
        turns.append("other")
        gate.set()

    async def main() -> None:
        await asyncio.gather(compute(), other())

    asyncio.run(main())
    assert turns == ["submitted", "other", "finalized"] and X[0] == 1


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError])
def test_async_with_ends_as_a_with_block_does(ctx_factory, error):
    """An exception cancels what has not begun, also one that comes while the end is waited for."""
    gate, X = threading.Event(), np.zeros(4)

    async def compute() -> None:
        async with ctx_factory() as ctx:
            x = ctx.logical_data(X)
            waiting_body(gate)(x)
            increment.on(HOST)(x)
            threading.Timer(0.05, gate.set).start()
            if error is KeyError:
                raise KeyError("mine")

    async def main() -> None:
        task = asyncio.ensure_future(compute())
        await asyncio.sleep(0)
        if error is asyncio.CancelledError:
            task.cancel()
        await task

    with pytest.raises(error):
        asyncio.run(main())
    assert X[0] <= 1


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


# -- many at a time ----------------------------------------------------------------------------------------------------


@pytest.mark.at_once("what was gathered is done at once")
def test_data_come_in_the_order_in_which_they_are_done(ctx):
    first, gate = threading.Event(), threading.Event()

    @stf.task
    def waits(x: stf.ReadWrite, event):
        assert event.wait(30)
        x += 1

    slow, quick, idle = (ctx.logical_data(np.zeros(2)) for _ in range(3))
    waits.on(queued(ctx, -1))(slow, gate)
    handle = waits.on(queued(ctx))(quick, first)
    ctx.submit()
    seen = []
    found = stf.as_completed([slow, quick, idle, handle], timeout=30)
    for item in found:
        seen.append(item)
        first.set()
        if quick in seen and handle in seen:
            gate.set()
    assert seen[0] is idle and seen[-1] is slow and {id(quick), id(handle)} == set(map(id, seen[1:3]))
    assert slow.numpy()[0] == quick.numpy()[0] == 1


def test_data_that_a_failed_task_was_to_write_come_too(ctx):
    @stf.task
    def fails(x: stf.ReadWrite):
        raise ValueError("no")

    x, y = ctx.logical_data_zeros(2), ctx.logical_data_zeros(2)
    with contextlib.suppress(stf.TaskFailedError):  # told by the call, where bodies run in it
        fails(x)
    assert set(map(id, stf.as_completed([x, y], timeout=30))) == {id(x), id(y)}
    with pytest.raises(stf.TaskFailedError, match="no"):
        x.numpy()
    x.accept()


def test_who_asks_for_nothing_gets_nothing(ctx):
    assert list(stf.as_completed([])) == []
    with pytest.raises(TypeError, match="as_completed takes logical data and handles of tasks, got int"):
        stf.as_completed([1])


def test_time_runs_out(ctx_factory):
    ctx = ctx_factory()
    gate = threading.Event()
    x = ctx.logical_data_zeros(2)
    ctx.host_launch(x.rw())(lambda x: gate.wait(30) and None)
    with pytest.raises(TimeoutError, match="1 of 1 were not done after 0.05 s"):
        next(stf.as_completed([x], timeout=0.05))
    gate.set()


def test_a_function_is_mapped_over_data(ctx):
    class Scaler:
        factor = 3.0

        @stf.task
        def scale(self, x: stf.ReadWrite, offset):
            x *= self.factor
            x += offset

    def add(x: stf.ReadWrite, value):
        x += value

    data = [ctx.logical_data_ones(2) for _ in range(4)]
    handles = ctx.map(add, data, range(3))  # the shortest counts
    assert len(handles) == 3 and all(isinstance(handle, stf.Task) for handle in handles)
    handles += ctx.map(Scaler().scale, data, [0.0] * 4, place=ctx.devices[-1])
    assert [x.numpy()[0] for x in data] == [3, 6, 9, 3]
    assert handles[-1].done() and "test_handles.py" in handles[-1].call_site
    with pytest.raises(TypeError, match="takes logical data"):
        ctx.map(add, [1], [2])
