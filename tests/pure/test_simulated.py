"""Simulated devices: the clock, what is served one at a time, memory, and what a program may not ask for."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import stf
from stf._drivers.simulated import SimulatedDriver
from stf._port.links import BEST_PEER, HOST, MEMORY, Link
from stf.devices.hardware import KINDS, Model
from stf.devices.spec import parse_devices, simulated
from stf.observe.durations import Duration

N = 1000
STEP = 1e-3
LATENCY = 1e-4


class Fixed(Model):
    """Every body takes a millisecond, every copy a tenth of that; submission takes no time."""

    def __init__(self) -> None:
        super().__init__(submit_s=0.0)

    def duration_s(self, name: str, nbytes: int, kind: str) -> float:
        return STEP

    def timed_link(self, kind: str, other: str) -> Link:
        return Link(LATENCY, float("inf"))


def opened(devices: str = "8xH200", **options: Any) -> stf.Context:
    """Return a context with fixed times."""
    spec = simulated(devices)
    driver = SimulatedDriver([spec.kind] * spec.count, Fixed(), 2, options.pop("capacity", None))
    return stf.Context(spec, driver=driver, **options)


def step(ctx: stf.Context, place: Any, *accesses: Any, name: str = "step") -> None:
    """Submit a task whose body fails if it is run."""

    def body(*arrays: Any) -> None:
        raise AssertionError("a simulated body was run")

    ctx.task(place, *accesses, name=name)(body)


def test_bodies_of_a_device_run_one_at_a_time() -> None:
    with opened("2xH200") as ctx:
        data = [ctx.logical_data_empty(N) for _ in range(6)]
        for i, x in enumerate(data):
            step(ctx, i % 2, x.write())
        ctx.synchronize()
        assert ctx._driver.now == pytest.approx(3 * STEP)


def test_a_chain_over_devices_takes_bodies_and_copies() -> None:
    with opened("4xH200") as ctx:
        x = ctx.logical_data_empty(N)
        for i in range(4):
            step(ctx, i, x.rw() if i else x.write())
        ctx.synchronize()
        assert ctx._driver.now == pytest.approx(4 * STEP + 3 * LATENCY)


def test_what_is_ready_first_runs_first() -> None:
    """The task that was submitted first waits for a copy; the second one does not wait for it."""
    with opened("2xH200") as ctx:
        x, y = ctx.logical_data_empty(N), ctx.logical_data_empty(N)
        step(ctx, 0, x.write(), name="far")
        step(ctx, 1, x.rw(), name="waits")
        step(ctx, 1, y.write(), name="goes on")
        ctx.synchronize()
        starts = {span[0]: span[4] for span in ctx._driver.spans()}
    assert starts["goes on"] == 0.0 and starts["waits"] == pytest.approx(STEP + LATENCY)


def test_copies_into_a_device_follow_each_other_and_those_into_others_do_not() -> None:
    with opened("3xH200") as ctx:
        data = [ctx.logical_data(np.zeros(N)) for _ in range(4)]
        step(ctx, 0, *[x.read() for x in data])
        step(ctx, 1, *[x.read() for x in data])
        ctx.synchronize()
        assert ctx._driver.now == pytest.approx(5 * LATENCY + STEP)  # device 1 reads from its peer, one copy later


def test_the_host_has_as_many_workers_as_it_is_given() -> None:
    with opened("1xH200") as ctx:
        for _ in range(6):
            ctx.host_launch(ctx.logical_data_empty(N).write())(lambda x: x + 1)
        ctx.synchronize()
        assert ctx._driver.now == pytest.approx(3 * STEP)


def test_the_host_waits_on_the_clock_and_a_timeout_ends_a_wait() -> None:
    with opened("1xH200") as ctx:
        x = ctx.logical_data_empty(N)
        for i in range(4):
            step(ctx, 0, x.rw() if i else x.write())
        with pytest.raises(TimeoutError):
            ctx.synchronize(timeout=2.5 * STEP)
        assert ctx._driver.now < 2.5 * STEP + 1e-9  # less the real time that has gone
        ctx.synchronize()
        assert ctx._driver.now == pytest.approx(4 * STEP)


def test_handles_are_done_when_the_clock_says_so() -> None:
    with opened("1xH200") as ctx:
        x = ctx.logical_data_empty(N)
        task = ctx.task(0, x.write(), name="one")
        task(lambda x: x + 1)
        ctx.submit()
        assert task.result() is None and task.done() and ctx._driver.now == pytest.approx(STEP)


def test_a_with_block_takes_the_time_of_its_thread() -> None:
    with opened("2xH200") as ctx:
        x = ctx.logical_data_empty(N)
        step(ctx, 0, x.write())
        with ctx.task(1, x.rw(), name="block") as t:
            a = t[0]
            a[2:5] = 1
            a += 2 * a[::-1]
            assert a.shape == (N,) and (a[:, None] + a).shape == (N, N)
        assert ctx._driver.now == pytest.approx(2 * STEP + LATENCY)


def lent_values(ctx: stf.Context, x: stf.LogicalData) -> Any:
    with ctx.freeze(x) as lent:
        return np.asarray(lent.get())


async def awaited_values(ctx: stf.Context, x: stf.LogicalData) -> Any:
    return await ctx.wait_async(x)


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx, x: x.numpy(),
        lambda ctx, x: ctx.wait(x),
        lambda ctx, x: float(ctx.logical_data_zeros((), name="x")),
        lambda ctx, x: bool(ctx.logical_data_zeros((), name="x").numpy()),
        lambda ctx, x: lent_values(ctx, x),
        lambda ctx, x: asyncio.run(awaited_values(ctx, x)),
    ],
    ids=["numpy", "wait", "float", "bool", "freeze", "wait_async"],
)
def test_who_asks_for_a_value_is_told_the_line(ask: Any) -> None:
    ctx = opened("2xH200")
    x = ctx.logical_data(np.ones(N), name="x")
    step(ctx, 1, x.rw())
    with pytest.raises(stf.PlanError, match=r"test_simulated\.py:\d+ asks for values of logical data 'x'"):
        ask(ctx, x)
    ctx.finalize()


def test_a_with_block_that_looks_at_values_is_told_the_line() -> None:
    with opened("2xH200") as ctx:
        x = ctx.logical_data(np.ones(N), name="x")
        with pytest.raises(stf.PlanError, match="test_simulated.py"), ctx.task(0, x.read()) as t:
            if t[0][0] > 0:
                raise AssertionError
        with pytest.raises(stf.PlanError), ctx.task(0, x.read()) as t:
            np.linalg.norm(t[0])
        with pytest.raises(stf.PlanError), ctx.task(0, x.read()) as t:
            np.add(t[0], 1, out=np.zeros(N))


def test_values_that_were_given_are_read() -> None:
    ctx = opened("2xH200")
    ctx._driver.values.update(x=2.0, y=[1, 2, 3])
    x, y = ctx.logical_data_zeros((), name="x"), ctx.logical_data_zeros(3, int, name="y")
    step(ctx, 0, x.rw(), y.rw())
    assert float(x) == 2.0 and y.numpy().tolist() == [1, 2, 3]
    ctx.finalize()


def test_arrays_of_the_users_stay_as_they_are() -> None:
    X = np.arange(N)
    with opened("2xH200") as ctx:
        step(ctx, 1, ctx.logical_data(X).rw())
        assert sum(ctx.statistics().copies.values()) == 1
    assert X.tolist() == list(range(N))


def test_memory_is_counted_and_evicted() -> None:
    nbytes = N * 8
    with opened("1xH200", capacity=[3 * nbytes]) as ctx:
        data = [ctx.logical_data(np.zeros(N)) for _ in range(5)]
        for _ in range(2):
            for x in data:
                step(ctx, 0, x.rw())
        ctx.synchronize()
        assert ctx._driver.peak[1] <= 3 * nbytes and ctx.statistics().evictions["device(0)"] >= 5
        big = ctx.logical_data_empty(4 * N, name="big")
        with pytest.raises(stf.OutOfMemoryError):
            step(ctx, 0, big.write())


def test_a_memory_limit_is_kept() -> None:
    with stf.context(devices="sim:2xH200", memory_limit=4 * N * 8) as ctx:
        data = [ctx.logical_data(np.zeros(N)) for _ in range(16)]
        for turn in range(3):
            for i, x in enumerate(data):
                step(ctx, (i + turn) % 2, x.rw())
        ctx.synchronize()
        assert max(ctx.statistics().peak_bytes[f"device({i})"] for i in range(2)) <= 4 * N * 8


@pytest.mark.parametrize("form", ["graph context", "task_graph", "replay", "graph_scope", "repeat"])
def test_what_is_recorded_runs_in_each_launch(form: str) -> None:
    with opened("2xH200", use_graph=form == "graph context") as ctx:
        x = ctx.logical_data_empty(N)

        def steps() -> None:
            step(ctx, 0, x.rw())
            step(ctx, 1, x.rw())

        step(ctx, 0, x.write())
        if form == "graph context":
            steps()
            steps()
        elif form == "task_graph":
            graph = ctx.task_graph()
            with graph:
                steps()
            graph.launch()
            graph.launch()
        elif form == "replay":
            again = stf.replay(steps)
            again()
            again()
        elif form == "repeat":
            with ctx.repeat(2):
                steps()
        else:
            for _ in range(2):
                with ctx.graph_scope():
                    steps()
        ctx.synchronize()
        names = [span[0] for span in ctx._driver.spans()]
        assert names.count("step") == 5 and ctx._driver.now >= 5 * STEP


def test_kernels_are_planned_and_not_compiled() -> None:
    with opened("2xH200") as ctx:
        x, s = ctx.logical_data(np.ones(N), name="x"), ctx.logical_data_zeros((), name="s")

        @ctx.parallel_for(ctx.devices.with_partition(stf.blocked_partition()), x.shape, x.rw())
        def scale(i, x):
            x[i] = exec(str(x[i]))  # Numba cannot compile that

        ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.sum))(lambda i, x: x[i])

        @ctx.launch(stf.par(4), x.rw())
        def threads(th, x):
            x[th.rank()] = 1

        ctx.synchronize()
        names = [span[0] for span in ctx._driver.spans()]
    assert names.count("scale") == 2 and "threads" in names


def test_accumulation_and_host_functions_and_callbacks() -> None:
    with opened("2xH200") as ctx:
        total, x = ctx.logical_data_zeros((), name="total"), ctx.logical_data(np.ones(N))
        for i in range(4):
            step(ctx, i % 2, x.read(), total.accumulate(stf.reducer.sum))
        step(ctx, "host", total.read())
        ctx.fence()
        ctx.synchronize()
        assert ctx._driver.now > 2 * STEP


def test_async_with_ends() -> None:
    async def main() -> float:
        async with opened("2xH200") as ctx:
            step(ctx, 0, ctx.logical_data_empty(N).write())
            driver = ctx._driver
        return float(driver.now)

    assert asyncio.run(main()) == pytest.approx(STEP)


def test_the_trace_is_on_the_clock() -> None:
    with opened("2xH200", observe=True) as ctx:
        x = ctx.logical_data_empty(N, name="x")
        step(ctx, 0, x.write(), name="first")
        step(ctx, 1, x.rw(), name="second")
        step(ctx, 1, ctx.logical_data_empty(N).write(), name="third")
        ctx.host_launch(x.read(), name="fourth")(lambda x: None)
        ctx.synchronize()
        events = {e["name"]: e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"}
        why = ctx.why("second")
    assert {name: events[name]["dur"] for name in ("first", "second", "third", "fourth")} == pytest.approx(
        dict.fromkeys(("first", "second", "third", "fourth"), STEP * 1e6), abs=0.01
    )
    assert events["second"]["ts"] == pytest.approx((STEP + LATENCY) * 1e6, abs=0.01)
    assert events["fourth"]["pid"] == 0 and "a copy of its data" in why


def test_tasks_that_never_end_do_not_block_for_ever() -> None:
    """An event of another thread's is waited for, on the real clock."""
    import threading

    with opened("1xH200") as ctx:
        event = ctx.event()
        x = ctx.logical_data_empty(N)
        ctx.task(0, x.write(), after=event)(lambda x: x + 1)
        threading.Timer(0.05, event.set).start()
        ctx.synchronize()
        assert ctx._driver.now == pytest.approx(STEP)


