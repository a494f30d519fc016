"""Contexts: how they open, end, wait and share."""

from __future__ import annotations

import gc
import inspect
import threading
import time

import numpy as np
import pytest
from helpers import is_cuda, queued, together, told

import stf
from stf._engine import lifetime
from stf.devices.spec import parse_devices
from stf.observe import ResourceStatistics


@stf.task
def add(x: stf.ReadWrite, amount=1):
    x += amount


def submits(ctx, x, given, launches):
    """Submit tasks until the context ends."""
    try:
        while True:
            add(x)
            given.append(1)
            launches(x)
    except stf.ContextClosedError:
        pass


@pytest.mark.parametrize("how", ["submit", "numpy", "nothing"])
def test_what_was_given_while_a_context_ends_is_done(ctx_factory, how):
    """Another thread may be launching what was gathered: finalize waits for that."""
    end = time.monotonic() + 5
    for k in range(30):
        if k > 3 and time.monotonic() > end:
            break  # to open GPUs that others use, too, takes its time
        ctx, X, given = ctx_factory(), np.zeros(4), []
        x = ctx.logical_data(X)
        launches = {"submit": lambda x: ctx.submit(), "numpy": lambda x: x.numpy(), "nothing": lambda x: None}[how]
        thread = threading.Thread(target=submits, args=(ctx, x, given, launches))
        thread.start()
        while len(given) < 3:
            time.sleep(0)
        ctx.finalize()
        thread.join(30)
        assert not thread.is_alive() and X.tolist() == [len(given)] * 4


def test_what_begins_when_data_are_released_hears_that_the_context_ends(ctx_factory, monkeypatch):
    """Between the release of the data and the end, another thread hears of the end, not of data that are released."""
    ctx, X, told_of = ctx_factory(), np.zeros(4), []
    x = ctx.logical_data(X)
    add(x)

    def tries():
        for use in (lambda: add(x), x.numpy):
            try:
                use()
            except Exception as error:
                told_of.append(error)

    def forget(context):
        thread = threading.Thread(target=tries)
        thread.start()
        thread.join(30)
        forgets(context)

    forgets = lifetime.forget
    monkeypatch.setattr(lifetime, "forget", forget)  # which finalize calls when the data are released
    ctx.finalize()
    assert X.tolist() == [1] * 4
    assert [type(error) for error in told_of] == [stf.ContextClosedError] * 2, told_of
    with pytest.raises(stf.ContextClosedError, match="was finalized"):
        add(x)


@stf.task
def hold(x: stf.ReadWrite, gate, started=None):
    if started is not None:
        started.set()
    assert gate.wait(30)
    x += 1


def test_with_block_writes_back(ctx_factory):
    X = np.zeros(4)
    with ctx_factory() as ctx:
        lX = ctx.logical_data(X)
        add(lX)
        add(lX, 2)
    assert X.tolist() == [3] * 4
    assert ctx.statistics().tasks["task"] == 2
    assert ctx.statistics().write_backs["host"] == (0 if ctx_factory.shares_host else 1)


def test_finalize_twice_is_once(ctx_factory):
    X = np.zeros(4)
    ctx = ctx_factory()
    add(ctx.logical_data(X))
    ctx.finalize()
    X[:] = 9
    ctx.finalize()
    with ctx:
        pass
    assert X.tolist() == [9] * 4


def test_submit_starts_everything(ctx_factory):
    one, two = ctx_factory(), ctx_factory()
    X, Y = np.zeros(2), np.zeros(2)
    started = threading.Barrier(2, timeout=30)

    @stf.task
    def meet(x: stf.ReadWrite):
        started.wait()
        x += 1

    meet.on(queued(one))(one.logical_data(X))
    meet.on(queued(two))(two.logical_data(Y))
    one.submit()
    two.submit()
    one.finalize()
    two.finalize()
    assert X.tolist() == Y.tolist() == [1, 1]


