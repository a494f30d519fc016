"""Bodies that raise: who is told, what is poisoned, what lives on."""

from __future__ import annotations

import gc
import os
import re
import threading
import time
import weakref

import numpy as np
import pytest
from helpers import is_cuda, queued

import stf
from stf.observe import Observer


class Boom(Exception):
    pass


@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n


@stf.task
def broken(x: stf.ReadWrite, what="no luck"):
    x += 100
    raise Boom(what)


@stf.task
def copy(x: stf.Read, y: stf.ReadWrite):
    y[...] = x


@pytest.fixture
def vec(ctx):
    def make(value=0.0, name=None):
        return ctx.logical_data(np.full(2, float(value)), name=name)

    return make


def by_with_block(ctx, l):
    with pytest.raises(Boom, match="no luck"), ctx.task(l.rw(), name="broken") as t:
        t.arrays()[0][:] += 100
        raise Boom("no luck")


def by_function(ctx, l):
    broken.on(queued(ctx))(l)


def by_builder(ctx, l):
    @ctx.task(queued(ctx), l.rw(), name="broken")
    def body(x):
        x += 100
        raise Boom("no luck")


def by_host_launch(ctx, l):
    @ctx.host_launch(l.rw(), name="broken")
    def body(x):
        x += 100
        raise Boom("no luck")


def by_submit_task(ctx, l):
    ctx.submit_task(broken, l, place=queued(ctx))


def by_call(ctx, l):
    """At a device whose bodies only enqueue: the call itself raises."""
    with pytest.raises(stf.TaskFailedError, match="task 'broken' .* failed with Boom: no luck"):
        broken(l)


WAYS = [by_with_block, by_function, by_builder, by_host_launch, by_submit_task]
if os.environ.get("STF_TEST_DEVICES", "").startswith("cuda"):
    WAYS.append(by_call)


@pytest.mark.parametrize("fail", WAYS)
def test_the_reader_says_who_and_where_and_the_context_lives(ctx, vec, fail):
    x, y = vec(name="X"), vec(5)
    fail(ctx, x)
    with pytest.raises(stf.TaskFailedError) as caught:
        x.numpy()
    error = caught.value
    text = str(error)
    assert (
        "task 'wait' reads logical data 'X' (float64, shape (2,)), which is poisoned: task 'broken' (test_failures.py:"
        in text
    )
    assert "failed with Boom: no luck" in text and "write the data anew, or keep its content with accept()" in text
    assert (
        isinstance(error.__cause__, Boom)
        and error.task == "'broken'"
        and error.call_site.startswith("test_failures.py:")
    )
    with pytest.raises(stf.TaskFailedError):  # it stays poisoned, however often one asks
        x.numpy()
    add(y)
    assert y.numpy().tolist() == [6, 6]
    ctx.check_errors()
    ctx.check_state()


@pytest.mark.parametrize("fail", WAYS)
def test_a_pure_write_heals(ctx, vec, fail):
    x = vec(name="X")
    fail(ctx, x)
    ctx.fill(x, 3)
    try:
        ctx.synchronize()
    except stf.TaskFailedError as error:
        assert "what it was to write is poisoned: 'X'" in str(error)
    assert x.numpy().tolist() == [3, 3]


@pytest.mark.not_captured("what a body did before it raised is no part of the graph")
@pytest.mark.parametrize("fail", WAYS)
def test_accept_keeps_the_partial_result(ctx_factory, fail):
    ctx = ctx_factory()
    X = np.zeros(2)
    x = ctx.logical_data(X, name="X")
    fail(ctx, x)
    assert x.accept() is x
    try:
        ctx.check_errors()
    except stf.TaskFailedError:
        pass
    add(x)
    assert x.numpy().tolist() == [101, 101]
    ctx.finalize()
    assert X.tolist() == [101, 101]


class Held:
    """A local variable of a body."""


