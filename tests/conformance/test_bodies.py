"""What bodies see and give back: results, closures, hidden data."""

from __future__ import annotations

import functools
import random
import threading
import time

import numpy as np
import pytest
from helpers import increment, is_cuda, library, told

import stf


@stf.task
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


@pytest.fixture
def vec(ctx):
    def make(value, n=3, name=None):
        return ctx.logical_data(np.full(n, float(value)), name=name)

    return make


# -- results ---------------------------------------------------------------------------------------------------------


def test_results_are_stored_in_order(vec):
    @stf.task
    def f(x: stf.Read, y: stf.Write, z: stf.ReadWrite):
        return x + 1, z * 2

    x, y, z = vec(1), vec(0), vec(5)
    f(x, y, z)
    assert (y.numpy()[0], z.numpy()[0]) == (2, 10)


@pytest.mark.parametrize("where", ["device", "host"])
def test_results_may_be_other_arrays_of_the_task(ctx, vec, where):
    """They are what the tuple held when the body returned."""

    @stf.task
    def swap(a: stf.ReadWrite, b: stf.ReadWrite):
        return b, a

    @stf.task
    def shift(now: stf.ReadWrite, before: stf.ReadWrite, new: stf.Read):
        return new, now

    @stf.task
    def fibonacci(now: stf.ReadWrite, before: stf.ReadWrite):
        return now + before, now

    @stf.task
    def backwards(a: stf.ReadWrite, b: stf.ReadWrite):
        return b[::-1], a[::-1]

    place = ctx.devices[0] if where == "device" else stf.exec_place.host()
    a, b = (ctx.logical_data(np.arange(3.0) + 10 * k) for k in range(2))
    swap.on(place)(a, b)
    assert (a.numpy().tolist(), b.numpy().tolist()) == ([10, 11, 12], [0, 1, 2])
    backwards.on(place)(a, b)
    assert (a.numpy().tolist(), b.numpy().tolist()) == ([2, 1, 0], [12, 11, 10])
    shift.on(place)(a, b, vec(7))
    assert (a.numpy().tolist(), b.numpy().tolist()) == ([7] * 3, [2, 1, 0])
    now, before = vec(1), vec(1)
    for _ in range(4):
        fibonacci.on(place)(now, before)
    assert (now.numpy()[0], before.numpy()[0]) == (8, 5)


def test_a_single_result_and_the_buffer_itself(vec):
    @stf.task
    def fresh(x: stf.ReadWrite):
        return library(x).asfortranarray(x[::-1] * 2)

    @stf.task
    def itself(x: stf.ReadWrite):
        x += 1
        return x

    @stf.task
    def part(x: stf.ReadWrite):
        return x[::-1]

    x = vec(0)
    itself(x)
    fresh(x)
    part(x)
    assert x.numpy().tolist() == [2, 2, 2]


def test_a_result_that_overlaps_its_target(ctx):
    lX = ctx.logical_data(np.arange(4.0))

    @stf.task
    def reverse(x: stf.ReadWrite):
        return x[::-1]

    reverse(lX)
    assert lX.numpy().tolist() == [3, 2, 1, 0]


def test_a_python_scalar_into_zero_dimensional_data(ctx):
    s = ctx.logical_data_zeros((), np.float32)

    @stf.task
    def norm(x: stf.Read, out: stf.Write):
        return np.sqrt((x * x).sum())

    @stf.task
    def one(out: stf.Write):
        return 1

    norm(ctx.logical_data(np.array([3.0, 4.0])), s)
    assert float(s) == 5
    one(s)
    assert float(s) == 1


@pytest.mark.parametrize(
    "result, message",
    [
        (lambda x: (x, x), "task 'f' returned 2 results for 1 written parameters"),
        (
            lambda x: library(x).zeros(4),
            r"result 0 of task 'f' has shape \(4,\), which does not broadcast to the shape of its data, \(3,\)",
        ),
        (lambda x: library(x).zeros((2, 3)), r"result 0 of task 'f' has shape \(2, 3\)"),
        (lambda x: 1j, "result 0 of task 'f' is the complex 1j, its data has dtype float64"),
        (lambda x: 10**400, "result 0 of task 'f' is 10+, which is infinite in its data's dtype float64"),
        (lambda x: library(x).zeros(3, complex), "result 0 of task 'f' has dtype complex128"),
        (lambda x: "text", "result 0 of task 'f' has"),
    ],
)
def test_wrong_results_are_errors(ctx, vec, result, message):
    @stf.task
    def f(x: stf.ReadWrite):
        return result(x)

    x = vec(7)
    with told(ctx, lambda: f(x), message):
        ctx.synchronize()
    assert x.accept().numpy().tolist() == [7] * 3