def test_fence_completes_after_all_work(ctx):
    gate = threading.Event()
    X = np.zeros(2)
    lX = ctx.logical_data(X)
    hold.on(queued(ctx))(lX, gate)
    fence = ctx.fence()
    assert not fence.done
    with pytest.raises(TimeoutError, match=r"tasks before the fence were still running after 0\.01 s"):
        fence.synchronize(timeout=0.01)
    gate.set()
    fence.synchronize()
    assert fence.done
    assert ctx.statistics().tasks["fence"] == 1
    assert lX.numpy().tolist() == [1, 1]


@pytest.mark.at_once("no body runs yet")
def test_fence_does_not_wait_for_later_work(ctx):
    gate, started = threading.Event(), threading.Event()
    X, Y = np.zeros(2), np.zeros(2)
    add(ctx.logical_data(X))
    fence = ctx.fence()
    hold.on(queued(ctx))(ctx.logical_data(Y), gate, started)
    assert started.wait(30)
    fence.synchronize()
    assert fence.done
    gate.set()


@pytest.mark.at_once("no body runs yet")
def test_wait_is_for_that_data_only(ctx):
    gate, started = threading.Event(), threading.Event()
    slow, quick = ctx.logical_data(np.zeros(2)), ctx.logical_data(np.ones(3))
    hold.on(queued(ctx))(slow, gate, started)
    assert started.wait(30)
    add(quick)
    assert ctx.wait(quick).tolist() == [2, 2, 2]
    gate.set()
    assert ctx.wait(slow).tolist() == [1, 1]


def test_wait_returns_a_copy(ctx):
    X = np.zeros(3)
    lX = ctx.logical_data(X)
    copy = ctx.wait(lX)
    copy[:] = 7
    assert copy.flags.owndata and copy.flags.writeable
    assert ctx.wait(lX).tolist() == [0, 0, 0]
    assert lX.numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "value", [True, 3, 2.5, 1 + 2j, np.float32(0.5), np.int8(-3), np.float16(1.5), np.bool_(True), np.uint64(2**63)]
)
def test_wait_for_a_scalar_is_a_python_scalar(ctx, value):
    lS = ctx.logical_data(value)
    assert lS.shape == () and lS.dtype == np.asarray(value).dtype
    got = ctx.wait(lS)
    assert type(got) in (bool, int, float, complex)
    assert got == value


def test_scalar_conversions(ctx):
    lS = ctx.logical_data_zeros((), np.float32)
    add(lS, 2.5)
    assert float(lS) == 2.5 and int(lS) == 2 and complex(lS) == 2.5 + 0j
    assert lS.numpy().dtype == np.float32 and lS.numpy() == 2.5


def test_wait_for_one_element_data_keeps_its_shape(ctx):
    assert ctx.wait(ctx.logical_data(np.ones(1))).shape == (1,)
    assert float(ctx.logical_data(np.ones(1))[...] if False else ctx.wait(ctx.logical_data(np.ones(1)))[0]) == 1.0


def test_wait_for_a_token_is_none_and_waits(ctx):
    token = ctx.token()
    order = []
    gate = threading.Event()

    @ctx.task(queued(ctx), token.rw())
    def body():
        assert gate.wait(30)
        order.append("body")

    threading.Timer(0.01, gate.set).start()
    assert ctx.wait(token) is None
    assert token.numpy() is None
    assert order == ["body"]


def test_wait_at_a_device_place(ctx):
    lX = ctx.logical_data(np.arange(3.0))
    assert ctx.wait(lX, data_place=stf.data_place.device(0)).tolist() == [0, 1, 2]


def test_synchronize_timeout_loses_nothing(ctx):
    gate = threading.Event()
    lX = ctx.logical_data(np.zeros(2))
    hold.on(queued(ctx))(lX, gate)
    before = time.monotonic()
    with pytest.raises(TimeoutError, match=r"tasks were still running after 0\.02 s"):
        ctx.synchronize(timeout=0.02)
    assert time.monotonic() - before < 20
    gate.set()
    ctx.synchronize()
    ctx.synchronize(timeout=10)
    assert lX.numpy().tolist() == [1, 1]


