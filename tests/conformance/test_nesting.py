"""Bodies that call stf themselves, while the rest of the program waits for them."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
from helpers import is_cuda, queued

import stf
from stf._engine import thread_turns

pytestmark = pytest.mark.at_once("bodies that submit run while others wait for them")


@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n


class Program:
    """A queued body that submits a task once `go` is called, on the only worker there is."""

    def __init__(self, ctx, parent):
        self.gate = threading.Event()
        self.child = [ctx.logical_data(np.zeros(2))]
        gate = self.gate
        with ctx.task(self.child[0].rw()):
            pass  # it is where it is used: its copy would queue behind those that wait for this body

        @stf.task
        def submits(x: stf.ReadWrite, handles):
            assert gate.wait(30)
            x += 1
            add(handles[0], 5)

        submits.on(queued(ctx))(parent, self.child)

    def go(self):
        """Let the body go on, probably when this thread waits already."""
        threading.Timer(0.01, self.gate.set).start()


@pytest.fixture
def one_worker(ctx_factory, monkeypatch):
    monkeypatch.setattr(stf.config, "cpu_workers", 1)
    return ctx_factory()


def many_releases(ctx, lX):
    for _ in range(300):
        tmp = ctx.logical_data(np.zeros(1))
        ctx.task(lX.read(), tmp.rw())(lambda x, t: None)
        del tmp


WAITS = {
    "finalize": lambda ctx, lX: ctx.finalize(),
    "synchronize": lambda ctx, lX: ctx.synchronize(),
    "wait": lambda ctx, lX: lX.numpy(),
    "write_back": lambda ctx, lX: lX.write_back(),
    "accept": lambda ctx, lX: lX.accept(),
    "freeze": lambda ctx, lX: frozen_content(ctx, lX),
    "many releases": many_releases,
}


def frozen_content(ctx, lX):
    with ctx.freeze(lX) as frozen:
        return frozen.get().copy()


@pytest.mark.parametrize("wait", WAITS)
def test_a_body_may_submit_while_others_wait_for_it(one_worker, wait):
    X = np.zeros(2)
    lX = one_worker.logical_data(X)
    program = Program(one_worker, lX)
    program.go()
    WAITS[wait](one_worker, lX)
    if wait != "finalize":
        one_worker.synchronize()
        one_worker.synchronize()
        assert program.child[0].numpy().tolist() == [5, 5]
    assert X.tolist() == [1, 1] or len(one_worker.devices) > 1


@pytest.mark.parametrize("ends", [True, False])
def test_a_body_may_have_a_task_open_while_the_context_is_finalized(one_worker, ends):
    lX, inner = one_worker.token(), [one_worker.token()]
    opened, unfinished = threading.Event(), []

    @stf.task
    def opens(x: stf.ReadWrite):
        task = one_worker.task(inner[0].rw(), name="inner")
        task.start()
        opened.set()
        time.sleep(0.05)
        task.end() if ends else unfinished.append(task)

    opens.on(queued(one_worker))(lX)
    assert opened.wait(30)
    if ends:
        one_worker.finalize()
    else:
        with pytest.raises(stf.TaskFailedError, match="'inner'.*never ended"):
            one_worker.finalize()


def test_a_released_tile_whose_body_submits(one_worker):
    X = np.zeros(2)
    lX = one_worker.logical_data(X)
    tiles = lX.tiles(1)
    program = Program(one_worker, tiles[0])
    del tiles
    program.go()
    add(lX)
    assert lX.numpy().tolist() == [2, 1]


def test_registering_memory_again_whose_body_submits(one_worker):
    X = np.zeros(2)
    program = Program(one_worker, one_worker.logical_data(X))
    program.go()
    add(one_worker.logical_data(X[:]), 10)
    one_worker.synchronize()
    one_worker.finalize()
    assert X.tolist() == [11, 11]


def test_a_with_block_in_a_body_of_the_only_worker(one_worker):
    """A worker that waits lends its place to another."""
    ctx = one_worker
    child, result = [ctx.logical_data(np.zeros(2))], []

    @stf.task
    def nested(x: stf.ReadWrite, handles):
        for place in ctx.devices:
            with ctx.task(place, handles[0].rw()) as t:
                t.arrays()[0][:] += 1
        result.append(ctx.devices.size)
        x += 1

    lX = ctx.logical_data(np.zeros(2))
    nested(lX, child)
    assert lX.numpy().tolist() == [1, 1]
    assert child[0].numpy().tolist() == [len(ctx.devices)] * 2 and result == [len(ctx.devices)]


def test_a_body_that_submits_does_not_wait_for_room(ctx_factory, monkeypatch):
    monkeypatch.setattr(stf.config, "cpu_workers", 1)
    ctx = ctx_factory(max_pending=2)
    child = [ctx.logical_data(np.zeros(1))]

    @stf.task
    def floods(x: stf.ReadWrite, handles):
        for _ in range(20):
            add(handles[0])

    floods(ctx.logical_data(np.zeros(1)), child)
    ctx.synchronize()
    ctx.synchronize()
    assert child[0].numpy().tolist() == [20]


def test_a_context_dropped_by_its_last_body(ctx_factory, monkeypatch):
    """A worker cannot finalize the context whose work it does: the next context does."""
    X, gate, collected = np.zeros(2), threading.Event(), threading.Event()
    original = stf._engine.lifetime.collected
    monkeypatch.setattr(stf._engine.lifetime, "collected", lambda context: (original(context), collected.set()))
    ctx = stf.context(**ctx_factory.options)

    def make_body(context):
        def body(x):
            assert gate.wait(30)
            x += context is not None

        return body

    ctx.task(queued(ctx), ctx.logical_data(X).rw())(make_body(ctx))
    with pytest.warns(ResourceWarning, match="dropped without finalize"):
        del ctx
        gate.set()
        assert collected.wait(30)
    ctx_factory()
    assert X.tolist() == [1, 1]


# -- waits that could never end --------------------------------------------------------------------------------------


class Opens:
    """A body that opens `data`; an object, so that its closure hides nothing from the check for hidden data."""

    __name__ = "body"

    def __init__(self, ctx, data, before=lambda: None):
        self.ctx, self.data, self.before = ctx, data, before

    def __call__(self, _):
        self.before()
        with self.ctx.task(self.data.rw(), name="inner"):
            pass


def test_a_function_whose_body_calls_it(ctx):
    """Each call has arguments of its own, and lets go of them, whether its body ends or raises."""

    @stf.task
    def countdown(x: stf.ReadWrite, rest, mark):
        x += 1
        if rest:
            countdown(rest[0], rest[1:], mark)
        x += len(rest)
        if mark[0]:
            raise ValueError("as asked for")

    handles = [ctx.logical_data(np.zeros(2)) for _ in range(4)]
    mark = [False]
    before = sys.getrefcount(mark)
    countdown(handles[0], handles[1:], mark)
    assert [int(lX.numpy()[0]) for lX in handles] == [4, 3, 2, 1]
    assert sys.getrefcount(mark) == before
    mark[0] = True
    with pytest.raises(stf.TaskFailedError, match="as asked for"):
        countdown(handles[0], [], mark)
        ctx.synchronize()
    countdown(handles[1], [], [False])
    assert handles[1].numpy()[0] == 4
    assert sys.getrefcount(mark) == before or not is_cuda(ctx)  # a worker may hold a queued body until the next one


def test_a_body_that_waits_for_itself_is_told(ctx):
    lA = ctx.logical_data(np.zeros(2), name="A")
    ctx.task(queued(ctx), lA.rw(), name="outer")(Opens(ctx, lA))
    description = (
        "task 'inner' inside the body of task 'outer' .* waits for data that is not free before that body ends"
    )
    with pytest.raises(stf.TaskFailedError, match=description):
        ctx.synchronize()
    ctx.check_state()


def test_bodies_that_wait_for_each_other_are_told(ctx):
    lA, lB = ctx.logical_data(np.zeros(2), name="A"), ctx.logical_data(np.zeros(2), name="B")
    both = threading.Barrier(2, timeout=20)
    ctx.task(queued(ctx), lA.rw(), name="one")(Opens(ctx, lB, both.wait))
    ctx.task(queued(ctx), lB.rw(), name="two")(Opens(ctx, lA, both.wait))
    with pytest.raises((stf.TaskFailedError, ExceptionGroup)):
        ctx.synchronize()
    ctx.check_state()


def test_a_body_that_waits_for_one_queued_behind_it_is_told(ctx):
    """`inner` waits for `second`, which has not begun, and `second` waits for the body that opens `inner`."""
    lA, lB = ctx.logical_data(np.zeros(2), name="A"), ctx.logical_data(np.zeros(2), name="B")
    submitted = threading.Event()
    ctx.task(queued(ctx), lA.rw(), name="first")(Opens(ctx, lB, lambda: submitted.wait(20)))
    ctx.task(queued(ctx), lA.read(), lB.rw(), name="second")(lambda a, b: None)
    submitted.set()
    with pytest.raises((stf.TaskFailedError, ExceptionGroup)) as caught:
        ctx.synchronize()
    assert "task 'inner' inside the body of task 'first'" in f"{caught.value} {caught.value.__cause__}"
    ctx.check_state()


@pytest.mark.parametrize("runs", [True, False])
def test_a_with_block_and_a_body_that_wait_for_each_other_are_told(ctx, runs):
    """The block holds A and B and waits for the body that makes A, which waits for B; it `runs` by then, or is queued."""
    lA, lB = ctx.logical_data(np.zeros(2), name="A"), ctx.logical_data(np.zeros(2), name="B")
    begun = threading.Event()

    def until_the_block_is_open(*_):
        begun.set()
        deadline = time.monotonic() + 20
        while not any(task.symbol == "block" for task in ctx.engine.opened()):
            assert time.monotonic() < deadline
            time.sleep(0.001)  # the block's own thread is in the middle of its begin: nothing tells when it is through

    def nothing(*_):
        pass

    ctx.task(queued(ctx), lA.rw(), name="before")(nothing if runs else until_the_block_is_open)
    ctx.task(queued(ctx), lA.rw(), name="outer")(Opens(ctx, lB, until_the_block_is_open if runs else nothing))
    assert begun.wait(20)
    told = []
    for attempt in (lambda: open_and_close(ctx, lA, lB), ctx.synchronize):
        try:
            attempt()
        except (stf.Error, ExceptionGroup) as error:
            told.append(f"{error} {error.__cause__}")
    assert "task 'inner' inside the body of task 'outer'" in told[0] or "task 'block' waits for a body" in told[0]
    ctx.check_state()


def open_and_close(ctx, *handles):
    with ctx.task(queued(ctx), *[lX.rw() for lX in handles], name="block"):
        pass


@pytest.mark.parametrize("workers", [1, 4])
def test_a_claim_and_a_body_that_wait_for_each_other_are_told(ctx_factory, workers, monkeypatch):
    """This thread holds A and waits for B's content; the body that makes it waits for A."""
    monkeypatch.setattr(stf.config, "cpu_workers", workers)
    ctx = ctx_factory()
    lA, lB, lC = (ctx.logical_data(np.zeros(2), name=name) for name in "ABC")
    held = threading.Event()
    ctx.task(queued(ctx), lB.rw(), name="outer")(Opens(ctx, lA, lambda: held.wait(20)))
    told = []
    with ctx.task(lA.rw(), name="holder"):
        held.set()
        try:
            with ctx.task(lB.read(), lC.rw(), name="waiter"):
                pass
        except stf.Error as error:
            told.append(error)
    try:
        ctx.synchronize()
    except (stf.Error, ExceptionGroup) as error:
        told.append(error)
    descriptions = " ".join(f"{error} {error.__cause__}" for error in told)
    assert (
        "task 'inner' inside the body of task 'outer'" in descriptions
        or "holds open; end that task first" in descriptions
    )
    ctx.check_state()


