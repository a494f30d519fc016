"""Tasks as with-blocks, builders, host functions, and in the low-level form; access modes."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import threading

import numpy as np
import pytest
from helpers import address, is_cuda, is_read_only, is_writeable, queued

import stf
from stf import data_place, exec_place

# -- with-blocks -----------------------------------------------------------------------------------------------------


def test_views_of_a_with_block(ctx):
    lX, lY, token = ctx.logical_data(np.arange(3.0)), ctx.logical_data_empty(3), ctx.token()
    with ctx.task(lX.read(), token.rw(), lY.write(), name="mine") as t:
        x, y = t.arrays()
        assert t.arrays()[0] is x and t[0] is x and t[-1] is y and t[1] is None and len(t) == 3
        assert is_read_only(x) and is_writeable(y)
        y[:] = x * 2
        assert t.get_arg(0) == address(x) and t.get_arg(2) == address(y)
        assert t.symbol == "mine" and t.place == t.exec_place == ctx.devices[0]
        assert t.stream.place == t.get_stream().place == "device(0)" and t.get(0) is x
        assert repr(t) == "<task 'mine' at device(0), open>"
        if not is_cuda(ctx):
            with pytest.raises(ValueError):
                x[0] = 1
    assert re.fullmatch(r"<task 'mine' at device\(0\), (submitted|done|recorded)>", repr(t))
    assert lY.numpy().tolist() == [0, 2, 4]


def test_the_methods_of_a_with_block_are_methods(ctx):
    token = ctx.token()
    with contextlib.ExitStack() as stack:
        task = stack.enter_context(ctx.task(token.rw(), name="stacked"))
        assert repr(task) == "<task 'stacked' at device(0), open>"
    assert re.fullmatch(r"<task 'stacked' at device\(0\), (submitted|done|recorded)>", repr(task))
    task = ctx.task(token.rw())
    enter, leave = task.__enter__, task.__exit__
    assert enter() is task and leave(None, None, None) is None
    with pytest.raises(TypeError):
        enter(1)
    with pytest.raises(TypeError):
        leave(None)
    with pytest.raises(TypeError):
        leave(None, None, None, None)
    with pytest.raises(TypeError):
        leave(None, None, other=None)
    with pytest.raises((TypeError, AttributeError)):
        type(task).__enter__(token)
    with pytest.raises((TypeError, AttributeError)):
        vars(type(task))["__enter__"].__get__(token)()
    assert type(task).__exit__(task, None, None, None) is None
    many = [ctx.task(token.read()) for _ in range(20)]
    leaves = [task.__exit__ for task in many if task.__enter__() is task]
    for leave in reversed(leaves):
        leave(kind=None, error=None, trace=None)
    assert len(leaves) == 20 and not any("open" in repr(task) for task in many)


def test_bound_methods_of_a_task_tell_what_they_are(ctx):
    task = ctx.task(ctx.token().rw(), name="mine")
    enter = task.__enter__
    assert enter == task.__enter__ and hash(enter) == hash(task.__enter__) and enter != task.__exit__
    assert (
        enter.__self__ is task and enter.__name__ == "__enter__" and "__enter__ of" in repr(enter).replace("Task.", "")
    )
    vars(type(task))["__enter__"](task)
    assert vars(type(task))["__exit__"].__name__ == "__exit__"
    task.end()


def test_a_task_that_could_not_start_takes_more_accesses(ctx):
    lX, lY, lZ = ctx.logical_data(np.arange(4.0)), ctx.logical_data(np.zeros(4)), ctx.logical_data_empty(4)
    task = ctx.task(lX.rw(), lZ.read(), lZ.read())
    with pytest.raises(stf.UninitializedDataError):
        task.start()
    with ctx.task(lZ.write()) as t:
        t.arrays()[0][:] = 7
    with task.add_deps(lY.rw()) as t:
        assert t.holds(lY.core) and len(t) == 4
        t[3][:] = t[0] + t[2]
    assert lY.numpy().tolist() == [7, 8, 9, 10] and lX.numpy().tolist() == [0, 1, 2, 3]


def test_a_with_block_lets_go_of_its_task(ctx):
    token = ctx.token()
    for _ in range(3):
        with ctx.task(token.rw()):
            pass
    count = sys.getrefcount(token)
    for _ in range(40):
        with ctx.task(token.rw()), ctx.task(), ctx.task(), contextlib.suppress(KeyError):
            raise KeyError
    assert sys.getrefcount(token) == count


def test_place_may_stand_anywhere(ctx):
    lX = ctx.logical_data(np.zeros(2))
    for args in (
        (ctx.devices[-1], lX.rw()),
        (lX.rw(), ctx.devices[-1]),
        (lX.rw(), len(ctx.devices) - 1),
        ("host", lX.rw()),
    ):
        with ctx.task(*args) as t:
            t.arrays()[0][:] += 1
    assert lX.numpy().tolist() == [4, 4]
    assert ctx.statistics().tasks_by_place["host"] == 1 + 1  # and the wait


def test_tasks_interleave_in_one_thread(ctx):
    lX, lY = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.zeros(2))
    with ctx.task(lX.rw()) as a:
        with ctx.task(lY.rw()) as b:
            b.arrays()[0][:] = 2
        a.arrays()[0][:] = 1
    one, two = ctx.task(lX.rw()).start(), ctx.task(lY.rw()).start()
    one.arrays()[0][:] += 1
    one.end()
    two.end()
    assert lX.numpy().tolist() == lY.numpy().tolist() == [2, 2]


def test_reads_share(ctx):
    lX, found = ctx.logical_data(np.ones(2)), [ctx.logical_data_empty(2) for _ in range(3)]
    a, b, c = (ctx.task(place, lX.read(), y.write()) for place, y in zip((0, 0, ctx.devices[-1]), found, strict=True))
    with a, b, c:
        for t in (a, b, c):
            x, y = t.arrays()
            y[...] = x
    assert [y.numpy().tolist() for y in found] == [[1, 1]] * 3


def test_bodies_on_different_data_overlap(ctx_factory, monkeypatch):
    monkeypatch.setattr(stf.config, "cpu_workers", 2)
    ctx = ctx_factory()
    meet = threading.Barrier(2, timeout=30)
    for l in (ctx.logical_data(np.zeros(1)), ctx.logical_data(np.zeros(1))):
        ctx.task(queued(ctx), l.rw())(lambda x: (meet.wait(), None)[1])
    ctx.synchronize()


def test_readers_overlap_and_the_writer_waits(ctx_factory, monkeypatch):
    monkeypatch.setattr(stf.config, "cpu_workers", 3)
    ctx = ctx_factory()
    lX = ctx.logical_data(np.zeros(1))
    meet, left = threading.Barrier(2, timeout=30), []

    def read(x):
        meet.wait()
        left.append(x[0])

    ctx.task(queued(ctx), lX.read())(read)
    ctx.task(queued(ctx), lX.read())(read)
    ctx.task(queued(ctx), lX.rw())(lambda x: left.append("write"))
    ctx.synchronize()
    assert left == [0, 0, "write"]


# -- the low-level form ----------------------------------------------------------------------------------------------


def test_start_and_end(ctx):
    lX, lY = ctx.logical_data(np.ones(2)), ctx.logical_data(np.zeros(2))
    t = ctx.task()
    assert t.add_deps(lX.read(), lY.rw()) is t
    assert t.set_exec_place(ctx.devices[-1]) is t and t.set_symbol("low") is t
    assert t.start() is t
    t.arrays()[1][:] += t.arrays()[0]
    t.end()
    assert lY.numpy().tolist() == [1, 1]
    assert ctx.task().add_dep(lX.read()).start().end() is None


def test_a_task_may_end_in_another_thread(ctx):
    lX = ctx.logical_data(np.zeros(2))
    t = ctx.task(lX.rw()).start()

    def finish():
        t.arrays()[0][:] = 3
        t.end()

    other = threading.Thread(target=finish)
    other.start()
    other.join()
    assert lX.numpy().tolist() == [3, 3]


def test_state_errors_of_the_low_level_form(ctx):
    lX = ctx.logical_data(np.zeros(2))
    t = ctx.task(lX.rw(), name="t")
    with pytest.raises(stf.TaskStateError, match="end on task 't', which was not started"):
        t.end()
    for what, use in (("arrays", t.arrays), ("(get_arg|indexing)", lambda: t.get_arg(0)), ("indexing", lambda: t[0])):
        with pytest.raises(stf.TaskStateError, match=f"{what} on task 't', which has not started; start it first"):
            use()
    t.start()
    for what, use in (
        ("start", t.start),
        ("add_deps", lambda: t.add_deps(lX.read())),
        ("set_exec_place", lambda: t.set_exec_place(0)),
        ("call", lambda: t(lambda x: None)),
    ):
        with pytest.raises(stf.TaskStateError, match=f"{what} on task 't', which has started"):
            use()
    t.end()
    for what, use in (("end", t.end), ("start", t.start), ("start", t.__enter__), ("arrays", t.arrays)):
        with pytest.raises(stf.TaskStateError, match=f"{what} on task 't', which has ended"):
            use()
    assert lX.numpy().tolist() == [0, 0]


def test_index_and_address_errors(ctx):
    lX, token = ctx.logical_data(np.zeros(2)), ctx.token()
    with ctx.task(lX.read(), token.read(), name="t") as t:
        with pytest.raises(IndexError, match="task 't' has 2 accesses, got index 2"):
            t[2]
        with pytest.raises(IndexError, match="task 't' has 2 accesses, got index -3"):
            t.get_arg(-3)
        with pytest.raises(TypeError, match="access 1 of task 't' is a token; it has no address"):
            t.get_arg(1)
        with pytest.raises(
            TypeError if is_cuda(ctx) else stf.PlaceError, match="is a token; it has no address|runs at"
        ):
            t.get_arg_cai(1)
        for use in (t.stream_ptr, t.args_cai, lambda: t.get_arg_cai(0), t.stream.__cuda_stream__):
            if is_cuda(ctx):
                assert use()
                continue
            with pytest.raises(stf.PlaceError, match=r"device\(0\)"):
                use()
    if not is_cuda(ctx):  # else it has one for callbacks
        with ctx.task("host", lX.read()) as t, pytest.raises(stf.PlaceError, match="runs at host"):
            t.stream_ptr()


# -- builders --------------------------------------------------------------------------------------------------------


def test_builders_call_decorate_and_chain(ctx_factory):
    ctx = ctx_factory(observe="dot")
    lX = ctx.logical_data(np.zeros(2), name="X")

    def body(x):
        x += 1

    handle = ctx.task(lX.rw())(body)
    assert handle.body is body

    @ctx.task(lX.rw())
    def decorated(x):
        x += 10

    assert callable(decorated)
    ctx.task(lX.rw()).on(ctx.devices[-1]).set_symbol("chained")(body)
    ctx.task(lX.rw(), symbol="seed")(body)
    x = np.zeros(2)
    decorated(x)
    assert x.tolist() == [10, 10] and lX.numpy().tolist() == [13, 13]
    assert all(name in ctx.dot() for name in ("body", "decorated", "chained", "seed"))


def test_builder_results_are_stored(ctx):
    lX, lY = ctx.logical_data(np.ones(2)), ctx.logical_data_empty(2)
    ctx.task(lX.rw(), lY.write())(lambda x, y: (x + 1, x * 5))
    assert (lX.numpy()[0], lY.numpy()[0]) == (2, 5)


def test_builder_injection(ctx):
    lX = ctx.logical_data(np.zeros(2))
    seen = []

    @ctx.task(lX.rw())
    def body(x, s: stf.Stream, t: stf.Task):
        seen.append((type(s).__name__, t.symbol))

    ctx.synchronize()
    assert seen == [("Stream", "body")]


def test_a_builder_without_body_warns_with_its_line(ctx):
    lX = ctx.logical_data(np.zeros(2))
    with pytest.warns(
        RuntimeWarning, match=r"task 'lost' built at test_tasks.py:\d+ was given no body; call it with one"
    ):
        ctx.task(lX.rw(), name="lost")
        gc.collect()
    with pytest.warns(RuntimeWarning, match=r"built at test_tasks.py:\d+ was given no body"):
        ctx.host_launch(lX.rw())
        gc.collect()
    assert lX.numpy().tolist() == [0, 0]


@pytest.mark.parametrize("build", [lambda ctx, *a: ctx.task(*a), lambda ctx, *a: ctx.host_launch(*a)])
def test_a_builder_takes_one_function(ctx, build):
    lX = ctx.logical_data(np.zeros(2))
    builder = build(ctx, lX.rw())
    with pytest.raises(TypeError, match="function, got int"):
        builder(3)
    builder(lambda x: x.fill(1))
    with pytest.raises(stf.TaskStateError, match="which has ended"):
        builder(lambda x: x.fill(2))
    assert lX.numpy().tolist() == [1, 1]


def test_what_is_no_access(ctx):
    lX, X = ctx.logical_data(np.zeros(2), name="X"), np.zeros(3)
    cases = [
        ((lX,), r"a task takes accesses, got .*'X'.*; say how it is used: .read\(\), .write\(\) or .rw\(\)"),
        ((lX.read,), r"a task takes accesses, got the method read of logical data 'X' .*; call it: .read\(\)"),
        ((0, lX.rw), r"got the method rw of logical data 'X' .*; call it: .rw\(\)"),
        ((X,), "a task takes accesses, got an array of type ndarray; register it, lX = ctx.logical_data"),
        ((0, 1), "a task runs at one place, got a second: 1"),
        ((data_place.host(), lX.read()), r"an execution place is needed, got the data place data_place.host\(\)"),
        ((None,), "an execution place is needed, got None"),
        ((True,), "an execution place is needed, got True"),
        (("device",), "an execution place is needed, got 'device'"),
    ]
    for args, message in cases:
        for make in (ctx.task, ctx.host_launch):
            with pytest.raises(TypeError, match=message):
                make(*args)
    with pytest.raises(TypeError, match=r"add_deps takes accesses such as lX.read\(\), got LogicalData"):
        t = ctx.task()
        try:
            t.add_deps(lX)
        finally:
            t.start().end()
    assert lX.numpy().tolist() == [0, 0]


# -- host functions --------------------------------------------------------------------------------------------------


def test_host_launch_in_all_its_forms(ctx):
    lX, token = ctx.logical_data(np.arange(3.0)), ctx.token()
    with ctx.task(ctx.devices[-1], lX.rw()) as t:
        t.arrays()[0][:] += 1
    seen = []

    @ctx.host_launch(lX.read(), token.rw())
    def decorated(x):
        seen.append(("decorated", x.tolist(), x.flags.writeable, threading.current_thread() is threading.main_thread()))

    ctx.host_launch(lX.rw(), token.rw(), fn=lambda x, k: x.__iadd__(k) is None or None, args=(2,))
    ctx.host_launch(lX.read(), token.rw(), args=["a"], name="n").set_symbol("m")(lambda x, a: seen.append((a, x[0])))
    ctx.host_launch(token.rw(), symbol="s")(lambda: seen.append("end"))
    ctx.synchronize()
    assert seen == [("decorated", [1, 2, 3], False, False), ("a", 3), "end"]
    assert ctx.statistics().tasks["host_launch"] == 4
    with pytest.raises(TypeError, match="host_launch got unknown arguments: wrong"):
        ctx.host_launch(lX.read(), wrong=1)
    for make in (lambda **options: ctx.host_launch(lX.read(), **options), stf.task):
        with pytest.raises(TypeError, match="uses_cuda is True or False, got 'no'"):
            make(uses_cuda="no")


def test_host_launch_does_not_block(ctx):
    lX = ctx.logical_data(np.zeros(2))
    gate, order = threading.Event(), []
    ctx.host_launch(lX.rw())(lambda x: (gate.wait(30), order.append("body"), None)[-1])
    order.append("submitted")
    gate.set()
    ctx.synchronize()
    assert order == ["submitted", "body"]


# -- access modes ----------------------------------------------------------------------------------------------------


def test_write_brings_nothing_in_and_read_does(ctx_factory):
    ctx = ctx_factory()
    lX = ctx.logical_data(np.ones(2))
    last = ctx.devices[-1]
    with ctx.task(last, lX.write()) as t:
        t.arrays()[0][:] = 5
    assert ctx.statistics().total_copies == 0
    with ctx.task(last, lX.rw()) as t:
        t.arrays()[0][:] += 1
    lY = ctx.logical_data_empty(2)
    with ctx.task(ctx.devices[0], lX.read(), lY.write()) as t:
        x, y = t.arrays()
        y[...] = x
    ctx.synchronize()
    assert ctx.statistics().total_copies == (0 if ctx_factory.device_count == 1 else 1)
    assert lY.numpy().tolist() == [6, 6]


def test_data_places_per_access(ctx_factory):
    ctx = ctx_factory()
    lX = ctx.logical_data(np.ones(2))
    n = len(ctx.devices)
    places = [data_place.host(), data_place.managed(), data_place.affine(), data_place.current_device()]
    for place in [*places, *(data_place.device(i) for i in range(n))]:
        with ctx.task(ctx.devices[-1], lX.rw(place)) as t:
            t.arrays()[0][:] += 1
    assert lX.numpy().tolist() == [5 + n] * 2
    with ctx.task("host", lX.rw(data_place.device(n - 1))) as t:
        t.arrays()[0][:] = 0
    assert f"device({n - 1}): modified" in lX.history() or ctx_factory.shares_host


@pytest.mark.parametrize("how", ["host_launch", "builder", "with_block"])
def test_a_body_on_the_host_that_gets_memory_of_a_device(ctx, how):
    """What it puts on that device's current stream is waited for, and the device is current; then all is as before."""
    if not is_cuda(ctx):
        pytest.skip("needs a GPU")
    import cupy

    def work(a):
        seen.append(cupy.cuda.Device().id)
        for _ in range(20):
            a += 1

    for place in ctx.devices:
        seen: list[int] = []
        x, before = ctx.logical_data_zeros(1 << 16), cupy.cuda.Device().id
        use = x.rw(data_place.device(place.index))
        if how == "host_launch":
            ctx.host_launch(use)(work)
        elif how == "builder":
            ctx.task("host", use)(work)
        else:
            with ctx.task("host", use) as t:
                work(t.arrays()[0])
        with ctx.task(place, x.rw()) as t:
            t.cupy()[0][...] *= 2
        assert (x.numpy() == 40).all() and set(seen) == {place.index} and cupy.cuda.Device().id == before