def test_check_errors_raises_once_what_failed(ctx):
    @stf.task
    def broken(x: stf.ReadWrite):
        raise RuntimeError("no luck")

    lX = ctx.logical_data(np.zeros(2))
    ctx.check_errors()
    with told(ctx, lambda: broken(lX), "task 'broken'.*no luck"):
        ctx.synchronize()
    ctx.check_errors()


@pytest.mark.at_once("no body runs yet")
def test_max_pending_bounds_what_is_in_flight(ctx_factory):
    ctx = ctx_factory(max_pending=4)
    lX = ctx.logical_data(np.zeros(1))
    submitted, seen = [0], []

    @stf.task
    def count(x: stf.ReadWrite):
        seen.append(submitted[0] - x[0])
        x += 1

    for _ in range(200):
        submitted[0] += 1
        count(lX)
        assert ctx.statistics().pending <= 4
    ctx.synchronize()
    assert len(seen) == 200
    assert max(seen) <= 4 + 1  # those in flight, and the one that waits for room


def test_devices_is_a_grid(ctx_factory):
    ctx = ctx_factory()
    n = ctx_factory.device_count
    assert len(ctx.devices) == ctx.devices.size == n
    assert list(ctx.devices) == [stf.exec_place.device(i) for i in range(n)]
    assert ctx.devices[0] == stf.exec_place.device(0) and ctx.devices[-1] == stf.exec_place.device(n - 1)
    assert ctx.devices.reshape(n, 1).dims == (n, 1)


def test_several_contexts_at_once(ctx_factory):
    arrays = [np.zeros(3) for _ in range(4)]
    contexts = [ctx_factory() for _ in arrays]
    data = [c.logical_data(a) for c, a in zip(contexts, arrays, strict=True)]
    for i in range(20):
        add(data[i % 4], i)
    for c in reversed(contexts):
        c.finalize()
    assert [a[0] for a in arrays] == [sum(range(k, 20, 4)) for k in range(4)]


def test_contexts_nest(ctx_factory):
    X, Y = np.zeros(2), np.zeros(2)
    with ctx_factory() as outer:
        lX = outer.logical_data(X)
        with outer.task(lX.rw()) as t, ctx_factory() as inner:
            add(inner.logical_data(Y), 5)
            inner.finalize()
            t.arrays()[0][:] = float(Y[0])
    assert X.tolist() == [5, 5]


def test_one_context_from_several_threads(ctx):
    lX = ctx.logical_data(np.zeros(4))
    mine = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
    trouble = []

    def work(k):
        try:
            for i in range(50):
                add(lX)
                add.on(ctx.devices[i % len(ctx.devices)])(mine[k], k)
                with ctx.task(lX.rw()) as t:
                    t.arrays()[0][:] += 1
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert trouble == []
    assert lX.numpy().tolist() == [400] * 4
    assert [m.numpy()[0] for m in mine] == [0, 50, 100, 150]
    assert ctx.statistics().tasks["task"] == 600


def test_resources_are_shared_and_outlive_contexts(ctx_factory):
    resources = stf.Resources()
    X = np.zeros(3)
    for _ in range(3):
        with ctx_factory(resources=resources) as ctx:
            add(ctx.logical_data(X))
    one, two = ctx_factory(resources=resources), ctx_factory(resources=resources)
    assert one._driver is two._driver
    lX, lY = one.logical_data(X), two.logical_data(np.zeros(3))
    add(lX)
    add(lY)
    one.finalize()
    assert lY.numpy().tolist() == [1] * 3
    two.finalize()
    assert X.tolist() == [4] * 3
    assert one._driver.live_allocations == 0
    resources.close()
    resources.close()


