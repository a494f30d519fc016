"""Recordings that workers keep: sent once, and launched by one command for each worker."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import stf

pytest.importorskip("cloudpickle")
FACTOR = 2.0


@stf.task
def axpy(a: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += a * x


@stf.task
def scale(y: stf.ReadWrite) -> None:
    y *= FACTOR


@stf.task
def fails_at(limit: float, y: stf.ReadWrite) -> None:
    y += 1
    if y[0] >= limit:
        raise ZeroDivisionError(f"reached {limit}")


@stf.replay
def ring(x: Any, y: Any, z: Any) -> None:
    axpy.on(0)(1.0, x, y)
    axpy.on(1)(2.0, y, z)
    scale.on(0)(x)
    axpy.on(1)(1.0, x, z)


@pytest.fixture
def ctx() -> Any:
    with stf.context(devices="loopback:2") as context:
        yield context
        context.check_state()


class Commands:
    """Counts the commands for workers by their verb."""

    def __init__(self, ctx: stf.Context, monkeypatch: Any) -> None:
        self.counts: dict[str, int] = {}
        driver = ctx._driver
        inner = driver.command

        def command(link: Any, *message: Any) -> None:
            self.counts[message[0]] = self.counts.get(message[0], 0) + 1
            inner(link, *message)

        monkeypatch.setattr(driver, "command", command)

    def during(self, action: Any) -> dict[str, int]:
        """Return the commands of an action."""
        self.counts.clear()
        action()
        return dict(self.counts)


def expected(x: Any, y: Any, z: Any) -> Any:
    y = y + x
    z = z + 2 * y
    x = x * FACTOR
    return x, y, z + x


def wait_for(condition: Any, timeout_s: float = 10.0) -> None:
    """Wait until something outside of this process has happened."""
    end = time.monotonic() + timeout_s
    done = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it took longer"
        done.wait(0.005)


def pid_of(ctx: stf.Context, place: int) -> int:
    pid = ctx.logical_data_zeros((), np.int64)
    ctx.task(stf.exec_place.device(place), pid.write())(lambda pid: os.getpid())
    return int(pid.numpy())


def test_a_launch_is_one_command_a_worker(ctx: stf.Context, monkeypatch: Any) -> None:
    x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)

    @stf.replay
    def many(x: Any, y: Any) -> None:
        for i in range(100):
            axpy.on(i % 2)(1.0, x, y)

    commands = Commands(ctx, monkeypatch)
    counts = [commands.during(lambda: many(x, y)) for _ in range(6)]
    assert counts[-1]["play"] == 2 and "call" not in counts[-1]
    assert sum(counts[-1].values()) < 20, counts[-1]
    assert y.numpy().tolist() == [600.0] * 3


def test_launches_compute_what_tasks_do(ctx: stf.Context) -> None:
    X = [np.arange(4.0), np.ones(4), np.zeros(4)]
    data = [ctx.logical_data(each.copy()) for each in X]
    for _ in range(7):
        ring(*data)
        X = list(expected(*X))
    for each, known in zip(data, X, strict=True):
        assert np.array_equal(each.numpy(), known)


def test_other_data_that_come_again(ctx: stf.Context, monkeypatch: Any) -> None:
    X = [np.arange(4.0), np.ones(4), np.zeros(4)]
    data = [ctx.logical_data(each.copy()) for each in X]
    commands = Commands(ctx, monkeypatch)
    for _ in range(6):
        for order in ([0, 1, 2], [2, 0, 1]):
            last = commands.during(lambda order=order: ring(*[data[i] for i in order]))
            for i, known in zip(order, expected(*[X[i] for i in order]), strict=True):
                X[i] = known
    assert last["play"] == 2 and "call" not in last
    for each, known in zip(data, X, strict=True):
        assert np.array_equal(each.numpy(), known)


def test_many_other_data(ctx: stf.Context) -> None:
    X = [np.full(3, float(i)) for i in range(8)]
    data = [ctx.logical_data(each.copy()) for each in X]
    for step in range(30):
        order = [step % 8, (step * 3 + 1) % 8, (step * 5 + 2) % 8]
        if len(set(order)) < 3:
            continue
        ring(*[data[i] for i in order])
        for i, known in zip(order, expected(*[X[i] for i in order]), strict=True):
            X[i] = known
    for each, known in zip(data, X, strict=True):
        assert np.array_equal(each.numpy(), known)


def test_parameters_go_with_each_launch(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_ones(2), ctx.logical_data_zeros(2)
    with ctx.task_graph() as graph:
        a = graph.param("a", 1.0)
        axpy.on(1)(a, x, y)
        axpy.on(0)(1.0, x, y)
    for value in (1.0, 2.0, 3.0, 4.0):
        graph.launch(a=value)
    assert y.numpy().tolist() == [14.0] * 2


def test_what_a_function_captures_is_as_it_is_at_the_launch(ctx: stf.Context, monkeypatch: Any) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "STEP": 1.0, "SEEN": [1.0]}
    exec("def body(x): x += STEP\ndef other(x): x += sum(SEEN)", names)
    x = ctx.logical_data_zeros(2)
    with ctx.task_graph() as graph:
        ctx.task(stf.exec_place.device(1), x.rw())(names["body"])
        ctx.task(stf.exec_place.device(0), x.rw())(names["other"])
    for _ in range(4):
        graph.launch()
    names["STEP"] = 10.0
    graph.launch()
    names["SEEN"].append(100.0)
    graph.launch()
    assert x.numpy().tolist() == [5 * 2 + 102.0] * 2  # a task keeps numbers as they were when it was submitted


def test_a_list_that_is_an_argument_is_as_it_is_at_the_launch(ctx: stf.Context) -> None:
    given = [1.0]

    @stf.task
    def add_all(x: stf.ReadWrite, values: Any) -> None:
        x += sum(values)

    x = ctx.logical_data_zeros(2)
    with ctx.task_graph() as graph:
        add_all.on(0)(x, given)
    for _ in range(3):
        graph.launch()
    given.append(10.0)
    graph.launch()
    assert x.numpy().tolist() == [14.0] * 2


def test_error_states_of_numpy_travel_with_a_launch_that_is_kept(ctx: stf.Context) -> None:
    x = ctx.logical_data_ones(3, name="x")
    with ctx.task_graph() as graph:
        ctx.task(stf.exec_place.device(1), x.rw())(lambda x: 1 / x)
    for _ in range(3):
        graph.launch()
    ctx.fill(x, 0.0)
    with np.errstate(divide="raise"):
        graph.launch()
    with pytest.raises(stf.TaskFailedError, match="FloatingPointError"):
        x.numpy()


def test_random_numbers_of_launches_differ(ctx: stf.Context) -> None:
    @stf.task
    def draw(x: stf.Write, g: stf.Random) -> None:
        x[...] = g.uniform(size=x.shape)

    @stf.replay
    def step(x: Any) -> None:
        draw.on(1)(x, ctx.random(7))

    x, found = ctx.logical_data_zeros(2), []
    for _ in range(5):
        step(x)
        found.append(x.numpy().tolist())
    with stf.context() as other:
        z, known = other.logical_data_zeros(2), []

        @stf.replay
        def again(z: Any) -> None:
            draw(z, other.random(7))

        for _ in range(5):
            again(z)
            known.append(z.numpy().tolist())
    assert found == known


def test_a_body_that_fails_is_named_and_poisons(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_zeros(3, name="x"), ctx.logical_data_zeros(3, name="y")

    @stf.replay
    def step(x: Any, y: Any) -> None:
        fails_at.on(0)(4.0, x)
        axpy.on(1)(1.0, x, y)

    for _ in range(6):
        with contextlib.suppress(stf.TaskFailedError):
            step(x, y)
    with pytest.raises(stf.TaskFailedError, match=r"'fails_at'.*ZeroDivisionError: reached 4"):
        y.numpy()
    with contextlib.suppress(stf.TaskFailedError, ExceptionGroup):
        ctx.check_errors()
    ctx.fill(x, 0.0)
    ctx.fill(y, 0.0)
    step(x, y)
    assert y.numpy().tolist() == [1.0] * 3


def test_a_poisoned_input_skips_the_whole_launch(ctx: stf.Context) -> None:
    x, y, z = (ctx.logical_data_ones(3, name=name) for name in "xyz")
    for _ in range(3):
        ring(x, y, z)
    fails_at.on(1)(0.0, x)
    ring(x, y, z)
    for each in (x, y, z):
        with pytest.raises((stf.TaskFailedError, ExceptionGroup)):
            each.numpy()


def test_a_recording_with_a_task_on_the_host_is_played(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)

    @stf.replay
    def step(x: Any, y: Any) -> None:
        axpy.on("host")(1.0, x, y)
        axpy.on(1)(1.0, x, y)

    for _ in range(4):
        step(x, y)
    assert y.numpy().tolist() == [8.0] * 3


def test_a_launch_waits_for_no_thread_of_this_process(ctx: stf.Context) -> None:
    x, y, z, other = (ctx.logical_data(np.ones(4)) for _ in range(4))
    for _ in range(3):
        ring(x, y, z)
    ctx.synchronize()
    goes_on = threading.Event()
    for _ in range(4 * (os.cpu_count() or 1)):  # more than bodies of the host run at a time
        ctx.host_launch(other.read())(lambda _: goes_on.wait(20))
    start = time.monotonic()
    ring(x, y, z)
    ring(x, y, z)
    try:
        ctx.wait(z)
        waited_s = time.monotonic() - start
    finally:
        goes_on.set()
    assert waited_s < 10


def test_a_launch_has_new_data_on_workers(ctx: stf.Context) -> None:
    """Data that a replayed function makes, while its user holds the last ones; and others that nobody has used."""
    x, y = ctx.logical_data(np.ones(4)), ctx.logical_data_zeros(4)

    @stf.replay
    def step(x: Any, y: Any) -> Any:
        made = ctx.logical_data_empty(4)
        ctx.fill(made, 1.0)
        axpy.on(1)(1.0, made, y)
        axpy.on(0)(1.0, x, made)
        return made

    last = None
    for _ in range(6):
        last = step(x, y)
    assert y.numpy().tolist() == [6.0] * 4 and last.numpy().tolist() == [2.0] * 4
    graph, fresh = ctx.task_graph(), ctx.logical_data_empty(4)
    with graph:
        ctx.fill(y, 3.0)
        scale.on(1)(y)
    graph.launch({y: fresh})
    assert fresh.numpy().tolist() == [6.0] * 4


def test_a_recording_in_a_recording(ctx: stf.Context) -> None:
    X = [np.arange(4.0), np.ones(4), np.zeros(4)]
    data = [ctx.logical_data(each.copy()) for each in X]

    @stf.replay
    def twice(x: Any, y: Any, z: Any) -> None:
        ring(x, y, z)
        ring(x, y, z)

    for _ in range(5):
        twice(*data)
        X = list(expected(*expected(*X)))
    for each, known in zip(data, X, strict=True):
        assert np.array_equal(each.numpy(), known)


def test_a_recording_that_is_dropped_is_forgotten(ctx: stf.Context, monkeypatch: Any) -> None:
    x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
    commands = Commands(ctx, monkeypatch)
    with ctx.task_graph() as graph:
        axpy.on(0)(1.0, x, y)
        axpy.on(1)(1.0, x, y)
    for _ in range(3):
        graph.launch()
    graph.close()
    assert y.numpy().tolist() == [6.0] * 3
    assert commands.counts["unpack"] == 2


def test_times_are_reported(tmp_path: Any) -> None:
    with stf.context(devices="loopback:2", observe=True) as ctx:
        x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
        for _ in range(4):
            ring(x, y, z := ctx.logical_data_zeros(3))
        z.numpy()
        ctx.synchronize()


@pytest.mark.parametrize("copies", [False, True])
def test_a_worker_that_dies_in_a_launch(ctx: stf.Context, copies: bool) -> None:
    x, y, z = (ctx.logical_data_ones(3, name=name) for name in "xyz")

    @stf.replay
    def step(x: Any, y: Any, z: Any) -> None:
        axpy.on(0)(1.0, x, y)
        if copies:
            axpy.on(1)(1.0, y, z)
        axpy.on(0)(1.0, x, y)
        axpy.on(1)(1.0, y if copies else x, z)

    for _ in range(3):
        step(x, y, z)
    ctx.synchronize()
    pid = pid_of(ctx, 0)
    os.kill(pid, signal.SIGSTOP)
    step(x, y, z)
    step(x, y, z)
    threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
    start = time.monotonic()
    with pytest.raises((stf.TaskFailedError, ExceptionGroup), match="lost|failed"):
        y.numpy()
    ctx._driver.synchronize  # the context goes on
    with contextlib.suppress(stf.TaskFailedError, ExceptionGroup):
        ctx.check_errors()
    assert time.monotonic() - start < 5
    wait_for(lambda: ctx._driver.links[0].lost is None)
    for each in (x, y, z):
        ctx.fill(each, 1.0)
    X = np.ones(3), np.ones(3), np.ones(3)
    for _ in range(3):
        step(x, y, z)
        a, b, c = X
        b = b + a
        c = c + b if copies else c
        b = b + a
        X = a, b, c + (b if copies else a)
    assert np.array_equal(y.numpy(), X[1]) and np.array_equal(z.numpy(), X[2])


def test_recordings_are_sent_to_a_worker_that_is_back(ctx: stf.Context, monkeypatch: Any) -> None:
    X = [np.arange(4.0), np.ones(4), np.zeros(4)]
    data = [ctx.logical_data(each.copy()) for each in X]
    for _ in range(3):
        ring(*data)
        X = list(expected(*X))
    for each in data:
        each.numpy()
    os.kill(pid_of(ctx, 0), signal.SIGKILL)
    wait_for(lambda: ctx._driver.links[0].lost is not None or not ctx._driver.links[0].parcels)
    wait_for(lambda: ctx._driver.links[0].lost is None)
    commands = Commands(ctx, monkeypatch)
    counts = commands.during(lambda: ring(*data))
    X = list(expected(*X))
    assert counts["parcel"] == 1 and counts["play"] == 2
    for each, known in zip(data, X, strict=True):
        assert np.array_equal(each.numpy(), known)


def test_a_recording_is_dropped_that_a_worker_in_the_place_of_another_never_had(ctx: stf.Context) -> None:
    x, y, z = ctx.logical_data_ones(3), ctx.logical_data_zeros(3), ctx.logical_data_zeros(3)
    with ctx.task_graph() as g:
        axpy.on(0)(1.0, x, y)
        axpy.on(1)(1.0, x, z)
    for _ in range(3):
        g.launch()
    assert y.numpy().tolist() == z.numpy().tolist() == [3.0] * 3
    os.kill(pid_of(ctx, 0), signal.SIGKILL)
    wait_for(lambda: ctx._driver.links[0].lost is not None or not ctx._driver.links[0].parcels)
    wait_for(lambda: ctx._driver.links[0].lost is None)
    pid = pid_of(ctx, 0)
    g.close()
    again = ctx.logical_data_zeros(3)
    for _ in range(3):
        axpy.on(0)(1.0, x, again)
        assert pid_of(ctx, 0) == pid
    assert again.numpy().tolist() == [3.0] * 3 and ctx._driver.links[0].lost is None


def test_two_threads_launch_at_once(ctx: stf.Context) -> None:
    sets = [[ctx.logical_data_ones(3), ctx.logical_data_zeros(3), ctx.logical_data_zeros(3)] for _ in range(2)]

    def work(data: Any) -> None:
        for _ in range(20):
            ring(*data)

    threads = [threading.Thread(target=work, args=(data,)) for data in sets]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    X = np.ones(3), np.zeros(3), np.zeros(3)
    for _ in range(20):
        X = expected(*X)
    for data in sets:
        for each, known in zip(data, X, strict=True):
            assert np.array_equal(each.numpy(), known)


def test_the_body_of_a_loop_is_kept(ctx: stf.Context, monkeypatch: Any) -> None:
    x, n = ctx.logical_data_zeros(3), ctx.logical_data_zeros(())
    one = ctx.logical_data_ones(())
    commands = Commands(ctx, monkeypatch)
    with ctx.while_loop(n < 20) as loop:
        axpy.on(1)(1.0, one, n)
        axpy.on(0)(1.0, n, x)
    assert x.numpy().tolist() == [210.0] * 3 and loop.iterations == 20
    assert commands.counts["play"] >= 30
