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
     ├── PlaceError                  a place that is not in the context, or of the wrong kind (also a ValueError)
     ├── CaptureError                a body did what a recording cannot hold    (also a RuntimeError)
     └── DriverError                 the driver refused a call (name, code, call, place) (also a RuntimeError)
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AccessError",
    "CaptureError",
    "ContextClosedError",
    "ContextMismatchError",
    "DriverError",
    "Error",
    "OutOfMemoryError",
    "PlaceError",
    "TaskCancelledError",
    "TaskFailedError",
    "TaskStateError",
    "UninitializedDataError",
]


class Error(Exception):
    """Base class of what stf raises on its own account."""


class UninitializedDataError(Error):
    """Logical data is read before anything wrote it."""


class ContextMismatchError(Error, ValueError):
    """Logical data of one context is used with another."""


class ContextClosedError(Error, RuntimeError):
    """The context was finalized, lost, or inherited through a fork."""


class TaskFailedError(Error):
    """A task's body raised, or a task needs data that a failed task was to write.

    Attributes
    ----------
    task : str
        Name of the task that failed first.
    call_site : str
        The line that submitted it, as ``file.py:12``.
    """

    def __init__(self, message: str, *, task: str = "", call_site: str = "") -> None:
        super().__init__(message)
        self.task = task
        self.call_site = call_site


class TaskCancelledError(TaskFailedError):
    """A task was cancelled before its body began, or a task needs data that it was to write."""


class AccessError(Error, ValueError):
    """An access that the data does not allow now."""


class TaskStateError(Error, RuntimeError):
    """A task or a context is asked for something that its state forbids."""


class OutOfMemoryError(Error, MemoryError):
    """A data place has no room left, and nothing there can be evicted."""

    is_crowded = False  # tasks of other threads had memory there, which end


class PlaceError(Error, ValueError):
    """A place that does not exist here, or of the wrong kind."""


class GraphClosedError(TaskStateError):
    """A recorded graph was closed before it could be launched."""


class CaptureError(Error, RuntimeError):
    """A body did what a recorded graph cannot hold."""


def not_copied(what: str, advice: str) -> TypeError:
    """The error for whoever copies or pickles what belongs to the contexts of this process."""
    return TypeError(f"{what} belongs to this process and is not copied or pickled; {advice}")


MAX_ACCUSED = 8
LOST = "; contexts there are lost, what is in host memory is kept; in flight there: "
UNNAMED = " (or a task whose results were written again)"


class DriverError(Error, RuntimeError):
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
    """

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
        copy = _restored(*self.__reduce__()[1])
        copy._first = self._first or self
        return copy

    def is_reported_by(self, error: BaseException) -> bool:
        """Whether an error is this one, or this one again."""
        return error is self or getattr(error, "_first", None) is self

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in vars(self).items() if name != "_first"}
        return _restored, (type(self), self.args, state | {"tasks": list(self.tasks)})


def _restored(kind: type[DriverError], args: tuple[Any, ...], state: dict[str, Any]) -> DriverError:
    """An error as it was, without what its constructor makes of its arguments."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
