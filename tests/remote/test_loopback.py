"""Remote workers: task functions, copies, errors and lost workers, on processes of this machine."""

from __future__ import annotations

import contextlib
import contextvars
import decimal
import json
import os
import pathlib
import random
import signal
import threading
import time
import types
from typing import Any

import numpy as np
import pytest

import stf

pytest.importorskip("cloudpickle")
FACTOR = 3.0


@stf.task
def axpy(a: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += a * x


@stf.task
def scale(y: stf.ReadWrite) -> None:
    y *= FACTOR


@pytest.fixture
def ctx() -> Any:
    with stf.context(devices="loopback:2", name="remote") as context:
        yield context
        context.check_state()


def pid_of(ctx: stf.Context, place: int) -> int:
    """Return the process of a worker, as a task there says."""
    pid = ctx.logical_data_zeros((), np.int64)
    ctx.task(stf.exec_place.device(place), pid.write())(lambda pid: os.getpid())
    return int(pid.numpy())


@pytest.mark.parametrize("keeps_data", [False, True])
def test_workers_end_with_their_context(keeps_data: bool) -> None:
    before = set(threading.enumerate())
    with stf.context(devices="loopback:2") as ctx:
        pids = [pid_of(ctx, place) for place in range(2)]
        x = ctx.logical_data_zeros(3)
        axpy.on(1)(1.0, x, ctx.logical_data_zeros(3))
        if not keeps_data:
            del x

    def are_gone() -> bool:
        return not any(os.path.exists(f"/proc/{pid}") for pid in pids) and set(threading.enumerate()) <= before

    end = time.monotonic() + 20
    while not are_gone() and time.monotonic() < end:
        time.sleep(0.01)
    assert are_gone()


def kill(ctx: stf.Context, place: int) -> None:
    """Kill a worker, and wait until its context knows."""
    link = ctx._driver.links[place]
    pid = pid_of(ctx, place)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: link.lost is not None or pid_now(ctx, place) != pid)


def pid_now(ctx: stf.Context, place: int) -> int:
    return int(ctx._driver.transport.processes[place])


def wait_for(condition: Any, timeout_s: float = 5.0) -> None:
    """Wait until something outside of this process has happened."""
    end = time.monotonic() + timeout_s
    done = threading.Event()
    while not condition():
        assert time.monotonic() < end, "it took longer"
        done.wait(0.005)


def is_there(ctx: stf.Context, place: int) -> bool:
    return ctx._driver.links[place].lost is None


# -- tasks and copies --------------------------------------------------------------------------------------------------


def test_tasks_run_in_other_processes(ctx: stf.Context) -> None:
    pids = {pid_of(ctx, 0), pid_of(ctx, 1)}
    assert len(pids) == 2 and os.getpid() not in pids


def test_content_goes_where_tasks_run() -> None:
    X, Y = np.arange(5.0), np.ones(5)
    with stf.context(devices="loopback:3") as ctx:
        x, y = ctx.logical_data(X, name="x"), ctx.logical_data(Y, name="y")
        for place in (0, 1, 2, 0, "host", 1):
            axpy.on(place)(2.0, x, y)
        ctx.synchronize()
        copies = ctx.statistics().copies
        assert copies["device(0)", "device(1)"] >= 1  # from worker to worker
    assert np.array_equal(Y, 1 + 12 * np.arange(5.0))


def test_strided_arrays_and_other_dtypes_are_copied(ctx: stf.Context) -> None:
    whole = np.arange(24, dtype=np.int16).reshape(4, 6)
    part = whole[::-2, 1::2]
    expected = part * 3
    with_bools = np.array([True, False, True])
    x, b = ctx.logical_data(part), ctx.logical_data(with_bools)
    ctx.task(stf.exec_place.device(1), x.rw(), b.rw())(lambda x, b: (x * 3, ~b))
    ctx.wait(x)
    assert np.array_equal(x.numpy(), expected)
    assert b.numpy().tolist() == [False, True, False]