@pytest.mark.parametrize("result", [np.zeros(3), [0.0] * 3], ids=["array", "list"])
def test_results_of_another_library_are_told(ctx, vec, result):
    if not is_cuda(ctx):
        pytest.skip("bodies have NumPy's arrays")

    @stf.task
    def f(x: stf.ReadWrite):
        return [result] if isinstance(result, list) else result

    x = vec(7)
    kind = type(result).__name__
    with told(ctx, lambda: f(x), f"result 0 of task 'f' is a {kind}, and its arrays are of cupy; return one of these"):
        ctx.synchronize()
    assert x.accept().numpy().tolist() == [7] * 3


def test_a_result_without_written_parameter_is_an_error(ctx, vec):
    @stf.task
    def f(x: stf.Read):
        return x + 1

    x = vec(1)
    with told(ctx, lambda: f(x), "task 'f' returned ndarray but writes nothing; annotate a parameter stf.Write"):
        ctx.synchronize()
    assert x.numpy().tolist() == [1] * 3


def test_a_result_for_what_is_no_array_is_an_error(ctx, vec):
    @stf.task
    def f(c: stf.ReadWrite):
        return [1, 2]

    @stf.task
    def itself(c: stf.ReadWrite):
        c[0][:] = 1
        return c

    x = vec(0)
    itself([x])
    with told(ctx, lambda: f([x]), "task 'f' cannot return a value for list; write into it instead"):
        ctx.synchronize()
    assert x.accept().numpy().tolist() == [1] * 3


# -- callables, and data that nobody declared -------------------------------------------------------------------------


def test_methods_partials_and_callables_are_bodies(ctx, vec):
    class Base:
        def body(self, x):
            x += self.k

    class Adder(Base):
        def __init__(self, k):
            self.k = k

        def body(self, x):
            super().body(x)

        def __call__(self, x):
            x += self.k

    x = vec(0)
    ctx.task(x.rw())(Adder(1).body)
    ctx.task(x.rw())(Adder(10))
    ctx.task(x.rw())(functools.partial(np.add, 100))  # a result, which is stored
    ctx.host_launch(x.rw())(Adder(1000).body)
    assert x.numpy()[0] == 1111


def test_functools_wraps_and_partial_of_a_task(vec):
    x, y = vec(1), vec(0)
    functools.partial(axpy, 3)(x, y)
    assert y.numpy()[0] == 3


def test_data_hidden_in_a_closure_is_refused(ctx, vec):
    x, hidden = vec(0), vec(1, name="H")

    @stf.task
    def f(x: stf.ReadWrite):
        return x + hidden

    for submit in (
        lambda: f(x),
        lambda: ctx.task(x.rw())(lambda x: hidden),
        lambda: ctx.host_launch(x.rw())(lambda x: hidden),
    ):
        with pytest.raises(stf.AccessError, match="uses logical data 'hidden' without an access; pass it"):
            submit()
    assert x.numpy()[0] == 0 and hidden.numpy()[0] == 1

    @ctx.task(x.rw(), hidden.read())
    def declared(a, b):
        a += b
        _ = hidden.shape

    assert x.numpy()[0] == 1


def test_data_hidden_in_globals_is_refused(ctx, vec, monkeypatch):
    x = vec(0)
    monkeypatch.setitem(globals(), "GLOBAL", vec(1))

    @stf.task
    def f(x: stf.ReadWrite):
        x += GLOBAL  # noqa: F821

    def g(x):
        x += GLOBAL  # noqa: F821

    for submit in (lambda: f(x), lambda: ctx.task(x.rw())(g), lambda: ctx.host_launch(x.rw())(g)):
        with pytest.raises(stf.AccessError, match="uses logical data 'GLOBAL' without an access; pass it"):
            submit()
    assert x.numpy()[0] == 0


def test_an_attribute_may_be_named_like_global_data(ctx, vec, monkeypatch):
    monkeypatch.setitem(globals(), "T", vec(1))
    x = vec(0)

    @stf.task
    def f(x: stf.ReadWrite):
        x += x.T + 1

    f(x)
    assert x.numpy()[0] == 1


# -- bodies that overlap ---------------------------------------------------------------------------------------------


