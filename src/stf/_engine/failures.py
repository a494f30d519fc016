"""What is known of a task that failed, and how it is told."""

from __future__ import annotations

import collections
import copy
import traceback

from stf.errors import TaskCancelledError, TaskFailedError

NAMED = 3  # of the tasks that were cancelled
REMEDY = "write the data anew, or keep its content with accept()"


class Failure:
    """The first exception of a task; what the task was to write is poisoned by it.

    A failure is delivered once: by the call that raises the body's exception, or by the next ``wait``,
    ``synchronize``, ``finalize`` or ``check_errors``; once more if a task that is submitted later is skipped for it.
    """

    error_type = TaskFailedError
    was_delivered = False  # before it was last delivered
    is_accepted = False  # what the task wrote is good now: nobody needs the frames once it is told
    skipped = ""  # the task for which it is delivered once more

    def __init__(self, label, site, exception, written=(), delivered=False, number=0):
        self.number = number  # of its task: tasks are numbered as they begin
        self.label = label
        self.site = site
        self.exception = exception
        self.written = list(written)
        self.delivered = delivered
        self.kind = type(exception).__name__

    @classmethod
    def of(cls, task, exception, delivered=False):
        """The failure of a task."""
        return cls(task.label(), task.call_site, exception, task.written(), delivered, task.id)

    def is_own(self, task):
        """Whether it is the failure of this task, and not of one whose results the task needs."""
        return self.number == task.id if self.number else self.label == task.label()

    def deliver(self):
        """It is told now."""
        self.was_delivered, self.delivered = self.delivered, True

    def describe(self):
        """Who failed, where and with what."""
        return f"{self.name()} failed with {self.kind}: {text_of(self.exception)}"

    def name(self):
        """The task and its line."""
        return f"task {self.label} ({self.site})" if self.site else f"task {self.label}"

    def accept(self):
        """What the task left is good now: keep no frames for those who read it, once the failure is told."""
        self.is_accepted = True
        if self.delivered:
            self.forget_frames()

    def forget_frames(self):
        """Once the caller has the exception itself: keep one like it, which holds no frame.

        A traceback holds the frames of all callers, and they hold data, tasks and the context: as long as something
        is poisoned, none of them would be collected.
        """
        self.exception = without_frames(self.exception)

    def error(self):
        """The exception that reports this failure."""
        if self.skipped:
            return self.chain(
                f"{self.skipped} was skipped, since it reads what is poisoned: {self.describe()}; {REMEDY}"
            )
        if not self.written:
            return self.chain(self.describe())
        return self.chain(
            f"{self.describe()}; what it was to write is poisoned: {', '.join(self.written)}; write it anew, or keep "
            "its content with accept()"
        )

    def error_of_reader(self, reader, data):
        """The exception of a task that needs what the failed one was to write."""
        return self.chain(f"task {reader} reads {data}, which is poisoned: {self.describe()}; {REMEDY}")

    def chain(self, message):
        error = self.error_type(message, task=self.label, call_site=self.site)
        error.__cause__ = self.exception
        if self.is_accepted:
            self.forget_frames()
        return error


class Cancellation(Failure):
    """A task that was cancelled before its body began; who cancels hears of it at once."""

    error_type = TaskCancelledError

    @classmethod
    def of(cls, task):
        """That of a task."""
        return super().of(task, None, True)

    def describe(self):
        return f"{self.name()} was cancelled before it began"


def description_of_cancelled(cancelled):
    """Which tasks were cancelled, and how many of each; the first few by name."""
    counts = collections.Counter(failure.name() for failure in cancelled)
    names = [name if count == 1 else f"{name}, {count} times" for name, count in list(counts.items())[:NAMED]]
    more = sum(list(counts.values())[NAMED:])
    text = "; ".join([*names, f"and {more} more"] if more else names)
    return f"cancelled before they began, since the with-block of their context raised: {text}"


def text_of(exception):
    """What an exception says; its ``__str__`` is the user's, and may itself fail."""
    try:
        return str(exception)
    except Exception as error:
        return f"(its __str__ raised {type(error).__name__})"


def raise_failures(failures):
    """Raise what failed: one error, or a group of them."""
    errors = []
    for failure in failures:
        failure.delivered = True
        errors.append(failure.error())
    if not errors:
        return
    error = errors[0] if len(errors) == 1 else ExceptionGroup(f"{len(errors)} tasks failed", errors)
    try:
        raise error
    finally:
        del error, errors  # else its traceback, and all that the callers hold, would wait for the garbage collector


def without_frames(exception):
    """An exception of the same kind that says the same; its traceback is a note."""
    try:
        twin = copy.copy(exception)
    except Exception:  # its constructor takes something else than what it keeps
        twin = None
    if type(twin) is not type(exception) or twin is exception:
        twin = RuntimeError(text_of(exception))
    text = "".join(traceback.format_tb(exception.__traceback__)).rstrip()
    twin.__notes__ = [*getattr(twin, "__notes__", ()), f"raised at (most recent call last):\n{text}"]
    return twin
