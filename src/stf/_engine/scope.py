"""What every task asks that begins while tasks are recorded: whether it simply becomes a part of that."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._engine import host_waits
from stf._engine.task import TaskCore

if not cython.compiled:
    from stf._support.sync import PyThread_get_thread_ident


@cython.cclass
class Region:
    """A region whose tasks are recorded: those of a thread, or of all if that is 0; perhaps to be launched `once`."""

    def __init__(self, thread, once):
        self.thread = thread
        self.once = once

    def takes_mine(self):
        """Whether tasks of this thread become a part of it, without a look at what is recorded elsewhere."""
        if self.thread and self.thread != PyThread_get_thread_ident():
            return False
        return not (self.once and host_waits.repeated_scopes)


@cython.cclass
class Gathering:
    """What records by itself, and launches what it has when something else needs the results.

    Attributes
    ----------
    scope : Region or None
        What is gathered at present.
    thread : int
        Whose tasks; 0 for all threads'.
    implicit : bool
        It lasts as long as its context.
    launcher : int
        The thread that launches; 0 for none.
    is_left : bool
        Nobody will end it.
    dropped : int
        How much of what users dropped was looked at.
    last_dropped : object
        The last of that.
    """

    def __init__(self, thread, implicit):
        self.scope = self.last_dropped = None
        self.thread = thread
        self.implicit = implicit
        self.launcher = self.dropped = 0
        self.is_left = False

    def takes(self, task: TaskCore, scope, dropped, deferred):
        """Whether a task becomes a part of what is gathered, and nothing else is to be thought of.

        `scope` is the innermost recording; `dropped` is what users dropped, and `deferred` of that what bodies need.
        """
        if self.scope is None or scope is not self.scope or self.launcher or self.is_left or len(deferred):
            return False
        if self.thread and self.thread != PyThread_get_thread_ident():
            return False
        if task.blocks_caller or task.kind == "wait" or task.kind == "graph":
            return False
        count: cython.Py_ssize_t = len(dropped)
        if count != self.dropped or (count and dropped[count - 1] is not self.last_dropped):
            return False
        return not task.engine.places[task.where].is_callers_stream