def test_a_body_that_waits_for_a_claim_lends_its_worker(ctx_factory, monkeypatch):
    """One worker: its body waits for a claim of this thread, which waits for another body."""
    monkeypatch.setattr(stf.config, "cpu_workers", 1)
    ctx = ctx_factory()
    lA, lB, lC = (ctx.logical_data(np.zeros(2), name=name) for name in "ABC")
    held, entered = threading.Event(), threading.Event()
    with ctx.task(lA.rw(), lC.rw()):
        pass  # both are where they are used: no copy needs the worker
    ctx.task(queued(ctx), lB.rw(), name="outer")(Opens(ctx, lA, lambda: (entered.set(), held.wait(20))))
    assert entered.wait(20)
    with ctx.task(lA.rw(), name="holder"):
        held.set()
        ctx.task(lC.rw(), name="other")(lambda c: c.__iadd__(1))
        with ctx.task(lC.read(), name="waiter") as t:
            assert t.arrays()[0][0] == 1
    ctx.synchronize()


@pytest.mark.parametrize("call", ["accept", "frozen", "fence"])
def test_waits_inside_a_body_are_refused(ctx, call):
    lA, lB = ctx.logical_data(np.zeros(2), name="A"), ctx.logical_data(np.zeros(2), name="B")
    frozen, fence = ctx.freeze(lB), ctx.fence()
    calls = {"accept": lB.accept, "frozen": frozen.get, "fence": fence.synchronize}

    def body(_):
        calls[call]()

    ctx.task(queued(ctx), lA.rw())(body)
    with pytest.raises(stf.TaskFailedError, match="inside the body of a task: it could wait for itself"):
        ctx.synchronize()
    frozen.unfreeze()