@pytest.mark.not_captured("its body is no part of the graph")
@pytest.mark.parametrize("is_told_first", [True, False])
def test_accept_keeps_no_local_variables_of_the_body(ctx, vec, is_told_first):
    """Once the failure is told; the context, and the data, live on."""
    x, held = vec(name="X"), []

    @stf.task
    def fails_with_a_local(x: stf.ReadWrite):
        local = Held()
        held.append(weakref.ref(local))
        raise Boom("no luck")

    fails_with_a_local.on(queued(ctx))(x)

    def hear():
        with pytest.raises(stf.TaskFailedError) as caught:
            ctx.synchronize()
        assert caught.value.__cause__.__traceback__ is not None and held[0]() is not None

    if is_told_first:
        hear()
        x.accept()
    else:
        ctx.fence().synchronize()
        x.accept()
        hear()
    gc.collect()
    assert held[0]() is None
    assert x.numpy().tolist() == [0, 0]


@pytest.mark.parametrize("fail", WAYS)
def test_poisoned_data_are_not_written_back(ctx_factory, fail):
    ctx = ctx_factory()
    if ctx_factory.shares_host or fail is by_host_launch or (is_cuda(ctx) and fail not in (by_with_block, by_call)):
        return  # the body worked in the user's array itself
    X, Y = np.zeros(2), np.zeros(2)
    with ctx.task(ctx.devices[-1], ctx.logical_data(X, name="X").rw()):
        pass
    x, y = ctx.logical_data(X), ctx.logical_data(Y)
    add(y)
    fail(ctx, x)
    try:
        ctx.finalize()
    except stf.TaskFailedError as error:
        assert "failed with Boom: no luck; what it was to write is poisoned" in str(error)
    assert X.tolist() == [0, 0] and Y.tolist() == [1, 1]


def test_poison_spreads_to_descendants_only(ctx, vec):
    a, b, c, d = vec(name="A"), vec(name="B"), vec(name="C"), vec(name="D")
    broken.on(queued(ctx))(a)
    copy.on(queued(ctx))(a, b)
    copy.on(queued(ctx))(b, c)
    add(d)
    for l in (b, c):
        with pytest.raises(
            stf.TaskFailedError, match=rf"{l.core.label()}.* is poisoned: task 'broken' \(test_failures.py:\d+\)"
        ):
            l.numpy()
    assert d.numpy().tolist() == [1, 1]


def test_descendants_of_a_queued_failure_do_not_run(ctx, vec):
    gate, ran = threading.Event(), []
    a, b = vec(), vec()

    @ctx.task(queued(ctx), a.rw())
    def late(x):
        assert gate.wait(30)
        raise Boom("later")

    ctx.task(queued(ctx), a.read(), b.rw())(lambda x, y: ran.append("descendant"))
    ctx.task(queued(ctx), b.rw())(lambda y: ran.append("grandchild"))
    gate.set()
    with pytest.raises(stf.TaskFailedError, match="task 'late' .* failed with Boom: later"):
        ctx.synchronize()
    assert ran == []
    with pytest.raises(stf.TaskFailedError, match="task 'late'"):
        b.numpy()


@pytest.mark.not_captured("the body is captured before the failure is known")
def test_a_with_block_on_a_queued_failure_raises_at_its_entry(ctx, vec):
    gate = threading.Event()
    a, b = vec(name="A"), vec(name="B")

    @ctx.task(queued(ctx), a.rw())
    def late(x):
        assert gate.wait(30)
        raise Boom("later")

    threading.Timer(0.01, gate.set).start()
    with pytest.raises(stf.TaskFailedError, match="task 'reader' reads logical data 'A'.* is poisoned: task 'late'"):
        with ctx.task(a.read(), b.rw(), name="reader"):
            raise AssertionError("the body must not run")
    with pytest.raises(stf.TaskFailedError, match="'B'.* is poisoned: task 'late'"):
        b.numpy()
    ctx.check_state()


def test_several_failures_are_a_group(ctx, vec):
    @stf.task
    def fail(x: stf.ReadWrite, k):
        if k == 0:
            raise Boom("number 0")
        if k == 1:
            raise Boom("number 1")
        raise Boom("number 2")

    for k in range(3):
        fail.on(queued(ctx))(vec(name=f"X{k}"), k)
    with pytest.raises(ExceptionGroup) as caught:
        ctx.synchronize()
    assert len(caught.value.exceptions) == 3 and "3 tasks failed" in str(caught.value)
    assert sorted(str(e.__cause__) for e in caught.value.exceptions) == ["number 0", "number 1", "number 2"]
    assert all(isinstance(e, stf.TaskFailedError) for e in caught.value.exceptions)
    ctx.synchronize()


