"""For whoever tests a program, or writes a driver: recordings, a hostile driver, and what must hold of an order.

`context` opens a context whose driver calls are recorded; `check_order` proves from the recording alone that
everything was ordered that must be. `HostileDriver` does its worst within the rules. `conformance` runs a driver
through the rules. `Recorder` is the backend that answers with integers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from stf._backends.recorder import Recorder
from stf._drivers.base import Driver
from stf._drivers.cpu import CpuDriver
from stf._drivers.wrappers.hostile import HostileDriver
from stf._drivers.wrappers.recording import Recording, RecordingDriver
from stf._testing.order import Order, OrderError
from stf.contexts.arguments import how_placed
from stf.contexts.context import Context
from stf.devices.make import cuda_devices, make_driver
from stf.devices.spec import parse_devices

__all__ = [
    "Driver",
    "HostileDriver",
    "OrderError",
    "Recorder",
    "Recording",
    "RecordingDriver",
    "check_order",
    "conformance",
    "context",
    "settle",
]


def context(
    devices: Any = "cpu",
    *,
    driver: Any = None,
    hostile: int | None = None,
    fail_alloc: Collection[int] = (),
    fail_copy: Collection[int] = (),
    capacity: int = 0,
    workers: int = 2,
    recording: Recording | None = None,
    **options: Any,
) -> Context:
    """Open a context whose driver calls and tasks are recorded.

    Parameters
    ----------
    devices : str
        ``"cpu"``, ``"cpu:4"`` or ``"cuda:0,1"``.
    driver : Driver, optional
        Use this one, as it is, instead of a CPU driver.
    hostile : int, optional
        Seed of a `HostileDriver` around the CPU driver. Like `capacity` and `workers`, not for CUDA.
    fail_alloc, fail_copy : collection of int, optional
        Which allocations and copies fail, counted from 1; for a hostile driver.
    capacity : int, optional
        Bytes of memory that each emulated device has.
    workers : int
        Worker threads of the CPU driver.
    recording : Recording, optional
        Where to write; a new one by default.
    **options
        As of `stf.context`: ``memory_limit``, ``max_pending``, ``name``, ….

    Returns
    -------
    Context
        Its recording is ``ctx.recording``, its driver ``ctx.driver``.

    Examples
    --------
    >>> import numpy as np, stf, stf.testing
    >>> with stf.testing.context("cpu:2") as ctx:
    ...     x = ctx.logical_data(np.zeros(3))
    ...     for device in (0, 1):
    ...         with ctx.task(stf.exec_place.device(device), x.rw()) as t:
    ...             t.arrays()[0][:] += 1
    >>> ctx.recording.count("copy")
    3
    >>> stf.testing.check_order(ctx.recording) > 0
    True
    """
    spec = parse_devices(devices, cuda_devices=cuda_devices)
    if driver is None and spec.driver == "cuda":
        driver = make_driver(spec)
    elif driver is None:
        driver = CpuDriver(spec.count, spec.shares_host, workers, [capacity] * spec.count)
        if hostile is not None:
            driver = HostileDriver(driver, hostile, fail_alloc=fail_alloc, fail_copy=fail_copy)
    recorded = RecordingDriver(driver, recording)
    place, rule = how_placed(options.pop("place", None), options.pop("placement", None))
    result = _RecordedContext(spec, driver=recorded, place=place, rule=rule, **options)
    result.driver = recorded
    result.recording = recorded.recording
    result.engine.observe(recorded.recording)
    return result


class _RecordedContext(Context):
    """A context that knows its recording."""

    driver: RecordingDriver
    recording: Recording


def check_order(recording: Recording | list[tuple[Any, ...]]) -> int:
    """Prove that a recorded program was ordered as its accesses require.

    It looks at the driver's verbs alone: streams, recorded events, waits, and what the host waited for. Two tasks that
    use a data must be ordered unless both read, or the later one accumulates; two operations on the same
    bytes unless both read; memory must be filled before it is read, and used between its allocation and its free.

    Parameters
    ----------
    recording : Recording or list of tuple
        ``ctx.recording``, or its entries.

    Returns
    -------
    int
        How many pairs were found ordered.

    Raises
    ------
    OrderError
        A pair is not; the message names both.
    """
    return Order().read(recording.entries if isinstance(recording, Recording) else recording)


def settle(driver: Any, timeout_s: float = 30.0) -> None:
    """Wait until a closed CPU driver's workers have gone, and verify that nothing is left of it.

    Raises
    ------
    AssertionError
        Memory was not freed, a worker failed or stayed, or a hostile driver saw a rule broken.
    """
    deadline = time.monotonic() + timeout_s
    while driver.workers and time.monotonic() < deadline:
        time.sleep(0)
    left = {"workers": driver.workers, "allocations": driver.live_allocations, "bytes": sum(driver.used)}
    if any(left.values()) or driver.errors:
        raise AssertionError(f"left over: {left}; errors of workers: {driver.errors}")
    violations = getattr(driver, "violations", ())
    if violations:
        raise AssertionError(f"rules were broken: {violations}")


# -- conformance ---------------------------------------------------------------------------------------------------


def conformance(make: Callable[[], Any]) -> list[str]:
    """Run a driver through the rules of `Driver`.

    Parameters
    ----------
    make : callable
        Returns a new driver with at least one device, whose memory the host can read and write.

    Returns
    -------
    list of str
        Names of the rules that were checked.

    Raises
    ------
    AssertionError
        A rule does not hold.

    Examples
    --------
    >>> from stf._drivers.cpu import CpuDriver
    >>> from stf.testing import conformance
    >>> "order" in conformance(lambda: CpuDriver(2, False, 2))
    True
    """
    for rule in RULES.values():
        driver = make()
        try:
            rule(driver)
        finally:
            driver.close()
            driver.close()
    return list(RULES)


def _rule_order(driver: Any) -> None:
    """A stream does what it is given in order."""
    stream = driver.stream_create(0)
    seen: list[int] = []
    for i in range(100):
        driver.call(stream, lambda i=i: seen.append(i))
    driver.record(stream, 1)
    assert driver.synchronize(stream, 1, -1.0)
    assert seen == list(range(100)), "calls on a stream ran out of order"
    assert driver.completed(stream) <= 1
    driver.stream_destroy(stream)


def _rule_wait(driver: Any) -> None:
    """A wait holds a stream back, and only that one."""
    first, second, third = (driver.stream_create(0) for _ in range(3))
    latch, seen = threading.Event(), []
    driver.call(first, latch.wait)
    driver.call(first, lambda: seen.append("first"))
    driver.record(first, 1)
    driver.wait_event(second, first, 1)
    driver.call(second, lambda: seen.append("second"))
    driver.record(second, 1)
    driver.call(third, lambda: seen.append("third"))
    driver.record(third, 1)
    assert driver.synchronize(third, 1, -1.0)
    assert seen == ["third"], "a stream was held back by a wait of another"
    assert not driver.synchronize(second, 1, 0.0), "synchronize came back before the event"
    latch.set()
    assert driver.synchronize(second, 1, -1.0)
    assert seen == ["third", "first", "second"], "a wait did not order two streams"
    for stream in (first, second, third):
        driver.stream_destroy(stream)


def _rule_enter(driver: Any) -> None:
    """Entering waits for the stream, and holds it until the next record."""
    stream = driver.stream_create(0)
    seen: list[str] = []
    driver.call(stream, lambda: seen.append("before"))
    driver.stream_enter(stream)
    if driver.runs_inline:
        assert seen == ["before"], "stream_enter came back before the stream was done"
    driver.record(stream, 1)
    driver.call(stream, lambda: seen.append("after"))
    driver.record(stream, 2)
    assert driver.synchronize(stream, 2, -1.0)
    assert seen == ["before", "after"]
    driver.stream_destroy(stream)


def _rule_memory(driver: Any) -> None:
    """Allocations don't overlap; a copy moves a strided array."""
    stream = driver.stream_create(0)
    nbytes = 6 * 8
    one, two = (driver.alloc(0, nbytes, stream) for _ in range(2))
    assert abs(one - two) >= nbytes, "two allocations overlap"
    source = np.arange(6.0).reshape(2, 3)
    result = np.zeros((3, 2)).T
    driver.copy(stream, one, (24, 8), source.ctypes.data, source.strides, (2, 3), 8, source)
    driver.copy(stream, two, (8, 16), one, (24, 8), (2, 3), 8, None)
    driver.copy(stream, result.ctypes.data, result.strides, two, (8, 16), (2, 3), 8, result)
    driver.record(stream, 1)
    assert driver.synchronize(stream, 1, -1.0)
    assert (result == source).all(), "a copy went wrong"
    driver.free(0, one, nbytes, stream)
    driver.free(0, two, nbytes, stream)
    driver.record(stream, 2)
    assert driver.synchronize(stream, 2, -1.0)
    driver.stream_destroy(stream)


def _rule_streams(driver: Any) -> None:
    """Every device, and the host, has streams; a number given back may come again."""
    for device in range(-1, driver.device_count):
        stream = driver.stream_create(device)
        driver.record(stream, 1)
        assert driver.synchronize(stream, 1, -1.0)
        driver.stream_destroy(stream)
        again = driver.stream_create(device)
        assert driver.completed(again) == 0, "a new stream has passed events of an old one"
        driver.stream_destroy(again)


RULES: dict[str, Callable[[Any], None]] = {
    "order": _rule_order,
    "wait": _rule_wait,
    "enter": _rule_enter,
    "memory": _rule_memory,
    "streams": _rule_streams,
}
