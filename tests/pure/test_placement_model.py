"""The model behind automatic placement: durations, estimates and choices, on emulated devices."""

from __future__ import annotations

import random

import numpy as np
import pytest

import stf
from stf.observe.durations import Timing, Timings

SUBMISSION_S = 20e-6  # of a task of which nothing is known
BYTES_PER_S = 0.7 * 2e10


@stf.task
def touch(x: stf.ReadWrite, y: stf.Read):
    x += y


@stf.task
def fill(x: stf.Write):
    x[...] = 1


# -- durations -----------------------------------------------------------------------------------------------------


def test_a_mean_needs_two_measurements_and_forgets_old_ones():
    timing = Timing()
    assert timing.mean < 0
    timing.add(1.0)
    assert timing.mean < 0
    timing.add(3.0)
    assert timing.mean == pytest.approx(2.0)
    for _ in range(16):
        timing.add(5.0)
    assert timing.mean == pytest.approx(5.0) and timing.count == 18


def test_what_took_much_longer_does_not_count():
    timing = Timing()
    for seconds in (1.0, 1.2, 100.0, 0.8):
        timing.add(seconds)
    assert timing.mean == pytest.approx(1.0)


def test_durations_are_kept_by_name_size_and_kind():
    durations = Timings(["cpu"])
    measured = (("f", 3, "cpu", 1.0), ("f", 4, "cpu", 2.0), ("f", 3, "H200", 3.0), ("g", 3, "cpu", 4.0))
    for name, size_class, kind, seconds in measured:
        durations.note(name, size_class, kind, seconds)
        durations.note(name, size_class, kind, seconds)
    found = {key: (duration.n, duration.mean_s) for key, duration in durations.table().items()}
    assert found == {(name, large, kind): (2, seconds) for name, large, kind, seconds in measured}


def test_what_is_known_stands_in_until_two_were_measured():
    durations = Timings(["cpu"], lambda name, large, kind: 2.0 if (name, large, kind) == ("f", 3, "cpu") else None)
    assert durations.timing("f", 3, 0).mean == 2.0
    assert durations.timing("g", 3, 0).mean < 0
    assert durations.table() == {}
    durations.note("f", 3, "cpu", 1.0)
    assert durations.timing("f", 3, 0).mean == 2.0
    durations.note("f", 3, "cpu", 1.0)
    assert durations.timing("f", 3, 0).mean == 1.0


# -- estimates -----------------------------------------------------------------------------------------------------


def test_an_estimate_is_what_the_model_says():
    seen = []

    def choose(task, places):
        seen.append(places)
        return 0

    with stf.context(devices="cpu:2", placement=choose) as ctx:
        x, y = ctx.logical_data(np.zeros(1000)), ctx.logical_data(np.zeros(1000))
        fill.on(1)(y)
        link = ctx.engine.root.links
        touch(x, y)
        touch(x, y)
        run = SUBMISSION_S + 16_000 / BYTES_PER_S
        into_first = link.cost_s(0, 1, 8000) + link.cost_s(2, 1, 8000)
        into_second = link.cost_s(0, 2, 8000)
    first, second = seen[0]
    assert (first.free_s, second.free_s, first.move_bytes, second.move_bytes) == (0, 0, 16_000, 8000)
    assert first.move_s == pytest.approx(into_first) and second.move_s == pytest.approx(into_second)
    assert first.finish_s == pytest.approx(into_first + run)  # the copies follow each other
    assert second.finish_s == pytest.approx(into_second + run) and first.run_s is None
    again, other = seen[1]
    assert again.free_s == pytest.approx(into_first + run) and again.move_bytes == 0
    assert again.finish_s == pytest.approx(into_first + 2 * run)
    assert other.move_s == pytest.approx(link.cost_s(1, 2, 8000))  # y is there, and x comes when it was written
    assert other.finish_s == pytest.approx(into_first + run + other.move_s + run)


def test_a_writer_comes_after_readers_wherever_they_run():
    seen = []

    def choose(task, places):
        seen.append(places)
        return len(seen) % 2

    with stf.context(devices="cpu:2", placement=choose) as ctx:
        x = ctx.logical_data(np.zeros(1000))
        fill(x)  # on 1
        ctx.task(x.read())(lambda x: None)  # on 0, so it copies
        fill(x)
    reader = seen[1][0].finish_s
    assert all(place.finish_s == pytest.approx(reader + SUBMISSION_S + 8000 / BYTES_PER_S) for place in seen[2])


