"""When kernels and copies were on GPUs, as CUPTI records it, and of which task they were.

CUPTI tells of the whole process. While a body submits its work, its task's number is the thread's external correlation
id, and CUPTI tells which calls had it. Records without one, such as those of the engine's own copies, are told without
a task. Times are moved from CUPTI's clock to that of `time.perf_counter_ns`.

`CuptiRecords` is all that knows CUPTI: it makes records of our own of those that CUPTI brings. `KernelTimes` takes
them from whatever has the methods of `Records`, so that tests can hand over records of their own.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, Protocol

from .devices import STREAMS, DeviceTimes
from .observer import ObservedTask, Observer, ThreadStack

__all__ = ["KernelTimes"]

_NUMBER_SHIFT = 40  # an external id is the number of who records, and the task's id below that
_LOOKS = 8  # at both clocks: the pair that was read fastest counts


class DeviceRecord(NamedTuple):
    """A kernel, copy or memset that was on a device; times are those of the source's clock."""

    name: str
    device: int
    stream: int
    correlation: int
    start_ns: int
    end_ns: int


class Correlation(NamedTuple):
    """What a thread was named when it made the call with this number."""

    correlation: int
    external: int


class Records(Protocol):
    """A source of records of this process."""

    def begin(self, told: Callable[[Sequence[DeviceRecord | Correlation]], None]) -> None:
        """Record from now on; `told` may be called from any thread."""

    def end(self) -> None:
        """Record no longer."""

    def push(self, external: int) -> None:
        """Name this thread's calls, until `pop`."""

    def pop(self) -> None:
        """Name them as before the last `push`."""

    def flush(self) -> None:
        """Tell what has ended."""

    def now_ns(self) -> int:
        """Return the time of the clock of the records."""


class KernelTimes(Observer):
    """Records kernels, copies and memsets, and tells an observer of them, beside `DeviceTimes`.

    Parameters
    ----------
    device_times
        What knows when tasks began and ended on their streams.
    records
        What records; CUPTI, if it is left out.

    Raises
    ------
    ImportError
        The package cupti-python is not there.
    """

    def __init__(self, device_times: DeviceTimes, records: Records | None = None) -> None:
        self._device_times = device_times
        self._number = next(_numbers)
        self._told: deque[DeviceRecord] = deque()  # the source's thread appends: one operation, atomic
        self._begun: set[int] = set()  # tasks that go on
        self._named = ThreadStack()
        self._records = _process.begin(self, records)
        weakref.finalize(self, _process.end)

    def task(self, task: ObservedTask) -> None:
        """Name the task whose work this thread submits from now on."""
        if task.kind != "fence" and not task.runs_later:
            self.began(task.id, task.symbol or task.kind)

    def began(self, task_id: int, name: str) -> None:
        """Name the task whose body this thread runs from now on."""
        stack = self._named.leave(self._begun, self._records.pop)
        self._begun.add(task_id)
        if task_id not in stack:
            stack.append(task_id)
            self._records.push(self._number << _NUMBER_SHIFT | task_id)

    def ended(self, task_id: int) -> None:
        """Name it no longer; one that ends before a later one of its thread, or in another thread, stays till then."""
        self._begun.discard(task_id)
        self._named.leave(self._begun, self._records.pop)

    def withdrawn(self, task_id: int) -> None:
        """Name it no longer."""
        self.ended(task_id)

    def tell(self, observer: Observer) -> None:
        """Tell an observer what has run since the last time."""
        self._device_times.tell(observer)
        self._records.flush()
        offset_ns = _clock_offset(self._records)
        for _ in range(len(self._told)):
            record = self._told.popleft()
            external = _process.external_ids.get(record.correlation, 0)
            number, task_id = external >> _NUMBER_SHIFT, external & (1 << _NUMBER_SHIFT) - 1
            if number in (0, self._number):  # else it is of a task of another context
                times = (record.start_ns + offset_ns, record.end_ns + offset_ns)
                observer.ran(task_id, record.name, record.device, STREAMS - record.stream, *times, "kernel")

    def note(self, record: DeviceRecord) -> None:
        """Keep a record until somebody asks."""
        self._told.append(record)


