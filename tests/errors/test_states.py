"""Errors of state: claims between threads, calls in the wrong place, dropped tasks, closed contexts, mixed contexts."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from helpers import queued

import stf
from stf._engine.access import MemorySpan
from stf.data.registry import RegistryEntry


@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n


@pytest.fixture
def vec(ctx):
    def make(value=0.0, name=None):
        return ctx.logical_data(np.full(2, float(value)), name=name)

    return make


# -- the tree --------------------------------------------------------------------------------------------------------


def test_the_tree_of_exceptions():
    names = [n for n in dir(stf) if isinstance(getattr(stf, n), type) and issubclass(getattr(stf, n), Exception)]
    assert all(issubclass(getattr(stf, n), stf.Error) for n in names) and len(names) == 14
    assert issubclass(stf.OutOfMemoryError, MemoryError) and issubclass(stf.PlaceError, ValueError)
    assert issubclass(stf.ContextMismatchError, ValueError) and issubclass(stf.DriverError, RuntimeError)
    error = stf.DriverError("CUDA_ERROR_OUT_OF_MEMORY", 2, "cuMemAllocAsync", "device(1)", "64 bytes")
    assert str(error) == "cuMemAllocAsync failed on device(1) with CUDA_ERROR_OUT_OF_MEMORY (2): 64 bytes"
    assert (error.name, error.code, error.call, error.place) == (
        "CUDA_ERROR_OUT_OF_MEMORY",
        2,
        "cuMemAllocAsync",
        "device(1)",
    )
    error = stf.TaskFailedError("text", task="t", call_site="f.py:3")
    assert (str(error), error.task, error.call_site) == ("text", "t", "f.py:3")


# -- claims ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held, asked", [("rw", "read"), ("read", "rw"), ("write", "write"), ("rw", "accumulate")])
def test_a_conflict_within_a_thread_is_an_error(ctx, vec, held, asked):
    x = vec(name="X")
    second = x.accumulate(stf.reducer.sum) if asked == "accumulate" else getattr(x, asked)()
    with ctx.task(getattr(x, held)(), name="outer") as t:
        t.arrays()[0][:] if held == "read" else t.arrays()[0].fill(5)
        with pytest.raises(stf.TaskStateError) as caught:
            ctx.task(second, name="inner").start()
        text = str(caught.value)
        assert "task 'inner' needs data that task 'outer' (test_states.py:" in text and "end that task first" in text
        ctx.check_state()
    assert x.numpy().tolist() == ([0, 0] if held == "read" else [5, 5])


@pytest.mark.not_captured("an open with-block is part of the graph, which is launched before data are released")
def test_function_tasks_conflict_too(ctx, vec):
    x = vec(name="X")
    with ctx.task(x.rw(), name="outer"):
        with pytest.raises(stf.TaskStateError, match="task 'add' needs data that task 'outer'"):
            add(x)
        with pytest.raises(stf.TaskStateError, match="task 'fill' needs data that task 'outer'"):
            ctx.fill(x, 1)
        for use, what in (
            (x.release, "released"),
            (x.write_back, "written back|write_back inside"),
            (lambda: ctx.freeze(x), "frozen"),
        ):
            with pytest.raises(stf.TaskStateError, match=what):
                use()
    add(x)
    assert x.numpy().tolist() == [1, 1]


@pytest.mark.not_captured("the other thread's body looks at its data")
def test_a_thread_without_claims_waits(ctx, vec):
    x = vec(name="X")
    asked, got = threading.Event(), []

    def other():
        asked.set()
        with ctx.task(x.rw()) as t:
            got.append(t.arrays()[0].tolist())
            t.arrays()[0][:] *= 10

    thread = threading.Thread(target=other)
    with ctx.task(x.rw()) as t:
        thread.start()
        assert asked.wait(30)
        t.arrays()[0][:] = 4
    thread.join(30)
    assert got == [[4, 4]] and x.numpy().tolist() == [40, 40]


def test_many_threads_wait_for_each_other(ctx, vec):
    x, y = vec(), vec()
    start = threading.Barrier(4)
    trouble = []

    def work():
        try:
            start.wait(30)
            for _ in range(25):
                with ctx.task(x.rw(), y.rw()) as t:
                    a, b = t.arrays()
                    a += 1
                    b += a
                with ctx.task(x.read()):
                    pass
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert trouble == []
    assert x.numpy()[0] == 100 and y.numpy()[0] == 5050


# -- calls in the wrong place ----------------------------------------------------------------------------------------

BLOCKING = {
    "wait": lambda ctx, x: ctx.wait(x),
    "synchronize": lambda ctx, x: ctx.synchronize(),
    "fence": lambda ctx, x: ctx.fence(),
    "finalize": lambda ctx, x: ctx.finalize(),
    "write_back": lambda ctx, x: x.write_back(),
}


@pytest.mark.parametrize("what", BLOCKING)
def test_blocking_calls_inside_an_open_task(ctx, vec, what):
    x, y = vec(name="X"), vec()
    with ctx.task(x.rw(), name="body") as t:
        with pytest.raises(stf.TaskStateError) as caught:
            BLOCKING[what](ctx, y)
        text = str(caught.value)
        assert (
            f"{what} inside task 'body' (test_states.py:" in text
            and "it would wait for itself; call it after the task" in text
        )
        t.arrays()[0][:] = 1
    assert x.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("what", BLOCKING)
def test_blocking_calls_inside_a_body(ctx, vec, what):
    x, y = vec(), vec(name="Y")
    caught = []

    def body(a):
        try:
            BLOCKING[what](ctx, handles[0])
        except stf.TaskStateError as error:
            caught.append(str(error))
        a += 1

    handles = [y]
    ctx.task(queued(ctx), x.rw())(body)
    ctx.host_launch(x.rw())(body)
    ctx.synchronize()
    assert len(caught) == 2 and all(f"{what} inside the body of a task: it would wait for itself" in c for c in caught)
    assert x.numpy().tolist() == [2, 2] and y.numpy().tolist() == [0, 0]


def test_bodies_may_submit(ctx, vec):
    x, handles = vec(), [vec()]

    @stf.task
    def parent(a: stf.ReadWrite, what):
        a += 1
        add(what[0], 5)

    parent(x, handles)
    ctx.synchronize()
    ctx.synchronize()
    assert handles[0].numpy().tolist() == [5, 5] and x.numpy().tolist() == [1, 1]


# -- tasks that nobody ends ------------------------------------------------------------------------------------------


def test_a_task_dropped_while_open_is_failed(ctx, vec):
    x, y = vec(name="X"), vec(3)
    ctx.task(x.rw(), name="lost").start()
    gc.collect()
    with pytest.raises(stf.TaskFailedError, match=r"'X'.* is poisoned: task 'lost' .*was dropped while it was open"):
        x.numpy()
    ctx.check_state()
    assert y.numpy().tolist() == [3, 3] and x.accept().numpy().tolist() == [0, 0]


def test_a_task_never_ended_is_told_at_finalize(ctx_factory):
    ctx = ctx_factory()
    Y = np.zeros(2)
    x, y = ctx.logical_data(np.zeros(2), name="X"), ctx.logical_data(Y)
    add(y)
    kept = []

    def open_one():
        kept.append(ctx.task(x.rw(), name="open").start())

    thread = threading.Thread(target=open_one)  # another thread's task does not forbid finalize
    thread.start()
    thread.join()
    with pytest.raises(stf.TaskFailedError, match=r"task 'open' \(test_states.py:\d+\) was never ended"):
        ctx.finalize()
    assert Y.tolist() == [1, 1]
    with pytest.raises(stf.TaskStateError):
        kept[0].end()


def test_cycles_of_what_stf_makes_are_collected(ctx_factory):
    ctx = ctx_factory()
    X = np.zeros(2)

    class Node:
        pass

    node = Node()
    node.data = ctx.logical_data(X)
    node.frozen = ctx.freeze(node.data)
    node.frozen.unfreeze()
    node.task = ctx.task(node.data.rw())
    node.task(lambda x: x.fill(1))
    node.me = node
    del node
    gc.collect()
    ctx.synchronize()
    ctx.token().numpy()
    ctx.synchronize()
    assert X.tolist() == [1, 1]
    assert list(ctx.engine.coherency.data) == []


def test_finished_contexts_leave_no_records_of_memory_to_the_collector():
    def work():
        with stf.context() as ctx:
            for item in [ctx.logical_data(np.zeros(64)) for _ in range(5)]:
                add(item)

    def records():
        return sum(type(item).__name__ in ("RegistryEntry", "MemorySpan", "Registry") for item in gc.get_objects())

    gc.collect()
    before = records()
    gc.disable()
    try:
        for _ in range(3):
            work()
        left = records() - before
    finally:
        gc.enable()
    assert left == 0


@pytest.mark.skipif(not hasattr(RegistryEntry, "__pyx_vtable__"), reason="not compiled")
def test_the_free_list_of_spans_keeps_those_of_the_registry():
    assert RegistryEntry.__basicsize__ == MemorySpan.__basicsize__


def test_data_dropped_by_the_collector_inside_stf(ctx, vec):
    """Finalizers only append to a list, which the next entry drains; so any moment is fine for a collection."""
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for k in range(60):
            cycle = [ctx.logical_data(np.full(2, float(k)))]
            cycle.append(cycle)
            add(cycle[0])
            del cycle
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    ctx.synchronize()
    ctx.token().numpy()
    ctx.synchronize()
    ctx.check_state()
    assert list(ctx.engine.coherency.data) == []


def test_reentry_from_what_runs_inside_the_engine(ctx, vec):
    """An observer runs inside the engine, as a finalizer may; it must not call stf."""
    x, told = vec(), []

    class Nosy(stf.observe.observer.Observer if hasattr(stf, "observe") else object):
        def task(self, task):
            try:
                ctx.token().read()
                ctx.fill(x, 1)
            except stf.TaskStateError as error:
                told.append(str(error))

        def operation(self, *args):
            pass

        def data_removed(self, ident):
            pass

        def ran(self, *args):
            pass

    ctx.engine.observe(Nosy())
    with ctx.task(x.rw()) as t:
        t.arrays()[0][:] = 2
    ctx.engine.observe(None)
    assert told == ["stf was called from a finalizer that ran inside stf; call it later"]
    assert x.numpy().tolist() == [2, 2]


# -- closed and mixed contexts ---------------------------------------------------------------------------------------


def test_a_finalized_context_refuses_everything(ctx_factory):
    ctx = ctx_factory(name="old")
    X = np.zeros(2)
    x = ctx.logical_data(X)
    t = ctx.task(x.rw())
    frozen = ctx.freeze(x)
    frozen.unfreeze()
    ctx.finalize()
    uses = [
        lambda: add(x),
        t.start,
        x.numpy,
        x.write_back,
        x.release,
        x.accept,
        lambda: x.tiles(1),
        lambda: ctx.logical_data(np.zeros(2)),
        lambda: ctx.logical_data(X),
        lambda: ctx.logical_data_empty(3),
        lambda: ctx.logical_data_zeros(3),
        x.empty_like,
        ctx.token,
        ctx.fence,
        ctx.submit,
        ctx.synchronize,
        lambda: ctx.freeze(x),
        lambda: ctx.fill(x, 1),
        lambda: ctx.copy(x, x),
        lambda: ctx.prefetch(x, stf.data_place.host()),
        lambda: ctx.host_launch(x.read())(print),
        lambda: ctx.submit_task(add, x),
    ]
    for use in uses:
        with pytest.raises(
            stf.ContextClosedError,
            match=r"<stf.Context 'old' on .*> was finalized: registered arrays hold .* make a new one with stf.context\(\)",
        ):
            use()
    assert ctx.statistics().total_tasks == 0 and repr(x) and x.history() and X.tolist() == [0, 0]


def test_mixed_contexts_are_refused(ctx_factory):
    one, two = ctx_factory(), ctx_factory()
    a, b = one.logical_data(np.zeros(2), name="A"), two.logical_data(np.zeros(2), name="B")

    @stf.task
    def both(x: stf.ReadWrite, y: stf.ReadWrite):
        raise AssertionError

    uses = [
        lambda: both(a, b),
        lambda: one.task(a.rw(), b.read(), name="t").start(),
        lambda: one.host_launch(b.read())(print),
        lambda: one.wait(b),
        lambda: one.copy(a, b),
        lambda: one.fill(b, 1),
        lambda: one.freeze(b),
        lambda: one.prefetch(b, stf.data_place.host()),
        lambda: add.on(b)(a),
    ]
    for use in uses:
        with pytest.raises(stf.ContextMismatchError, match=r"'B' .*(to another|belongs to another context)"):
            use()
        one.check_state()
        two.check_state()
    add(a)
    add(b)
    assert a.numpy().tolist() == b.numpy().tolist() == [1, 1]


def test_data_of_a_dropped_context(ctx_factory):
    ctx = stf.context(**ctx_factory.options)
    x = ctx.logical_data(np.zeros(2), name="X")
    with pytest.warns(ResourceWarning):
        del ctx
    for use in (x.numpy, x.write_back, lambda: add(x), lambda: x.context, lambda: x.read(stf.data_place.host())):
        with pytest.raises(
            stf.ContextClosedError, match="the context of logical data 'X' .* is gone; keep a reference to it"
        ):
            use()


def test_uninitialised_data_are_named(ctx, vec):
    e, y = ctx.logical_data_empty((3, 4), np.float32, name="E"), vec(1)
    uses = [
        lambda: ctx.task(e.read(), y.rw(), name="t").start(),
        lambda: add.named("t")(e),
        lambda: ctx.host_launch(e.read(), name="t")(print),
        lambda: ctx.task(y.rw(), e.rw(), name="t")(print),
    ]
    for use in uses:
        with pytest.raises(stf.UninitializedDataError) as caught:
            use()
        assert str(caught.value) == (
            "logical data 'E' (float32, shape (3, 4)) is read by task 't' before anything wrote it; write it first, or create "
            "it with logical_data_zeros"
        )
        ctx.check_state()
    assert y.numpy().tolist() == [1, 1]
    ctx.fill(e, 1)
    assert e.numpy().sum() == 12


def test_conversions_that_fail(ctx, vec):
    with pytest.raises(TypeError):
        float(vec(1))
    with pytest.raises(TypeError, match="wait takes logical data, got ndarray"):
        ctx.wait(np.zeros(2))
    with pytest.raises(TypeError, match="is logical data already"):
        ctx.logical_data(vec())
    with pytest.raises(ValueError, match="was made from a shape; there is no array to write back to"):
        ctx.logical_data_zeros(2).write_back()
    with pytest.raises(ValueError, match="was made from a shape; there is no array to write back to: register one"):
        ctx.logical_data_zeros(2).set_write_back(True)


def test_driver_errors_travel():
    """By pickle, from process to process; and one that is told again has a traceback of its own."""
    error = stf.DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "cuLaunchKernel", "cuda:0", "illegal address")
    error.accuse(["task 'axpy' at program.py:7"])
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), error.again(), error.again().again()):
        assert type(other) is stf.DriverError and other is not error and other.__traceback__ is None
        assert str(other) == str(error) and "task 'axpy' at program.py:7" in str(other)
        assert (other.name, other.code, other.call, other.place) == (error.name, 700, "cuLaunchKernel", "cuda:0")
        assert other.tasks == error.tasks and other.tasks is not error.tasks
    assert error.is_reported_by(error) and error.is_reported_by(error.again().again())
    assert not error.is_reported_by(copy.copy(error))


@pytest.mark.parametrize("kind", [stf.AccessError, stf.OutOfMemoryError, stf.CaptureError, stf.PlaceError])
def test_errors_travel(kind):
    assert str(pickle.loads(pickle.dumps(kind("what, got, do")))) == "what, got, do"
    failed = stf.TaskFailedError("it failed", task="axpy", call_site="program.py:7")
    assert vars(pickle.loads(pickle.dumps(failed))) == vars(failed)