def test_a_checkpoint_of_what_workers_have(ctx: stf.Context, tmp_path: Any) -> None:
    x, y = ctx.logical_data_ones(5, name="x"), ctx.logical_data(np.ones(5), name="y")
    axpy.on(0)(2.0, x, y)
    axpy.on(1)(1.0, y, x)
    saved = ctx.checkpoint(tmp_path / "state", extra=1, wait=False)
    scale.on(1)(y)
    saved.result()
    ctx.restore(tmp_path / "state", data=y)
    axpy.on(1)(1.0, x, y)
    assert y.numpy().tolist() == [7.0] * 5 and ctx.restore(tmp_path / "state")[0]["x"].numpy().tolist() == [4.0] * 5


def test_data_are_filled_on_workers(ctx: stf.Context) -> None:
    zeros, full = ctx.logical_data_zeros((2, 3)), ctx.logical_data_empty(4)
    ctx.fill(full, 2.5)
    axpy.on(1)(1.0, zeros, zeros2 := ctx.logical_data_ones((2, 3)))
    assert zeros2.numpy().tolist() == [[1.0] * 3] * 2
    assert full.numpy().tolist() == [2.5] * 4


def test_results_that_are_returned_and_global_variables(ctx: stf.Context) -> None:
    y = ctx.logical_data(np.ones(3))
    scale.on(1)(y)
    ctx.task(stf.exec_place.device(0), y.rw())(lambda y: y + FACTOR)
    assert y.numpy().tolist() == [6.0] * 3


def test_large_arrays_cross_in_both_directions() -> None:
    X = np.random.default_rng(1).random(1 << 20)
    Y = X[::-1].copy()
    with stf.context(devices="loopback:2") as ctx:
        x, y = ctx.logical_data(X), ctx.logical_data(Y)
        expected = 1.0
        for _ in range(3):
            axpy.on(0)(0.0, x, y)
            axpy.on(1)(0.0, y, x)
        ctx.synchronize()
        assert expected == 1.0
    assert np.array_equal(X[::-1], Y)


def test_accumulation_over_workers(ctx: stf.Context) -> None:
    total = ctx.logical_data_zeros(3)
    for i in range(6):
        ctx.task(stf.exec_place.device(i % 2), total.accumulate(stf.reducer.sum))(lambda t, i=i: t + i)
    assert total.numpy().tolist() == [15.0] * 3


def test_places_are_chosen_for_tasks_that_name_none() -> None:
    with stf.context(devices="loopback:2", place="auto") as ctx:
        data = [ctx.logical_data_zeros(3) for _ in range(8)]
        for each in data:
            ctx.task(each.rw())(lambda x: x + 1)
        assert all(each.numpy()[0] == 1 for each in data)
        assert ctx.statistics().tasks_by_place["device(1)"] > 0


def test_tiles_on_workers(ctx: stf.Context) -> None:
    x = ctx.logical_data(np.arange(16.0).reshape(4, 4))
    tiles = x.tiles((2, 2))
    for i in range(2):
        for j in range(2):
            ctx.task(stf.exec_place.device((i + j) % 2), tiles[i, j].rw())(lambda a: a * 2)
    axpy.on(1)(1.0, tiles[0, 0], tiles[1, 1])
    del tiles
    expected = 2 * np.arange(16.0).reshape(4, 4)
    expected[2:, 2:] += expected[:2, :2]
    assert np.array_equal(x.numpy(), expected)


