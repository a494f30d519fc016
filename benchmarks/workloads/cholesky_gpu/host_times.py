"""Where the host's time goes while a program is submitted: in bodies, waits between streams, copies, and the engine.

A driver around the context's own counts the time in its verbs, and `TimedKernels` that of the bodies. What is left of the
time to submit is the engine, Python, and this count itself (half a microsecond for each verb). Only the thread that
submits is counted: with `submit_threads` bodies are in other threads, and so is what they hand on.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import stf
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf.contexts.context import Context
from stf.devices.make import cuda_devices, make_driver
from stf.devices.spec import parse_devices

__all__ = ["HostTimes", "TimedKernels", "TimingDriver"]

WAITS = ("wait_event", "record", "record_lazy", "commit")
COPIES = ("copy", "fill", "alloc", "free", "pin")
OPERATIONS = ("potrf", "trsm", "syrk", "gemm")


class HostTimes:
    """Seconds of one thread by what they were for; what is counted inside of something else counts there alone."""

    def __init__(self) -> None:
        self.seconds = {"body": 0.0, "waits": 0.0, "copies": 0.0}
        self.thread = threading.get_ident()
        self.is_inside = False

    def timed(self, kind: str, call: Any) -> Any:
        """Return a function that counts the time of `call`."""

        def count(*arguments: Any) -> Any:
            if self.is_inside or threading.get_ident() != self.thread:
                return call(*arguments)
            self.is_inside = True
            start = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.seconds[kind] += time.perf_counter() - start
                self.is_inside = False

        return count

    def clear(self) -> None:
        """Count from zero, in the thread that calls this."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        self.thread = threading.get_ident()

    def shares(self, submitted_s: float) -> dict[str, float]:
        """Return the milliseconds of a submission by what they were for; the rest is the engine's."""
        rest = submitted_s - sum(self.seconds.values())
        return {kind: 1e3 * seconds for kind, seconds in [*self.seconds.items(), ("engine", rest)]}


class TimingDriver(WrappingDriver):
    """A driver whose waits and copies are counted."""

    def __init__(self, inner: Any, times: HostTimes) -> None:
        super().__init__(inner)
        for kind, names in [("waits", WAITS), ("copies", COPIES)]:
            for name in names:
                setattr(self, f"timed_{name}", times.timed(kind, getattr(inner, name)))


def counted(name: str) -> Any:
    """Return a verb that is counted."""

    def verb(self: Any, *arguments: Any) -> Any:
        return self.__dict__[f"timed_{name}"](*arguments)

    return verb


for _name in (*WAITS, *COPIES):
    setattr(TimingDriver, _name, counted(_name))


class TimedKernels:
    """The operations of other kernels, counted as bodies."""

    def __init__(self, inner: Any, times: HostTimes) -> None:
        for name in OPERATIONS:
            setattr(self, name, times.timed("body", getattr(inner, name)))


def open_timed(devices: str, times: HostTimes, **options: Any) -> Any:
    """Open a context on devices whose driver is counted; it cannot share one."""
    spec = parse_devices(devices, "devices", cuda_devices)
    ctx = Context(spec, driver=TimingDriver(make_driver(spec), times))
    for name, value in options.items():
        if name == "place" and value is not None:
            ctx._place_tasks(stf.exec_place.auto(), stf.placement.eft())
        elif name == "submit_threads":
            ctx.engine.port.spreads = bool(value) and ctx.on_cuda and len(ctx.devices) > 1
    return ctx
