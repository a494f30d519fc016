"""Eviction by next use, where a plan knows it: what goes, what it saves, and that values stay what they are."""

from __future__ import annotations

import logging
import random
import sys
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stf
from stf.observe.durations import Duration

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "workloads" / "out_of_core"))

import orders as out_of_core

N = 16
NBYTES = 8 * N
SPARED = 4  # as the engine has it
KINDS = ("H200", "host")


@stf.task
def add(x: stf.ReadWrite) -> None:
    x += 1


@stf.task
def combine(x: stf.Read, y: stf.ReadWrite) -> None:
    y *= 0.5
    y += x


def sweeps(ctx: stf.Context, count: int = 10, rounds: int = 6) -> list[Any]:
    """Go over more data than there is room for, again and again: the worst case of eviction by last use."""
    data = [ctx.logical_data(np.full(N, float(k)), name=f"X{k}") for k in range(count)]
    for _ in range(rounds):
        for item in data:
            add(item)
    return data


def copied(plan: stf.Plan) -> int:
    return sum(plan.copies.values())


def in_a_context(room: int, plan: stf.Plan | None, **options: Any) -> Any:
    def program() -> None:
        with stf.context(memory_limit=room * NBYTES, plan=plan, **options) as ctx:
            sweeps(ctx)

    return program


def test_sweeps_keep_what_is_needed_soonest() -> None:
    """Of 8 replicas 4 were used just now and are spared; those of the other 4 stay that are needed first."""
    by_last_use = stf.plan(in_a_context(8, None), devices="1xH200")
    by_next_use = stf.plan(in_a_context(8, by_last_use), devices="1xH200")
    assert copied(by_last_use) == 2 * 10 * 6  # each task brings its data, which go home before they are used again
    assert copied(by_next_use) <= 2 * (10 + 5 * 6)  # 4 of 10 stay from one sweep to the next


# -- copies ahead of the next task -----------------------------------------------------------------------------------


@stf.task
def relax(x: stf.ReadWrite, r: stf.Write) -> None:
    x += 1
    r[...] = 1.0


def blocked_sweeps(looks: bool, plan: stf.Plan | None, room: int = 8, count: int = 16, rounds: int = 4) -> stf.Plan:
    """Go over blocks of which half have room, and look at what each gives before the next is submitted."""
    tile = (out_of_core.TILE, out_of_core.TILE)
    model = out_of_core.model()
    model.durations.update({("relax", n, kind): Duration(16, 8e-4, 8e-4, 8e-4) for n in range(48) for kind in KINDS})

    def program() -> None:
        with stf.context(memory_limit=room * out_of_core.NBYTES, plan=plan) as ctx:
            blocks = [ctx.logical_data_empty(tile, name=f"X{k}") for k in range(count)]
            error = ctx.logical_data_empty((), name="error")
            for block in blocks:
                out_of_core.make.on(stf.exec_place.host())(block)
            for _ in range(rounds):
                for block in blocks:
                    relax(block, error)
                    if looks:
                        assert float(error) == 0.0

    return stf.plan(program, devices="1xH200", model=model, values={"error": 0.0})


def left_looking(looks: bool, plan: stf.Plan | None, n: int = 12) -> stf.Plan:
    """Factor tiles of which a quarter have room, and look at the pivot of each column."""
    tile = (out_of_core.TILE, out_of_core.TILE)

    def program() -> None:
        limit = int(n * (n + 1) / 8 * out_of_core.NBYTES)
        with stf.context(memory_limit=limit, plan=plan) as ctx:
            a = {(i, j): ctx.logical_data_empty(tile, name=f"{i},{j}") for i in range(n) for j in range(i + 1)}
            pivot = ctx.logical_data_empty((), name="pivot")
            for block in a.values():
                out_of_core.make.on(stf.exec_place.host())(block)
            for j in range(n):
                for i in range(j, n):
                    for k in range(j):
                        out_of_core.update(a, i, k, j)
                    if i == j:
                        relax(a[j, j], pivot)
                    else:
                        out_of_core.trsm(a[j, j], a[i, j])
                    if looks:
                        assert float(pivot) == 0.0

    return stf.plan(program, devices="1xH200", model=out_of_core.model(), values={"pivot": 0.0})


