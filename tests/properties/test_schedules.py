"""The check of schedules agrees with an oracle, on right ones and on wrong ones."""

from __future__ import annotations

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