class _Process:
    """The records of this process, which are made while somebody listens."""

    def __init__(self) -> None:
        self.external_ids: dict[int, int] = {}  # by correlation id
        self._listeners: weakref.WeakSet[KernelTimes] = weakref.WeakSet()
        self._count = 0
        self._lock = threading.Lock()
        self._records: Records | None = None

    def begin(self, listener: KernelTimes, records: Records | None) -> Records:
        """Let somebody listen to the source that the others listen to, or to this one."""
        with self._lock:
            if self._records is None:
                records = records or CuptiRecords()
                records.begin(self._note)
                self._records = records
            self._listeners.add(listener)
            self._count += 1
            return self._records

    def end(self) -> None:
        """One of those who listened does so no more."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._records is not None:
                self._records.end()
                self._records = None
                self.external_ids.clear()

    def _note(self, records: Sequence[DeviceRecord | Correlation]) -> None:
        listeners = list(self._listeners)
        for record in records:
            if isinstance(record, Correlation):
                self.external_ids[record.correlation] = record.external
            else:
                for listener in listeners:
                    listener.note(record)


class CuptiRecords:
    """The activities of CUPTI, by NVIDIA's package for Python.

    Raises
    ------
    ImportError
        The package cupti-python is not there.
    """

    _TOLD = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET")
    # An external correlation comes with the record of a call, so the calls that submit work are recorded, too.
    _RECORDED = (*_TOLD, "EXTERNAL_CORRELATION", "DRIVER", "RUNTIME")
    _SUBMITS = re.compile(r"cu(da)?(Launch|GraphLaunch|Memcpy|Memset)")
    _BUFFER_BYTES = 8 << 20

    def __init__(self) -> None:
        try:
            from cupti import cupti
        except ImportError as error:
            raise ImportError("observe='cupti' needs the package cupti-python: pip install cupti-python") from error
        self._cupti: Any = cupti
        self._custom = cupti.ExternalCorrelationKind.CUSTOM0
        self._kinds = [getattr(cupti.ActivityKind, kind) for kind in self._RECORDED]

    def begin(self, told: Callable[[Sequence[DeviceRecord | Correlation]], None]) -> None:
        """Enable the activities; raise CUPTI's error where a profiler has CUPTI."""
        # a record of CUPTI's lives no longer than the call that brings it
        self._cupti.activity_register_callbacks(
            lambda: (self._BUFFER_BYTES, 0), lambda activities: told(list(self._read(activities)))
        )
        for kind in self._kinds:
            self._cupti.activity_enable(kind)
        self._leave_other_calls()

    def end(self) -> None:
        """Disable them."""
        for kind in self._kinds:
            self._cupti.activity_disable(kind)

    def push(self, external: int) -> None:
        """Set the thread's external correlation id."""
        self._cupti.activity_push_external_correlation_id(self._custom, external)

    def pop(self) -> None:
        """Set it to the one before."""
        self._cupti.activity_pop_external_correlation_id(self._custom)

    def flush(self) -> None:
        """Have the activities told that have ended."""
        self._cupti.activity_flush_all(0)

    def now_ns(self) -> int:
        """Return CUPTI's time."""
        return int(self._cupti.get_timestamp())

    def _leave_other_calls(self) -> None:
        """Record no calls that submit nothing; to record some alone has no effect once the driver is initialized."""
        cupti = self._cupti
        for functions, record in (
            (cupti.driver_api_trace_cbid, cupti.activity_enable_driver_api),
            (cupti.runtime_api_trace_cbid, cupti.activity_enable_runtime_api),
        ):
            for function in functions:
                if not self._SUBMITS.match(function.name):
                    with suppress(cupti.cuptiError):  # one that this driver does not have
                        record(function, 0)

    def _read(self, activities: Sequence[Any]) -> Iterator[DeviceRecord | Correlation]:
        """Yield what is kept of CUPTI's records."""
        kinds = self._cupti.ActivityKind
        told = {getattr(kinds, kind) for kind in self._TOLD}
        for activity in activities:
            if activity.kind == kinds.EXTERNAL_CORRELATION:
                yield Correlation(activity.correlation_id, activity.external_id)
            elif activity.kind in told and activity.start and activity.end:  # else CUPTI does not know its times
                yield DeviceRecord(
                    self._name(activity),
                    activity.device_id,
                    activity.stream_id,
                    activity.correlation_id,
                    activity.start,
                    activity.end,
                )

    def _name(self, activity: Any) -> str:
        kinds = self._cupti.ActivityKind
        if activity.kind == kinds.MEMCPY:
            return f"memcpy {self._cupti.ActivityMemcpyKind(activity.copy_kind).name}, {activity.bytes} bytes"
        if activity.kind == kinds.MEMCPY2:
            return f"memcpy PTOP, {activity.bytes} bytes"
        if activity.kind == kinds.MEMSET:
            return f"memset, {activity.bytes} bytes"
        return demangled(str(activity.name))


@lru_cache(1024)
def demangled(name: str) -> str:
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


def _clock_offset(records: Records) -> int:
    """Return what is added to a time of the records to have one of `time.perf_counter_ns`."""
    looks = []
    for _ in range(_LOOKS):
        before_ns = time.perf_counter_ns()
        source_ns = records.now_ns()
        after_ns = time.perf_counter_ns()
        looks.append((after_ns - before_ns, (before_ns + after_ns) // 2 - source_ns))
    return min(looks)[1]


_process = _Process()
_numbers = count(1)