@pytest.mark.not_captured("captures have streams of their own, which are spare afterwards")
def test_statistics_of_resources(ctx_factory):
    resources = stf.Resources()
    assert resources.statistics() == ResourceStatistics({}) and str(resources.statistics()) == "no drivers yet"
    ctx = ctx_factory(resources=resources)
    lX = ctx.logical_data_empty(100)
    ctx.fill(lX, 0)
    add.on(ctx.devices[-1])(lX)
    ctx.synchronize()
    name = ctx_factory.options["devices"]
    statistics = resources.statistics()
    (driver,) = statistics.drivers.values()
    where = lX.context.devices[-1].index
    assert list(statistics.drivers) == [name]
    assert driver.streams >= 1 and driver.spare_streams == 0 and (driver.workers >= 1 or is_cuda(ctx))
    assert driver.allocations >= 1 and driver.used_bytes[f"device({where})" if name != "cpu" else "host"] == 800
    assert list(driver.used_bytes) == ["host", *(f"device({i})" for i in range(len(ctx.devices)))]
    assert statistics.total_streams == driver.streams and statistics.total_used_bytes >= 800
    assert str(statistics).startswith(f"{name}: {driver.streams} streams in use and 0 spare, {driver.workers} workers")
    assert "800 B on " in str(statistics)
    ctx.finalize()
    after = resources.statistics().drivers[name]
    assert (after.streams, after.allocations) == (0, 0) and after.spare_streams >= driver.streams
    assert set(after.used_bytes.values()) == {0}
    resources.close()
    assert resources.statistics().drivers == {}


def test_dropped_context_warns_and_finalizes(ctx_factory):
    X = np.zeros(3)
    ctx = stf.context(**ctx_factory.options, name="lost")
    add(ctx.logical_data(X))
    with pytest.warns(ResourceWarning, match=r"stf.Context 'lost' on c(pu|uda).* was dropped without finalize\(\)"):
        del ctx
    assert X.tolist() == [1] * 3


def test_dropped_context_is_finalized_even_if_warnings_are_errors(ctx_factory, monkeypatch):
    X = np.zeros(3)
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: unraisable.append(str(what.exc_value)))
    ctx = stf.context(**ctx_factory.options)
    add(ctx.logical_data(X))
    del ctx
    assert X.tolist() == [1] * 3
    assert len(unraisable) == 1 and "dropped without finalize" in unraisable[0]


def test_context_in_a_cycle_is_finalized_later(ctx_factory):
    """The collector waits for no body that is under way."""
    X, go_on, seen = np.zeros(3), threading.Event(), []
    ctx = stf.context(**ctx_factory.options)

    @ctx.host_launch(ctx.logical_data(X).rw())
    def late(x):
        seen.append(go_on.wait(20))
        x += 1

    cycle = [ctx]
    cycle.append(cycle)
    gc.disable()  # a collection that begins by itself would warn too early
    try:
        del ctx, cycle, late
        with pytest.warns(ResourceWarning, match="dropped without finalize"):
            gc.collect()
    finally:
        gc.enable()
    go_on.set()
    ctx_factory()  # the next entry finalizes what the collector left
    assert X.tolist() == [1] * 3 and seen == [True]


def test_data_outlives_its_context_politely(ctx_factory):
    with ctx_factory() as ctx:
        lX = ctx.logical_data(np.zeros(3), name="X")
    with pytest.raises(stf.ContextClosedError, match="was finalized: registered arrays hold their results"):
        lX.numpy()
    del lX
    gc.collect()


def test_many_contexts_do_not_pile_up_threads(ctx_factory):
    before = threading.active_count()
    for _ in range(30):
        with ctx_factory() as ctx:
            add(ctx.logical_data(np.zeros(2)))
    assert threading.active_count() == before


def test_repr_names_the_context(ctx_factory):
    ctx = ctx_factory(name="solver")
    assert repr(ctx) == f"<stf.Context 'solver' on {ctx_factory.options['devices']}>"