def test_failures_whose_messages_hold_values_are_one_error(ctx, vec):
    @stf.task
    def look_up(x: stf.ReadWrite, k):
        if k == 3:
            raise ValueError("another kind")
        raise KeyError(f"item{k}")

    data = [vec(name=f"X{k}") for k in range(5)]
    for k in range(5):
        look_up.on(queued(ctx))(data[k], k)
    with pytest.raises(
        ExceptionGroup, match="5 tasks failed: KeyError: 'item0', in task .*, and 3 more like it; Value"
    ):
        ctx.synchronize()
    for one in data:
        one.accept()


def test_failures_on_two_lines_are_two_errors(ctx, vec):
    @stf.task
    def look_up(x: stf.ReadWrite, k):
        if k:
            raise KeyError("item")
        raise KeyError("item")

    for k in range(2):
        look_up.on(queued(ctx))(vec(), k)
    with pytest.raises(ExceptionGroup) as caught:
        ctx.synchronize()
    assert len(caught.value.exceptions) == 2


def test_many_failures_of_one_cause_are_one_error(ctx_factory, vec):
    """With the first task that was submitted, whichever ended first."""
    ctx = ctx_factory()
    place = queued(ctx)
    gate = threading.Event()
    data = [ctx.logical_data(np.full(2, float(k)), name=f"X{k}") for k in range(200)]

    @stf.task
    def bug(x: stf.ReadWrite, k):
        if k == 0:
            assert gate.wait(30)  # it ends last
        if k == 199:
            gate.set()
        if k == 100:
            raise KeyError("another error")
        raise Boom("no luck")

    order = [*range(199), 199] if ctx.engine.gathering is None else [199, *range(199)]
    for k in order:
        bug.named(f"bug{k}").on(place)(data[k], k)
    first, line = order[0], test_many_failures_of_one_cause_are_one_error.__code__.co_firstlineno + 19
    site = f"test_failures.py:{line}"
    with pytest.raises(ExceptionGroup) as caught:
        ctx.synchronize()
    boom, key = caught.value.exceptions
    assert str(caught.value) == (
        f"200 tasks failed: Boom: no luck, in task 'bug{first}' ({site}), and 198 more like it; "
        f"KeyError: 'another error', in task 'bug100' ({site}) (2 sub-exceptions)"
    )
    assert str(boom).startswith(
        f"task 'bug{first}' ({site}) failed with Boom: no luck, and 198 more like it; "
        "what they were to write is poisoned: "
    )
    assert " and 196 more; write it anew" in str(boom)
    assert boom.task == f"'bug{first}'" and isinstance(boom.__cause__, Boom)
    assert boom.others == [(f"'bug{k}'", site) for k in order if k not in (first, 100)]
    assert key.task == "'bug100'" and key.others == []
    with pytest.raises(stf.TaskFailedError, match="task 'bug7' .* failed with Boom"):
        data[7].numpy()
    for one in data:
        one.accept()


def test_a_group_tells_of_skipped_tasks(ctx, vec):
    x, y = vec(name="X"), vec(name="Y")
    broken.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    add.on(queued(ctx))(x)  # skipped: it is told once more
    broken.on(queued(ctx))(y, "another")
    with pytest.raises(ExceptionGroup, match="2 tasks failed: .*task 'add' .* was skipped, .*Boom: another, in task"):
        ctx.synchronize()


def test_failures_are_told_once(ctx, vec):
    x = vec()
    broken.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    ctx.check_errors()
    ctx.synchronize()
    ctx.finalize()


def test_wait_of_other_data_tells_what_failed(ctx, vec):
    x, y = vec(), vec(4)
    broken.on(queued(ctx))(x)
    ctx.fence().synchronize()
    with pytest.raises(stf.TaskFailedError, match="no luck"):
        y.numpy()
    assert y.numpy().tolist() == [4, 4]