@pytest.mark.parametrize("gathered_on", ["host", "worker"])
def test_partitioned_data_on_workers(ctx: stf.Context, gathered_on: str) -> None:
    grid = stf.exec_place.grid([stf.exec_place.device(0), stf.exec_place.device(1)])
    place = stf.data_place.composite(grid, stf.partition("blocked"))
    x = ctx.logical_data(np.arange(8.0), data_place=place)
    for i, part in enumerate(x.parts):
        ctx.task(stf.exec_place.device(i), part.rw())(lambda a, i=i: a + i + 1)
    expected = np.arange(8.0) + np.repeat([1, 2], 4)
    if gathered_on == "worker":
        ctx.task(stf.exec_place.device(0), x.rw())(lambda a: a * 2)
        expected *= 2
    ctx.task(stf.exec_place.device(1), x.parts[0].read(), x.parts[1].rw())(lambda a, b: a + b)
    expected[4:] += expected[:4]
    assert np.array_equal(x.numpy(), expected)


# -- recordings and kernels --------------------------------------------------------------------------------------------


def test_replayed_functions_and_graphs(ctx: stf.Context) -> None:
    @stf.replay
    def step(x: Any, y: Any) -> None:
        axpy.on(0)(1.0, x, y)
        axpy.on(1)(2.0, x, y)

    x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
    for _ in range(5):
        step(x, y)
    assert y.numpy().tolist() == [15.0] * 3


def test_a_graph_context_gathers_tasks_for_workers() -> None:
    Y = np.zeros(3)
    with stf.context(use_graph=True, devices="loopback:2") as ctx:
        x, y = ctx.logical_data_ones(3), ctx.logical_data(Y)
        for i in range(6):
            axpy.on(i % 2)(1.0, x, y)
    assert Y.tolist() == [6.0] * 3