# -- devices and models ------------------------------------------------------------------------------------------------


def test_devices_as_text() -> None:
    spec = parse_devices("sim:8xH200")
    assert (spec.driver, spec.count, spec.kind, str(spec)) == ("sim", 8, "H200", "sim:8xH200")
    assert parse_devices("sim:3").kind == "H100"
    assert spec.capacity == (KINDS["H200"].memory_bytes,) * 8


@pytest.mark.parametrize("text", ["sim:", "sim:0", "sim:8xFoo", "sim:x", "sim:-1", "sim:99999"])
def test_devices_that_nobody_knows_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="simulated devices"):
        stf.context(devices=text)


def test_a_model_takes_the_nearest_size_and_counts_guesses() -> None:
    model = Model({("f", 10, "H200"): Duration(4, 1e-3, 9e-4, 2e-3)})
    assert model.duration_s("f", 1500, "H200") == 1e-3 and not model.scaled
    assert model.duration_s("f", 4096, "H200") == 4e-3 and model.scaled == {("f", 4096, "H200")}
    guess = 20e-6 + 1e6 / (0.7 * KINDS["H200"].bytes_per_s)
    assert model.duration_s("g", 1_000_000, "H200") == pytest.approx(guess)
    assert model.guessed == {("g", 1_000_000, "H200")}


def test_one_kind_stands_for_another() -> None:
    model = Model({("f", 10, "A100"): Duration(4, 1e-3, 1e-3, 1e-3)}, like="A100")
    assert model.duration_s("f", 1024, "H200") == pytest.approx(1e-3 * 19.5 / 67)


def test_links_by_class_and_as_measured() -> None:
    model = Model(links={("host", "H200"): Link(1.0, 2.0)})
    assert model.link("host", "H200") == HOST and model.link("H200", "H200") == BEST_PEER
    assert model.link("host", "cpu") == model.link("cpu", "cpu") == MEMORY
    assert model.timed_link("host", "H200") == Link(1.0, 2.0) and model.timed_link("H200", "host") == HOST
