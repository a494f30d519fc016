"""Kernels and copies of GPUs, as a module in place of CUPTI's tells of them."""

from __future__ import annotations

import enum
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stf.observe import DotRecorder, Observers, Statistics, TraceRecorder
from stf.observe.report import content
from stf.observe.run import collect

AHEAD_NS = 5_000_000_000_000  # of the clock of the module


class ActivityKind(enum.IntEnum):
    MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL, MEMCPY2, EXTERNAL_CORRELATION = 1, 2, 4, 5, 10, 22, 39


class DriverCall(enum.IntEnum):
    cuLaunchKernel, cuEventRecord, cuMemcpyHtoDAsync_v2, cuGraphLaunch, cuMemAllocAsync = 307, 119, 279, 514, 601


class RuntimeCall(enum.IntEnum):
    cudaLaunchKernel_v7000, cudaMemsetAsync_v3020, cudaMalloc_v3020 = 211, 51, 20


class ExternalCorrelationKind(enum.IntEnum):
    CUSTOM0 = 3


class ActivityMemcpyKind(enum.IntEnum):
    HTOD = 1


class Cupti(ModuleType):
    """As much of `cupti.cupti` as is used; records are handed over when they are asked for."""

    ActivityKind, ExternalCorrelationKind, ActivityMemcpyKind = (
        ActivityKind,
        ExternalCorrelationKind,
        ActivityMemcpyKind,
    )
    driver_api_trace_cbid, runtime_api_trace_cbid = DriverCall, RuntimeCall
    cuptiError = type("cuptiError", (Exception,), {})

    def __init__(self) -> None:
        super().__init__("cupti.cupti")
        self.enabled: set[int] = set()
        self.left_out: set[enum.IntEnum] = set()
        self.stacks: defaultdict[int, list[int]] = defaultdict(list)  # by thread
        self.made: list[Any] = []
        self.correlation = 0

    def activity_register_callbacks(self, requested: Callable[[], Any], completed: Callable[[list[Any]], None]) -> None:
        nbytes, most = requested()
        assert nbytes >= 1 << 20 and most == 0
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_enable_driver_api(self, call: DriverCall, enable: int) -> None:
        assert not enable, "no effect once the driver is initialized"
        if call is DriverCall.cuMemAllocAsync:
            raise self.cuptiError("a call of a later driver")
        self.left_out.add(call)

    activity_enable_runtime_api = activity_enable_driver_api

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 0
        made, self.made = self.made, []
        self.completed(made)

    def activity_push_external_correlation_id(self, kind: int, ident: int) -> None:
        assert kind == ExternalCorrelationKind.CUSTOM0
        self.stacks[threading.get_ident()].append(ident)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self.stacks[threading.get_ident()].pop()

    def get_timestamp(self) -> int:
        return time.perf_counter_ns() + AHEAD_NS

    def launch(self, kind: ActivityKind, start: int, end: int, **fields: Any) -> None:
        """Note what this thread has launched, with the record of the call; correlations come with those alone."""
        self.correlation += 1
        common = {"correlation_id": self.correlation, "device_id": 0, "stream_id": 7, "start": start, "end": end}
        self.made.append(SimpleNamespace(kind=kind, **(common | fields)))
        if ActivityKind.DRIVER not in self.enabled:
            return
        stack, correlation = self.stacks[threading.get_ident()], {"correlation_id": self.correlation}
        if stack:
            kind = ActivityKind.EXTERNAL_CORRELATION
            self.made.append(SimpleNamespace(kind=kind, external_id=stack[-1], **correlation))
        self.made.append(SimpleNamespace(kind=ActivityKind.DRIVER, start=start - 9, end=start, cbid=307, **correlation))


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cupti]:
    module = Cupti()
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=module))
    monkeypatch.setitem(sys.modules, "cupti.cupti", module)
    yield module
    assert not any(module.stacks.values())


def make_times() -> Any:
    from stf.observe.kernels import KernelTimes

    return KernelTimes(SimpleNamespace(tell=lambda observer: None))  # type: ignore[arg-type]