def test_a_data_named_twice_is_one_access(ctx):
    lX, seen, kept = ctx.logical_data(np.ones(3)), ctx.logical_data_empty(3), ctx.logical_data_empty(3)
    last = len(ctx.devices) - 1
    with ctx.task(lX.read(), lX.rw(), seen.write()) as t:
        a, b, y = t.arrays()
        b += 1
        y[...] = a
        assert t.get_arg(0) == t.get_arg(1)
    with ctx.task(last, lX.read(), lX.read(), lX.write(), kept.write()) as t:
        t.arrays()[3][:] = t.arrays()[0]  # joined: read and write
        t.arrays()[2][:] = 7
    assert seen.numpy().tolist() == kept.numpy().tolist() == [2] * 3
    with ctx.task(last, lX.read(), lX.rw(data_place.device(last)), lX.read(data_place.affine())) as t:
        t.arrays()[1][:] += 1
    if last:
        with pytest.raises(
            ValueError, match=r"task 't' asks for logical data .* at two data places at once; ask for one"
        ):
            ctx.task(lX.read(data_place.host()), lX.rw(data_place.device(1)), name="t").start()
    assert lX.numpy().tolist() == [8] * 3

    @stf.task
    def both(x: stf.Read, y: stf.ReadWrite):
        y += x

    both(lX, lX)
    assert lX.numpy().tolist() == [16] * 3