@pytest.mark.parametrize("fail", WAYS)
def test_finalize_tells_and_is_finalized(ctx_factory, fail):
    ctx = ctx_factory()
    Y = np.zeros(2)
    x, y = ctx.logical_data(np.zeros(2)), ctx.logical_data(Y)
    fail(ctx, x)
    add(y)
    if fail in (by_with_block, by_call):
        ctx.finalize()  # it was told by the block
    else:
        with pytest.raises(stf.TaskFailedError, match="task 'broken'"):
            ctx.finalize()
    ctx.finalize()
    assert Y.tolist() == [1, 1]
    with pytest.raises(stf.ContextClosedError):
        add(y)


def test_the_exception_of_the_block_wins_and_late_ones_become_notes(ctx_factory):
    X, Y = np.zeros(2), np.zeros(2)
    with pytest.raises(KeyError, match="mine") as caught:
        with ctx_factory() as ctx:
            add(ctx.logical_data(X))
            broken.on(queued(ctx))(ctx.logical_data(Y, name="Y"), "late one")
            ctx.submit()
            while ctx.statistics().pending:
                time.sleep(0.001)
            raise KeyError("mine")
    assert X.tolist() == [1, 1]
    (note,) = caught.value.__notes__
    assert "while the context was finalized: TaskFailedError: task 'broken'" in note and "late one" in note


def test_a_task_function_that_raises_base_exceptions(ctx, vec):
    @stf.task
    def leave(x: stf.ReadWrite):
        raise SystemExit(3)

    x = vec(2)
    leave.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError, match="failed with SystemExit: 3"):
        ctx.synchronize()
    assert x.accept().numpy().tolist() == [2, 2]


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_a_body_that_exits_fails_like_any_other_wherever_it_runs(ctx, vec, kind):
    @stf.task
    def leave(x: stf.ReadWrite):
        raise kind("enough")

    x = vec(2)
    with pytest.raises(stf.TaskFailedError, match=f"failed with {kind.__name__}: enough"):
        leave(x)  # on a GPU bodies run in the call
        ctx.synchronize()
    ctx.check_errors()
    assert x.accept().numpy().tolist() == [2, 2]


def test_keyboard_interrupt_in_a_with_block(ctx, vec):
    x, y = vec(name="X"), vec()
    with pytest.raises(KeyboardInterrupt):
        with ctx.task(x.rw()), ctx.task(y.read()):
            raise KeyboardInterrupt
    ctx.check_state()
    with pytest.raises(stf.TaskFailedError, match="'X'.* is poisoned: .* failed with KeyboardInterrupt"):
        x.numpy()
    assert y.numpy().tolist() == [0, 0]
    assert x.accept().numpy().tolist() == [0, 0]


@pytest.mark.at_once("no body runs yet")
def test_keyboard_interrupt_while_waiting_costs_nothing(ctx, vec):
    """Control-C at the entry of a with-block that waits for a queued body."""
    import _thread
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("SIGINT has another handler")
    gate, started = threading.Event(), threading.Event()
    x = vec(name="X")

    @ctx.task(queued(ctx), x.rw())
    def slow(a):
        started.set()
        assert gate.wait(30)
        a += 1

    assert started.wait(30)
    threading.Timer(0.05, lambda: (_thread.interrupt_main(), gate.set())).start()
    with pytest.raises(KeyboardInterrupt):
        with ctx.task(x.rw()):
            while True:
                gate.wait(1)  # on a driver that does not wait at the entry
    gate.set()
    ctx.check_state()
    try:
        assert x.numpy().tolist() == [1, 1]
    except stf.TaskFailedError:
        assert x.accept().numpy().tolist() == [1, 1]


def test_a_failing_reader_poisons_nothing(ctx, vec):
    x = vec(7)
    with pytest.raises(Boom), ctx.task(x.read()):
        raise Boom
    ctx.host_launch(x.read())(lambda x: 1 / 0)
    with pytest.raises(stf.TaskFailedError, match="ZeroDivisionError"):
        ctx.synchronize()
    assert x.numpy().tolist() == [7, 7]


