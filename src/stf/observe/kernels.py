"""When kernels and copies were on GPUs, as CUPTI records it, and of which task they were.

CUPTI tells of the whole process. While a body submits its work, its task's number is the thread's external correlation
id, and CUPTI tells which calls had it. Records without one, such as those of the engine's own copies, are told without
a task. Times are moved from CUPTI's clock to that of `time.perf_counter_ns`.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from .devices import STREAMS, DeviceTimes
from .observer import ObservedTask, Observer

__all__ = ["KernelTimes"]

_TOLD = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
# An external correlation comes with the record of a call, so the calls that submit work are recorded, too.
_RECORDED = (*_TOLD, "EXTERNAL_CORRELATION", "DRIVER", "RUNTIME")
_SUBMITS = re.compile(r"cu(da)?(Launch|GraphLaunch|Memcpy|Memset)")
_BUFFER_BYTES = 8 << 20
_NUMBER_SHIFT = 40  # an external id is the number of who records, and the task's id below that
_LOOKS = 8  # at both clocks: the pair that was read fastest counts


class _Record(NamedTuple):
    """What is kept of a record of CUPTI's, which is gone after the call that brings it; times are CUPTI's."""

    name: str
    device: int
    stream: int
    correlation: int
    start_ns: int
    end_ns: int


class KernelTimes(Observer):
    """Records kernels, copies and memsets, and tells an observer of them, beside `DeviceTimes`.

    Parameters
    ----------
    device_times
        What knows when tasks began and ended on their streams.

    Raises
    ------
    ImportError
        The package cupti-python is not there.
    """

    def __init__(self, device_times: DeviceTimes) -> None:
        try:
            from cupti import cupti
        except ImportError as error:
            raise ImportError("observe='cupti' needs the package cupti-python: pip install cupti-python") from error
        self._device_times = device_times
        self._cupti: Any = cupti
        self._number = next(_numbers)
        self._records: deque[_Record] = deque()  # CUPTI's thread appends: one operation, atomic
        self._begun: set[int] = set()  # tasks that go on
        self._named = threading.local()
        _process.begin(cupti, self)
        weakref.finalize(self, _process.end)

    def task(self, task: ObservedTask) -> None:
        """Name the task whose work this thread submits from now on."""
        if task.kind != "fence" and not task.runs_later:
            self.began(task.id, task.symbol or task.kind)

    def began(self, task_id: int, name: str) -> None:
        """Name the task whose body this thread runs from now on."""
        stack = self._without_ended()
        self._begun.add(task_id)
        if task_id not in stack:
            stack.append(task_id)
            external = self._number << _NUMBER_SHIFT | task_id
            self._cupti.activity_push_external_correlation_id(self._cupti.ExternalCorrelationKind.CUSTOM0, external)

    def ended(self, task_id: int) -> None:
        """Name it no longer; one that ends before a later one of its thread, or in another thread, stays till then."""
        self._begun.discard(task_id)
        self._without_ended()

    def withdrawn(self, task_id: int) -> None:
        """Name it no longer."""
        self.ended(task_id)

    def tell(self, observer: Observer) -> None:
        """Tell an observer what has run since the last time."""
        self._device_times.tell(observer)
        self._cupti.activity_flush_all(0)  # what has ended
        offset_ns = _clock_offset(self._cupti)
        for _ in range(len(self._records)):
            record = self._records.popleft()
            external = _process.external_ids.get(record.correlation, 0)
            number, task_id = external >> _NUMBER_SHIFT, external & (1 << _NUMBER_SHIFT) - 1
            if number in (0, self._number):  # else it is of a task of another context
                times = (record.start_ns + offset_ns, record.end_ns + offset_ns)
                observer.ran(task_id, record.name, record.device, STREAMS - record.stream, *times, "kernel")

    def _without_ended(self) -> list[int]:
        """Return the tasks that this thread has named, the innermost, which goes on, last."""
        try:
            stack: list[int] = self._named.stack
        except AttributeError:
            stack = self._named.stack = []
        while stack and stack[-1] not in self._begun:
            stack.pop()
            self._cupti.activity_pop_external_correlation_id(self._cupti.ExternalCorrelationKind.CUSTOM0)
        return stack


class _Process:
    """CUPTI's activities of this process, which are on while somebody records."""

    def __init__(self) -> None:
        self.external_ids: dict[int, int] = {}  # by correlation id
        self._recorders: weakref.WeakSet[KernelTimes] = weakref.WeakSet()
        self._count = 0
        self._lock = threading.Lock()
        self._cupti: Any = None

    def begin(self, cupti: Any, recorder: KernelTimes) -> None:
        with self._lock:
            self._cupti = cupti
            if self._count == 0:  # which raises where a profiler has CUPTI
                cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._completed)
                for kind in _RECORDED:
                    cupti.activity_enable(getattr(cupti.ActivityKind, kind))
                self._leave_other_calls()
            self._recorders.add(recorder)
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for kind in _RECORDED:
                    self._cupti.activity_disable(getattr(self._cupti.ActivityKind, kind))
                self.external_ids.clear()

    def _leave_other_calls(self) -> None:
        """Record no calls that submit nothing; to record some alone has no effect once the driver is initialized."""
        cupti = self._cupti
        for functions, record in (
            (cupti.driver_api_trace_cbid, cupti.activity_enable_driver_api),
            (cupti.runtime_api_trace_cbid, cupti.activity_enable_runtime_api),
        ):
            for function in functions:
                if not _SUBMITS.match(function.name):
                    with suppress(cupti.cuptiError):  # one that this driver does not have
                        record(function, 0)

    def _completed(self, activities: list[Any]) -> None:
        """Take what a full buffer has; a record of CUPTI's lives no longer than this call."""
        recorders = list(self._recorders)
        told = {getattr(self._cupti.ActivityKind, kind) for kind in _TOLD}
        for activity in activities:
            if activity.kind == self._cupti.ActivityKind.EXTERNAL_CORRELATION:
                self.external_ids[activity.correlation_id] = activity.external_id
            elif activity.kind in told and activity.start and activity.end:  # else CUPTI does not know its times
                record = _Record(
                    self._name(activity),
                    activity.device_id,
                    activity.stream_id,
                    activity.correlation_id,
                    activity.start,
                    activity.end,
                )
                for recorder in recorders:
                    recorder._records.append(record)

    def _name(self, activity: Any) -> str:
        kinds = self._cupti.ActivityKind
        if activity.kind == kinds.MEMCPY:
            return f"memcpy {self._cupti.ActivityMemcpyKind(activity.copy_kind).name}, {activity.bytes} bytes"
        if activity.kind == kinds.MEMCPY2:
            return f"memcpy PTOP, {activity.bytes} bytes"
        if activity.kind == kinds.MEMSET:
            return f"memset, {activity.bytes} bytes"
        return _demangled(str(activity.name))


@lru_cache(1024)
def _demangled(name: str) -> str:
    """Return the name of a kernel in C++ as its source has it."""
    if not name.startswith("_Z"):
        return name
    try:
        demangle, free = ctypes.CDLL("libstdc++.so.6").__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return name
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    found = demangle(name.encode(), None, None, None)  # which malloc gave, or NULL
    try:
        return ctypes.string_at(found).decode() if found else name
    finally:
        free(found)


def _clock_offset(cupti: Any) -> int:
    """Return what is added to a time of CUPTI's to have one of `time.perf_counter_ns`."""
    looks = []
    for _ in range(_LOOKS):
        before_ns = time.perf_counter_ns()
        cupti_ns = cupti.get_timestamp()
        after_ns = time.perf_counter_ns()
        looks.append((after_ns - before_ns, (before_ns + after_ns) // 2 - cupti_ns))
    return min(looks)[1]


_process = _Process()
_numbers = count(1)