def test_results_of_host_functions_go_nowhere_and_bare_operators_are_refused(ctx):
    lA = ctx.logical_data(np.ones(2), name="A")
    ctx.host_launch(lA.read()).on("host")(lambda a: a.sum())
    ctx.synchronize()
    launch = ctx.host_launch(lA.read(), name="h")
    with pytest.raises(stf.PlaceError, match="host_launch runs on the host"):
        launch.on(0)
    launch(lambda a: None)

    @stf.task
    def bare(s: stf.Accumulate):
        pass

    with pytest.raises(TypeError, match=r"needs an operator: stf.Accumulate\[stf.reducer.sum\]"):
        bare(lA)
    with pytest.raises(TypeError, match="a reduction operator is needed, got 3"):
        stf.Accumulate[3]
    ctx.check_state()


# -- two contexts --------------------------------------------------------------------------------------------------


def enters(ctx, data):
    with ctx.task(data.rw()):
        pass


ACROSS = {
    "finalize": lambda ctx, data: ctx.finalize(),
    "synchronize": lambda ctx, data: ctx.synchronize(),
    "fence": lambda ctx, data: ctx.fence().synchronize(),
    "wait": lambda ctx, data: data.numpy(),
    "with-block": enters,
}


def failures_of(*contexts):
    """What finalizing them raises, as text."""
    descriptions = []
    for context in contexts:
        try:
            context.finalize()
        except (stf.Error, ExceptionGroup) as error:
            descriptions.append(f"{error} {error.__cause__}")
    return " ".join(descriptions)