def test_a_failed_task_still_orders(ctx, vec):
    """Its partial work must be over before a healing write begins."""
    gate, order = threading.Event(), []
    x = vec()

    @ctx.task(queued(ctx), x.rw())
    def fails(a):
        assert gate.wait(30)
        order.append("fails")
        raise Boom

    ctx.task(queued(ctx), x.write())(lambda a: (order.append("heals"), a.fill(1))[1])
    gate.set()
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    assert order == ["fails", "heals"] and x.numpy().tolist() == [1, 1]


def test_poison_of_tiles_reaches_the_parent(ctx):
    X = np.zeros(4)
    lX = ctx.logical_data(X, name="X")
    tiles = lX.tiles(2)
    add(tiles[0])
    broken.on(queued(ctx))(tiles[1])
    del tiles
    with pytest.raises(stf.TaskFailedError, match=r"'X' .* is poisoned: task 'broken'"):
        lX.numpy()
    ctx.fill(lX, 2)
    assert lX.numpy().tolist() == [2] * 4


def test_poison_and_freeze_and_write_back(ctx, vec):
    x = vec(name="X")
    broken.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError, match="task 'broken'"):
        ctx.synchronize()
    with pytest.raises(stf.TaskFailedError, match="'X'.* is poisoned: task 'broken'"):
        x.write_back()
    frozen = ctx.freeze(x)
    with pytest.raises(stf.TaskFailedError, match="'X'.* is poisoned"):
        frozen.get()
    frozen.unfreeze()
    assert "poisoned: task 'broken'" in x.history()
    assert x.accept().numpy().tolist() == [100, 100]


def test_history_names_who_really_wrote(ctx, vec):
    x, bad = vec(name="X"), vec(name="B")
    add.on(queued(ctx))(x)
    broken.on(queued(ctx))(x)
    add.on(queued(ctx))(x)
    broken.on(queued(ctx))(bad)

    @stf.task
    def mix(x: stf.ReadWrite, bad: stf.Read):
        raise AssertionError("its input is poisoned")

    with pytest.raises(ExceptionGroup, match="2 tasks failed"):
        ctx.synchronize()
    for _ in range(4):
        mix(x, bad)
    with pytest.raises(stf.TaskFailedError, match="task 'mix' .* was skipped, since .* poisoned: task 'broken'"):
        ctx.synchronize()
    line = test_history_names_who_really_wrote.__code__.co_firstlineno
    written, *rest = x.history().splitlines()
    assert written == f"logical data 'X' (float64, shape (2,)): written by task 'add' at test_failures.py:{line + 2}"
    assert rest[:5] == [
        f"  not by task 'broken' at test_failures.py:{line + 3}: it failed",
        f"  not by task 'add' at test_failures.py:{line + 4}: it was skipped",
        f"  not by task 'mix' at test_failures.py:{line + 14}: it was skipped",
        f"  not by task 'mix' at test_failures.py:{line + 14}: it was skipped",
        "  nor by 2 tasks after those",
    ]
    assert rest[-1].startswith("  poisoned: task 'broken'")
    assert "<th>not by task 'broken'" in x._repr_html_() or "not by task &#x27;broken&#x27;" in x._repr_html_()
    assert x.last_writer() == f"task 'add' at test_failures.py:{line + 2}"
    x.accept()
    assert "written by task 'add'" in x.history() and "it failed" in x.history() and "poisoned" not in x.history()
    add(x)
    ctx.synchronize()
    assert x.history().splitlines()[0].endswith(f":{line + 32}") and "not by" not in x.history()


def test_history_of_many_queued_writers(ctx, vec):
    x = vec(name="X")
    gate = threading.Event()

    @stf.task
    def hold(x: stf.ReadWrite):
        assert gate.wait(60)

    @stf.task
    def fail_at(x: stf.ReadWrite, step, last):
        if step == last:
            raise Boom(step)

    hold.on(queued(ctx))(x)
    for step in range(200):
        fail_at.named(f"step{step}").on(queued(ctx))(x, step, 150)
    assert "written by task 'step199'" in x.history()  # for all that is known
    gate.set()
    with pytest.raises(stf.TaskFailedError, match="task 'step150'"):
        ctx.synchronize()
    lines = x.history().splitlines()
    assert "written by task 'step149'" in lines[0] and "'step150'" in lines[1] and lines[1].endswith("it failed")
    assert "'step151'" in lines[2] and lines[2].endswith("it was skipped") and "nor by 46 tasks" in lines[5]


