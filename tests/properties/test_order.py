"""The checker of orders: it accepts what the engine makes, and misses no missing wait."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import stf
import stf.testing
from stf import exec_place
from stf.testing import OrderError, check_order


def recorded_program(devices: str) -> list[tuple]:
    """A fork and a join; nothing completes before everything is submitted, so that every wait is made."""
    latch = threading.Event()
    a, b, c = (np.zeros(4) for _ in range(3))
    ctx = stf.testing.context(devices, workers=4)
    count = len(ctx.devices)
    la, lb, lc = (ctx.logical_data(x, name=name) for x, name in ((a, "a"), (b, "b"), (c, "c")))

    def first(x):
        latch.wait()
        x[:] = 1

    def fork(x, y):
        y[:] = x + 1

    def join(x, y, z):
        x[:] = y + z

    ctx.task(exec_place.device(0), la.write(), name="first")(first)
    for i, ld in ((1, lb), (2, lc)):
        ctx.task(exec_place.device(i % count), la.read(), ld.write(), name=f"fork{i}")(fork)
    ctx.task(exec_place.device(0), la.rw(), lb.read(), lc.read(), name="join")(join)
    for i, ld in ((1, lb), (2, lc)):
        ctx.task(exec_place.device(i % count), la.read(), ld.write(), name=f"again{i}")(fork)
    latch.set()
    ctx.finalize()
    assert a.tolist() == [4] * 4 and b.tolist() == [5] * 4 and c.tolist() == [5] * 4
    for array in (a, b, c):
        ctx.recording.host_access(array, False)
    return ctx.recording.entries


def is_needed(entries: list[tuple], index: int) -> bool:
    try:
        check_order(entries[:index] + entries[index + 1 :])
    except OrderError as error:
        assert "is not ordered after" in str(error)
        return True
    return False


def waits_of(entries: list[tuple]) -> list[int]:
    return [i for i, entry in enumerate(entries) if entry[0] == "wait"]


def test_every_wait_is_needed_where_nothing_is_copied() -> None:
    entries = recorded_program("cpu")
    assert check_order(entries) > 10
    waits = waits_of(entries)
    assert len(waits) == 3  # the second fork, the join, the second fork again
    assert all(is_needed(entries, i) for i in waits)


def test_waits_around_copies_are_needed() -> None:
    """Some waits of a task are implied by those of its copies; the others are not."""
    entries = recorded_program("cpu:3")
    assert check_order(entries) > 30
    waits = waits_of(entries)
    needed = [i for i in waits if is_needed(entries, i)]
    assert len(needed) >= 8
    copies = {entry[2] for entry in entries if entry[0] == "copy"}
    assert all(i in needed for i in waits if entries[i][2] in copies and entries[i][4] == 1 and entries[i][3] == 0)
    with pytest.raises(OrderError):
        check_order([entry for entry in entries if entry[0] != "wait"])


def test_host_synchronization_is_needed() -> None:
    entries = recorded_program("cpu:3")
    without = [entry for entry in entries if entry[0] not in ("synchronized", "completed")]
    with pytest.raises(OrderError):
        check_order(without)


def test_records_that_come_late_are_found() -> None:
    entries = recorded_program("cpu:3")
    first = next(i for i, entry in enumerate(entries) if entry[0] == "record")
    with pytest.raises(OrderError, match="before it is recorded"):
        check_order(entries[:first] + entries[first + 1 :])


SPAN = (4096, (4,), (8,), 8)


def verbs(*entries: tuple) -> list[tuple]:
    """A recording by hand, of one host thread, with two streams."""
    return [("create", 1, 0, 0), ("create", 1, 1, 0), *[(e[0], 1, *e[1:]) for e in entries]]


HOME = (1 << 20, (4,), (8,), 8)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (verbs(("alloc", 0, 32, 0, 4096), ("copy", 0, HOME, SPAN)), "nothing has filled"),
        (verbs(("alloc", 0, 32, 0, 4096), ("copy", 1, SPAN, HOME)), "not ordered after allocation"),
        (verbs(("alloc", 0, 32, 0, 4096), ("alloc", 0, 32, 0, 4100)), "overlaps"),
        (verbs(("free", 0, 4096, 32, 0)), "not allocated"),
        (verbs(("alloc", 0, 16, 0, 4096), ("copy", 0, SPAN, HOME)), "reaches out"),
        (
            verbs(("alloc", 0, 32, 0, 4096), ("copy", 0, SPAN, HOME), ("free", 0, 4096, 32, 1)),
            "free of 32 bytes .* is not ordered after",
        ),
        (verbs(("record", 0, 2), ("record", 0, 2)), "records 2 after 2"),
        (verbs(("wait", 0, 1, 1)), "before it is recorded"),
        (
            verbs(
                ("task", 1, "w", "task", 0, ((7, 2, None),)),
                ("record", 0, 1),
                ("task", 2, "r", "task", 1, ((7, 1, None),)),
                ("record", 1, 1),
            ),
            "task 2 'r' .task. is not ordered after task 1 'w'",
        ),
    ],
)
def test_each_broken_rule_is_named(entries: list[tuple], message: str) -> None:
    with pytest.raises(OrderError, match=message):
        check_order(entries)


def test_reads_and_disjoint_tiles_need_no_order() -> None:
    left, right = (1 << 20, (2, 2), (32, 8), 8), ((1 << 20) + 16, (2, 2), (32, 8), 8)
    entries = verbs(
        ("task", 1, "a", "task", 0, ((1, 2, left),)),
        ("record", 0, 1),
        ("task", 2, "b", "task", 1, ((2, 2, right),)),
        ("record", 1, 1),
    )
    check_order(entries)
    overlapping = ((1 << 20) + 8, (2, 2), (32, 8), 8)
    entries[4] = ("task", 1, 2, "b", "task", 1, ((2, 2, overlapping),))
    with pytest.raises(OrderError, match="memory at"):
        check_order(entries)


def test_the_recording_tells_which_body_ran_on_which_stream() -> None:
    with stf.testing.context("cpu:2") as ctx:
        x = ctx.logical_data(np.zeros(2))
        ctx.task(exec_place.device(1), x.rw(), name="late")(lambda a: None)
        with ctx.task(x.read(), name="block"):
            pass
    entries = ctx.recording.entries
    names = {entry[3]: entry[5] for entry in entries if entry[0] == "task"}
    call = next(entry for entry in entries if entry[0] == "call")
    assert call[2] == names["late"]
    assert names["block"] in [entry[2] for entry in entries if entry[0] == "entered"]
    assert ctx.recording.count("body") == ctx.recording.count("body_end") == 1
