"""The handle of what was submitted as several tasks, such as a loop over the places of a grid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from stf._support import arguments

if TYPE_CHECKING:
    from concurrent.futures import Future


class Tasks:
    """The handle of several tasks that were submitted by one call; it has the methods of a `Task`'s handle.

    It is done when all of them are, and failed when one of them is.
    """

    __slots__ = ("__weakref__", "_future", "body", "tasks")

    def __init__(self, tasks: list[Any]) -> None:
        self.tasks = tasks
        self.body: Any = tasks[0].body
        self._future: Future[None] | None = None

    def __repr__(self) -> str:
        return f"<{len(self.tasks)} tasks, {self.tasks[0]!r} and so on>"

    def __call__(self, *args: Any, **others: Any) -> Any:
        return self.tasks[0](*args, **others)

    def __len__(self) -> int:
        return len(self.tasks)

    def done(self) -> bool:
        """Return whether all tasks have run, failed, or were cancelled or skipped; nothing is waited for."""
        return all([task.done() for task in self.tasks])

    def running(self) -> bool:
        """Return whether the body of one of them has begun, while not all are done."""
        return any([task.running() or task.done() for task in self.tasks]) and not self.done()

    def cancelled(self) -> bool:
        """Return whether one of them was cancelled before its body began."""
        return any([task.cancelled() for task in self.tasks])

    def cancel(self) -> bool:
        """Keep those bodies from running that have not begun; return whether that was all of them."""
        return all([task.cancel() for task in self.tasks])

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for all tasks and return the error of the first that failed; None if all went well."""
        end = None if timeout is None else time.monotonic() + arguments.seconds(timeout)
        errors = [task.exception(None if end is None else max(end - time.monotonic(), 0.0)) for task in self.tasks]
        return next(filter(None, errors), None)

    def result(self, timeout: float | None = None) -> None:
        """Wait for all tasks and raise the error of the first that failed."""
        error = self.exception(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn(tasks)`` when all are done: at once if they are, else by a worker. What it raises is logged."""
        if not callable(fn):
            raise TypeError(f"add_done_callback takes a function, got {type(fn).__name__}")
        left, lock = len(self.tasks), threading.Lock()

        def tell(_: Any) -> object:
            nonlocal left
            with lock:
                left -= 1
                is_last = left == 0
            return fn(self) if is_last else None

        for task in self.tasks:
            task.add_done_callback(tell)

    def pending(self) -> Any:
        """Return a task that is not done; None if all are."""
        return next((task for task in self.tasks if not task.done()), None)

    def __await__(self) -> Generator[Any, None, None]:
        errors = []
        for task in self.tasks:
            try:
                yield from task.__await__()
            except Exception as error:
                errors.append(error)
        if errors:
            try:
                raise errors[0]
            finally:
                errors.clear()

    # What `concurrent.futures.wait` and `as_completed` look at is that of a future, which is there once they do.

    def _as_future(self) -> Future[None]:
        from concurrent.futures import Future  # which few programs need, and which takes its time

        if self._future is None:
            self._future = future = Future[None]()
            future.set_running_or_notify_cancel()
            self.add_done_callback(lambda _: future.set_result(None))
        return self._future

    _state = property(lambda self: self._as_future()._state)
    _condition = property(lambda self: self._as_future()._condition)
    _waiters = property(lambda self: self._as_future()._waiters)


def joined(handles: list[Any]) -> Any:
    """Return one handle of several: that of the only one, or `Tasks`."""
    if len(handles) == 1:
        return handles[0]
    return Tasks([task for handle in handles for task in (handle.tasks if isinstance(handle, Tasks) else [handle])])