@pytest.mark.not_captured("the body is captured before the failure is known")
def test_history_of_a_with_block_that_could_not_run(ctx, vec):
    x = vec(name="X")
    gate = threading.Event()

    @stf.task
    def late(x: stf.ReadWrite):
        assert gate.wait(60)
        raise Boom("late")

    class Starter(Observer):
        def task(self, task):
            if task.symbol == "block":
                gate.set()

    ctx.engine.observe(Starter())
    late.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError, match="task 'block' reads"), ctx.task(x.rw(), name="block"):
        raise AssertionError
    lines = x.history().splitlines()
    assert lines[0].endswith("written by its registration") and lines[1].endswith("it failed")
    assert "not by task 'block'" in lines[2] and lines[2].endswith("it was skipped")


def test_a_task_that_could_not_begin_leaves_no_trace(ctx_factory):
    ctx = ctx_factory(observe=True)
    x, y = ctx.logical_data(np.zeros(2), name="X"), ctx.logical_data(np.zeros(2), name="Y")

    arrays, message = "cupy", "cupy arrays live on a CUDA device"
    if is_cuda(ctx):
        arrays, message = "numpy", "NumPy arrays live in host memory"

    @stf.task(arrays=arrays)
    def lost(x: stf.ReadWrite, y: stf.Read):
        raise AssertionError

    add.on(ctx.devices[-1])(x)
    for _ in range(2):
        with pytest.raises(stf.PlaceError, match=message):
            lost(x, y)
        with pytest.raises(stf.PlaceError, match=message):
            lost(y, x)
    add(x)
    ctx.synchronize()
    assert "lost" not in ctx.dot() and "lost" not in ctx.dot(ignore_prereqs=False)
    with pytest.raises(ValueError, match="no task 'lost' was recorded"):
        ctx.why("lost")
    statistics = ctx.statistics()
    assert statistics.tasks == {"task": 2} and sum(statistics.tasks_by_place.values()) == 2
    assert "after task 'add'" in ctx.why("add") and x.numpy().tolist() == [2, 2]


def test_the_array_of_a_failed_accumulation_is_the_same_on_every_device(ctx_factory):
    """Partial results are added in the array, on the host; nothing is written back."""
    ctx, home = ctx_factory(), np.full(2, 5.0)
    lX = ctx.logical_data(home)
    for k in range(3):

        @ctx.task(queued(ctx), lX.accumulate(stf.reducer.sum))
        def body(x):
            if k == 1:
                raise Boom("in the middle")
            x += 1

    with pytest.raises(stf.TaskFailedError, match="in the middle"):
        ctx.finalize()
    assert home.tolist() == [7, 7]


def test_poison_of_accumulated_data(ctx):
    lX = ctx.logical_data_zeros((2,), name="X")
    for k in range(3):

        @ctx.task(queued(ctx), lX.accumulate(stf.reducer.sum))
        def body(x):
            x += 1
            if k == 1:
                raise Boom("in the middle")

    with pytest.raises(stf.TaskFailedError, match="in the middle"):
        lX.numpy()
    ctx.fill(lX, 0)
    assert lX.numpy().tolist() == [0, 0]


def test_released_poisoned_data_go_quietly_and_are_told(ctx_factory):
    ctx = ctx_factory()
    gate = threading.Event()
    X = np.zeros(2)
    x = ctx.logical_data(X, name="X")

    @ctx.task(queued(ctx, -1), x.rw())
    def late(a):
        assert gate.wait(30)
        a += 1
        raise Boom("late")

    del x
    gate.set()
    with pytest.raises(stf.TaskFailedError, match="task 'late'"):
        ctx.finalize()
    in_place = ctx_factory.shares_host or is_cuda(ctx)  # on the host
    assert X.tolist() == ([1, 1] if in_place else [0, 0])


