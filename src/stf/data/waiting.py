"""Waiting: for one data, for everything, up to a fence; and hearing what failed."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from stf._engine import claims, handover, outside_events
from stf._engine.readback import await_array
from stf._support import arguments
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData, know_layout, view_for_host
from stf.errors import TaskStateError
from stf.interop import adapters, jax_arrays
from stf.interop.arrays import LIBRARIES
from stf.interop.streams import StreamPointer
from stf.places.places import DataPlace
from stf.places.table import current_device_code, data_place_code
from stf.tasks import handles
from stf.tasks.annotations import Stream
from stf.tasks.checks import (
    check_errors,
    must_be_open,
    must_be_outside,
    must_be_settled,
    must_not_be_in_a_body,
    task_of_kind,
)
from stf.tasks.lent import is_lent, settle_all
from stf.tasks.task import ContextCore, Task
from stf.values.containers import Container, join, split

HOST = DataPlace("host")


def wait_in_general(context: ContextCore, data: Any, data_place: DataPlace | None, arrays: str | None) -> Any:
    """Return what `wait` does where it is not as simple as it mostly is."""
    if not isinstance(data, (LogicalData, CompositeData)):
        kind, what, items = container_of(data, "wait")
        found = [wait_in_general(context, item, data_place, arrays) if has_data(item) else item for item in items]
        return join(kind, what, found)
    whole = isinstance(data, CompositeData)
    parts = data.parts if isinstance(data, CompositeData) else [data]
    must_be_outside(context, "wait", False, waits_for_one=True)
    for part in parts:
        must_be_settled(context, part)
    for part in parts:
        know_layout(part)
    # what is gathered is launched when the task begins
    if context.on_cuda and arrays in LIBRARIES and arrays != "numpy" and not (whole or context.engine.root.captured):
        return copy_on_device(context, parts[0], data_place, arrays)
    if data_place is not None:
        data_place_code(context, data_place)
    place = HOST if context.on_cuda or data_place is None else data_place
    accesses = [part.read() if part.core.token else part.read(place) for part in parts]
    task = task_of_kind(context, "wait", accesses, "wait", "host")
    task.binds_late = True  # what it reads is there when it looks
    with task:
        for part in parts:
            await_array(context.engine, part.core)
        library = None if arrays == "numpy" else arrays
        results = [content_of(task.replica_of(i), library, whole) for i in range(len(parts))]
        result = data.rebuild(results) if isinstance(data, CompositeData) else results[0]
    check_errors(context)
    return result


def container_of(value: Any, what: str) -> Container:
    """Return a container that has data in parts; TypeError for anything else."""
    if isinstance(value, Task):
        raise TypeError(
            f"{what} takes logical data, got the handle of task {value.label()}; wait for that with result()"
        )
    container = split(value) if has_data(value) else None
    if container is None:
        raise TypeError(
            f"{what} takes logical data, got {type(value).__name__}; a list, tuple, dict or dataclass of data will do"
        )
    return container


def has_data(value: Any) -> bool:
    """Return whether a value is data, or contains some; the handle of a task counts, so that it is refused."""
    if isinstance(value, (LogicalData, CompositeData, Task)):
        return True
    container = split(value)
    return container is not None and any(has_data(item) for item in container.items)


def copy_on_device(context: ContextCore, data: LogicalData, data_place: DataPlace | None, library: str) -> Any:
    """Return a copy in a library's array on a device, ordered on the caller's current stream; nothing is waited for."""
    code = current_device_code(context) if data_place is None else data_place_code(context, data_place)
    number = context.engine.places[code].ordinal if code > 0 else -1
    number = number if number >= 0 else context.engine.places[current_device_code(context)].ordinal
    task = task_of_kind(context, "wait", [data.read()], "wait", number)
    with task:
        if data.is_token:
            return None
        replica = task.replica_of(0)
        if library == "jax":
            return jax_arrays.JaxCopy(replica, number, task.stream_ptr())()
        view = adapters.device_view(replica, library, number)
        pointer = LIBRARIES[library].current_stream(number)
        context.engine.port.callers.signal(task.slot, pointer)
        result = LIBRARIES[library].copied(view, number)
        context.engine.port.callers.wait_on(task.slot, pointer)
    check_errors(context)
    return result


def ready(context: ContextCore, parts: list[Any]) -> bool:
    """Return whether the content of all these data is there; see `LogicalData.ready`."""
    must_be_open(context)
    if context.engine.gathering is not None:
        context.engine.gathering.step_out()
    if context.engine.scope.records:
        raise TaskStateError("ready() inside of what is recorded: nothing runs there; ask after a launch")
    return all(not is_lent(part) and part.core.engine.is_ready(part.core) for part in parts)  # in this order


def synchronize(context: ContextCore, timeout: float | None = None) -> None:
    """Block the host until everything submitted so far has run; then raise what failed.

    Parameters
    ----------
    timeout : float, optional
        Seconds.

    Raises
    ------
    TimeoutError
        It took longer; nothing is lost.
    TypeError, ValueError
        `timeout` is no number of seconds.
    TaskFailedError, ExceptionGroup
        Something failed that was not told yet.
    TaskStateError
        It is called inside a task or a recording.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     for i in range(2):
    ...         ctx.fill(ctx.logical_data_empty(3), 1.0)
    ...     ctx.synchronize(timeout=60.0)
    """
    must_be_open(context)
    must_be_outside(context, "synchronize")
    seconds = arguments.seconds(timeout)
    end = handles.end_after(seconds)
    is_in_time = settle_all(context.engine, seconds)  # whose tasks are submitted so far, for who called these
    left = seconds if end is None else max(end - time.monotonic(), 0.0)
    if not is_in_time or not context.engine.synchronize(left):
        raise TimeoutError(f"tasks were still running after {timeout} s")
    if context.placement is not None:
        context.placement.settle_clocks()
    check_errors(context)


def cancel(context: ContextCore) -> int:
    """Cancel the tasks whose bodies have not begun, and wait for those that run; return how many were cancelled.

    The context works on. Data that a cancelled task was to write are poisoned, as if it had failed: write them
    anew, or keep their content with `LogicalData.accept`. A with-block of the context that an exception leaves does
    this too. Kernels and copies that a device was given are waited for. Call it from any thread, but not in a body.
    Tasks that other threads submit meanwhile are cancelled, too.

    Returns
    -------
    int
        How many tasks were cancelled; tasks that are gathered for one graph count as one.

    Raises
    ------
    TaskStateError
        It is called inside a task or a recording.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> import time
    >>> import numpy as np
    >>> import stf
    >>> @stf.task
    ... def work(x: stf.ReadWrite):
    ...     time.sleep(0.05)
    ...     x += 1
    >>> X = np.zeros(1)
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data(X)
    ...     for _ in range(100):
    ...         work(x)
    ...     cancelled = ctx.cancel()
    ...     finished = x.accept().numpy()[0]
    >>> cancelled + int(finished) == 100
    True
    """
    must_be_open(context)
    must_be_outside(context, "cancel", False)
    engine = context.engine
    cancelled = engine.cancel_what_waits()
    try:
        if engine.gathering is not None:
            engine.gathering.step_out()
        outside_events.cancel_all(engine)
        engine.synchronize(-1.0)
        while engine.pending():  # what ran submitted more
            engine.synchronize(-1.0)
    finally:
        engine.cancelled = None
    return len(cancelled)


def submit(context: ContextCore) -> None:
    """Start everything that was submitted: what is gathered for a graph is launched, the rest has started.

    Raises
    ------
    TaskStateError
        It is called inside of what is recorded, which is launched at its end.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(use_graph=True, devices="cpu") as ctx:
    ...     x = ctx.logical_data_empty(3)
    ...     ctx.fill(x, 1.0)
    ...     ctx.submit()  # launched now; another context can be submitted meanwhile
    ...     print(x.numpy())
    [1. 1. 1.]
    """
    must_be_open(context)
    description = claims.recorded_description(context.engine, threading.get_ident())
    if description is not None:
        raise TaskStateError(
            f"submit inside {description}: nothing of it starts before its end; call it before or after"
        )
    context.engine.submit_held()
    if context.engine.gathering is not None:
        context.engine.gathering.step_out()


def fence(context: ContextCore) -> Fence:
    """Return a stream that completes after all work so far; ``synchronize()`` it, or ask ``done``.

    On CUDA it has ``__cuda_stream__`` and ``ptr``: other libraries may wait for it, record events on it or go on
    there, until the context is finalized.

    Raises
    ------
    TaskStateError
        It is called inside a task or a recording.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     ctx.fill(ctx.logical_data_empty(3), 1.0)
    ...     fence = ctx.fence()
    ...     fence.synchronize()
    ...     print(fence.done)
    True
    """
    must_be_open(context)
    must_be_outside(context, "fence")
    task = task_of_kind(context, "fence", [], "fence", "host")
    return Fence(context, context.engine.tails(task))


class Fence(Stream):
    """A point after all work submitted before it; on CUDA, a stream that is there."""

    def __init__(self, owner: Any, events: Any) -> None:
        self._owner = owner
        self._events = events
        self._pointer: int | None = None
        super().__init__("host")

    @property
    def handle(self) -> int | None:
        """The address of the CUDA stream, None on a CPU; asking waits for bodies on the host, not for devices."""
        if self._pointer is None and self._owner.on_cuda:
            must_be_open(self._owner)
            self._pointer = handover.stream_after(self._owner.engine, self._owner.default_code, self._events)
        return self._pointer

    @handle.setter
    def handle(self, pointer: int | None) -> None:
        self._pointer = pointer

    @property
    def ptr(self) -> int:
        """The address of the CUDA stream."""
        return StreamPointer(self.__cuda_stream__()[1])

    def __repr__(self) -> str:
        return "<fence>"

    def synchronize(self, timeout: float | None = None) -> None:
        """Block until that work is complete; TimeoutError if `timeout` seconds were not enough."""
        must_not_be_in_a_body(self._owner, "synchronize of a fence")
        if not self._owner.engine.wait_events(self._events, arguments.seconds(timeout)):
            raise TimeoutError(f"tasks before the fence were still running after {timeout} s")
        if (error := self._owner.engine.root.fault()) is not None and not self._owner._finished:
            raise error

    @property
    def done(self) -> bool:
        """Whether that work is complete."""
        return bool(self._owner.engine.wait_events(self._events, 0.0))


def content_of(replica: Any, library: str | None, whole: bool) -> Any:
    """Return a copy of a host replica; an array even without axes where it is part of a whole. None for a token."""
    if replica is None:
        return None
    content = view_for_host(replica, library)
    is_scalar = replica.layout.shape == () and library is None
    return np.asarray(content, replica.layout.dtype) if whole and is_scalar else content
