"""The check of schedules agrees with an oracle, on right ones and on wrong ones."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from schedules import run

from stf._recording import schedules


@pytest.mark.parametrize("block", range(8))
def test_the_check_agrees_with_an_oracle(block: int) -> None:
    found = [run(seed) for seed in range(100 * block, 100 * block + 100)]
    assert sum(wrong for _, wrong in found) > 100


def test_work_that_takes_no_longer_than_a_worker_to_wake_has_one_queue() -> None:
    needs: list[list[int]] = [[] for _ in range(20)]
    assert len(schedules.planned(needs, [100.0] * 20, 8)) == 1
    assert len(schedules.planned(needs, [100_000.0] * 20, 4)) == 4
    assert len(schedules.planned([[], *[[k] for k in range(19)]], [100_000.0] * 20, 4)) == 1  # a chain


def test_a_long_program_is_planned_and_checked() -> None:
    needs = [[k - 8, k - 7] if k >= 8 else [] for k in range(4000)]
    queues = schedules.with_waits(needs, schedules.planned(needs, [5_000.0] * len(needs), 4))
    schedules.check(needs, [()] * len(needs), queues)
    waits = sum(len(step.waits) for queue in queues for step in queue)
    assert waits < len(needs)


def stencil(width: int, steps: int) -> tuple[list[list[int]], list[list[tuple[int, bool]]]]:
    """Return what the points of a stencil need, of which each step writes one of two rows in turn."""
    needs: list[list[int]] = []
    accesses: list[list[tuple[int, bool]]] = []
    for step in range(steps):
        for column in range(width):
            near = range(max(column - 1, 0), min(column + 2, width))
            needs.append([(step - 1) * width + other for other in near] if step else [])
            row, before = step % 2 * width, (step + 1) % 2 * width
            accesses.append([(row + column, True), *[(before + other, False) for other in near if step]])
    return needs, accesses


@pytest.mark.parametrize("cost_ns", [100.0, 20_000.0])
@pytest.mark.parametrize("workers", [2, 4])
def test_neighbours_go_to_one_worker(workers: int, cost_ns: float) -> None:
    """Only points at the edge of a worker's part wait for another worker, two of each part in each step."""
    needs, accesses = stencil(16, 60)
    rng = random.Random(7)
    costs = [cost_ns * rng.uniform(0.9, 1.2) for _ in needs]
    plan = schedules.planned(needs, costs, workers, accesses)
    queues = schedules.with_waits(needs, plan)
    schedules.check(needs, accesses, queues)
    assert {len(queue) for queue in queues} == {len(needs) // workers}
    assert sum(len(step.waits) for queue in queues for step in queue) <= 2 * (workers - 1) * 60
    without = schedules.with_waits(needs, schedules.planned(needs, costs, workers))
    assert sum(len(step.waits) for queue in without for step in queue) > 4 * (workers - 1) * 60


def test_work_goes_where_it_ends_first_if_its_memory_is_used_by_all() -> None:
    """One memory that all steps write would make one worker do everything."""
    needs: list[list[int]] = [[] for _ in range(40)]
    accesses = [((0, True),)] * 40  # beside each other
    assert schedules.homes_of([50_000.0] * 40, accesses, 4) == [-1] * 40
    queues = schedules.planned(needs, [50_000.0] * 40, 4, accesses)
    assert [len(queue) for queue in queues] == [10] * 4


def test_steps_that_another_worker_waits_for_come_first() -> None:
    """The others hide how long it takes until that worker sees them."""
    needs, accesses = stencil(16, 60)
    queues = schedules.planned(needs, [200.0] * len(needs), 2, accesses)
    order = next(queue for queue in queues if 0 in queue)
    assert sorted({step % 16 for step in order}) == list(range(8))
    rows = [[step % 16 for step in order if step // 16 == row] for row in range(50)]
    assert all(row[0] == 7 for row in rows)


def test_a_look_at_what_another_worker_did_costs_time() -> None:
    """Two chains that change workers with each step take so much longer than those that stay."""
    needs = [[k - 1] if k % 200 else [] for k in range(400)]  # two chains
    queues, span_ns = schedules.spread(needs, [100.0] * 400, 2)
    assert sorted(map(len, queues)) == [200, 200]
    assert span_ns == 20_000.0
    crossed, crossed_ns = schedules.spread(
        needs, [100.0] * 400, 2, 0.0, None, [k % 2 if k < 200 else 1 - k % 2 for k in range(400)]
    )
    assert sorted(map(len, crossed)) == [200, 200]
    assert crossed_ns >= 20_000.0 + 199 * schedules.LOOK_NS


def test_a_step_looks_once_at_each_worker_that_it_waits_for() -> None:
    """However much of that worker it needs: a sum over many steps is no reason to leave workers out."""
    needs: list[list[int]] = [[] for _ in range(1000)]
    needs.append(list(range(1000)))
    assert len(schedules.planned(needs, [100.0] * 1001, 4)) == 4