def currents(count):
    """The current device, and the current stream of each, as CuPy knows them."""
    import cupy

    return cupy.cuda.Device().id, [cupy.cuda.get_current_stream(i).ptr for i in range(count)]


@pytest.mark.parametrize("seed", range(6))
def test_tasks_on_several_devices_that_are_started_and_ended_by_hand(ctx, seed):
    """Whoever asks for arrays finds the streams and the device of the task current; at the end all is as it was."""
    chance = random.Random(seed)
    data = [ctx.logical_data(np.zeros(300)) for _ in range(6)]
    counts, opened = [0] * len(data), {}
    on_cuda, count = is_cuda(ctx), 1 + max(place.index for place in ctx.devices)
    ctx.synchronize()
    before = currents(count) if on_cuda else None
    for _ in range(60):
        i = chance.randrange(len(data))
        if i not in opened:
            opened[i] = ctx.task(chance.choice(list(ctx.devices)), data[i].rw())
            opened[i].start()
        elif chance.random() < 0.6:
            (x,) = opened[i].arrays()
            if on_cuda:
                ordinal = opened[i].place.index
                device, streams = currents(count)
                assert (device, streams[ordinal]) == (ordinal, opened[i].stream_ptr())
            x += 1
            counts[i] += 1
        else:
            opened.pop(i).end()
    for task in opened.values():
        task.end()
    if on_cuda:
        assert currents(count) == before
    assert [lX.numpy()[-1] for lX in data] == counts


@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
def test_with_blocks_of_cupys_streams_end_on_the_tasks_stream(ctx, own):
    """CuPy's with-blocks end with what the one around them entered, and that is the task's stream in a body."""
    if not is_cuda(ctx):
        pytest.skip("needs a GPU")
    import cupy

    x, seen = ctx.logical_data(np.zeros(300)), []

    def body(a: stf.ReadWrite):
        mine = cupy.cuda.get_current_stream()
        with cupy.cuda.Stream(non_blocking=True):
            pass
        seen.append(cupy.cuda.get_current_stream() is mine)
        a += 1

    outer = cupy.cuda.Stream(non_blocking=True) if own else cupy.cuda.Stream.null
    with cupy.cuda.Device(ctx.devices[0].index), outer:
        before = currents(1)
        stf.task(body)(x)
        with ctx.task(x.rw()) as t:
            a = t.cupy()[0]
            with cupy.cuda.Stream(non_blocking=True):
                assert cupy.cuda.get_current_stream().ptr != t.stream_ptr()
            assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
            a += 1
        assert currents(1) == before
        with ctx.task_graph() as graph:
            stf.task(body)(x)
        graph.launch()
        assert currents(1) == before
    assert x.numpy()[-1] == 3 and len(seen) >= 2 and all(seen)


@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
@pytest.mark.parametrize("where", ["ends elsewhere", "goes on elsewhere", "comes back"])
def test_what_was_current_in_both_threads_of_a_task_is_so_again(ctx, where, own):
    """Only a thread itself can change what is current in it: so at its next call."""
    if not is_cuda(ctx):
        pytest.skip("needs a GPU")
    import cupy

    x, y, seen = ctx.logical_data(np.zeros(300)), ctx.logical_data(np.zeros(300)), []
    device = cupy.cuda.Device(ctx.devices[0].index)

    def elsewhere(task, last):
        with device:
            seen.append(currents(1))
            if where != "ends elsewhere":
                task.cupy()[0][...] += 1
                assert cupy.cuda.get_current_stream().ptr == task.stream_ptr()
            if last:
                task.end()
            asked.set()
            assert ended.wait(60)
            with ctx.task(y.rw()) as t:
                t.cupy()
            seen.append(currents(1))

    outer = cupy.cuda.Stream(non_blocking=True) if own else cupy.cuda.Stream.null
    with device, outer:
        before = currents(1)
        for _ in range(3):
            asked, ended = threading.Event(), threading.Event()
            t = ctx.task(x.rw()).start()
            t.cupy()[0][...] += 1
            other = threading.Thread(target=elsewhere, args=(t, where != "comes back"))
            other.start()
            assert asked.wait(60)
            if where == "comes back":
                t.cupy()[0][...] += 1
                assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
                t.end()
            ended.set()
            other.join()
            ctx.synchronize()
            assert currents(1) == before
            assert (cupy.ones(3) + 1).get().tolist() == [2] * 3
    assert x.numpy()[-1] == {"ends elsewhere": 3, "goes on elsewhere": 6, "comes back": 9}[where]
    assert len(seen) == 6 and all(found == seen[0] for found in seen)


