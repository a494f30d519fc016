"""The exceptions of stf.

Every message says what was wrong, what was got and what to do, and names the data and the task::

    Error
     ├── UninitializedDataError      data is read before anything wrote it
     ├── ContextMismatchError        data or accesses of another context        (also a ValueError)
     ├── ContextClosedError          the context was finalized, or belongs to the parent of a fork (RuntimeError)
     ├── TaskFailedError             a body raised; `task` and `call_site` say which, __cause__ is the original
     │    └── TaskCancelledError     it was cancelled before its body began
     ├── AccessError                 write to read-only, frozen, split or released data (also a ValueError)
     ├── TaskStateError              a task started twice, a wait inside a body, a claim that cannot be met
     │                                                                          (also a RuntimeError)
     ├── OutOfMemoryError            nothing left to evict                      (also a MemoryError)
     ├── PlanError                   a plan cannot know what the program asks for (also a RuntimeError)
     ├── PlaceError                  a place that is not in the context, or of the wrong kind (also a ValueError)
     ├── WorkerLostError             a remote worker died, and with it data that only it had (also a RuntimeError)
     ├── CaptureError                a body did what a recording cannot hold    (also a RuntimeError)
     └── DriverError                 the driver refused a call (name, code, call, place) (also a RuntimeError)
"""

from __future__ import annotations

import copy
import copyreg
import functools
from typing import Any

from stf._support.completion import Shown

__all__ = [
    "AccessError",
    "CaptureError",
    "ContextClosedError",
    "ContextMismatchError",
    "DriverError",
    "Error",
    "OutOfMemoryError",
    "PlaceError",
    "PlanError",
    "TaskCancelledError",
    "TaskFailedError",
    "TaskStateError",
    "UninitializedDataError",
    "WorkerLostError",
]


class Error(Exception):
    """Base class of what stf raises on its own account.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_empty(3, name="x")
    ...     try:
    ...         x.numpy()
    ...     except stf.Error as error:
    ...         print(type(error).__name__)
    UninitializedDataError
    """


class UninitializedDataError(Error):
    """Logical data is read before anything wrote it.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_empty(3, name="x")
    ...     try:
    ...         x.numpy()
    ...     except stf.UninitializedDataError as error:
    ...         print("'x'" in str(error))
    True
    """


class ContextMismatchError(Error, ValueError):
    """Logical data of one context is used with another.

    Examples
    --------
    >>> with stf.context(devices="cpu") as one, stf.context(devices="cpu") as other:
    ...     x, y = one.logical_data_ones(3), other.logical_data_ones(3)
    ...     try:
    ...         one.copy(x, y)
    ...     except stf.ContextMismatchError:
    ...         print("data of two contexts")
    data of two contexts
    """


class ContextClosedError(Error, RuntimeError):
    """The context was finalized, lost, or inherited through a fork.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_ones(3)
    >>> try:
    ...     x.numpy()
    ... except stf.ContextClosedError:
    ...     print("too late")
    too late
    """


class TaskFailedError(Error):
    """A task's body raised, or a task needs data that a failed task was to write.

    Attributes
    ----------
    task : str
        Name of the task that failed first.
    call_site : str
        The line that submitted it, as ``file.py:12``.
    others : list of (str, str)
        Name and line of the tasks that failed after it for the same cause: the same error, raised by the same line.

    Examples
    --------
    >>> def invert(x):
    ...     raise ZeroDivisionError("a zero in x")
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(3, name="x")
    ...     ctx.task(x.rw(), name="invert")(invert)
    ...     try:
    ...         x.numpy()
    ...     except stf.TaskFailedError as error:
    ...         print(error.task, repr(error.__cause__))
    'invert' ZeroDivisionError('a zero in x')
    """

    def __init__(self, message: str, *, task: str = "", call_site: str = "") -> None:
        super().__init__(message)
        self.task = task
        self.call_site = call_site
        self.others: list[tuple[str, str]] = []


class TaskCancelledError(TaskFailedError):
    """A task was cancelled before its body began, or a task needs data that it was to write.

    Examples
    --------
    >>> import time
    >>> with stf.context(devices="cpu") as ctx:
    ...     x, y = ctx.logical_data_zeros(1), ctx.logical_data_zeros(1)
    ...     for _ in range(50):
    ...         ctx.host_launch(x.rw())(lambda x: time.sleep(0.005))
    ...     ctx.host_launch(x.read(), y.rw())(lambda x, y: None)  # it waits for the others
    ...     _ = ctx.cancel()
    ...     try:
    ...         y.numpy()
    ...     except stf.TaskCancelledError:
    ...         print("y was never written")
    y was never written
    """


class AccessError(Error, ValueError):
    """An access that the data does not allow now.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data(np.zeros(3), name="x", readonly=True)
    ...     try:
    ...         x.write()
    ...     except stf.AccessError:
    ...         print("x may only be read")
    x may only be read
    """


class TaskStateError(Error, RuntimeError):
    """A task or a context is asked for something that its state forbids.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     t = ctx.task(ctx.logical_data_ones(3).read())
    ...     t.start()
    ...     try:
    ...         t.start()
    ...     except stf.TaskStateError:
    ...         print("started twice")
    ...     t.end()
    started twice
    """


class OutOfMemoryError(Shown, Error, MemoryError):
    """A data place has no room left, and nothing there can be evicted.

    Examples
    --------
    >>> with stf.context(devices="cpu:1", memory_limit=1000) as ctx:
    ...     try:
    ...         with ctx.task(ctx.logical_data_zeros(1000, name="x").rw()):
    ...             pass
    ...     except stf.OutOfMemoryError:
    ...         print("8,000 bytes do not fit into 1,000")
    8,000 bytes do not fit into 1,000
    """

    _shown = ["add_note", "args", "with_traceback"]

    is_crowded = False  # tasks of other threads had memory there, which end


