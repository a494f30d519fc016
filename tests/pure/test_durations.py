"""How long tasks take: which times are kept, what is said of them, and JSON in and out."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stf
from stf.observe.durations import (
    EACH,
    KEPT,
    Duration,
    Durations,
    duration_of,
    from_records,
    shares_of,
    size_class,
    to_records,
)


def told(
    kept: Durations,
    number: int,
    seconds: float,
    *,
    symbol: str = "f",
    nbytes: int = 80,
    device: int = 0,
    start_s: float = 0.0,
) -> None:
    """Tell of one task that was submitted and ran."""
    layout = SimpleNamespace(nbytes=nbytes)
    access = SimpleNamespace(core=SimpleNamespace(layout=layout))
    task: Any = SimpleNamespace(id=number, symbol=symbol, kind="task", accesses=[access])
    kept.task(task)
    start_ns = round(start_s * 1e9)
    kept.ran(number, symbol, device, 1, start_ns, start_ns + round(seconds * 1e9), "task")


def test_outliers_are_dropped_and_the_mean_is_not_the_median() -> None:
    assert duration_of(5, [1.0, 1.0, 1.0, 3.0, 100.0]) == Duration(5, 1.5, 1.0, 3.0)


def test_all_is_kept_where_most_is_nothing() -> None:
    assert duration_of(3, [0.0, 0.0, 5.0]).n == 3


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 0), (1, 0), (2, 1), (1023, 9), (1024, 10)])
def test_size_classes_are_powers_of_two(nbytes: int, expected: int) -> None:
    assert size_class(nbytes) == expected


def test_times_are_kept_by_function_size_and_kind() -> None:
    kept = Durations(["host", "cpu", "H200"])
    told(kept, 1, 1.0)
    told(kept, 2, 2.0, nbytes=800)
    told(kept, 3, 3.0, device=1)
    told(kept, 4, 4.0, symbol="g", device=-1)
    means = {key: found.mean_s for key, found in kept.table().items()}
    assert means == {("f", 6, "cpu"): 1.0, ("f", 9, "cpu"): 2.0, ("f", 6, "H200"): 3.0, ("g", 6, "host"): 4.0}


def test_the_last_times_count_and_many_are_not_timed() -> None:
    kept = Durations(["host", "cpu"])
    for number in range(1, KEPT + 1):
        told(kept, number, 1.0)
    for number in range(KEPT + 1, KEPT + 1 + EACH * KEPT):
        told(kept, number, 2.0)
    (found,) = kept.table().values()
    assert found == Duration(2 * KEPT, 2.0, 2.0, 2.0)


def test_tasks_that_overlap_on_a_gpu_share_its_time() -> None:
    """So their times add up to what has passed, as those of tasks that run one after the other."""
    spans = [(0, 4), (2, 4), (6, 7), (6, 9), (6, 9), (9, 9)]
    assert shares_of(spans) == pytest.approx([3, 1, 1 / 3, 4 / 3, 4 / 3, 0])
    for overlap, expected in [(False, 3.0), (True, 1.5)]:
        kept = Durations(["host", "H200"], overlap)
        for number in (1, 2, 3, 4):  # two at a time
            told(kept, number, 3.0, start_s=(number - 1) // 2 * 3.0)
        (found,) = kept.table().values()
        assert found == Duration(4, expected, expected, expected)
        assert kept.table() == {("f", 6, "H200"): found}  # no time counts twice


def test_copies_and_tasks_that_did_not_begin_are_not_kept() -> None:
    kept = Durations(["host", "cpu"])
    kept.ran(7, "copy", 0, 1, 0, 5, "copy", 3)
    task: Any = SimpleNamespace(id=8, symbol="f", kind="task", accesses=[])
    kept.task(task)
    kept.withdrawn(8)
    kept.ran(8, "f", 0, 1, 0, 5, "task")
    assert kept.table() == {}


def test_json_in_and_out() -> None:
    table = {("f", 20, "H200"): Duration(4, 1e-3, 2e-3, 3e-3), ("g", 0, "cpu"): Duration(1, 1.0, 1.0, 1.0)}
    assert from_records(json.loads(json.dumps(to_records(table)))) == table


def test_the_tasks_of_a_context_are_timed() -> None:
    with stf.context(devices="cpu:2", observe="durations") as ctx:
        x = ctx.logical_data(np.zeros(1000), name="x")
        for i in range(4):
            ctx.task(i % 2, x.rw(), name="step")(lambda x: np.add(x, 1, out=x))
        ctx.synchronize()
        table = ctx._durations.table()
    assert {key: found.n for key, found in table.items()} == {("step", 12, "cpu"): 4}


def test_nothing_listens_where_nobody_asks() -> None:
    with stf.context(devices="cpu") as ctx:
        assert ctx.engine.observer is None and ctx._durations is None