def test_a_stream_of_the_users_stays_current_though_another_thread_ends_a_task(ctx):
    """What was current before the task is so when the user's with-block is over, and stf is called next."""
    if not is_cuda(ctx):
        pytest.skip("needs a GPU")
    import cupy

    x, y = ctx.logical_data(np.zeros(300)), ctx.logical_data(np.zeros(300))
    with cupy.cuda.Device(ctx.devices[0].index):
        before, own = currents(1), cupy.cuda.Stream(non_blocking=True)
        t = ctx.task(x.rw()).start()
        t.cupy()
        with own:
            run_in_thread(t.end)
            for _ in range(2):
                with ctx.task(y.rw()) as inner:
                    inner.cupy()
                assert currents(1)[1] == [own.ptr]
        ctx.synchronize()
        assert currents(1) == before


def test_a_thread_with_the_number_of_one_that_is_gone_keeps_its_stream(ctx):
    if not is_cuda(ctx):
        pytest.skip("needs a GPU")
    import cupy

    x, y, numbers, seen = ctx.logical_data(np.zeros(300)), ctx.logical_data(np.zeros(300)), [], []
    device = cupy.cuda.Device(ctx.devices[0].index)

    def starts(box):
        with device:
            numbers.append(threading.get_ident())
            box.append(ctx.task(x.rw()).start())
            box[0].cupy()

    def goes_on(task):
        numbers.append(threading.get_ident())
        with device, cupy.cuda.Stream(non_blocking=True) as own:
            begun.set()
            assert ended.wait(60)
            with ctx.task(y.rw()) as t:
                t.cupy()
            seen.append(currents(1)[1] == [own.ptr])

    for _ in range(50):  # which number a thread gets is the system's choice
        box, begun, ended = [], threading.Event(), threading.Event()
        run_in_thread(starts, box)
        other = threading.Thread(target=goes_on, args=(box[0],))
        other.start()
        assert begun.wait(60)
        box.pop().end()
        ended.set()
        other.join()
        came_again = any(one == other for one, other in zip(numbers[::2], numbers[1::2], strict=True))
        if came_again and len(seen) >= 5:
            break
    assert all(seen) and came_again


def run_in_thread(work, *args):
    """Run something in a thread of its own, and wait for it."""
    thread = threading.Thread(target=work, args=args)
    thread.start()
    thread.join()


def test_torch_has_its_stream_and_autograd_again_where_a_task_began_that_another_thread_ends(ctx):
    torch = pytest.importorskip("torch")
    x = ctx.logical_data(np.zeros(3))
    before = torch.cuda.current_stream() if is_cuda(ctx) else None
    t = ctx.task(x.rw()).start()
    t.torch()[0].add_(1)
    assert not torch.is_grad_enabled()
    run_in_thread(t.end)
    ctx.synchronize()
    assert torch.is_grad_enabled() and x.numpy().tolist() == [1] * 3
    assert before is None or torch.cuda.current_stream() == before


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("used", [False, True], ids=["default", "used"])
def test_a_view_inside_a_with_block_for_a_stream(ctx, again, used):
    """The task's stream is current where a view is asked for; after the task it is what it was, however they nest."""
    if not is_cuda(ctx):
        pytest.skip("needs a GPU")
    import cupy

    x = ctx.logical_data(np.zeros(300))
    with cupy.cuda.Device(ctx.devices[0].index):
        if used:
            cupy.cuda.Stream(non_blocking=True).use()
        try:
            with ctx.task(x.rw()) as t:
                before = currents(1)
                with cupy.cuda.Stream(non_blocking=True):
                    (a,) = t.cupy()
                    assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
                    a += 1
                if again:
                    (a,) = t.cupy()
                    assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
                    with cupy.cuda.Stream(non_blocking=True):
                        t.cupy()
                        assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
                    assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
                    a += 1
            assert currents(1) == (before if not used else (before[0], [0]))  # as CuPy's own with-block leaves it
        finally:
            cupy.cuda.Stream.null.use()
    assert x.numpy()[-1] == 1 + again


def leave(place):
    """Make a device that is not `place` the current one, for good."""
    import cupy

    cupy.cuda.Device((place.index + 1) % cupy.cuda.runtime.getDeviceCount()).use()


