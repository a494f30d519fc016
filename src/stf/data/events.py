"""Events that others complete: work outside of stf that tasks come after."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from typing import Any

from stf._engine import outside_events
from stf._engine.access import READ, Access
from stf._engine.failures import EventCancellation, EventFailure
from stf._support.arguments import name_of
from stf._support.completion import Shown
from stf.data.logical_data import new_handle
from stf.errors import not_copied
from stf.tasks.after import Outside
from stf.tasks.checks import must_be_open, must_be_outside, task_of_kind
from stf.tasks.not_accesses import refuse_data
from stf.tasks.placing import place_on_host
from stf.tasks.task import ContextCore


def event(context: ContextCore, *writes: Access, name: str | None = None, symbol: str | None = None) -> Event:
    """Return an event that you complete: with ``set()``, ``fail(error)`` or ``cancel()``, from any thread.

    If others fill arrays that you registered, say so: ``ctx.event(x.write())`` waits until no task uses `x`. From then
    until the event is complete the array is theirs. Tasks that use `x` come after the event.

    Other tasks come after it by ``after=`` of `Context.task`, `Context.submit_task`, `Context.host_launch`,
    `Context.parallel_for` and `Context.launch`. No worker waits for it meanwhile. Calls that run or launch the body
    themselves wait until the event is complete: with-blocks, and `Context.parallel_for` and `Context.launch` on a GPU.

    Parameters
    ----------
    *writes : Access
        Data that others write, in the arrays that you registered: ``x.write()``, or ``x.rw()`` for a part of them.
    name : str, optional
        For messages and pictures.

    Returns
    -------
    Event
        Keep it until it is complete: one that is dropped before is cancelled.

    Raises
    ------
    TypeError
        An argument is no access for writing, or its data have no array of yours on the host; or the name is no text.
    TaskStateError
        It is made inside of what is recorded, or data are given in a body.
    AccessError
        The data are read-only, split into tiles or released, or another live context uses their memory.
    ContextMismatchError
        Data belong to another context.
    CaptureError
        The context fills a CUDA graph of yours.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> import threading
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(3)
    ...     uploaded = ctx.event(name="uploaded")
    ...     ctx.task(x.rw(), after=uploaded)(lambda x: x + 1)
    ...     threading.Timer(0.01, uploaded.set).start()
    ...     print(x.numpy())
    [1. 1. 1.]

    Others fill an array, again and again:

    >>> def fill(array, value, event):
    ...     array[:] = value
    ...     event.set()
    >>> X = np.zeros(3)
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(X)
    ...     for value in (1.0, 2.0):
    ...         filled = ctx.event(x.write())
    ...         threading.Thread(target=fill, args=(X, value, filled)).start()
    ...         print(x.numpy())
    [1. 1. 1.]
    [2. 2. 2.]
    """
    must_be_open(context)
    label = name_of(name, symbol)
    if writes:
        await_unused(context, writes, label)
    token = new_handle(context.engine, None, None if label is None else f"event {label}", True)
    task = context.make_task_at((token.write(),), label)
    task.kind = "event"
    place_on_host(task)
    task.find_site_outside()
    outside_events.open_event(context.engine, task, [token.core, *(access.data.core for access in writes)])
    return Event(task, token)


def await_unused(context: ContextCore, writes: tuple[Access, ...], label: str | None) -> None:
    """Wait until nobody uses data that others are going to write in the user's arrays, which are valid then."""
    for access in writes:
        refuse_data("ctx.event", access)
        if not isinstance(access, Access) or access.op is not None or access.mode == READ:
            raise TypeError(f"ctx.event takes data that others write, as x.write() or x.rw(), got {access!r}")
        home = access.data.core.home
        if home is None or home.place != 0 or access.data.core.layout.interface is not None:
            raise TypeError(
                f"{access.data.core.describe()} is in no array of yours on the host, so others cannot write it; "
                "register one"
            )
    must_be_outside(context, "an event of data", False)
    outside_events.must_be_possible(context.engine)
    with task_of_kind(context, "wait", writes, label or "event", "host"):
        pass