def test_clocks_agree_after_the_host_has_waited():
    seen = []
    with stf.context(devices="cpu:3", placement=lambda task, places: seen.append(places) or 1) as ctx:
        x = ctx.logical_data(np.zeros(4))
        fill(x)
        fill(x)
        ctx.synchronize()
        fill(x)
    assert seen[1][1].free_s > seen[1][0].free_s == 0
    assert len({place.free_s for place in seen[2]}) == 1


# -- choices -------------------------------------------------------------------------------------------------------


def placed(seed, devices, **options):
    """Where the tasks of a random program go."""
    rng = random.Random(seed)
    found = []
    with stf.context(devices=devices, place="auto", **options) as ctx:
        data = [ctx.logical_data(np.zeros(rng.choice([10, 1000, 100_000]))) for _ in range(8)]
        for _ in range(80):
            accesses = [x.rw() if i == 0 else x.read() for i, x in enumerate(rng.sample(data, rng.randint(1, 4)))]
            with ctx.task(*accesses) as t:  # blocks are not measured, so choices depend on the program alone
                found.append(t.place.index)
    return found


@pytest.mark.parametrize("weight", [0, 1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_earliest_finish_is_the_least_of_what_functions_see(seed, weight):
    chosen = placed(seed, "cpu:4", placement=stf.placement.eft(move_weight=weight))

    def least(task, places):
        scores = [place.finish_s + (weight - 1) * place.move_s for place in places]
        (output,) = (access for access in task.accesses if access.mode == "rw")
        ties = [place for place, score in zip(places, scores, strict=True) if score <= min(scores) + 1e-12]
        return next((place for place in ties if place.place in output.places), ties[0])

    assert placed(seed, "cpu:4", placement=least) == chosen
    assert len(set(chosen)) > 1


def test_the_same_program_is_placed_the_same_way_twice():
    assert placed(7, "cpu:8") == placed(7, "cpu:8")


def test_tasks_that_wait_for_one_input_do_not_fill_the_first_place():
    with stf.context(devices="cpu:4", place="auto", placement=stf.placement.eft(move_weight=1)) as ctx:
        big, parts = ctx.logical_data(np.zeros(1000)), [ctx.logical_data(np.zeros(1000)) for _ in range(40)]
        fill.on(0)(big)
        for part in parts:
            ctx.task(big.read(), part.write(), name="part")(lambda big, part: part.fill(1))
        ctx.synchronize()
        counts = ctx.statistics().tasks_by_place
    assert min(counts[f"device({i})"] for i in range(4)) >= 8


def test_one_slow_measurement_moves_few_tasks():
    def run(slow):
        found = []
        with stf.context(devices="cpu:4", place="auto") as ctx:
            data = [ctx.logical_data(np.zeros(1000)) for _ in range(12)]
            durations, size_class = ctx.placement.durations, 12  # 8,000 bytes
            for _ in range(8):
                durations.note("step", size_class, "cpu", 1e-3)
            rng = random.Random(3)
            for number in range(1100):
                if number == 100 and slow:
                    durations.note("step", size_class, "cpu", 0.1)
                with ctx.task(rng.choice(data).rw(), name="step") as t:
                    found.append(t.place.index)
        return found[100:]

    usual, after = run(False), run(True)
    assert sum(one != other for one, other in zip(usual, after, strict=True)) < 0.05 * len(usual)
    assert len(set(usual)) == 4


def test_measured_durations_count():
    with stf.context(devices="cpu:2", placement=lambda task, places: runs.append(places[0].run_s) or 0) as ctx:
        runs: list[float | None] = []
        x = ctx.logical_data(np.zeros(1000))
        for _ in range(2):
            ctx.placement.durations.note("fill", 12, "cpu", 0.5)
        fill(x)
    assert runs == [0.5]


def test_a_task_may_have_many_accesses():
    with stf.context(devices="cpu:3", place="auto") as ctx:
        data = [ctx.logical_data(np.zeros(4)) for _ in range(50)]
        with ctx.task(*[x.rw() for x in data]) as t:
            assert t.place.index == 0
        with ctx.task(*[x.read() for x in data], data[0].rw()) as t:
            assert t.place.index == 0
