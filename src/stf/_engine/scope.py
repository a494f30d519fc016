"""Scopes: what tasks are ordered in, and what every task that begins asks of them."""

from __future__ import annotations

import cython

from stf._engine import host_waits


@cython.cclass
class Scope:
    """What the engine orders tasks in: the root scope, whose tasks run, or a recording, whose tasks are kept.

    The root scope is always there, and recordings are nested in it. This class is the root's; a recording's scope
    (`stf._recording.recordings`) overrides what it does with versions and memory.

    Attributes
    ----------
    port : Port
        It takes the tasks.
    parent : Scope or None
        The scope around it; None for the root.
    records : bool
        Its tasks are kept instead of run.
    thread : int
        Whose tasks it takes; 0 for all threads', `thread_turns.ABANDONED` if it was left open.
    runs_once : bool
        Its tasks run once: bodies say themselves how they went.
    patient : bool
        Other threads wait for its end; else they hear of it.
    description : str
        What messages call it.
    submitted : list or None
        The functions of the tasks that come, for who wants to know; an inner scope adds to that of the outer.
    """

    def __init__(self, port, parent=None, thread=0, description="", runs_once=True, patient=False):
        self.port = port
        self.parent = parent
        self.records = parent is not None
        self.thread = thread
        self.description = description
        self.runs_once = runs_once
        self.patient = patient
        self.submitted = None if parent is None else parent.submitted

    def takes_mine(self):
        """Return whether a task of this thread can begin in it, without a look at what is recorded elsewhere."""
        if self.thread and self.thread != PyThread_get_thread_ident():
            return False
        return not (self.runs_once and host_waits.repeated_scopes)

    def version_for(self, data):
        """Return the version of a data that tasks of this scope use."""
        return data.version

    def replica_for(self, data, version, place, mode):
        """Return the replica of a version at a place, if there is one.

        A recording's stands for that of the scope around.
        """
        return version.find(place)

    def allocate(self, data, replica):
        """Of recordings: get memory for a replica that only this one uses."""
        raise NotImplementedError

    def free_later(self, replica):
        """Of recordings: keep memory of a replica as long as this one may be launched."""
        raise NotImplementedError


@cython.cclass
class Gathering:
    """What records by itself, and launches what it has when something else needs the results.

    Attributes
    ----------
    scope : Scope or None
        What is gathered at present.
    thread : int
        Whose tasks; 0 for all threads'.
    implicit : bool
        It lasts as long as its context.
    launcher : int
        The thread that launches; 0 for none.
    is_abandoned : bool
        Nobody will end it.
    dropped : int
        How much of what users dropped was looked at.
    last_dropped : object
        The last of that.
    most : int
        How many operations become one graph.
    """

    def __init__(self, thread, implicit, most):
        self.scope = self.last_dropped = None
        self.thread = thread
        self.implicit = implicit
        self.launcher = self.dropped = 0
        self.is_abandoned = False
        self.most = most

    def is_full(self):
        """Return whether it launches what it has before it takes more."""
        return self.scope is not None and cython.cast(RecordingPort, self.scope.port).program.count >= self.most

    def takes(self, task: TaskCore, scope, dropped, deferred):
        """Return whether a task becomes a part of what is gathered, and nothing else is to be thought of.

        `scope` is the innermost one; `dropped` is what users dropped, and `deferred` of that what bodies need.
        """
        if self.scope is None or scope is not self.scope or self.launcher or self.is_abandoned or len(deferred):
            return False
        if self.thread and self.thread != PyThread_get_thread_ident():
            return False
        if task.blocks_caller or task.kind == "wait" or task.kind == "graph":
            return False
        count: cython.Py_ssize_t = len(dropped)
        if count != self.dropped or (count and dropped[count - 1] is not self.last_dropped):
            return False
        return not (self.is_full() or task.engine.places[task.where].is_callers_stream)