class PlaceError(Error, ValueError):
    """A place that does not exist here, or of the wrong kind.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     try:
    ...         ctx.task(5, ctx.logical_data_ones(3).read())(lambda x: None)
    ...     except stf.PlaceError:
    ...         print("there is no device 5")
    there is no device 5
    """


class PlanError(Error, RuntimeError):
    """A program asks for what a plan cannot know: a value, or how long a task takes.

    Examples
    --------
    >>> def program(ctx):
    ...     x = ctx.logical_data_zeros(3, name="x")
    ...     print(x.numpy())
    >>> try:
    ...     stf.plan(program, devices="2xH200")
    ... except stf.PlanError:
    ...     print("a plan computes no values")
    a plan computes no values
    """


def no_value(name: str, site: str) -> str:
    """Say that a program asks for values which nobody has computed, at a line, and what to do."""
    where = f"{site} asks" if site else "the program asks"
    return (
        f"{where} for values of logical data '{name}', and a plan computes none; let a task use them, "
        f"or give a value: values={{{name!r}: 0.0}}"
    )


class WorkerLostError(Error, RuntimeError):
    """A remote worker died, was restarted, or cannot be reached.

    Tasks that were to run there fail with it, and so do tasks that read data which only that worker had. Data with
    another replica, such as registered arrays of yours that no task has written since, stay as they are.

    Attributes
    ----------
    worker : str
        The worker, as ``device(0)`` of the context.

    Examples
    --------
    >>> import os
    >>> X = np.ones(3)
    >>> with stf.context(devices="loopback:2") as ctx:
    ...     x, y = ctx.logical_data(X), ctx.logical_data_empty(3)
    ...     ctx.task(stf.exec_place.device(0), x.read(), y.write())(lambda x, y: os._exit(1))
    ...     try:
    ...         y.numpy()
    ...     except stf.TaskFailedError as error:
    ...         print(type(error.__cause__).__name__, error.__cause__.worker)
    WorkerLostError device(0)
    """

    def __init__(self, message: str, *, worker: str = "") -> None:
        super().__init__(message)
        self.worker = worker

    def __reduce__(self) -> Any:
        return functools.partial(WorkerLostError, worker=self.worker), (str(self),)


class GraphClosedError(TaskStateError):
    """A recorded graph was closed before it could be launched."""


class CaptureError(Error, RuntimeError):
    """A body did what a recorded graph cannot hold.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     g = ctx.task_graph()
    ...     try:
    ...         with g:
    ...             with ctx.task(x.rw()):
    ...                 pass
    ...     except stf.CaptureError:
    ...         print("a with-block on a CPU cannot be recorded")
    a with-block on a CPU cannot be recorded
    """


def not_copied(what: str, advice: str) -> TypeError:
    """Return the error for whoever copies or pickles what belongs to the contexts of this process."""
    return TypeError(f"{what} belongs to this process and is not copied or pickled; {advice}")


MAX_ACCUSED = 8
LOST = "; contexts there are lost, what is in host memory is kept; in flight there: "
UNNAMED = " (or a task whose results were written again)"


class DriverError(Shown, Error, RuntimeError):
    """A driver refused a call.

    Attributes
    ----------
    name : str
        The driver's name of the error.
    code : int
        Its number.
    call : str
        The driver verb that failed.
    place : str
        Where.
    tasks : list of str
        Of an error that lost the device: the tasks that may have caused it, as far as the engine knows: those that
        are open, the last one that wrote each data, and the last ones that wrote nothing.

    Examples
    --------
    >>> error = stf.DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "cuEventQuery", "device(0)")
    >>> print(error)
    cuEventQuery failed on device(0) with CUDA_ERROR_ILLEGAL_ADDRESS (700)
    >>> error.name, error.code, error.call, error.place, error.tasks
    ('CUDA_ERROR_ILLEGAL_ADDRESS', 700, 'cuEventQuery', 'device(0)', [])
    """

    _shown = ["add_note", "args", "call", "code", "name", "place", "tasks", "with_traceback"]

    tasks: list[str]
    _first: DriverError | None = None  # of an error that is told again and again

    def __init__(self, name: str, code: int, call: str, place: str, detail: str = "") -> None:
        tail = f": {detail}" if detail else ""
        super().__init__(f"{call} failed on {place} with {name} ({code}){tail}")
        self.name, self.code, self.call, self.place = name, code, call, place
        self.tasks = []

    def accuse(self, tasks: list[str]) -> None:
        """Name the tasks that may have caused this."""
        self.tasks += tasks
        shown = ", ".join(self.tasks[:MAX_ACCUSED]) + (", …" if len(self.tasks) > MAX_ACCUSED else "")
        self.args = (f"{str(self).partition(LOST)[0]}{LOST}{shown or 'no task known'}{UNNAMED}",)

    def again(self) -> DriverError:
        """Return a copy to be raised, whose traceback is that of this time."""
        error = copy.copy(self)
        error._first = self._first or self
        return error

    def is_reported_by(self, error: BaseException) -> bool:
        """Return whether an error is this one, or this one again."""
        return error is self or getattr(error, "_first", None) is self

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a copy be as this is, without what the constructor makes of its arguments."""
        state = {name: value for name, value in vars(self).items() if name != "_first"}
        return copyreg.__newobj__, (type(self), *self.args), state | {"tasks": list(self.tasks)}  # type: ignore[attr-defined]