def test_a_failure_in_a_launch_skips_what_is_left_of_it(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_zeros(3, name="x"), ctx.logical_data_zeros(3, name="y")
    with ctx.task_graph() as graph:

        @ctx.task(stf.exec_place.device(0), x.rw())
        def fails(x: Any) -> None:
            raise ValueError("no")

        axpy.on(1)(1.0, x, y)
    graph.launch()
    with pytest.raises(stf.TaskFailedError, match="no"):
        y.numpy()


def test_loops_run_on_workers(ctx: stf.Context) -> None:
    pytest.importorskip("numba")
    x, total = ctx.logical_data(np.arange(1000.0)), ctx.logical_data_zeros(())
    a = 2.0

    @ctx.parallel_for(stf.exec_place.device(1), x.shape, x.rw(), total.reduce(stf.reducer.sum))
    def double(i: int, x: Any) -> Any:
        x[i] = a * x[i]
        return x[i]

    assert total.numpy() == 2 * np.arange(1000).sum()
    assert x.numpy()[-1] == 2 * 999


def test_launches_run_on_workers(ctx: stf.Context) -> None:
    pytest.importorskip("numba")
    x = ctx.logical_data_zeros(8)

    @ctx.launch(stf.par(8), stf.exec_place.device(1), x.rw())
    def number(thread: Any, x: Any) -> None:
        x[thread.rank()] = thread.rank()

    assert x.numpy().tolist() == list(range(8))


# -- what is observed --------------------------------------------------------------------------------------------------


def test_workers_are_lanes_of_a_trace(tmp_path: Any) -> None:
    with stf.context(devices="loopback:2", observe=True) as ctx:
        x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
        for i in range(6):
            axpy.on(i % 2)(1.0, x, y)
        ctx.synchronize()
        assert "device(0)" in stf.why(axpy.on(0)(1.0, x, y))
        ctx.synchronize()
        ctx.report(str(tmp_path / "run.html"))
        ctx.trace(str(tmp_path / "run.json"))
    found = json.loads((tmp_path / "run.json").read_text())
    events = found["traceEvents"] if isinstance(found, dict) else found
    assert {"worker 0", "worker 1"} <= {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert sum(event["ph"] == "X" for event in events) >= 7
    assert (tmp_path / "run.html").stat().st_size > 1000


def test_max_pending_holds_for_workers() -> None:
    with stf.context(devices="loopback:2", max_pending=2) as ctx:
        x = ctx.logical_data_zeros(1)
        start = time.monotonic()
        for _ in range(6):
            ctx.task(stf.exec_place.device(0), x.rw())(lambda x: time.sleep(0.05) or x + 1)
        assert time.monotonic() - start >= 0.1  # four of them were over, or nearly
        assert x.numpy() == [6.0]


def test_progress_counts_tasks_of_workers(ctx: stf.Context) -> None:
    pytest.importorskip("rich")
    x = ctx.logical_data_zeros(3)
    with stf.progress(ctx, total=4):
        for i in range(4):
            ctx.task(stf.exec_place.device(i % 2), x.rw())(lambda x: x + 1)
        ctx.synchronize()
    assert x.numpy().tolist() == [4.0] * 3


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_failure_poisons_across_workers(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_zeros(3, name="x"), ctx.logical_data_zeros(3, name="y")

    @ctx.task(stf.exec_place.device(0), x.rw())
    def fails(x: Any) -> None:
        raise ZeroDivisionError("of a worker")

    axpy.on(1)(1.0, x, y)
    with pytest.raises(stf.TaskFailedError, match=r"'fails'.*ZeroDivisionError: of a worker") as caught:
        y.numpy()
    assert "raised in worker process" in "".join(caught.value.__cause__.__notes__)


def test_a_with_block_says_that_it_cannot_travel(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(3)
    with pytest.raises(stf.PlaceError, match="with-block, whose body cannot travel"), ctx.task(x.rw()):
        pass
    with ctx.task(stf.exec_place.host(), x.rw()) as t:
        t[0][...] = 1
    assert x.numpy().tolist() == [1.0] * 3


def test_memory_of_another_process_says_that_it_cannot_travel(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(3, name="x")
    with pytest.raises(stf.PlaceError, match="'x'.* asked for in the memory of host"):
        ctx.task(stf.exec_place.device(0), x.rw(stf.data_place.host()))(lambda x: None)


def test_what_cannot_be_pickled_is_named(ctx: stf.Context) -> None:
    x, meeting = ctx.logical_data_zeros(3), threading.Lock()
    with pytest.raises(TypeError, match="variable 'meeting' holds a lock"):
        ctx.task(x.rw())(lambda x: meeting.locked() and None)
    with pytest.raises(TypeError, match="argument 'lock' of task 'locked'.* a lock cannot be pickled"):
        locked(x, meeting)
    assert x.numpy().tolist() == [0.0] * 3


@stf.task
def locked(x: stf.ReadWrite, lock: Any) -> None:
    x += 1


@pytest.mark.parametrize("kind", ["list", "dict", "counter"])
def test_a_body_that_changes_what_it_captured_fails(ctx: stf.Context, kind: str) -> None:
    seen: list[int] = []
    known: dict[str, int] = {}
    count = 0
    x = ctx.logical_data_zeros(3, name="x")

    def appends(x: Any) -> None:
        seen.append(1)
        x += 1

    def keeps(x: Any) -> None:
        known["a"] = 1
        x += 1

    def counts(x: Any) -> None:
        nonlocal count
        count += 1
        x += 1

    ctx.task(x.rw())({"list": appends, "dict": keeps, "counter": counts}[kind])
    with pytest.raises(stf.TaskFailedError, match="the change would get lost"):
        x.numpy()


@pytest.fixture
def script() -> Any:
    """A script whose functions and classes travel by value, as those of ``__main__`` do; each test has its own."""
    file = pathlib.Path(__file__).with_name("script_of_changes.py")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), names)
    return types.SimpleNamespace(**names)


CHANGES_BY_FUNCTION = {
    "draws_in_helper": r"variable 'RNG' of 'noise' \(Generator\) .*; draw from a generator of ctx.random",
    "draws_by_method": r"variable 'draw' \(Random\) .*; draw from a generator of ctx.random",
    "logs_in_helper": r"variable 'LOG' of 'log' \(list\)",
    "counts_in_helper": r"variable 'COUNT' of 'count' \(int\)",
    "makes_a_variable": r"variable 'MADE' of 'makes' \(int\)",
    "writes_by_name": r"its global variables \(int\)",
    "changes_a_class": r"attribute 'count' of class 'Counter' \(int\)",
    "adds_to_a_class": r"attribute 'new' of class 'Counter' \(int\)",
    "adds_to_a_function": r"attribute 'calls' of 'noise' \(int\)",
    "fills_a_dict_of_a_class": r"attribute 'known' of class 'Counter' \(dict\)",
    "default_of_its_own": r"parameter 'seen' \(list\)|argument 'seen' \(list\)",
    "default_of_a_helper": r"default of parameter 'kept' of 'keeps' \(list\)",
}


@pytest.mark.parametrize("body", CHANGES_BY_FUNCTION)
def test_what_a_body_changes_out_of_sight_is_named(ctx: stf.Context, script: Any, body: str) -> None:
    x = ctx.logical_data_zeros(2, name="x")
    getattr(script, body).on(1)(x)
    with pytest.raises(stf.TaskFailedError, match=f"task '{body}' changes .*({CHANGES_BY_FUNCTION[body]})"):
        x.numpy()


def test_an_array_that_a_function_brought_is_named_where_it_is_written(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2, name="x")
    script.writes_a_captured_array.on(1)(x)
    with pytest.raises(stf.TaskFailedError, match="read-only") as caught:
        x.numpy()
    assert "read-only: its variable 'WEIGHTS'" in "".join(caught.value.__cause__.__notes__)


CHANGES_OF_ARGUMENTS = {
    "list": ("appends", lambda script: [], "list"),
    "nested": ("writes_an_item", lambda script: [1.0, {"a": [2.0]}], "list"),
    "dict": ("writes_an_item", lambda script: {}, "dict"),
    "array": ("writes_an_item", lambda script: np.zeros(3), "ndarray"),
    "strided array": ("writes_an_item", lambda script: np.zeros((4, 4))[::2, 1], "ndarray"),
    "array of objects": ("writes_an_item", lambda script: np.array([None, "a"]), "ndarray"),
    "iterator": ("takes_next", lambda script: iter([1.0, 2.0]), "list_iterator"),
    "object": ("counts_in_object", lambda script: script.Counter(), "Counter"),
    "object in a tuple": ("draws_inside", lambda script: {"generator": np.random.default_rng(0)}, "dict"),
}


@pytest.mark.parametrize("kind", CHANGES_OF_ARGUMENTS)
def test_an_argument_that_a_body_changes_is_named(ctx: stf.Context, script: Any, kind: str) -> None:
    body, make, what = CHANGES_OF_ARGUMENTS[kind]
    x = ctx.logical_data_zeros(2, name="x")
    given = make(script)
    getattr(script, body).on(0)(x, given)
    with pytest.raises(stf.TaskFailedError, match=f"task '{body}' changes its argument 'what' .{what}. .* get lost"):
        x.numpy()


def test_a_method_that_counts_in_its_object_fails(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2, name="x")
    counter = script.Counter()
    ctx.task(x.rw())(counter.step)
    with pytest.raises(stf.TaskFailedError, match=r"task 'step' changes .*'__self__' \(Counter\)"):
        x.numpy()


def test_task_functions_of_a_class_of_the_script(ctx: stf.Context, script: Any) -> None:
    x, y = ctx.logical_data_zeros(2), ctx.logical_data_zeros(2, name="y")
    counter = script.Counter()
    for place in (0, 1):
        counter.add_own.on(place)(x)
    assert x.numpy().tolist() == [2.0] * 2
    counter.count_own.on(1)(y)
    with pytest.raises(stf.TaskFailedError, match=r"task 'count_own' changes its argument 'self' \(Counter\)"):
        y.numpy()


def test_an_attribute_of_the_class_of_an_argument_is_named(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2, name="x")
    script.counts_in_class_of.on(0)(x, script.Counter())
    with pytest.raises(stf.TaskFailedError, match=r"changes attribute 'count' of class 'Counter' \(int\)"):
        x.numpy()


def test_a_changed_argument_of_a_recording_is_named(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2, name="x")
    with ctx.task_graph() as graph:
        script.appends.on(1)(x, [])
    graph.launch()
    with pytest.raises(stf.TaskFailedError, match=r"changes its argument 'what' \(list\)"):
        x.numpy()


@pytest.mark.parametrize(
    "make",
    [np.random.default_rng, np.random.RandomState, np.random.PCG64, random.Random],
    ids=lambda make: make.__name__,
)
def test_a_generator_as_an_argument_is_refused(ctx: stf.Context, script: Any, make: Any) -> None:
    x = ctx.logical_data_zeros(2)
    with pytest.raises(TypeError, match=r"argument 'what' of task 'draws_from' is a \w+, .*ctx.random \(stf.Random\)"):
        script.draws_from(x, make(0))
    assert x.numpy().tolist() == [0.0] * 2


def test_a_generator_of_the_context_travels(ctx: stf.Context) -> None:
    @stf.task
    def walk(x: stf.ReadWrite, g: stf.Random) -> None:
        x += g.uniform(size=x.shape)

    rng, found = ctx.random(3), []
    for place in (0, 1, "host"):
        walk.on(place)(x := ctx.logical_data_zeros(2), rng)
        found.append(x.numpy().tolist())
    assert found[0] != found[1] != found[2]


def test_arguments_that_are_only_read_travel(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2)
    settings = script.Settings(3.0, [1, 2])
    for place in (0, 1):
        script.reads_factor.on(place)(x, settings)
    settings.factor = 4.0
    script.reads_factor.on(1)(x, settings)
    assert x.numpy().tolist() == [10.0] * 2

    @stf.task
    def add_all(x: stf.ReadWrite, *others: Any, scale: Any) -> None:
        for other in others:
            x += scale["by"] * np.sum(other)

    add_all.on(0)(x, np.ones(3), [1, 2], scale={"by": 2.0})
    assert x.numpy().tolist() == [22.0] * 2


def test_an_object_is_of_the_class_that_the_body_uses(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2)
    for _ in range(2):
        script.asks_for_class.on(1)(x, script.Settings(), [script.Settings(5.0)])
    assert x.numpy().tolist() == [14.0] * 2


def test_a_tuple_of_data_of_a_class_of_the_script_travels(ctx: stf.Context, script: Any) -> None:
    x, first, second = ctx.logical_data_zeros(2), ctx.logical_data_ones(2), ctx.logical_data_ones(2)
    scale.on(0)(first)
    script.adds_pair.on(1)(x, script.Pair(first, second))
    assert x.numpy().tolist() == [4.0] * 2


def test_members_of_an_enumeration_of_the_script_are_themselves(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2)
    for color in (script.Color.RED, script.Color.RED | script.Color.BLUE, script.Color.BLUE):
        script.reads_color.on(1)(x, color)
    assert x.numpy().tolist() == [6.0] * 2


def test_an_attribute_of_a_class_that_the_script_changes_is_sent_again(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2)
    for count in (1, 5, 1):
        script.Counter.count = count
        script.reads_class.on(1)(x)
    assert x.numpy().tolist() == [7.0] * 2


def test_a_list_beside_a_constant_is_sent_again(ctx: stf.Context) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "FACTOR": 2.0, "SEEN": [1]}
    exec("def body(x): x += FACTOR * len(SEEN)", names)
    x = ctx.logical_data_zeros(2)
    for _ in range(3):
        ctx.task(stf.exec_place.device(0), x.rw())(names["body"])
        names["SEEN"].append(1)
    assert x.numpy().tolist() == [12.0] * 2


@pytest.mark.parametrize("body", ["asks_default", "asks_in_helper", "asks_for_object"])
def test_an_object_that_is_a_default_and_a_variable_stays_one(ctx: stf.Context, script: Any, body: str) -> None:
    x = ctx.logical_data_zeros(2)
    given = script.DEFAULT if body == "asks_for_object" else script.MISSING
    task = getattr(script, body)
    task.on(0)(x)
    task.on(1)(x, given)
    task.on(1)(x, e=given)
    task.on(0)(x, None)
    assert x.numpy().tolist() == [31.0] * 2


def test_an_object_of_which_a_copy_is_of_no_use_is_refused(ctx: stf.Context, script: Any) -> None:
    x = ctx.logical_data_zeros(2)
    with pytest.raises(TypeError, match=r"argument 'e' of task 'looks_at_nothing' is a bare object\(\)"):
        script.looks_at_nothing(x, object())
    assert x.numpy().tolist() == [0.0] * 2


WORD: contextvars.ContextVar[str] = contextvars.ContextVar("WORD", default="nothing")


def test_error_states_of_numpy_travel(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(3, name="x")

    @stf.task
    def invert(x: stf.ReadWrite) -> None:
        x[...] = 1 / x

    with np.errstate(divide="raise"):
        invert.on(1)(x)
    with pytest.raises(stf.TaskFailedError, match="FloatingPointError"):
        x.numpy()
    ctx.fill(x, 0.0)
    with np.errstate(divide="ignore"):
        invert.on(1)(x)
    assert np.isinf(x.numpy()).all()


def test_error_states_of_numpy_travel_with_each_launch(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(3, name="x")
    with ctx.task_graph() as graph:
        ctx.task(stf.exec_place.device(1), x.rw())(lambda x: 1 / x)
    with np.errstate(divide="ignore"):
        graph.launch()
        assert np.isinf(x.numpy()).all()
    ctx.fill(x, 0.0)
    with np.errstate(divide="raise"):
        graph.launch()
    with pytest.raises(stf.TaskFailedError, match="FloatingPointError"):
        x.numpy()


def test_the_context_of_decimal_travels(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(())
    with decimal.localcontext() as numbers:
        numbers.prec = 3
        ctx.task(stf.exec_place.device(0), x.write())(lambda x: float(decimal.Decimal(1) / decimal.Decimal(3)))
    assert x.numpy() == 0.333


def test_a_body_that_reads_another_context_variable_is_refused(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(())
    with pytest.raises(TypeError, match="variable 'WORD' holds a ContextVar"):
        ctx.task(x.rw())(lambda x: len(WORD.get()))


# -- workers that are lost ---------------------------------------------------------------------------------------------


def test_a_body_that_ends_its_process_is_a_named_error() -> None:
    X = np.ones(3)
    with stf.context(devices="loopback:2") as ctx:
        x, y = ctx.logical_data(X, name="x"), ctx.logical_data_empty(3, name="y")
        ctx.task(stf.exec_place.device(0), x.read(), y.write())(lambda x, y: os._exit(3))
        start = time.monotonic()
        with pytest.raises(stf.TaskFailedError, match="device") as caught:
            y.numpy()
        assert time.monotonic() - start < 5
        assert isinstance(caught.value.__cause__, stf.WorkerLostError) and caught.value.__cause__.worker == "device(0)"
        ctx.check_state()
        axpy.on(1)(1.0, x, z := ctx.logical_data_zeros(3))
        assert z.numpy().tolist() == [1.0] * 3
    assert X.tolist() == [1.0] * 3


def test_data_that_only_a_lost_worker_had_are_poisoned(ctx: stf.Context) -> None:
    x, y = ctx.logical_data_ones(3, name="x"), ctx.logical_data_ones(3, name="y")
    scale.on(0)(x)
    scale.on(1)(y)
    ctx.synchronize()
    kill(ctx, 0)
    with pytest.raises(stf.TaskFailedError, match="'x'") as caught:
        x.numpy()
    assert isinstance(caught.value.__cause__, stf.WorkerLostError)
    assert y.numpy().tolist() == [3.0] * 3
    with contextlib.suppress(stf.TaskFailedError):
        ctx.check_errors()
    wait_for(lambda: is_there(ctx, 0))
    ctx.fill(x, 4.0)  # written anew, it is as good as ever
    assert x.numpy().tolist() == [4.0] * 3


def test_other_replicas_serve(ctx: stf.Context) -> None:
    x = ctx.logical_data(np.ones(3), name="x")
    scale.on(0)(x)
    assert x.numpy().tolist() == [3.0] * 3  # it is on the host now, too
    kill(ctx, 0)
    axpy.on(1)(1.0, x, y := ctx.logical_data_zeros(3))
    assert y.numpy().tolist() == [3.0] * 3
    ctx.check_errors()


def test_a_copy_to_a_lost_worker_spoils_only_its_target(ctx: stf.Context) -> None:
    x, y = ctx.logical_data(np.ones(3), name="x"), ctx.logical_data_zeros(3, name="y")
    ctx._driver.transport.back = lambda worker: None  # no other process takes its place
    kill(ctx, 0)
    axpy.on(0)(1.0, x, y)
    axpy.on(1)(1.0, x, z := ctx.logical_data_zeros(3))
    with pytest.raises(stf.TaskFailedError, match="is lost"):
        y.numpy()
    with contextlib.suppress(stf.TaskFailedError):
        ctx.check_errors()
    assert x.numpy().tolist() == [1.0] * 3
    axpy.on(1)(2.0, x, v := ctx.logical_data_zeros(3))
    assert v.numpy().tolist() == [2.0] * 3
    assert z.numpy().tolist() == [1.0] * 3


@pytest.mark.parametrize("reader", [1, "host"])
def test_a_copy_from_a_worker_that_dies_spoils_who_reads_it(ctx: stf.Context, reader: Any) -> None:
    x, y = ctx.logical_data_ones(1000, name="x"), ctx.logical_data_zeros(1000, name="y")
    scale.on(0)(x)
    pid = pid_of(ctx, 0)
    ctx.synchronize()
    os.kill(pid, signal.SIGSTOP)  # so that the copy begins, and does not end
    axpy.on(reader)(1.0, x, y)
    threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(stf.TaskFailedError, match="'x'"):
        y.numpy()
    with contextlib.suppress(stf.TaskFailedError):
        ctx.check_errors()


def test_a_place_is_used_again_when_its_worker_is_back(ctx: stf.Context) -> None:
    x = ctx.logical_data(np.ones(3), name="x")
    axpy.on(0)(0.0, x, y := ctx.logical_data_zeros(3))
    y.numpy()
    before = pid_of(ctx, 0)
    kill(ctx, 0)
    wait_for(lambda: is_there(ctx, 0))
    assert pid_of(ctx, 0) != before
    axpy.on(0)(2.0, x, y)
    assert y.numpy().tolist() == [2.0] * 3


def test_recordings_go_on_with_a_worker_that_is_back(ctx: stf.Context) -> None:
    @stf.replay
    def step(x: Any, y: Any) -> None:
        axpy.on(0)(1.0, x, y)
        axpy.on(1)(1.0, x, y)

    x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
    for _ in range(4):
        step(x, y)
    assert y.numpy().tolist() == [8.0] * 3
    x.numpy()
    kill(ctx, 0)
    wait_for(lambda: is_there(ctx, 0))
    step(x, y)
    assert y.numpy().tolist() == [10.0] * 3


def test_a_worker_without_the_gpu_that_it_is_to_have_is_a_named_error() -> None:
    from stf.devices.make import cuda_devices

    if cuda_devices() > 0:
        pytest.skip("there is a GPU")
    with pytest.raises(stf.PlaceError, match="worker [12] is to use a GPU, and its process .* has 0 that CUDA can use"):
        stf.context(devices="loopback:2xgpu")