def without_copies_ahead(plan: stf.Plan) -> stf.Plan:
    """The same plan, which knows no places where data are read."""
    places = plan.uses().places
    places[:] = array("q", [-1]) * len(places)
    return plan


@pytest.mark.parametrize(
    ("program", "looks", "least", "most"),
    [
        (blocked_sweeps, True, 0.5, 0.65),
        (blocked_sweeps, False, 0.9999, 1.0001),
        (left_looking, True, 0.9, 0.98),
        (left_looking, False, 0.9999, 1.0001),
    ],
)
def test_copies_ahead_of_the_next_task(program: Any, looks: bool, least: float, most: float) -> None:
    """They gain where the host looks at results; where submission is ahead they are queued already."""
    by_last_use = program(looks, None)
    alone = program(looks, without_copies_ahead(program(looks, None)))
    ahead = program(looks, by_last_use)
    assert least < ahead.makespan / alone.makespan < most
    assert copied(ahead) < copied(by_last_use)
    assert copied(ahead) <= (1.1 if looks else 1.0) * copied(alone)
    assert ahead.tasks == alone.tasks


def test_a_plan_is_followed_behind_looks_at_results(caplog: Any) -> None:
    def program(ctx: stf.Context) -> float:
        data, total = sweeps(ctx, rounds=1), 0.0
        for item in data:
            add(item)
            total += float(item.numpy().sum())
        return total

    plan = stf.plan(program, devices="1xcpu", values={f"X{k}": np.zeros(N) for k in range(10)})
    found = []
    for known in (None, plan):
        with (
            caplog.at_level(logging.WARNING, "stf"),
            stf.context(devices="cpu:1", memory_limit=6 * NBYTES, plan=known) as ctx,
        ):
            found.append(program(ctx))
            ctx.check_state()
    assert found == [N * sum(k + 2.0 for k in range(10))] * 2
    assert not caplog.records


def random_steps(seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.sample(range(12), rng.choice((1, 2)))) for _ in range(120)]


def play(ctx: stf.Context, steps: list[tuple[int, ...]]) -> list[np.ndarray]:
    home = [np.full(N, float(k)) for k in range(12)]
    data = [ctx.logical_data(item, name=f"X{k}") for k, item in enumerate(home)]
    for step in steps:
        if len(step) == 1:
            add(data[step[0]])
        else:
            combine(data[step[0]], data[step[1]])
    return home


@pytest.mark.parametrize("seed", range(8))
def test_values_do_not_depend_on_what_goes(seed: int) -> None:
    steps = random_steps(seed)
    plan = stf.plan(lambda ctx: play(ctx, steps), devices="1xcpu")
    found = []
    for known in (None, plan):
        with stf.context(devices="cpu:1", memory_limit=6 * NBYTES, plan=known) as ctx:
            found.append(play(ctx, steps))
            ctx.check_state()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("seed", range(8))
def test_what_goes_is_what_is_needed_last(seed: int) -> None:
    """Each eviction is compared with a search of the rest of the program; what was used just now is spared."""
    steps = random_steps(seed)
    plan = stf.plan(lambda ctx: play(ctx, steps), devices="1xcpu")
    with stf.context(devices="cpu:1", memory_limit=8 * NBYTES, plan=plan) as ctx:
        data = [ctx.logical_data(np.full(N, float(k)), name=f"X{k}") for k in range(12)]
        evictions = 0
        for i, step in enumerate(steps):
            here = {k for k, item in enumerate(data) if on_device(item)}
            (add if len(step) == 1 else combine)(*[data[k] for k in step])
            gone = {k for k in here if not on_device(data[k])}
            evictions += len(gone)
            recent = {k for earlier in steps[max(i - SPARED, 0) : i] for k in earlier}
            others = here - set(step) - recent
            if gone and others:
                after = {k: next((j for j, s in enumerate(steps[i + 1 :]) if k in s), 1000) for k in here}
                last = sorted((after[k] for k in others), reverse=True)
                assert sorted((after[k] for k in gone & others), reverse=True) == last[: len(gone & others)]
                assert gone <= others or others <= gone
            ctx.check_state()
    assert evictions > 20