def test_wrong_kinds_of_places(ctx):
    lX = ctx.logical_data(np.zeros(2))
    with pytest.raises(
        TypeError, match="a data place is needed, got the execution place exec_place.host.*affine_data_place"
    ):
        lX.read(exec_place.host())
    with pytest.raises(
        TypeError, match=r"a data place is needed, got 0; use data_place.host\(\) or data_place.device\(i\)"
    ):
        lX.rw(0)
    n = len(ctx.devices)
    with pytest.raises(stf.PlaceError, match=rf"data_place.device\({n}\) is not in this context; it has {n} device"):
        lX.read(data_place.device(n))
    with pytest.raises(
        stf.PlaceError, match=rf"exec_place.device\({n}\) is not in this context; it has exec_place.device\(0\)"
    ):
        ctx.task(n, lX.read())
    assert lX.numpy().tolist() == [0, 0]


def test_a_view_is_asked_for_by_its_type(ctx):
    x, token = ctx.logical_data(np.ones(3, np.int32)), ctx.token()
    with ctx.task(token.rw(), x.read()) as t:
        array = t.get(1, np.int32)
        assert np.dtype(array.dtype) == np.int32
        for dtype in (np.float32, "float32", float):
            with pytest.raises(TypeError, match="access 1 was asked for with elements of type float"):
                t.get(1, dtype)
        assert t.get(-1, np.integer) is not None
        with pytest.raises(IndexError):
            t.get(2, np.int32)


def test_a_reduction_of_a_kernel_is_none_of_a_task(ctx):
    total = ctx.logical_data(np.zeros(()))
    with pytest.raises(TypeError, match=r"which is for parallel_for.*accumulate"):
        ctx.task(total.reduce(stf.reducer.sum))
    assert float(total.numpy()) == 0.0
