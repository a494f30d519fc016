"""Plans: an order that comes after all dependences, and what it gains on simulated devices."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import QUICK

import stf
from stf import config
from stf.observe.durations import Duration
from stf.placement.plans import by_rank, plan

WORKLOADS = str(Path(__file__).parents[2] / "benchmarks" / "workloads" / "placement")


def conflicts(one, other):
    """Whether two tasks use one data, and not both read it."""
    modes = {access.data: access.mode for access in one.accesses}
    return any(access.data in modes and not access.mode == modes[access.data] == 1 for access in other.accesses)


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_keeps_the_order_of_tasks_that_conflict(seed):
    rng = random.Random(seed)
    with stf.context(devices="cpu:3", placement=stf.placement.planned(move_weight=rng.choice([0, 1, 4]))) as ctx:
        data = [ctx.logical_data(np.zeros(rng.choice([0, 1, 1000])), name=str(i)) for i in range(5)]
        tokens = [ctx.token() for _ in range(2)]
        for name in "abc":  # some take no time
            for large in range(20):
                for _ in range(2):
                    ctx.placement.durations.note(name, large, "cpu", rng.choice([0.0, 0.0, 1e-3]))
        tasks = []
        for _ in range(60):
            used = rng.sample(data + tokens, rng.randint(1, 3))
            accesses = [rng.choice([x.read, x.read, x.write, x.rw])() for x in used]
            tasks.append(ctx.task(*accesses, name=rng.choice("abcd")))
            tasks[-1].warns_if_unused = False
        order, places = plan(ctx.placement, tasks, len(tasks))
        assert sorted(order) == list(range(60)) and set(places) <= {1, 2, 3}
        position = {index: at for at, index in enumerate(order)}
        for i in range(60):
            for j in range(i):
                if conflicts(tasks[i], tasks[j]):
                    assert position[j] < position[i]
        first, _ = plan(ctx.placement, tasks, 20)
        assert len(first) == 20
        assert len(plan(ctx.placement, tasks, 1000)[0]) == 60 and plan(ctx.placement, [], 4)[0] == []
        assert {j for i in first for j in range(i) if conflicts(tasks[i], tasks[j])} <= set(first)


def test_tasks_of_one_rank_keep_their_order():
    assert by_rank([1.0, 3.0, 1.0, 3.0, 2.0]) == [1, 3, 4, 0, 2]


def test_the_longest_chain_comes_first():
    with stf.context(devices="cpu:2", placement=stf.placement.planned()) as ctx:
        x, y = ctx.logical_data(np.zeros(1)), ctx.logical_data(np.zeros(1))
        tasks = [ctx.task(x.rw()), *[ctx.task(y.rw()) for _ in range(5)]]
        for task in tasks:
            task.warns_if_unused = False
        order, places = plan(ctx.placement, tasks, len(tasks))
    assert order[0] == 1 and order.index(0) == 4 and places[0] != places[1]


def test_long_tasks_keep_the_order_of_the_plan_in_one_lane():
    durations = {("long", large, "H200"): Duration(16, 1e-3, 1e-3, 1e-3) for large in range(20)}
    durations |= {("short", large, "H200"): Duration(16, 2e-5, 2e-5, 2e-5) for large in range(20)}
    lanes = {}

    def program(ctx):
        data = [ctx.logical_data_empty(10) for _ in range(8)]
        for name in ("long", "short"):
            for x in data:
                ctx.task(x.write(), name=name)(lambda _x: None)
            ctx.synchronize()
            lanes[name] = [lane.kind for lane in ctx.engine.root.lanes if lane.place and lane.kind in (0, 6)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "placement", None)

        def run():
            with stf.context(placement=stf.placement.planned()) as ctx:
                program(ctx)

        stf.plan(run, devices="2xH200", model=stf.Calibration(durations))
    assert lanes["long"] == [6, 6] and lanes["short"].count(0) > 2


FIGURES = {  # efficiency and copies of a plan in windows of 256, on eight devices
    "Cholesky, 16 x 16 tiles": (0.85, 835),
    "LU, 12 x 12": (0.83, 675),
    "product, 8 x 8 x 8": (0.95, 418),
    "stencil, 16 blocks": (0.98, 704),
    "reductions, 8 of 64": (0.93, 943),
    "Cholesky, 32 x 32 tiles": (0.965, 4623),
}


@pytest.mark.skipif(config.pure, reason="takes a minute uncompiled")
@pytest.mark.parametrize("name", FIGURES)
def test_a_plan_reaches_its_figures(name, monkeypatch):
    monkeypatch.syspath_prepend(WORKLOADS)
    for module in ("programs", "run"):  # others have modules of these names
        monkeypatch.delitem(sys.modules, module, raising=False)
    import run

    if QUICK and "32" in name:
        pytest.skip("a second")
    (program,) = (one for one in run.PROGRAMS if one.name == name)
    found = run.planned(program, 8, run.RULES["planned"])
    efficiency, copies = program.work_s / found.makespan / 8, sum(found.copies.values())
    least, most = FIGURES[name]
    assert efficiency >= least and copies <= most
