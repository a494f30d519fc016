"""Events that others complete: order, failure, cancelling, and that no worker waits for them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
from helpers import increment, is_cuda, queued, runs_kernels

import stf
from stf._engine import outside_events


def settled(fn, seconds=30.0):
    """Whether something becomes true soon; for what another thread does without telling."""
    end = time.monotonic() + seconds
    while not fn() and time.monotonic() < end:
        time.sleep(0.001)
    return fn()


def test_a_task_waits_for_its_events(ctx_factory):
    ctx = ctx_factory()
    X = np.zeros(3)
    x = ctx.logical_data(X)
    one, other = ctx.event(name="one"), ctx.event()
    ctx.submit_task(increment, x, after=[one, other])
    assert not one.done() and one.set() and not one.set() and one.done()
    assert not x.ready() and other.set()
    assert x.numpy().tolist() == [1] * 3
    assert one.exception() is None and one.result() is None and "'one', complete" in repr(one)


def test_every_call_that_makes_a_task_takes_events(ctx_factory):
    ctx = ctx_factory()
    x, seen = ctx.logical_data_zeros(4), []
    event = ctx.event()
    ctx.host_launch(x.rw(), after=event)(lambda x: seen.append(x.shape))
    ctx.task(queued(ctx), x.rw(), after=event)(lambda *arrays: seen.append(len(arrays)))
    threading.Timer(0.02, event.set).start()
    if runs_kernels(ctx):  # which a GPU gets in the call, once the event is complete
        ctx.parallel_for(x.shape, x.rw(), after=event)(put_one)
    assert x.numpy().tolist() == [runs_kernels(ctx)] * 4 and sorted(seen, key=str) == [(4,), 1]


def put_one(i, x):
    x[i] = 1


def test_a_with_block_waits_and_gets_no_array_of_an_event(ctx_factory):
    ctx = ctx_factory()
    x, event = ctx.logical_data(np.zeros(2)), ctx.event()
    threading.Timer(0.02, event.set).start()
    with ctx.task(x.rw(), after=event) as t:
        (array,) = t.arrays()
        array += 1
    assert x.numpy().tolist() == [1, 1] and event.done()


@pytest.mark.not_captured("an event cannot be part of a caller's graph")
def test_a_failed_event_spoils_what_comes_after(ctx_factory):
    ctx = ctx_factory()
    x, y = ctx.logical_data(np.zeros(2), name="x"), ctx.logical_data(np.zeros(2))
    event = ctx.event(name="upload")
    ctx.submit_task(increment, x, after=event)
    increment(y)
    assert event.fail(OSError("no route")) and not event.set()
    with pytest.raises(stf.TaskFailedError, match=r"event 'upload' \(test_events.py:\d+\) failed with OSError: no"):
        x.numpy()
    assert isinstance(event.exception().__cause__, OSError) and not event.cancelled()
    assert y.numpy().tolist() == [1, 1]
    x.accept()
    increment(x)
    assert x.numpy().tolist() == [1, 1]
    ctx.finalize()


def test_cancelled_events_skip_their_tasks(ctx_factory):
    ctx = ctx_factory()
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    one = ctx.event()
    first = ctx.submit_task(increment, x, after=one)
    assert one.cancel() and one.cancelled() and settled(first.done)
    with pytest.raises(stf.TaskFailedError, match="was cancelled"):
        one.result()
    assert x.accept().numpy().tolist() == [0, 0] or is_cuda(ctx)  # whose work was submitted, and runs
    other = ctx.event(name="other")
    ctx.submit_task(increment, y, after=other)
    assert ctx.cancel() >= 0 and other.cancelled()
    assert y.accept().numpy().tolist() == [0, 0] or is_cuda(ctx)


def test_open_events_take_no_worker():
    """Two workers, a hundred open events, each with a task behind it: other tasks run."""
    with stf.context(devices="cpu", workers=2) as ctx:
        waiting = [ctx.logical_data(np.zeros(1)) for _ in range(100)]
        events = [ctx.event(name=f"e{i}") for i in range(100)]
        for x, event in zip(waiting, events, strict=True):
            ctx.submit_task(increment, x, after=event)
        y = ctx.logical_data(np.zeros(1))
        for _ in range(50):
            increment(y)
        assert y.numpy()[0] == 50 and not any(event.done() for event in events)
        for event in reversed(events):
            event.set()
        assert [x.numpy()[0] for x in waiting] == [1] * 100
        assert ctx._driver.workers <= 2


def test_lanes_of_complete_events_are_used_again():
    with stf.context(devices="cpu") as ctx:
        x, kept = ctx.logical_data(np.zeros(1)), ctx.event()
        for _ in range(1000):
            event = ctx.event()
            ctx.submit_task(increment, x, after=event)
            event.set()
            x.numpy()
        assert x.numpy()[0] == 1000 and len(ctx.engine.port.lanes) < 100
        kept.set()


@pytest.mark.not_captured("an event cannot be part of a caller's graph")
def test_any_thread_may_complete_them(ctx_factory):
    ctx = ctx_factory()
    X = np.zeros(1)
    x = ctx.logical_data(X)
    events = [ctx.event() for _ in range(40)]
    for event in events:
        ctx.submit_task(increment, x, after=event)
    threads = [threading.Thread(target=lambda mine=events[i::4]: [e.set() for e in mine]) for i in range(4)]
    for thread in threads:
        thread.start()
    ctx.finalize()
    assert X[0] == 40


def test_coroutines_await_them():
    async def main():
        with stf.context(devices="cpu") as ctx:
            event = ctx.event()
            asyncio.get_running_loop().call_later(0.01, event.set)
            await event
            told = []
            again = ctx.event(name="again")
            again.add_done_callback(lambda event: told.append(event.name))
            again.fail(KeyError("k"))
            with pytest.raises(stf.TaskFailedError):
                await again
            assert settled(lambda: told == ["again"])

    asyncio.run(main())


def test_one_that_is_dropped_is_cancelled():
    with stf.context(devices="cpu") as ctx:
        x, event = ctx.logical_data(np.zeros(1)), ctx.event(name="lost")
        ctx.submit_task(increment, x, after=event)
        with pytest.warns(ResourceWarning, match="'lost', open> was dropped before it was complete"):
            del event
            gc.collect()
        with pytest.raises(stf.TaskFailedError, match="event 'lost' .* was cancelled"):
            x.numpy()
        x.accept()


def test_an_exception_in_the_block_ends_events():
    """Nobody will complete them, and the end of the context must not wait."""
    kept = []
    with pytest.raises(KeyError), stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(1))
        kept.append(ctx.event())
        ctx.submit_task(increment, x, after=kept)
        raise KeyError
    assert kept[0].cancelled() and not kept[0].set()


def test_a_context_that_ends_waits_for_open_events():
    X = np.zeros(1)
    with stf.context(devices="cpu") as ctx:
        event = ctx.event()
        ctx.submit_task(increment, ctx.logical_data(X), after=event)
        threading.Timer(0.05, event.set).start()
        with pytest.raises(TimeoutError):
            ctx.synchronize(timeout=0.001)
    assert X[0] == 1


def test_the_end_of_a_context_says_for_which_event_it_waits(caplog, monkeypatch):
    monkeypatch.setattr(outside_events, "REPORTED_S", 0.01)
    with caplog.at_level("WARNING", logger="stf"), stf.context(devices="cpu") as ctx:
        event = ctx.event(name="reply")
        threading.Timer(0.2, event.set).start()
    assert "finalize waits for event 'reply' (test_events.py:" in caplog.text


def test_they_are_seen():
    with stf.context(devices="cpu", observe=True) as ctx:
        x, event = ctx.logical_data(np.zeros(1), name="x"), ctx.event(name="ready")
        ctx.submit_task(increment, x, after=event)
        event.set()
        ctx.synchronize()
        text = ctx.why("increment")
        assert "after task 'ready' (test_events.py:" in text
        assert '"t1" -> "t2"' in ctx.dot()
        assert ctx.statistics().tasks["event"] == 1


def test_mistakes_say_what_to_do():
    with stf.context(devices="cpu") as ctx, stf.context(devices="cpu") as other:
        x, event = ctx.logical_data(np.zeros(1)), ctx.event()
        handle = increment(x)
        for wrong in (handle, [handle], 3, "event", [event, None]):
            with pytest.raises(TypeError, match=r"after takes events of ctx\.event\(\), got"):
                ctx.task(x.rw(), after=wrong)
        with pytest.raises(TypeError, match="fail takes an exception, got str"):
            event.fail("no")
        with pytest.raises(TypeError, match="cannot be copied|pickle"):
            __import__("pickle").dumps(event)
        y = other.logical_data(np.zeros(1))
        with pytest.raises(stf.ContextMismatchError), other.task(y.rw(), after=event):
            pass
        with ctx.task_graph() as graph:
            increment(x)
            with pytest.raises(stf.TaskStateError, match="an event inside graph"):
                ctx.event()
        graph.close()
        event.set()
    with pytest.raises(stf.ContextClosedError):
        ctx.event()


@pytest.mark.not_captured("an event cannot be part of a caller's graph")
def test_arrays_that_others_fill_again_and_again(ctx_factory):
    """The event has the data, so that tasks wait for it, and copies of what was there before are read by nobody."""
    ctx = ctx_factory()
    X, seen = np.zeros(4), []
    x = ctx.logical_data(X, name="x")
    for k in range(1, 5):
        filled = ctx.event(x.write())
        y = ctx.logical_data_empty(4)
        ctx.copy(x, y)
        assert not x.ready()
        threading.Timer(0.01, lambda k=k, filled=filled: (X.__setitem__(slice(None), k), filled.set())).start()
        seen.append(y.numpy().tolist())
        increment(x)  # on a device, where there is one: the array is not valid any more
    assert seen == [[k] * 4 for k in range(1, 5)] and x.numpy().tolist() == [5] * 4
    part = ctx.event(x.rw(), name="part")
    assert X.tolist() == [5] * 4  # and it is the user's again
    X[0] = 7
    part.set()
    assert x.numpy().tolist() == [7, 5, 5, 5]
    ctx.event(x.write(), name="lost").fail(OSError("gone"))
    with pytest.raises(stf.TaskFailedError, match="event 'lost' .* failed with OSError: gone"):
        x.numpy()
    x.accept()


def test_only_arrays_of_the_users_can_be_filled_by_others():
    with stf.context(devices="cpu:2") as ctx, stf.context(devices="cpu") as other:
        x, fixed = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2), readonly=True)
        made, elsewhere = ctx.logical_data_zeros(2), other.logical_data(np.zeros(2))
        for wrong in (x, np.zeros(2), x.read(), x.accumulate(stf.reducer.sum), 3):
            with pytest.raises(TypeError, match=r"ctx\.event takes"):
                ctx.event(wrong)
        with pytest.raises(TypeError, match="no array of yours on the host"):
            ctx.event(made.write())
        with pytest.raises(stf.AccessError):
            ctx.event(fixed.write())
        with pytest.raises(stf.ContextMismatchError):
            ctx.event(elsewhere.write())
        tiles = x.tiles(1)
        with pytest.raises(stf.AccessError):
            ctx.event(x.write())
        del tiles
        ctx.event(x.write()).set()


@pytest.mark.parametrize("devices", ["cpu", "cpu:2"])
def test_copies_for_a_task_come_after_its_events(devices):
    """What others write before they complete an event is what the task reads, wherever it runs."""
    with stf.context(devices=devices) as ctx:
        for k in range(20):
            X = np.zeros(1 << 12)
            x, event = ctx.logical_data(X), ctx.event()
            ctx.submit_task(increment, x, after=event, place=len(ctx.devices) - 1)
            X[:] = k
            event.set()
            assert set(x.numpy().tolist()) == {k + 1}
            x.release()
