"""Automatic placement: where tasks run that name no place, and what they compute."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest
from helpers import is_cuda, library, put, runs_kernels

import stf
from stf import exec_place


@stf.task
def add(x: stf.ReadWrite, y: stf.Read):
    put(x, content_of(x) + content_of(y))


@stf.task
def inc(x: stf.ReadWrite):
    put(x, content_of(x) + 1)


@stf.task
def init(x: stf.Write, value):
    put(x, np.full(x.shape, value))


def content_of(x):
    return x if library(x) is np else x.get()


def used(ctx):
    return {place for place, n in ctx.statistics().tasks_by_place.items() if n}


def names(ctx):
    return {f"device({place.index})" for place in ctx.devices}


@pytest.fixture
def auto(ctx_factory):
    return ctx_factory(place="auto")


@pytest.fixture
def several(ctx_factory):
    if ctx_factory.device_count < 2:
        pytest.skip("one device: there is nothing to choose")
    return ctx_factory


# -- how to ask for it ---------------------------------------------------------------------------------------------


@pytest.mark.not_captured("the body copies to the host")
def test_independent_tasks_go_to_all_devices(several):
    ctx = several(place="auto")
    data = [ctx.logical_data(np.zeros(4), name=f"x{i}") for i in range(6)]
    for x in data:
        init(x, 1.0)
    for _ in range(3):
        for x in data:
            inc(x)
    assert [x.numpy().tolist() for x in data] == [[4.0] * 4] * 6
    assert used(ctx) >= names(ctx)


@pytest.mark.not_captured("the body copies to the host")
def test_every_way_to_submit_takes_auto(ctx):
    x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.ones(4))
    inc.on("auto")(x)
    inc.on(exec_place.auto())(x)
    ctx.task("auto", x.rw(), y.read())(add.fn)
    ctx.task(x.rw()).on("auto")(inc.fn)
    ctx.submit_task(inc, x, place="auto")
    ctx.map(inc, [x], place=exec_place.auto())
    with exec_place.auto():
        inc(x)
    ctx.task(x.rw()).set_exec_place(exec_place.auto())(inc.fn)
    assert x.numpy().tolist() == [8.0] * 4


def test_kernels_take_auto(ctx):
    if not runs_kernels(ctx):
        pytest.skip("no kernels here")
    x = ctx.logical_data(np.zeros(4))

    def add_one(i, x):
        x[i] += 1

    ctx.parallel_for("auto", x.shape, x.rw())(add_one)
    ctx.parallel_for(x.shape, x.rw()).on("auto")(add_one)
    with exec_place.auto():
        ctx.parallel_for(x.shape, x.rw())(add_one)

    @ctx.launch(stf.par(4), "auto", x.rw())
    def add_more(th, x):
        x[th.rank()] += 1

    assert x.numpy().tolist() == [4.0] * 4


@pytest.mark.at_once("a with-block runs where it stands")
def test_a_with_block_is_placed_when_it_opens(auto):
    ctx = auto
    x = ctx.logical_data(np.zeros(4))
    task = ctx.task(x.rw(), name="block")
    if len(ctx.devices) > 1:
        assert task.place == exec_place.auto() and task.place_name == "auto" and "auto" in repr(task)
        with pytest.raises(stf.TaskStateError, match="device of task 'block', whose place is chosen when it begins"):
            _ = task.device
    with task:
        assert task.place in list(ctx.devices)
        assert task.place_name in names(ctx)


def test_what_names_its_place_stays_there(ctx):
    last = ctx.devices[-1]
    x = ctx.logical_data(np.zeros(4))
    with exec_place.auto():
        with last:
            init(x, 1.0)
        init.on(last)(x, 1.0)
        init.on(last.index)(x, 1.0)
    ctx.synchronize()
    assert used(ctx) - {"host"} == {f"device({last.index})"}


@pytest.mark.not_captured("the body copies to the host")
def test_one_device_has_no_choice():
    with stf.context(devices="cpu", place="auto", placement=lambda task, places: 1 / 0) as ctx:
        x = ctx.logical_data(np.zeros(4))
        inc(x)
        inc.on("auto")(x)
        assert x.numpy().tolist() == [2.0] * 4


def test_a_context_has_a_default_place(ctx_factory):
    ctx = ctx_factory()
    last = ctx.devices[-1]
    other = ctx_factory(place=last)
    x = other.logical_data(np.zeros(4))
    init(x, 2.0)
    other.synchronize()
    assert used(other) - {"host"} == {f"device({last.index})"}


@pytest.mark.parametrize("place", [stf.exec_place.n_devices(2), 77, stf.data_place.host(), "cpu"])
def test_a_default_place_is_one_of_the_context(place):
    with pytest.raises((stf.PlaceError, TypeError)):
        stf.context(devices="cpu:2", place=place)


@pytest.mark.parametrize("placement", [stf.placement.eft, stf.placement.owner, "eft", 3, int])
def test_a_placement_is_a_rule_or_a_function(placement):
    with pytest.raises(TypeError, match=r"placement (is|takes)"):
        stf.context(devices="cpu:2", placement=placement)


@pytest.mark.parametrize("rule", [stf.placement.eft, stf.placement.owner])
def test_a_weight_is_a_number(rule):
    with pytest.raises(TypeError, match="move_weight is a number, got '2'"):
        rule(move_weight="2")
    for weight in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="move_weight is finite and not negative"):
            rule(move_weight=weight)


def test_auto_is_for_tasks_alone(ctx):
    x = ctx.logical_data(np.zeros(4))
    ctx.host_launch("auto", x.read())(lambda x: None)  # the host is all the choice there is
    ctx.host_launch(exec_place.auto(), x.read()).on("auto")(lambda x: None)
    with pytest.raises(stf.PlaceError, match="is for tasks, whose place is chosen when they begin"):
        ctx.task(exec_place.grid(["auto", 0]), x.read(stf.data_place.host()))
    init(x, 1.0)


# -- how it is chosen ----------------------------------------------------------------------------------------------


@pytest.mark.at_once("a with-block runs where it stands")
def test_a_task_follows_its_data(several):
    ctx = several(place="auto", placement=stf.placement.eft(move_weight=2))
    small, large = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(1 << 18))
    init.on(0)(small, 1.0)
    init.on(1)(large, 1.0)
    with ctx.task(small.rw(), large.read()) as t:
        assert t.place == ctx.devices[1]
    with ctx.task(small.read(), large.rw()) as t:
        assert t.place == ctx.devices[1]


@pytest.mark.at_once("a with-block runs where it stands")
def test_the_owner_of_an_output_runs_its_tasks(several):
    ctx = several(placement=stf.placement.owner())
    small, large = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(1 << 18))
    init.on(0)(small, 1.0)
    init.on(1)(large, 1.0)
    for _ in range(3):
        with ctx.task(small.rw(), large.read()) as t:
            assert t.place == ctx.devices[0]


@pytest.mark.at_once("a with-block runs where it stands")
def test_a_tie_goes_where_the_output_is(several):
    ctx = several(place="auto", placement=stf.placement.eft(move_weight=1))
    x = ctx.logical_data(np.zeros(0))  # of which no copy takes longer than another
    init.on(1)(x, 1.0)
    with ctx.task(x.write()) as t:
        assert t.place == ctx.devices[0]  # no bytes: nothing is there
    y = ctx.logical_data(np.zeros(4))
    init.on(1)(y, 1.0)
    ctx.synchronize()
    with ctx.task(y.write()) as t:
        assert t.place == ctx.devices[1]


@pytest.mark.at_once("a with-block runs where it stands")
def test_memory_that_would_be_evicted_counts(several):
    nbytes = 1 << 20
    ctx = several(place="auto", memory_limit=2 * nbytes)
    kept = [ctx.logical_data(np.zeros(nbytes // 8)) for _ in range(2)]
    for x in kept:
        init.on(0)(x, 1.0)
    ctx.synchronize()
    x = ctx.logical_data(np.zeros(nbytes // 8))
    with ctx.task(x.write()) as t:
        assert t.place == ctx.devices[1]


@pytest.mark.not_captured("the body copies to the host")
def test_tasks_that_add_up_may_go_anywhere(auto):
    ctx = auto
    total = ctx.logical_data(np.zeros(4))

    @stf.task
    def contribute(total: stf.Accumulate[stf.reducer.sum], x: stf.Read):
        put(total, content_of(total) + content_of(x))

    for i in range(6):
        contribute(total, ctx.logical_data(np.full(4, float(i))))
    assert total.numpy().tolist() == [15.0] * 4


# -- a function of the user's --------------------------------------------------------------------------------------


@pytest.mark.at_once("a with-block runs where it stands")
def test_a_function_sees_the_task_and_the_places(several):
    seen = []

    def choose(task, places):
        seen.append((task, places))
        return places[len(seen) % 2]

    ctx = several(placement=choose)
    x, y = ctx.logical_data(np.zeros(4), name="x"), ctx.logical_data(np.zeros(8), name="y")
    init.on(1)(y, 1.0)
    with ctx.task(x.write(), y.read(), name="both") as t:
        assert t.place == ctx.devices[1]
    ((task, places),) = seen
    assert task.symbol == "both" and "test_placement.py" in task.call_site
    assert [(a.data is d, a.mode, a.nbytes) for a, d in zip(task.accesses, (x, y), strict=True)] == [
        (True, "write", 32),
        (True, "read", 64),
    ]
    assert task.accesses[1].places == [ctx.devices[1]]
    assert [candidate.place for candidate in places] == list(ctx.devices)
    assert [candidate.move_bytes for candidate in places[:2]] == [64, 0]
    assert places[0].move_s > 0 == places[1].move_s and places[0].run_s is None
    assert all(candidate.finish_s > candidate.free_s >= 0 and candidate.evict_bytes == 0 for candidate in places)


@pytest.mark.at_once("a with-block runs where it stands")
@pytest.mark.parametrize("what", ["number", "place", "candidate"])
def test_a_function_says_a_place_in_several_ways(several, what):
    ctx = several(
        placement=lambda task, places: {
            "number": places[1].place.index,
            "place": places[1].place,
            "candidate": places[1],
        }[what]
    )
    with ctx.task(ctx.logical_data(np.zeros(4)).rw()) as t:
        assert t.place == ctx.devices[1]


WRONG = [77, -1, "host", "auto", None, 1.5, "x", exec_place.n_devices(2), exec_place.host(), stf.data_place.device(0)]


@pytest.mark.parametrize("answer", WRONG, ids=repr)
def test_a_function_that_says_no_place_is_an_error(several, answer):
    def pick(task, places):
        return answer

    ctx = several(placement=pick)
    x = ctx.logical_data(np.zeros(4))
    before = ctx.statistics().tasks
    for submit in (lambda: init(x, 1.0), lambda: ctx.task(x.rw(), name="init").start()):
        with pytest.raises(stf.PlaceError) as caught:
            submit()
        text = str(caught.value)
        assert "pick' (test_placement.py:" in text and "task 'init' (test_placement.py:" in text
        assert "which did not begin" in text and repr(answer) in text
    assert ctx.statistics().tasks == before
    init.on(0)(x, 2.0)  # nothing holds the data
    assert x.numpy().tolist() == [2.0] * 4


def test_a_function_that_raises_is_an_error(several):
    def pick(task, places):
        raise KeyError("nothing")

    ctx = several(placement=pick)
    x = ctx.logical_data(np.zeros(4))
    with pytest.raises(
        stf.PlaceError, match=r"pick' \(test_placement.py:\d+\) raised KeyError for task 'init'"
    ) as caught:
        init(x, 1.0)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(stf.PlaceError, match="which did not begin"):
        ctx.fill(x, 1.0)
    assert x.numpy().tolist() == [0.0] * 4


@pytest.mark.not_captured("the body copies to the host")
def test_a_function_may_submit_tasks(several):
    ctx = several(placement=lambda task, places: places[0])
    log = ctx.logical_data(np.zeros(1))

    def choose(task, places):
        inc.on(0)(log)
        return places[1]

    other = several(placement=choose)
    x = other.logical_data(np.zeros(4))
    inc(x)
    inc(x)
    assert (log.numpy().tolist(), x.numpy().tolist()) == ([2.0], [2.0] * 4)


# -- what is told --------------------------------------------------------------------------------------------------


def test_why_tells_the_choice(several):
    ctx = several(place="auto", observe="dot")
    x, y = ctx.logical_data(np.zeros(4), name="x"), ctx.logical_data(np.zeros(1 << 10), name="y")
    init.on(1)(y, 1.0)
    ctx.task(y.read(), x.write(), name="placed")(lambda y, _x: None)
    handle = ctx.task(y.read(), x.write(), name="other")
    handle(lambda y, _x: None)
    text = ctx.why("placed")
    assert "placed automatically at device(1): the earliest finish, where copies count 2 times" in text
    header, first, second = text.partition("times\n")[2].splitlines()[:3]
    assert header.split() == ["place", "free", "moves", "evict", "run", "finish"]
    assert first.split()[0] == f"device({ctx.devices[0].index})" and "8.00 KiB in" in first and "unknown" in first
    assert second.split()[0] == f"device({ctx.devices[1].index})" and "0 B" in second
    assert "placed automatically" in stf.why(handle)
    assert "placed automatically" not in ctx.why("init")


@pytest.mark.at_once("bodies run when the graph is launched")
def test_durations_of_bodies_are_measured(several):
    ctx = several(place="auto")
    if is_cuda(ctx):
        pytest.skip("bodies on a device only enqueue")
    data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
    for _ in range(4):
        for x in data:
            inc(x)
    ctx.synchronize()
    table = {key[0]: duration for key, duration in ctx.placement.durations.table().items()}
    assert table["inc"].n == 8 and 0 < table["inc"].mean_s < 1


@pytest.mark.at_once("a with-block runs where it stands")
def test_a_task_that_does_not_begin_counts_for_nothing(several):
    seen = []

    def choose(task, places):
        seen.append([place.free_s for place in places])
        return 0

    ctx = several(placement=choose)
    x, empty = ctx.logical_data(np.zeros(4)), ctx.logical_data_empty(4)
    for submit in (lambda: add(x, empty), lambda: ctx.task(x.rw(), empty.read()).start()):
        with pytest.raises(stf.UninitializedDataError):
            submit()
    init(x, 1.0)
    assert seen[1:] == seen[:1] * 2


@pytest.mark.at_once("a with-block runs where it stands")
def test_contexts_see_each_others_load():
    resources = stf.Resources()
    with (
        stf.context(devices="cpu:2", place="auto", resources=resources) as one,
        stf.context(devices="cpu:2", place="auto", resources=resources) as other,
    ):
        x, y = one.logical_data(np.zeros(4)), other.logical_data(np.zeros(4))
        with one.task(x.write()) as t:
            assert t.place == one.devices[0]
        with other.task(y.write()) as t:
            assert t.place == other.devices[1]
    resources.close()


def test_decisions_of_a_run_are_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr("stf.placement.decisions.recorded", {})
    path = tmp_path / "places.json"

    def run(setting, placement=None, steps=40):
        found = []
        monkeypatch.setattr(stf.config, "placement", f"{setting}:{path}")
        with stf.context(devices="cpu:3", place="auto", placement=placement) as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(5)]
            for step in range(steps):
                tasks = inc(data[step % 5])
                found.append(tasks)
            places = [task.place.index for task in found]
        return places

    rng = random.Random(5)
    first = run("record", lambda task, places: rng.choice(places))
    for placement in (None, stf.placement.planned(window=8), stf.placement.owner()):
        monkeypatch.setattr("stf.placement.decisions.recorded", {})
        assert run("replay", placement) == first
    monkeypatch.setattr("stf.placement.decisions.recorded", {})
    with pytest.raises(stf.PlaceError, match=r"automatic task 41 is none .* and here it is 'inc' \(test_placement.py"):
        run("replay", steps=41)
    with pytest.raises(ValueError, match="has no decisions of context 2"):
        run("replay")
    with pytest.raises(ValueError, match="STF_PLACEMENT is record:FILE or replay:FILE"):
        run("repeat")


def test_a_calibration_says_how_long_tasks_take(tmp_path):
    with stf.context(devices="cpu:2", observe="durations") as ctx:
        x = ctx.logical_data(np.zeros(4))
        for _ in range(3):
            ctx.task(x.rw(), name="step")(lambda x: time.sleep(0.02))
        found = ctx.calibrate(tmp_path / "machine.json")
    for model in (found, tmp_path / "machine.json", str(tmp_path / "machine.json")):
        runs = []
        rule = stf.placement.eft(model=model)
        with stf.context(devices="cpu:2", place="auto", placement=rule, observe="dot") as ctx:
            y = ctx.logical_data(np.zeros(4))
            ctx.task(y.rw(), name="step")(lambda y: None)
            ctx.synchronize()
            runs = [line.split() for line in ctx.why("step").splitlines() if line.strip().startswith("device(")]
        assert all(float(row[-4]) >= 20 and row[-3] == "ms" for row in runs) and len(runs) == 2
    with pytest.raises(ValueError, match="holds no calibration"):
        (tmp_path / "wrong.json").write_text("{}")
        stf.context(devices="cpu:2", placement=stf.placement.planned(model=tmp_path / "wrong.json"))


# -- recordings ----------------------------------------------------------------------------------------------------


@stf.task
def double(x: stf.ReadWrite):
    x += x


def test_a_recording_keeps_its_places(several):
    ctx = several(place="auto")
    data = [ctx.logical_data(np.ones(4)) for _ in range(4)]
    graph = ctx.task_graph()
    with graph:
        for x in data:
            double(x)
    launched = []
    for _ in range(3):
        graph.launch()
        ctx.synchronize()
        launched.append(used(ctx))
    assert launched[0] == launched[-1] and len(launched[0] - {"host"}) > 1
    assert [x.numpy().tolist() for x in data] == [[8.0] * 4] * 4


def test_a_replayed_call_knows_whether_its_places_were_chosen(several):
    ctx = several()
    x = ctx.logical_data(np.ones(4))

    @stf.replay
    def step(x):
        double(x)
        double(x)

    def run():
        for _ in range(4):
            step(x)

    run()
    before = len(step._entries)
    with exec_place.auto():
        run()
    assert len(step._entries) == before + 1  # a recording of its own
    with ctx.devices[1]:
        run()
    assert len(step._entries) == before + 2
    assert x.numpy().tolist() == [4.0**12] * 4


def test_gathered_tasks_are_placed(several):
    ctx = several(place="auto")
    data = [ctx.logical_data(np.ones(4)) for _ in range(4)]
    with ctx.graph_scope():
        for x in data:
            double(x)
    with ctx.graph_scope():
        for x in data:
            double(x)
    assert [x.numpy().tolist() for x in data] == [[4.0] * 4] * 4


# -- in all ways at once -------------------------------------------------------------------------------------------


def test_data_of_another_context_are_refused_as_ever(several):
    ctx, other = several(place="auto"), several(place="auto")
    x, y = ctx.logical_data(np.zeros(4)), other.logical_data(np.zeros(4))
    with pytest.raises(stf.ContextMismatchError):
        ctx.task(x.rw(), y.read())(lambda x, y: None)
    init(x, 1.0)
    init(y, 1.0)


def test_tokens_order_tasks_that_are_placed(several):
    ctx = several(place="auto")
    token, order = ctx.token(), []

    def note(number):
        return lambda: order.append(number)

    for number in range(8):
        ctx.task(token.rw())(note(number))
    ctx.synchronize()
    assert order == list(range(8))


@pytest.mark.not_captured("the body copies to the host")
def test_threads_place_tasks_at_once(several):
    ctx = several(place="auto")
    if ctx.engine.gathering is not None:
        pytest.skip("a graph context gathers the tasks of one thread at a time")
    data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]

    def work(x):
        for _ in range(50):
            inc(x)
            init(ctx.logical_data_empty(4), 1.0)

    threads = [threading.Thread(target=work, args=(x,)) for x in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [x.numpy().tolist() for x in data] == [[50.0] * 4] * 4


def test_data_and_expressions_and_fills_are_placed(several):
    ctx = several(place="auto")
    x, y = ctx.logical_data_empty(4), ctx.logical_data_full(4, 3.0)
    s = ctx.logical_data(np.zeros(()))
    ctx.fill(x, 2.0)
    ctx.copy(y, x)
    s.assign(s + 1)
    assert x.numpy().tolist() == [3.0] * 4 and float(s) == 1.0


def test_what_a_function_reads_to_choose_is_no_part_of_a_replay(several):
    turns = []

    def choose(task, places):
        turns.append(task.symbol)
        return places[len(turns) % 2]

    ctx = several(placement=choose)
    x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))

    @stf.replay
    def step(x, y):
        double(x)
        double(y)

    for _ in range(5):
        step(x, y)
    assert len(turns) <= 4  # of the call that ran, and of the one that was recorded
    assert x.numpy().tolist() == y.numpy().tolist() == [32.0] * 4
