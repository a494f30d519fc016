"""Eviction under memory_limit, and what can't fit."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import numpy as np
import pytest
from helpers import together

import stf
import stf.testing
from stf._drivers.cpu import CpuDriver
from stf._drivers.wrappers.wrapping import WrappingDriver

N = 1000
NBYTES = 8 * N


@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n


@stf.task
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


@pytest.fixture(params=["cpu:1", "cpu:2"])
def limited(request):
    yield from limited_contexts(request.param)


@pytest.fixture(params=[os.environ.get("STF_TEST_DEVICES", "cpu:2")])
def limited_anywhere(request):
    yield from limited_contexts(request.param)


def limited_contexts(devices):
    """What opens contexts with room for so many arrays on each device; at the end they must have kept to that."""
    contexts = []

    def make(replicas, **options):
        ctx = stf.context(devices=devices, memory_limit=int(replicas * NBYTES), **options)
        contexts.append(ctx)
        return ctx

    yield make
    for ctx in contexts:
        if ctx.engine.closed is None:
            ctx.check_state()
            ctx.finalize()
        assert ctx._driver.live_allocations == 0
        for place, peak in ctx.statistics().peak_bytes.items():
            assert place == "host" or peak <= ctx.engine.coherency.pools[1].limit


def test_a_working_set_several_times_the_limit(limited):
    ctx = limited(3)
    arrays = [np.full(N, float(k)) for k in range(12)]
    data = [ctx.logical_data(a) for a in arrays]
    for round_ in range(3):
        for k, d in enumerate(data):
            add.on(ctx.devices[(k + round_) % len(ctx.devices)])(d)
    for k in range(11):
        axpy.on(ctx.devices[k % len(ctx.devices)])(1.0, data[k], data[k + 1])
    ctx.finalize()
    want = [k + 3.0 for k in range(12)]
    for k in range(11):
        want[k + 1] += want[k]
    assert [a[0] for a in arrays] == want and all((a == a[0]).all() for a in arrays)
    assert sum(ctx.statistics().evictions.values()) > 12


def test_data_that_a_launch_works_on_are_evicted(limited):
    """As soon as it is submitted; its bodies run later, with what was theirs then."""
    ctx = limited(3)
    lX, lY = ctx.logical_data(np.zeros(N)), ctx.logical_data(np.full(N, 100.0))
    g = ctx.task_graph()
    with g:
        add(lX)
    others = [ctx.logical_data(np.full(N, float(i))) for i in range(6)]
    add(lY)
    for other in others:
        g.launch({lX: other})
    assert [other.numpy()[0] for other in others] == [1, 2, 3, 4, 5, 6]
    assert lX.numpy()[0] == 0 and lY.numpy()[0] == 101
    g.close()


def test_temporaries_without_a_home_survive_eviction(limited):
    ctx = limited(2)
    data = [ctx.logical_data_full(N, float(k)) for k in range(8)]
    for d in data:
        add(d)
    assert [d.numpy()[0] for d in data] == [k + 1 for k in range(8)]
    s = ctx.statistics()
    assert s.evictions["device(0)"] >= 6 and s.peak_bytes["device(0)"] == 2 * NBYTES


def spoilt(ctx, place, value=77.0):
    """An array, and a data of it that a failed task has half written on a device; the other half is -1 there."""
    home = np.full(N, 5.0)
    data = ctx.logical_data(home, name="spoilt")
    with pytest.raises(ZeroDivisionError), ctx.task(place, data.write()) as t:
        t[0][:] = -1.0
        t[0][: N // 2] = value
        raise ZeroDivisionError
    return home, data


def evict(ctx, place):
    before = sum(ctx.statistics().evictions.values())
    add.on(place)(ctx.logical_data_zeros(N))
    ctx.synchronize()
    assert sum(ctx.statistics().evictions.values()) > before


def test_eviction_leaves_the_array_of_what_a_failed_task_wrote_alone(limited_anywhere):
    ctx = limited_anywhere(1)
    home, data = spoilt(ctx, ctx.devices[-1])
    evict(ctx, ctx.devices[-1])
    assert (home == 5).all()
    with pytest.raises(stf.TaskFailedError, match="'spoilt'"):
        data.numpy()
    ctx.finalize()
    assert (home == 5).all()


def test_content_that_a_failed_task_left_survives_eviction(limited_anywhere):
    """Until it is declared good; then it goes home."""
    ctx = limited_anywhere(1)
    home, data = spoilt(ctx, ctx.devices[-1])
    evict(ctx, ctx.devices[-1])
    data.accept()
    add.on(ctx.devices[0])(data)
    evict(ctx, ctx.devices[0])
    assert (home[: N // 2] == 78).all() and (home[N // 2 :] == 0).all()
    assert (data.numpy()[: N // 2] == 78).all()
    other, data = spoilt(ctx, ctx.devices[-1])
    evict(ctx, ctx.devices[-1])
    data.accept()
    ctx.finalize()
    assert (other[: N // 2] == 77).all()


def test_a_write_heals_what_was_evicted(limited_anywhere):
    ctx = limited_anywhere(1)
    home, data = spoilt(ctx, ctx.devices[-1])
    evict(ctx, ctx.devices[-1])
    with ctx.task(stf.exec_place.host(), data.write()) as t:
        t[0][:] = 1.0
    add.on(ctx.devices[-1])(data)
    ctx.finalize()
    assert (home == 2).all()


class NoHostMemory(WrappingDriver):
    """Refuses the next `refusals` allocations on the host."""

    refusals = 0

    def alloc(self, device, nbytes, stream):
        if device < 0 and self.refusals:
            self.refusals -= 1
            raise MemoryError("the host is full")
        return super().alloc(device, nbytes, stream)


@pytest.mark.parametrize(("accepts", "refusals"), [(False, 10), (True, 2)])
def test_what_was_evicted_to_the_host_is_not_lost_when_that_is_full(accepts, refusals):
    """What is good goes home; what is not stays."""
    driver = NoHostMemory(CpuDriver(1, shares_host=False, workers=2))
    ctx = stf.testing.context("cpu:1", driver=driver, memory_limit=NBYTES)
    home, data = spoilt(ctx, 0)
    evict(ctx, 0)
    if accepts:
        data.accept()
    driver.refusals = refusals
    with (
        contextlib.nullcontext() if accepts else pytest.raises(stf.OutOfMemoryError),
        ctx.task(stf.exec_place.host(), ctx.logical_data_empty(N).write()) as t,
    ):
        t[0][:] = 1.0
    driver.refusals = 0
    ctx.check_state()
    assert home[0] == (77 if accepts else 5)
    data.accept()
    assert data.numpy()[0] == 77
    ctx.finalize()
    assert home[0] == 77


def test_what_is_invalid_goes_first(limited):
    ctx = limited(2)
    if len(ctx.devices) < 2:
        return
    a, b, c = (ctx.logical_data(np.zeros(N)) for _ in range(3))
    add.on(0)(a)
    add.on(0)(b)
    add.on(1)(a)  # the replica of a on device 0 is invalid now
    ctx.synchronize()
    before = ctx.statistics().copies.get(("device(0)", "host"), 0)
    add.on(0)(c)
    ctx.synchronize()
    assert ctx.statistics().evictions["device(0)"] == 1
    assert ctx.statistics().copies.get(("device(0)", "host"), 0) == before  # nothing had to be saved
    assert "device(0): modified" in b.history()


def test_one_task_that_cannot_fit_says_what_is_pinned_and_by_whom(limited):
    ctx = limited(2.5)
    x, y, z = (ctx.logical_data(np.zeros(N), name=n) for n in "XYZ")
    with pytest.raises(stf.OutOfMemoryError) as caught:
        ctx.task(x.rw(), y.rw(), z.rw(), name="big").start()
    text = str(caught.value)
    assert (
        f"no room for {NBYTES} bytes of logical data 'Z' (float64, shape (1000,)) for task 'big' on device(0)" in text
    )
    assert f"{2 * NBYTES} of {int(2.5 * NBYTES)} bytes are in use" in text
    assert f"'X' {NBYTES} bytes (task 'big')" in text and f"'Y' {NBYTES} bytes (task 'big')" in text
    assert "use smaller pieces (lX.tiles), release data, or raise memory_limit" in text
    assert isinstance(caught.value, MemoryError)
    ctx.check_state()
    add(x)
    add(z)
    add(y)
    assert [d.numpy()[0] for d in (x, y, z)] == [1, 1, 1]


def test_an_open_task_pins_what_it_uses(limited):
    ctx = limited(2)
    x, y, z = (ctx.logical_data(np.zeros(N), name=n) for n in "XYZ")
    with ctx.task(x.rw(), name="holder"), ctx.task(y.read(), name="reader"):
        with pytest.raises(
            stf.OutOfMemoryError,
            match=r"pinned: .*'X' 8000 bytes \(task 'holder'\), .*'Y' 8000 bytes \(task 'reader'\)",
        ):
            add(z)
        ctx.check_state()
    add(z)
    assert z.numpy()[0] == 1 and x.numpy()[0] == 0


def test_frozen_data_are_not_evicted(limited):
    ctx = limited(2)
    x, y, z = (ctx.logical_data(np.zeros(N), name=n) for n in "XYZ")
    add(x)
    with ctx.freeze(x, "read", stf.data_place.device(0)) as frozen:
        view = frozen.get()
        add(y)
        add(z)  # y goes, x stays
        with pytest.raises(stf.OutOfMemoryError, match=r"'X' 8000 bytes \(frozen\)"):
            ctx.task(y.rw(), z.rw(), name="both").start()
        assert view[0] == 1 and "device(0)" in x.history()
    with ctx.task(y.rw(), z.rw()) as t:
        assert t.arrays()[0][0] == t.arrays()[1][0] == 1


def test_a_single_data_beyond_the_limit(limited):
    ctx = limited(0.5)
    x = ctx.logical_data(np.zeros(N), name="X")
    for submit in (lambda: add(x), lambda: ctx.fill(x, 1), lambda: ctx.prefetch(x, stf.data_place.device(0))):
        with pytest.raises(
            stf.OutOfMemoryError, match="no room for 8000 bytes of logical data 'X'.*pinned: nothing|pinned: 'X'"
        ):
            submit()
        ctx.check_state()
    with ctx.task("host", x.rw()) as t:
        t.arrays()[0][:] = 2
    tiles = x.tiles(N // 4)
    for tile in tiles:
        add(tile)
    del tile, tiles
    assert x.numpy().tolist() == [3] * N


def test_eviction_waits_for_queued_readers(limited):
    ctx = limited(1)
    gate, seen = threading.Event(), []
    x, y = ctx.logical_data(np.ones(N)), ctx.logical_data(np.full(N, 2.0))

    @ctx.task(x.read())
    def late(a):
        assert gate.wait(30)
        seen.append(a.sum())

    add(y)  # takes the place of x, once `late` has read it
    gate.set()
    assert y.numpy()[0] == 3 and seen == [N]


def test_partials_of_reductions_are_folded_for_room(limited):
    ctx = limited(2)
    total = ctx.logical_data(np.zeros(N), name="T")
    others = [ctx.logical_data(np.full(N, float(k))) for k in range(4)]

    @stf.task
    def gather(x: stf.Read, t: stf.Accumulate[stf.reducer.sum]):
        t += x

    for x in others:
        gather(x, total)  # the second needs a partial's room: the partials are folded on the host
    assert total.numpy()[0] == 6


def test_an_invalid_replica_goes_whoever_uses_the_data_elsewhere(limited):
    """A body on the host has the data since; what evicts the replica waits for neither it nor those after it."""
    ctx = limited(1)
    a, b, token = ctx.logical_data(np.zeros(N)), ctx.logical_data(np.zeros(N)), ctx.token()
    add(a)
    ctx.synchronize()
    go, done = threading.Event(), []
    others = [b]  # a body's own data would be part of it

    def submits():
        go.wait(10)
        add(others[0])
        done.append(True)

    ctx.host_launch(token.rw())(submits)
    ctx.host_launch(token.rw(), a.rw())(lambda x: done.append(x[0]))
    go.set()
    ctx.synchronize()
    assert done == [True, 1.0] and b.numpy()[0] == 1


def test_room_is_made_beside_a_body_on_the_host(limited):
    ctx = limited(1)
    a, b = ctx.logical_data(np.zeros(N)), ctx.logical_data(np.zeros(N))
    add(a)
    ctx.synchronize()
    go, found = threading.Event(), []

    def waits(x):
        found.append(go.wait(10))
        x += 1

    ctx.host_launch(a.rw())(waits)
    add(b)
    assert b.numpy()[0] == 1
    go.set()
    ctx.synchronize()
    assert found == [True] and a.numpy()[0] == 2


def test_a_body_cannot_win_the_room_of_its_own_data(limited):
    """What would wait for the body to end is as good as pinned for a with-block inside it."""
    ctx = limited(1)
    lX, lY = ctx.logical_data(np.zeros(N), name="X"), ctx.logical_data(np.zeros(N), name="Y")

    class Opens:
        __name__ = "outer"

        def __call__(self, x):
            with ctx.task(lY.rw(), name="inner"):
                pass

    ctx.task(lX.rw())(Opens())
    with pytest.raises(stf.TaskFailedError) as caught:
        ctx.synchronize()
    assert isinstance(caught.value.__cause__, stf.OutOfMemoryError)
    assert "pinned: 'X' 8000 bytes (the body of task 'outer')" in str(caught.value.__cause__)
    add(lY)
    assert lY.numpy()[0] == 1


@pytest.mark.parametrize("use_graph", [False, True], ids=["stream", "graph"])
def test_the_story_names_what_the_task_itself_needs(limited, use_graph):
    ctx = limited(1, use_graph=use_graph)
    a, b = ctx.logical_data_zeros(N, name="A"), ctx.logical_data_zeros(N, name="B")
    with pytest.raises(stf.OutOfMemoryError, match=rf"pinned: '[AB]' {NBYTES} bytes \(task 'axpy'[,)]"):
        axpy(1.0, a, b)
        b.numpy()
    a.numpy(), b.numpy()


def test_a_task_that_is_refused_holds_no_memory_in_a_graph(limited):
    ctx = limited(4, use_graph=True)
    data = [ctx.logical_data(np.full(N, float(k))) for k in range(8)]
    for _ in range(2):
        with pytest.raises(stf.OutOfMemoryError), ctx.task(*[d.read() for d in data[:5]]):
            pass
        with ctx.task(*[d.rw() for d in data[4:]]) as t:
            for x in t.arrays():
                x += 1
    assert [d.numpy()[0] for d in data[4:]] == [6.0, 7.0, 8.0, 9.0]


def test_a_graph_of_tasks_that_do_nothing_makes_room(limited):
    """Prefetches, and blocks that only look at their data: they hold memory until they are launched."""
    ctx = limited(2, use_graph=True)
    data = [ctx.logical_data(np.full(N, float(k))) for k in range(5)]
    for _ in range(2):
        for d in data:
            ctx.prefetch(d, stf.data_place.device(0))
        add(data[0])
        for d in data:
            with ctx.task(d.read()):
                pass
    with ctx.graph_scope():
        for d in data:
            ctx.prefetch(d, stf.data_place.device(0))
        add(data[1])
    assert [d.numpy()[0] for d in data] == [2.0, 2.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("limit", [0, -1])
def test_memory_limit_is_positive(limit):
    with pytest.raises(ValueError, match=f"memory_limit is a positive number of bytes, got {limit}"):
        stf.context(devices="cpu:1", memory_limit=limit)


@pytest.mark.parametrize("devices", ["cpu", "cpu:2", os.environ.get("STF_TEST_DEVICES", "cpu:1")])
def test_memory_limit_counts_what_was_dropped_until_it_is_free(devices):
    """Submission waits for that, so that what is there at a time stays within the limit."""
    total, live = np.zeros(1), []
    with stf.context(devices=devices, memory_limit=6 * NBYTES) as ctx:
        place = 0 if devices == "cpu" else 1
        s = ctx.logical_data(total)
        for k in range(60):
            x = ctx.logical_data_empty(N)
            ctx.fill(x, float(k))
            ctx.host_launch(x.read(), s.rw())(lambda a, b: b.__iadd__(a[0]) and None)
            live.append(ctx._driver.used[place])
            del x
        peak = ctx.statistics().peak_bytes["host" if devices == "cpu" else "device(0)"]
    assert total[0] == sum(range(60))
    assert max(live) <= 6 * NBYTES and peak <= 6 * NBYTES


def test_a_device_that_is_really_full():
    """Without a limit the driver itself refuses: pending frees happen, then others are evicted, then it is an error."""
    spec = stf.devices.spec.DeviceSpec("cpu", 1, False, (3 * NBYTES,))
    with stf.context(devices=spec) as ctx:
        data = [ctx.logical_data(np.full(N, float(k)), name=f"X{k}") for k in range(7)]
        for d in data * 2:
            add(d)
        assert [d.numpy()[0] for d in data] == [k + 2 for k in range(7)]
        for _ in range(20):
            tmp = ctx.logical_data_full(N, 1.0)
            add(tmp)
        del tmp
        with pytest.raises(
            stf.OutOfMemoryError, match="no room for 8000 bytes of logical data 'X3'.* for task 'four' on device"
        ) as c:
            ctx.task(*(d.rw() for d in data[:4]), name="four").start()
        assert isinstance(c.value.__cause__, MemoryError) and "bytes asked" in str(c.value.__cause__)
        ctx.check_state()
        add(data[3])
        assert data[3].numpy()[0] == 6
    assert ctx._driver.live_allocations == 0
    assert ctx.statistics().evictions["device(0)"] > 0


@pytest.mark.parametrize("way", ["context", "scope", "repeat", "graph"])
def test_what_can_never_fit_is_told_while_it_is_recorded(way):
    @stf.task
    def write(x: stf.Write):
        x[...] = 1

    with stf.context(devices="cpu:2", memory_limit=NBYTES, use_graph=way == "context") as ctx:
        big, small = ctx.logical_data_empty(10 * N), ctx.logical_data(np.zeros(4))
        blocks = {"scope": ctx.graph_scope, "repeat": lambda: ctx.repeat(2), "graph": ctx.task_graph}
        with pytest.raises(stf.OutOfMemoryError, match=f"no room for {10 * NBYTES} bytes"):
            if way == "context":
                write.on(ctx.devices[1])(big)
            else:
                with blocks[way]():
                    write.on(ctx.devices[1])(big)
        add(small)
        assert small.numpy().tolist() == [1] * 4


def test_what_living_graphs_hold_is_told_when_memory_runs_out():
    @stf.task
    def count(total: stf.Accumulate[stf.reducer.sum], x: stf.Read):
        total += x

    with stf.context(devices="cpu:2", memory_limit=5 * NBYTES) as ctx:
        x, total = ctx.logical_data(np.ones(N), name="X"), ctx.logical_data(np.zeros(N), name="total")
        data = [ctx.logical_data(np.zeros(N), name=f"Y{k}") for k in range(6)]
        g = ctx.task_graph("sums")
        with g:
            count.on(ctx.devices[1])(total, x)
            add.on(ctx.devices[1])(total)
        g.launch()
        with pytest.raises(stf.OutOfMemoryError, match="no room") as c:
            ctx.task(ctx.devices[1], *(d.rw() for d in data)).start()
        told = str(c.value).partition("pinned: ")[2]
        assert f"'X' {NBYTES} bytes (graph 'sums')" in told and f"'total' {NBYTES} bytes (graph 'sums')" in told
        assert f"{NBYTES} bytes of graph 'sums'" in told  # of a partial result
        g.close()
        for item in data:
            add.on(ctx.devices[1])(item)
        with pytest.raises(stf.OutOfMemoryError) as c:
            ctx.task(ctx.devices[1], *(d.rw() for d in data)).start()
        assert "graph" not in str(c.value)
    assert ctx._driver.live_allocations == 0


def test_replayed_functions_give_their_memory_up(limited):
    """Recordings of theirs are kept for what may come; programs that fit without them fit with them."""
    ctx = limited(3)
    data = [ctx.logical_data(np.ones(N)) for _ in range(6)]
    step = stf.replay(lambda x: add(x))
    for _ in range(4):
        for x in data:
            step(x)
    for x in data:
        add(x)
    assert [x.numpy()[0] for x in data] == [6] * 6
    assert "given up" in step.explain()
    step.close()


def test_running_out_of_memory_names_the_graph_to_close(limited):
    ctx = limited(2.5)
    data = [ctx.logical_data(np.ones(N), name=name) for name in "abc"]
    g = ctx.task_graph("holds")
    with g:
        add(data[0])
        add(data[1])
    with pytest.raises(stf.OutOfMemoryError, match=r"'a' .*\(graph 'holds'\).*close\(\) recorded graphs, or raise"):
        add(data[2])
    with (
        pytest.raises(stf.OutOfMemoryError, match=r"'b' .*\(graph 'holds', graph 'more'\)"),
        ctx.task_graph("more"),
    ):
        add(data[1])
        add(data[2])
    g.close()
    add(data[2])
    assert [float(x.numpy()[0]) for x in data] == [1, 1, 2]


def test_memory_that_a_closed_graph_went_through_stays_as_long_as_its_launch():
    """A replica in between, without content before and after: who needs its room waits for the launch."""
    n, go = 1 << 16, threading.Event()

    @stf.task
    def bump(x: stf.ReadWrite):
        x += 1

    @stf.task
    def slow(x: stf.ReadWrite):
        assert go.wait(30)
        x += 1

    @stf.task
    def put(z: stf.Write, value):
        assert go.is_set()
        z[...] = value

    X = np.zeros(n)
    with stf.context(devices="cpu:2", memory_limit=8 * n) as ctx:  # room for one
        x = ctx.logical_data(X, name="X")
        bump.on(1)(x)
        bump.on(0)(x)
        ctx.synchronize()
        with ctx.task_graph() as g:
            bump.on(0)(x)
            slow.on(1)(x)
            bump.on(1)(x)
            bump.on(0)(x)
        g.launch()
        g.close()
        z = ctx.logical_data_empty(n, np.float64, name="Z")
        opener = threading.Timer(0.2, go.set)
        opener.start()
        put.on(1)(z, 7.0)
        assert (z.numpy() == 7).all()
        opener.join()
    assert (X == 6).all()


def test_memory_that_tasks_of_other_threads_hold_is_waited_for(limited):
    """Each task fits; two of them at a time do not."""
    ctx = limited(3)

    def work():
        a, b = ctx.logical_data_zeros(N), ctx.logical_data_ones(N)
        for _ in range(20):
            with ctx.task(ctx.devices[0], a.rw(), b.read()) as t:
                t[0][...] += t[1]
                time.sleep(0.001)
        return a.numpy()[0]

    assert together(*[work] * 3) == [20.0] * 3
    a, b, c, d = (ctx.logical_data_zeros(N) for _ in range(4))
    with ctx.task(ctx.devices[0], a.rw(), b.rw()), pytest.raises(stf.OutOfMemoryError, match="no room for 8000 bytes"):
        with ctx.task(ctx.devices[0], c.rw(), d.rw()):  # this thread's own are not waited for
            pass


@pytest.mark.parametrize("depth", [1, 2])
def test_scopes_that_need_more_than_there_is_are_launched_in_parts(limited, depth):
    ctx = limited(2)
    data = [ctx.logical_data(np.zeros(N)) for _ in range(5)]
    with ctx.graph_scope():
        add(data[0])
        with ctx.graph_scope() if depth == 2 else contextlib.nullcontext():
            for item in data:
                add(item)
        add(data[4])
    assert [item.numpy()[0] for item in data] == [2, 1, 1, 1, 2]
    ctx.check_state()


def test_data_that_could_not_be_filled_are_filled_later(limited):
    ctx = limited(1)
    lX, lY = ctx.logical_data_ones(N), ctx.logical_data_ones(N)
    with ctx.task(lX.rw()):
        with pytest.raises(stf.OutOfMemoryError):
            add(lY)
    add(lY)
    assert lY.numpy().tolist() == [2.0] * N and lX.numpy().tolist() == [1.0] * N


def test_a_fill_that_finds_no_memory_is_counted_for_nothing():
    with stf.context(devices="cpu:2", memory_limit=1000) as ctx:
        large, small = ctx.logical_data_empty(1000), ctx.logical_data_empty(10)
        with pytest.raises(stf.OutOfMemoryError):
            ctx.fill(large, 1.0)
        assert ctx.statistics().total_tasks == 0
        ctx.fill(small, 1.0)
        assert ctx.statistics().tasks == {"task": 0, "fill": 1}
