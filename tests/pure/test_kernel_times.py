"""Kernels and copies of GPUs, from records that the tests hand over."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stf.observe import DotRecorder, Observers, Statistics, TraceRecorder
from stf.observe.kernels import Correlation, DeviceRecord, KernelTimes, demangled
from stf.observe.report import content
from stf.observe.run import collect

AHEAD_NS = 5_000_000_000_000  # of the clock of the records


class Recorded:
    """A source of records: what the tests say was launched, told when somebody asks."""

    def __init__(self) -> None:
        self.is_on = False
        self.stacks: defaultdict[int, list[int]] = defaultdict(list)  # by thread
        self.made: list[DeviceRecord | Correlation] = []
        self.count = 0

    def begin(self, told: Callable[[Sequence[DeviceRecord | Correlation]], None]) -> None:
        assert not self.is_on
        self.is_on, self.told = True, told

    def end(self) -> None:
        assert self.is_on
        self.is_on = False

    def push(self, external: int) -> None:
        self.stacks[threading.get_ident()].append(external)

    def pop(self) -> None:
        self.stacks[threading.get_ident()].pop()

    def flush(self) -> None:
        made, self.made = self.made, []
        self.told(made)

    def now_ns(self) -> int:
        return time.perf_counter_ns() + AHEAD_NS

    def launch(self, name: str, start: int, end: int, device: int = 0, stream: int = 7) -> None:
        """Note what this thread has launched; its name comes after the record, as it may."""
        self.count += 1
        self.made.append(DeviceRecord(name, device, stream, self.count, start, end))
        if stack := self.stacks[threading.get_ident()]:
            self.made.append(Correlation(self.count, stack[-1]))


@pytest.fixture
def records() -> Iterator[Recorded]:
    source = Recorded()
    yield source
    gc.collect()
    assert not any(source.stacks.values()) and not source.is_on


def make_times(records: Recorded) -> Any:
    return KernelTimes(SimpleNamespace(tell=lambda observer: None), records)  # type: ignore[arg-type]


def task(ident: int, name: str, **more: Any) -> SimpleNamespace:
    common = {"id": ident, "symbol": name, "kind": "task", "place_name": "device(0)", "device": 0}
    return SimpleNamespace(
        **(common | {"accesses": [], "call_site": "a.py:1", "runs_later": False, "waits_for": ()} | more)
    )


def test_kernels_are_of_the_task_that_submitted_them(records: Recorded) -> None:
    times, dot, trace = make_times(records), DotRecorder(), TraceRecorder()
    both = Observers(dot, trace, times)
    start = time.perf_counter_ns() + AHEAD_NS
    both.task(task(1, "one"))
    records.launch("axpy(double)", start, start + 100)
    records.launch("memset, 64 bytes", start + 100, start + 150)
    both.ended(1)
    records.launch("memcpy HTOD, 4096 bytes", start + 200, start + 250, stream=9)
    both.task(task(2, "two"))
    records.launch("memcpy PTOP, 8 bytes", start + 300, start + 400, device=1)
    both.ended(2)
    dot.ran(1, "one", 0, -1, start - AHEAD_NS, start - AHEAD_NS + 160, "task")
    trace.ran(1, "one", 0, -1, start - AHEAD_NS, start - AHEAD_NS + 160, "task")
    times.tell(trace)
    times.tell(trace)  # nothing twice
    spans, rows = trace.rows()
    told = [(s.name, s.task_id, s.device, rows[s.device, s.worker], s.category, s.end_ns - s.start_ns) for s in spans]
    assert sorted(told, key=lambda one: one[0]) == [
        ("axpy(double)", 1, 0, "stream 7", "kernel", 100),
        ("memcpy HTOD, 4096 bytes", 0, 0, "stream 9", "kernel", 50),
        ("memcpy PTOP, 8 bytes", 2, 1, "stream 7", "kernel", 100),
        ("memset, 64 bytes", 1, 0, "stream 7", "kernel", 50),
        ("one", 1, 0, "compute", "task", 160),
    ]
    (kernel,) = (span for span in spans if span.name.startswith("axpy"))
    assert abs(kernel.start_ns - (start - AHEAD_NS)) < 1_000_000  # from their clock to ours
    assert dot.durations() == {1: 160}
    page = content(Statistics(), collect(dot, trace))
    assert sorted(zip(page["spans"]["kind"], page["spans"]["task"], strict=True)) == [
        (0, 0),
        (2, -1),
        (2, 0),
        (2, 0),
        (2, 1),
    ]


def test_a_task_that_ends_before_a_later_one_or_elsewhere_is_named_no_longer(records: Recorded) -> None:
    times = make_times(records)
    mine = records.stacks[threading.get_ident()]
    for ident in (1, 2, 3):
        times.task(task(ident, "t"))
    assert [external & 0xFF for external in mine] == [1, 2, 3]
    times.ended(2)
    assert [external & 0xFF for external in mine] == [1, 2, 3]
    times.ended(3)
    assert [external & 0xFF for external in mine] == [1]
    elsewhere = threading.Thread(target=times.ended, args=(1,))
    elsewhere.start()
    elsewhere.join()
    times.task(task(4, "t"))
    assert [external & 0xFF for external in mine] == [4]
    times.withdrawn(4)
    times.task(task(5, "a fence", kind="fence"))
    times.task(task(6, "later", runs_later=True))
    assert mine == []


def test_contexts_do_not_take_each_others_kernels(records: Recorded) -> None:
    first, second = make_times(records), make_times(records)
    assert records.is_on
    for times in (first, second):
        times.began(1, "same number")
        records.launch(f"kernel {1 + (times is second)}", 10, 20)
        times.ended(1)
    told: list[list[str]] = []
    for times in (first, second):
        trace = TraceRecorder()
        times.tell(trace)
        told.append([span.name for span in trace.rows()[0]])
    assert told == [["kernel 1"], ["kernel 2"]]
    del first
    assert records.is_on
    del second, times
    assert not records.is_on
    third = make_times(records)  # begins anew
    assert records.is_on
    del third


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(ImportError, match=r"needs the package cupti-python: pip install cupti-python"):
        KernelTimes(SimpleNamespace(tell=None))  # type: ignore[arg-type]


def test_names_of_cpp_are_as_in_its_source() -> None:
    assert demangled("_Z4axpydPKdPd") == "axpy(double, double const*, double*)"
    assert demangled("spin") == "spin" and demangled("_Znot a name") == "_Znot a name"