def test_the_error_of_an_assertion_in_a_worker_has_its_traceback(ctx, vec):
    x = vec()
    broken.on(queued(ctx))(x)
    with pytest.raises(stf.TaskFailedError) as caught:
        ctx.synchronize()
    frames = []
    trace = caught.value.__cause__.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "broken"


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("observe", [False, True])
def test_an_exception_without_text_is_told_all_the_same(ctx_factory, observe):
    ctx = ctx_factory(observe=observe)
    lX = ctx.logical_data(np.zeros(2), name="X")

    def body(x):
        raise Unspeakable

    ctx.task(queued(ctx), lX.rw())(body)
    with pytest.raises(stf.TaskFailedError, match=r"Unspeakable: \(its __str__ raised RuntimeError\)"):
        lX.numpy()
    lX.history()
    ctx.finalize()


def test_what_is_shown_of_poisoned_data(ctx, vec):
    """Who spoiled it and where, of tokens and of data made of several arrays too."""
    x, token = vec(name="x"), ctx.token().set_symbol("done")
    site = r"\(test_failures.py:\d+\) failed with Boom: no luck>"
    with pytest.raises(Boom), ctx.task(x.rw(), token.rw(), name="broken"):
        raise Boom("no luck\nand more")
    for data, shown in [(x, r"<logical data 'x' float64 \(2,\), "), (token, "<stf token 'done', ")]:
        assert re.match(f"{shown}poisoned: task 'broken' {site}", repr(data)), repr(data)
    assert "poisoned" not in repr(x.accept())
    token.accept()


@stf.replay
def copied_again(x, y):
    copy(x, y)


READERS = {
    "function": lambda ctx, x, y: copy(x, y),
    "builder": lambda ctx, x, y: ctx.task(x.read(), y.rw())(lambda x, y: None),
    "on the host": lambda ctx, x, y: ctx.host_launch(x.read(), y.rw())(lambda x, y: None),
    "submit_task": lambda ctx, x, y: ctx.submit_task(copy, x, y),
    "on several places": lambda ctx, x, y: ctx.task(ctx.devices, x.read(PLACE), y.rw(PLACE))(lambda x, y: None),
    "copy": lambda ctx, x, y: ctx.copy(x, y),
    "replay": lambda ctx, x, y: copied_again(x, y),
}
PLACE = stf.data_place.device(0)


@pytest.mark.not_captured("nothing in it has failed before it is launched")
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("form", READERS)
def test_a_reader_of_poisoned_data_is_skipped_whatever_its_form(ctx_factory, form, told):
    ctx, X, Y, Z = ctx_factory(), np.zeros(2), np.ones(2), np.zeros(2)
    x, y, z = (ctx.logical_data(array, name=name) for array, name in [(X, "X"), (Y, "Y"), (Z, "Z")])
    by_host_launch(ctx, x)
    if told:
        with pytest.raises(stf.TaskFailedError, match="'broken'"):
            ctx.synchronize()
    READERS[form](ctx, x, y)
    add(z)
    with pytest.raises(stf.TaskFailedError, match="'broken'.* failed with Boom"):
        ctx.synchronize()
    with pytest.raises(stf.TaskFailedError, match="reads logical data 'Y'.* poisoned: task 'broken'"):
        y.numpy()
    ctx.finalize()
    assert (Y == 1).all() and (Z == 1).all()


def test_a_with_block_that_reads_poisoned_data_raises_where_it_stands(ctx, vec):
    x, y = vec(name="X"), vec(name="Y")
    by_host_launch(ctx, x)
    with pytest.raises(stf.TaskFailedError, match="'broken'"):
        ctx.synchronize()  # else a graph would hold the block before anybody knows
    with pytest.raises(stf.TaskFailedError, match="reads logical data 'X'"), ctx.task(x.read(), y.write()):
        raise AssertionError("it ran")
    with pytest.raises(stf.TaskFailedError, match="reads logical data 'Y'"):
        y.numpy()
    ctx.check_errors()


def test_a_skipped_task_raises_in_its_call_when_each_is_run_there(ctx_factory, monkeypatch):
    monkeypatch.setattr(stf.config, "blocking", True)
    ctx = ctx_factory()
    x, y = (ctx.logical_data(np.zeros(2), name=name) for name in "XY")
    with pytest.raises(stf.TaskFailedError):
        by_host_launch(ctx, x)
    with pytest.raises(stf.TaskFailedError, match="reads logical data 'X'"):
        copy(x, y)
    ctx.check_errors()