def on_device(item: Any) -> bool:
    return any(r.place == 1 and r.address for r in item.core.version.replicas)


def test_another_program_than_the_plan_is_told_and_right(caplog: pytest.LogCaptureFixture) -> None:
    plan = stf.plan(lambda ctx: sweeps(ctx), devices="1xcpu")
    with (
        caplog.at_level(logging.WARNING, "stf"),
        stf.context(devices="cpu:1", memory_limit=4 * NBYTES, plan=plan) as ctx,
    ):
        data = [ctx.logical_data(np.full(N, float(k)), name=f"X{k}") for k in range(10)]
        for _ in range(3):
            for item in reversed(data):  # the plan begins with the first
                add(item)
        assert all(item.core.next_use == data[0].core.next_use for item in data)  # none is known any more
        ctx.check_state()
        assert [item.numpy()[0] for item in data] == [k + 3.0 for k in range(10)]
    (message,) = [record.getMessage() for record in caplog.records]
    assert "task 'add'" in message and "as task 0" in message and "'X9'" in message and "last use" in message


def test_a_program_that_goes_on_after_its_plan(caplog: pytest.LogCaptureFixture) -> None:
    plan = stf.plan(lambda ctx: sweeps(ctx, rounds=2), devices="1xcpu")
    with stf.context(devices="cpu:1", memory_limit=4 * NBYTES, plan=plan) as ctx, caplog.at_level(logging.WARNING):
        data = sweeps(ctx, rounds=3)
        assert [item.numpy()[0] for item in data] == [k + 3.0 for k in range(10)]
        assert ctx.engine.next_uses is None
    assert not caplog.records


def test_a_recorded_graph_is_one_task_of_the_plan() -> None:
    def program(ctx: stf.Context) -> list[Any]:
        data = [ctx.logical_data(np.full(N, float(k)), name=f"X{k}") for k in range(6)]
        with ctx.task_graph() as graph:
            combine(data[0], data[1])
            add(data[1])
        for item in data[2:]:
            graph.launch()
            add(item)
        return data

    plan = stf.plan(program, devices="1xcpu")
    found = []
    for known in (None, plan):
        with stf.context(devices="cpu:1", memory_limit=5 * NBYTES, plan=known) as ctx:
            found.append([item.numpy().copy() for item in program(ctx)])
    np.testing.assert_array_equal(*found)


def test_without_a_plan_nothing_is_known() -> None:
    with stf.context(devices="cpu:1", memory_limit=4 * NBYTES) as ctx:
        data = sweeps(ctx)
        assert ctx.engine.next_uses is None and ctx.engine.coherency.spared == 0
        assert len({item.core.next_use for item in data}) == 1


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(TypeError, match=r"plan is what stf.plan\(program, ...\) returns, got 'soon'"):
        stf.context(devices="cpu:1", plan="soon")


@pytest.mark.parametrize(
    ("order", "part", "traffic", "planned"),
    [  # in multiples of the data; those by next use may be a fifth more
        ("right-looking", 0.5, 12.1, 5.7),
        ("right-looking", 0.25, 16.6, 10.7),
        ("left-looking", 0.5, 2.4, 2.1),
        ("left-looking", 0.25, 8.1, 5.3),
        ("block columns of 4", 0.5, 4.0, 2.2),
        ("block columns of 4", 0.25, 9.2, 3.5),
    ],
)
def test_traffic_of_a_factorization_that_does_not_fit(order: str, part: float, traffic: float, planned: float) -> None:
    by_last_use, by_next_use = out_of_core.measured(order, 24, part)
    assert by_last_use.inward + by_last_use.outward == pytest.approx(traffic, rel=0.05)
    assert by_next_use.inward + by_next_use.outward <= 1.2 * planned
    assert by_next_use.bound_s >= 0.8 * by_next_use.seconds