@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
def test_a_body_may_leave_another_device_current(ctx, own):
    """What was current before, streams and device, is so after it: of functions, blocks, by hand, and of graphs."""
    if not is_cuda(ctx) or len(ctx.devices) < 2:
        pytest.skip("needs two GPUs")
    import cupy

    place, count = ctx.devices[0], 1 + max(place.index for place in ctx.devices)
    x = ctx.logical_data(np.zeros(300))

    def leaves(a: stf.ReadWrite, step):
        a += step
        leave(place)

    def fails(a: stf.ReadWrite):
        leave(place)
        raise ValueError("meant")

    with cupy.cuda.Device(place.index):
        mine = cupy.cuda.Stream(non_blocking=True) if own else cupy.cuda.Stream.null
        outer = cupy.cuda.get_current_stream()
        mine.use()
        before = currents(count)
        try:
            stf.task(leaves)(x, 1)
            assert currents(count) == before
            with ctx.task(place, x.rw()) as t:
                (a,) = t.arrays()
                a += 1
                leave(place)
            assert currents(count) == before
            t = ctx.task(place, x.rw()).start()
            t.arrays()[0][:] += 1
            leave(place)
            t.end()
            assert currents(count) == before
            with ctx.task_graph() as graph:
                stf.task(leaves)(x, graph.param("step", 1))
            assert currents(count) == before
            for step in range(3):
                graph.launch(step=step)  # captured again for each of them
                assert currents(count) == before
            y = ctx.logical_data(np.zeros(3))
            with pytest.raises(stf.TaskFailedError):
                stf.task(fails)(y)
                y.numpy()
            assert currents(count) == before
        finally:
            outer.use()
    assert x.numpy()[-1] == 3 + 0 + 1 + 2


# -- behind a body on the host ------------------------------------------------------------------------------------------


def test_functions_behind_a_body_on_the_host_are_queued(ctx, lX):
    """No call waits for the host, and what is queued fails where somebody waits."""
    gate = threading.Event()

    @stf.task
    def divide(x: stf.ReadWrite, by=0):
        if by == 0:
            raise ZeroDivisionError("by zero")
        x /= by

    ctx.host_launch(lX.rw())(lambda x: gate.wait(20) and None)
    increment(lX)
    divide(lX, 2)

    @ctx.task(lX.rw())
    def thrice(x):
        x *= 3

    ctx.host_launch(lX.rw())(lambda x: gate.wait(20) and None)
    increment(lX)
    assert not gate.is_set()
    gate.set()
    assert lX.numpy().tolist() == [2.5] * 4
    ctx.host_launch(lX.rw())(lambda x: time.sleep(0.05))
    with pytest.raises(stf.TaskFailedError, match="task 'divide' .*test_bodies.py:.*by zero"):
        divide(lX)
        increment(lX)
        ctx.wait(lX)
    ctx.fill(lX, 1.0)
    increment(lX)
    assert lX.numpy().tolist() == [2] * 4


def test_a_queued_function_sees_its_device(ctx_factory):
    """Its device and its stream are current while it runs, and not after it."""
    ctx = ctx_factory()
    if not ctx.on_cuda:
        pytest.skip("a CPU has no current device")
    cupy = pytest.importorskip("cupy")
    gate, seen = threading.Event(), []
    place = ctx.devices[-1]
    lX = ctx.logical_data(np.zeros(4))

    def look(*_):
        seen.append((cupy.cuda.Device().id, cupy.cuda.get_current_stream().ptr))

    ctx.host_launch(lX.rw())(lambda x: look())
    ctx.synchronize()
    ctx.host_launch(lX.rw())(lambda x: gate.wait(20) and None)
    ctx.task(place, lX.rw())(look)
    gate.set()
    for _ in range(8):  # on every thread
        ctx.host_launch(lX.rw())(lambda x: look())
    ctx.synchronize()
    before, inside, *after = seen
    assert inside[0] == len(ctx.devices) - 1 and inside[1] != before[1]
    assert set(after) == {before}
    ctx.finalize()


@pytest.mark.at_once("nothing is queued yet")
def test_functions_behind_a_body_on_the_host_are_held_back(ctx_factory):
    """As all that is queued: `max_pending` bounds how many there are."""
    gate = threading.Event()
    ctx = ctx_factory(max_pending=8)
    lX = ctx.logical_data(np.zeros(4))
    ctx.host_launch(lX.rw())(lambda x: gate.wait(20) and None)
    threading.Timer(0.1, gate.set).start()
    for i in range(32):
        increment(lX)
        assert i < 16 or gate.is_set() or not ctx.on_cuda
    assert lX.numpy().tolist() == [32] * 4
    ctx.finalize()