def task(ident: int, name: str, **more: Any) -> SimpleNamespace:
    common = {"id": ident, "symbol": name, "kind": "task", "place_name": "device(0)", "device": 0}
    return SimpleNamespace(**(common | {"accesses": [], "call_site": "a.py:1", "runs_later": False} | more))


def test_kernels_are_of_the_task_that_submitted_them(cupti: Cupti) -> None:
    times, dot, trace = make_times(), DotRecorder(), TraceRecorder()
    both = Observers(dot, trace, times)
    start = time.perf_counter_ns() + AHEAD_NS
    both.task(task(1, "one"))
    cupti.launch(ActivityKind.CONCURRENT_KERNEL, start, start + 100, name="_Z4axpydPKdPd")
    cupti.launch(ActivityKind.MEMSET, start + 100, start + 150, bytes=64)
    both.ended(1)
    cupti.launch(ActivityKind.MEMCPY, start + 200, start + 250, copy_kind=1, bytes=4096, stream_id=9)
    both.task(task(2, "two"))
    cupti.launch(ActivityKind.MEMCPY2, start + 300, start + 400, bytes=8, device_id=1)
    cupti.launch(ActivityKind.CONCURRENT_KERNEL, start, 0, name="has not ended")
    both.ended(2)
    dot.ran(1, "one", 0, -1, start - AHEAD_NS, start - AHEAD_NS + 160, "task")
    trace.ran(1, "one", 0, -1, start - AHEAD_NS, start - AHEAD_NS + 160, "task")
    times.tell(trace)
    times.tell(trace)  # nothing twice
    spans, rows = trace.rows()
    told = [(s.name, s.task_id, s.device, rows[s.device, s.worker], s.category, s.end_ns - s.start_ns) for s in spans]
    assert sorted(told, key=lambda one: one[0]) == [
        ("axpy(double, double const*, double*)", 1, 0, "stream 7", "kernel", 100),
        ("memcpy HTOD, 4096 bytes", 0, 0, "stream 9", "kernel", 50),
        ("memcpy PTOP, 8 bytes", 2, 1, "stream 7", "kernel", 100),
        ("memset, 64 bytes", 1, 0, "stream 7", "kernel", 50),
        ("one", 1, 0, "compute", "task", 160),
    ]
    (kernel,) = (span for span in spans if span.name.startswith("axpy"))
    assert abs(kernel.start_ns - (start - AHEAD_NS)) < 1_000_000  # from CUPTI's clock to ours
    assert dot.durations() == {1: 160}
    page = content(Statistics(), collect(dot, trace))
    assert sorted(zip(page["spans"]["kind"], page["spans"]["task"], strict=True)) == [
        (0, 0),
        (2, -1),
        (2, 0),
        (2, 0),
        (2, 1),
    ]


def test_a_task_that_ends_before_a_later_one_or_elsewhere_is_named_no_longer(cupti: Cupti) -> None:
    times = make_times()
    mine = cupti.stacks[threading.get_ident()]
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


def test_contexts_do_not_take_each_others_kernels(cupti: Cupti) -> None:
    first, second = make_times(), make_times()
    assert len(cupti.enabled) == 7
    assert cupti.left_out == {DriverCall.cuEventRecord, RuntimeCall.cudaMalloc_v3020}
    for times in (first, second):
        times.began(1, "same number")
        cupti.launch(ActivityKind.CONCURRENT_KERNEL, 10, 20, name=f"kernel {1 + (times is second)}")
        times.ended(1)
    told: list[list[str]] = []
    for times in (first, second):
        trace = TraceRecorder()
        times.tell(trace)
        told.append([span.name for span in trace.rows()[0]])
    assert told == [["kernel 1"], ["kernel 2"]]
    del first
    assert len(cupti.enabled) == 7
    del second, times
    assert cupti.enabled == set()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(ImportError, match=r"needs the package cupti-python: pip install cupti-python"):
        make_times()