@pytest.mark.at_once("it is one of the names here")
def test_aliases_of_the_library_in_c(ctx_factory):
    ctx = stf.stream_ctx(**ctx_factory.options)
    with ctx:
        assert isinstance(ctx, stf.Context)
        ctx.task_fence().synchronize()
        assert ctx.logical_token(symbol="t").name == "t"


def test_an_interrupted_finalize_can_be_repeated(ctx_factory, monkeypatch):
    ctx = ctx_factory()
    X = np.zeros(3)
    lX = ctx.logical_data(X, name="X")
    with ctx.task(ctx.devices[-1], lX.rw()) as t:
        t[0][:] = 7

    def interrupted(engine):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("stf.contexts.ending.ends.retire_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ctx.finalize()
    ctx.finalize()
    assert X.tolist() == [7, 7, 7]


def test_resources_make_one_driver_for_threads_that_ask_at_once():
    resources = stf.Resources()
    spec = parse_devices("cpu:2")
    for _ in range(50):
        barrier, found = threading.Barrier(3), []

        def ask(barrier=barrier, found=found):
            barrier.wait(30)
            found.append(resources.driver(spec))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1
        before = found[0]
        resources.close()
        assert resources.driver(spec) is not before
        resources.close()


def test_wait_says_what_it_takes(ctx):
    assert str(inspect.signature(ctx.wait)).startswith("(data")
    assert list(inspect.signature(ctx.wait).parameters) == ["data", "data_place", "arrays"]


@pytest.mark.at_once("what is gathered after a task that never ends is launched by nobody")
def test_an_exception_between_start_and_end_costs_that_task_alone(ctx_factory):
    X, Y = np.zeros(3), np.zeros(3)
    with pytest.raises(ValueError, match="meant"), ctx_factory() as ctx:
        lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
        with ctx.task("host", lX.rw()) as t:
            t.arrays()[0][:] = 1
        left = ctx.task("host", lY.rw())
        left.start()
        raise ValueError("meant")
    assert X.tolist() == [1] * 3 and Y.tolist() == [0] * 3
    with pytest.raises(stf.ContextClosedError):
        ctx.token()
    with pytest.raises(stf.TaskStateError, match="end on task"):
        left.end()


def test_two_threads_finalize(ctx_factory):
    """One does it, and the other one waits."""
    X = np.zeros(4)
    ctx = ctx_factory()
    lX = ctx.logical_data(X)

    def slow(x):
        time.sleep(0.05)
        x += 1

    ctx.host_launch(lX.rw())(slow)
    seen = together(*[lambda: (ctx.finalize(), X.tolist())[1]] * 3)
    assert seen == [[1.0] * 4] * 3


def test_workers_of_a_context():
    """More bodies that wait than there are cores run at a time."""
    together = threading.Barrier(9, timeout=30)

    @stf.task
    def meet(y: stf.ReadWrite):
        together.wait()
        y += 1

    with stf.context(devices="cpu", workers=9) as ctx:
        data = [ctx.logical_data_zeros(2) for _ in range(9)]
        for one in data:
            meet(one)
        assert all(one.numpy()[0] == 1 for one in data)


@pytest.mark.parametrize("workers, error", [(0, ValueError), (-1, ValueError), (10**6, ValueError), ("4", TypeError)])
def test_workers_that_make_no_sense(workers, error):
    with pytest.raises(error, match="workers is a .* number of threads|workers is a number of threads from 1 to"):
        stf.context(devices="cpu", workers=workers)


def test_contexts_with_other_numbers_of_workers_share_no_driver():
    shared = stf.Resources()
    with (
        stf.context(devices="cpu", workers=3, resources=shared) as one,
        stf.context(devices="cpu", resources=shared) as other,
    ):
        assert one._driver is not other._driver and one._driver.max_workers == 3
    assert "cpu with 3 workers" in str(shared.statistics())
    shared.close()