@pytest.mark.parametrize("wait", ACROSS)
def test_a_body_that_waits_for_a_task_held_in_another_context_is_told(ctx_factory, wait):
    """This thread holds A in one context and waits in the other, for a body that waits for A."""
    one, two = ctx_factory(), ctx_factory()
    lA, lB = one.logical_data(np.zeros(2), name="A"), two.logical_data(np.zeros(2), name="B")
    held = threading.Event()
    two.task(queued(two), lB.rw(), name="outer")(Opens(one, lA, lambda: held.wait(20)))
    told = ""
    with one.task(lA.rw(), name="holder"):
        threading.Timer(0.01, held.set).start()
        try:
            ACROSS[wait](two, lB)
        except stf.Error as error:
            told = f"{error} {error.__cause__}"
    told += failures_of(one, two)
    assert "task 'inner' inside the body of task 'outer'" in told or "holds open; end that task first" in told


@pytest.mark.parametrize("wait", ACROSS)
@pytest.mark.parametrize("shared", [False, True])
def test_bodies_of_two_contexts_that_wait_for_each_other_are_told(ctx_factory, monkeypatch, shared, wait):
    monkeypatch.setattr(thread_turns, "PATIENCE_S", 0.5)
    resources = stf.Resources() if shared else None
    one, two = ctx_factory(resources=resources), ctx_factory(resources=resources)
    lA, lB = one.logical_data(np.zeros(2)), two.logical_data(np.zeros(2))
    both = threading.Barrier(2, timeout=20)

    class Waits:
        def __init__(self, ctx, data):
            self.ctx, self.data = ctx, data

        def __call__(self, _):
            both.wait()
            ACROSS[wait](self.ctx, self.data)

    one.task(queued(one), lA.rw(), name="first")(Waits(two, lB))
    two.task(queued(two), lB.rw(), name="second")(Waits(one, lA))
    assert "waits for data that is not free before that body ends" in failures_of(one, two)
    if resources is not None:
        resources.close()


def test_claims_of_two_contexts_in_two_orders_are_told(ctx_factory):
    one, two = ctx_factory(), ctx_factory()
    lA, lB = one.logical_data(np.zeros(2)), two.logical_data(np.zeros(2))
    both = threading.Barrier(2, timeout=20)
    told = []

    def holds(outer, held, inner, asked):
        try:
            with outer.task(held.rw()):
                both.wait()
                enters(inner, asked)
        except stf.Error as error:
            told.append(f"{error} {error.__cause__}")

    threads = [threading.Thread(target=holds, args=args) for args in [(one, lA, two, lB), (two, lB, one, lA)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert "holds open; end that task first" in " ".join(told)


def test_a_finalize_that_would_never_end_changes_nothing(ctx_factory):
    """The inner body is the one that is not told: it waits already when the outer thread would close the circle."""
    one, two = ctx_factory(), ctx_factory()
    X = np.zeros(2)
    lA, lB = one.logical_data(np.zeros(2), name="A"), two.logical_data(X)
    asked = threading.Event()
    two.task(queued(two), lB.rw(), name="outer")(Opens(one, lA, asked.set))
    with one.task(lA.rw(), name="holder"):
        two_is_waiting(asked, two)
        with pytest.raises(stf.TaskStateError, match="task 'holder' .* holds open; end that task first"):
            two.finalize()
    two.finalize()
    assert two.engine.closed


def two_is_waiting(asked, ctx):
    """Return once the body of `ctx` waits for its claim."""
    assert asked.wait(20)
    with pytest.raises(TimeoutError):
        ctx.synchronize(0.2)