class Event(Shown, Outside):
    """Work of others that tasks can come after; `Context.event` makes one.

    It is a handle too: ``await`` it, or ask it as a future.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(3)
    ...     read = ctx.event(name="read")
    ...     ctx.task(x.rw(), after=[read])(lambda x: x + 1)
    ...     print(read.done(), read.fail(OSError("the disk is full")), read.done(), read.set())
    ...     try:
    ...         x.numpy()
    ...     except stf.TaskFailedError as error:
    ...         print(repr(error.__cause__))
    False True True False
    OSError('the disk is full')
    """

    __slots__ = ("__weakref__", "_task", "_token")

    _shown = ["add_done_callback", "cancel", "cancelled", "done", "exception", "fail", "name", "result", "set"]

    def __init__(self, task: Any, token: Any) -> None:
        self._task = task
        self._token = token

    @property
    def name(self) -> str | None:
        """The name that it was given."""
        return self._task.symbol

    def set(self) -> bool:
        """Complete the event: tasks after it may begin. Return False if it was complete before.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     event = ctx.event()
        ...     print(event.set(), event.set())
        True False
        """
        return self._complete()

    def fail(self, error: BaseException) -> bool:
        """Complete the event as failed: tasks after it are skipped, as after a task that raised `error`.

        Return False if it was complete before.

        Raises
        ------
        TypeError
            `error` is no exception.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     event = ctx.event()
        ...     print(event.fail(ValueError("no")))
        ...     print(repr(event.exception().__cause__))
        True
        ValueError('no')
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"fail takes an exception, got {type(error).__name__}; pass ValueError(...) or such")
        return self._complete(EventFailure.of(self._task, error))

    def cancel(self) -> bool:
        """Complete the event as cancelled: tasks after it are skipped. Return False if it was complete before.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     event = ctx.event()
        ...     print(event.cancel(), event.cancelled())
        True True
        """
        return self._complete(EventCancellation.of(self._task))

    def _complete(self, failure: Any = None) -> bool:
        return bool(outside_events.complete(self._task.engine, self._task, failure))

    def done(self) -> bool:
        """Return whether it is complete, however that went.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     event = ctx.event()
        ...     print(event.done(), event.set(), event.done())
        False True True
        """
        return bool(self._task.done())

    def cancelled(self) -> bool:
        """Return whether it was cancelled; see `cancel`.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     event = ctx.event()
        ...     print(event.set(), event.cancelled())
        True False
        """
        return bool(self._task.cancelled())

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait until it is complete, and return its error, or None; see `Task.exception`.

        Raises
        ------
        TimeoutError
            It took longer than `timeout` seconds.
        """
        return self._task.exception(timeout)

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is complete, and raise what it failed with; see `Task.result`.

        Raises
        ------
        TimeoutError
            It took longer than `timeout` seconds.
        TaskFailedError
            It failed, or was cancelled.
        """
        self._task.result(timeout)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(event)`` when it is complete: by a worker, or now if it is.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     event = ctx.event(name="sent")
        ...     event.add_done_callback(lambda event: print(event.name))
        ...     print(event.set())
        ...     ctx.synchronize()
        True
        sent
        """
        self._task.add_done_callback(lambda _: fn(self))

    def __await__(self) -> Generator[Any]:
        return self._task.__await__()

    def __del__(self) -> None:
        task = getattr(self, "_task", None)
        if task is None or task.done():
            return
        try:
            warnings.warn(
                f"{self!r} was dropped before it was complete, and is cancelled; keep it until you have called set()",
                ResourceWarning,
                stacklevel=1,
            )
        finally:
            self.cancel()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise not_copied(repr(self), "send what it stands for, and make an event there")

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "complete" if self.done() else "open"
        return f"<stf.Event {self._task.label()}, {state}>"
