"""Events that tasks record on their streams, and the time between two of them."""

from __future__ import annotations

import threading
import time
from typing import Any

from stf._support.completion import Shown
from stf.devices.make import stream_device, stream_is_captured
from stf.errors import CaptureError, DriverError
from stf.interop.cuda_arrays import context_of

__all__ = ["StreamEvent", "record_on"]

DEFAULT = 0  # CU_EVENT_DEFAULT
NOT_READY = 600  # CUDA_ERROR_NOT_READY


class StreamEvent(Shown):
    """A point of a task's stream: done when all is done that the task put there before; `Task.record_event` makes one.

    On a CPU, where a body is the work itself, the point is passed at once.

    Attributes
    ----------
    handle : int or None
        The address of the CUevent, which lives as long as this object; None on a CPU.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_ones(1000)
    ...     with ctx.task(x.rw()) as t:
    ...         t.numpy()[0][:] += 1
    ...         event = t.record_event()
    ...     event.synchronize()
    ...     print(event.done(), event.handle)
    True None
    """

    __slots__ = ("_ordinal", "_passed_ns", "handle")

    _shown = ["done", "elapsed_time", "handle", "synchronize"]

    def __init__(self, handle: int | None, ordinal: int = -1) -> None:
        self.handle = handle
        self._ordinal = ordinal
        self._passed_ns = time.perf_counter_ns()

    def done(self) -> bool:
        """Return whether the stream has passed the event; nothing is waited for."""
        if self.handle is None:
            return True
        return int(call("cuEventQuery", self._ordinal, self.handle, also=NOT_READY)[0]) != NOT_READY

    def synchronize(self) -> None:
        """Wait until the stream has passed the event."""
        if self.handle is not None:
            call("cuEventSynchronize", self._ordinal, self.handle)

    def elapsed_time(self, end: StreamEvent) -> float:
        """Return the time from this event to a later one, in milliseconds; wait for both.

        Parameters
        ----------
        end : StreamEvent
            Recorded on the same device, by the same task or another one.

        Raises
        ------
        TypeError
            `end` is no such event.
        ValueError
            One is of a device, and the other of another device or of the host: their clocks differ.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_ones(1000)
        ...     with ctx.task(x.rw()) as t:
        ...         start = t.record_event()
        ...         t.numpy()[0][:] += 1
        ...         end = t.record_event()
        ...     print(0 < start.elapsed_time(end) < 1000)
        True
        """
        if not isinstance(end, StreamEvent):
            raise TypeError(f"elapsed_time takes an event of t.record_event(), got {type(end).__name__}")
        if self._ordinal != end._ordinal:
            raise ValueError(
                f"the events are of {clock_of(self._ordinal)} and of {clock_of(end._ordinal)}, whose clocks differ; "
                "record both on one device, or use observe=True"
            )
        if self.handle is None:
            return (end._passed_ns - self._passed_ns) / 1e6
        self.synchronize()
        end.synchronize()
        return float(call("cuEventElapsedTime", self._ordinal, self.handle, end.handle)[1])

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None and threading is not None:  # else the interpreter ends, and CUDA with it
            from cuda.bindings import driver

            driver.cuEventDestroy(handle)  # which CUDA does when it is done

    def __repr__(self) -> str:
        return f"<event on a stream of {clock_of(self._ordinal)}>"


def record_on(pointer: int | None, what: str) -> StreamEvent:
    """Return an event that is recorded now on the stream at an address; None is the host, whose clock is read.

    Raises
    ------
    CaptureError
        The stream is being captured, and has no times.
    """
    if pointer is None:
        return StreamEvent(None)
    if stream_is_captured(pointer):
        raise CaptureError(
            f"{what} is recorded in a graph, where an event has no time yet; time the launches by events on "
            "ctx.fence(), or use observe=True"
        )
    ordinal = stream_device(pointer)
    with context_of(pointer):
        _, handle = call("cuEventCreate", ordinal, DEFAULT)
        event = StreamEvent(int(handle), ordinal)
        call("cuEventRecord", ordinal, handle, pointer)
    return event


def call(name: str, ordinal: int, *args: Any, also: int = 0) -> tuple[Any, ...]:
    """Return what a call of CUDA's gives, its code first; raise DriverError for any code but 0, and `also` another."""
    from cuda.bindings import driver

    given: tuple[Any, ...] = getattr(driver, name)(*args)
    code = given[0]
    if int(code) not in (0, also):
        raise DriverError(code.name, int(code), name, clock_of(ordinal))
    return given


def clock_of(ordinal: int) -> str:
    """Return whose clock an event has, for messages."""
    return "the host" if ordinal < 0 else f"cuda:{ordinal}"
