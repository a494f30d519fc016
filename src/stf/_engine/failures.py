"""What is known of a task that failed, and how it is told."""

from __future__ import annotations

import collections
import copy
import operator
import traceback

from stf._support.tracebacks import raised_at
from stf.errors import TaskCancelledError, TaskFailedError

NAMED = 3  # of tasks, kinds of failures, and data
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
        """Return the failure of a task."""
        return cls(task.label(), task.call_site, exception, task.written(), delivered, task.id)

    def is_own(self, task):
        """Return whether it is the failure of this task, and not of one whose results the task needs."""
        return self.number == task.id if self.number else self.label == task.label()

    def deliver(self):
        """It is told now."""
        self.was_delivered, self.delivered = self.delivered, True

    def describe(self):
        """Return who failed, where and with what."""
        return f"{self.name()} failed with {self.kind}: {text_of(self.exception)}"

    def tell(self, observer, task_id, skipped):
        """Tell an observer that a task failed so, or was skipped for it."""
        if skipped:
            observer.skipped(task_id, self.describe())
        else:
            observer.failed(task_id, f"{self.kind}: {text_of(self.exception)}", raised_at(self.exception))

    def name(self):
        """Return the task and its line."""
        return f"task {self.label} ({self.site})" if self.site else f"task {self.label}"

    def accept(self):
        """Take what the task left as good: keep no frames for those who read it, once the failure is told."""
        self.is_accepted = True
        if self.delivered:
            self.forget_frames()

    def forget_frames(self):
        """Once the caller has the exception itself: keep one like it, which holds no frame.

        A traceback holds the frames of all callers, and they hold data, tasks and the context: as long as something
        is poisoned, none of them would be collected.
        """
        if self.exception is not None and self.exception.__traceback__ is not None:
            self.exception = without_frames(self.exception)

    def error(self, alike=()):
        """Return the exception that reports this failure, and others that are `alike`."""
        if self.skipped:
            return self.chain(
                f"{self.skipped} was skipped, since it reads what is poisoned: {self.describe()}; {REMEDY}"
            )
        what, written = self.describe(), self.written
        if alike:
            what = f"{what}, and {len(alike)} more like it"
            written = [label for failure in (self, *alike) for label in failure.written]
        error = self.chain(f"{what}; {poisoned_text(written, 'they were' if alike else 'it was')}" if written else what)
        error.others = [(failure.label, failure.site) for failure in alike]
        return error

    def cause(self):
        """Return what failures of one cause share: the kind of error, and the line that raised it.

        What they say may differ, as a message may hold a value. It counts where no line is known.
        """
        if self.skipped or self.exception is None:
            return self
        return type(self.exception), raised_at(self.exception) or text_of(self.exception)

    def error_of_reader(self, reader, data):
        """Return the exception of a task that needs what the failed one was to write."""
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


class EventFailure(Failure):
    """The failure of an event that somebody else completes."""

    def name(self):
        return f"event {self.label} ({self.site})"


class EventCancellation(Cancellation):
    """An event that was cancelled before anybody completed it."""

    def describe(self):
        return f"event {self.label} ({self.site}) was cancelled"


def description_of_cancelled(cancelled):
    """Return which tasks were cancelled, and how many of each; the first few by name."""
    counts = collections.Counter(failure.name() for failure in cancelled)
    names = [name if count == 1 else f"{name}, {count} times" for name, count in list(counts.items())[:NAMED]]
    more = sum(list(counts.values())[NAMED:])
    text = "; ".join([*names, f"and {more} more"] if more else names)
    return f"cancelled before they began, since the with-block of their context raised: {text}"


def text_of(exception):
    """Return what an exception says; its ``__str__`` is the user's, and may itself fail."""
    try:
        return str(exception)
    except Exception as error:
        return f"(its __str__ raised {type(error).__name__})"


def poisoned_text(labels, who):
    """Return which data are poisoned, and what to do."""
    names = list(dict.fromkeys(labels))
    is_long = len(names) > 2 * NAMED
    named = f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more" if is_long else ", ".join(names)
    return f"what {who} to write is poisoned: {named}; write it anew, or keep its content with accept()"


def raise_failures(failures):
    """Raise what failed: one error, or a group that has one for each cause; tasks come as they were submitted."""
    if not failures:
        return
    kinds = {}
    for failure in sorted(failures, key=operator.attrgetter("number")):
        failure.delivered = True
        kinds.setdefault(failure.cause(), []).append(failure)
    text = description_of_kinds(list(kinds.values()))
    errors = [first.error(alike) for first, *alike in kinds.values()]
    error = errors[0] if len(failures) == 1 else ExceptionGroup(text, errors)
    kinds.clear()
    try:
        raise error
    finally:
        del error, errors  # else its traceback, and all that the callers hold, would wait for the garbage collector


def description_of_kinds(kinds):
    """Say how many tasks failed, and of what; the first few causes, with the first task of each."""
    texts = []
    for first, *alike in kinds[:NAMED]:
        cause = f"{first.kind}: {text_of(first.exception)}".partition("\n")[0]
        more = f", and {len(alike)} more like it" if alike else ""
        texts.append(str(first.error()) if first.cause() is first else f"{cause}, in {first.name()}{more}")
    more = [f"and {len(kinds) - NAMED} more errors"] if len(kinds) > NAMED else []
    return f"{sum(map(len, kinds))} tasks failed: {'; '.join([*texts, *more])}"


def without_frames(exception):
    """Return an exception of the same kind that says the same; its traceback is a note."""
    try:
        twin = copy.copy(exception)
    except Exception:  # its constructor takes something else than what it keeps
        twin = None
    if type(twin) is not type(exception) or twin is exception:
        twin = RuntimeError(text_of(exception))
    text = "".join(traceback.format_tb(exception.__traceback__)).rstrip()
    twin.__notes__ = [*getattr(twin, "__notes__", ()), f"raised at (most recent call last):\n{text}"]
    return twin
