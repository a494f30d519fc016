"""Waits of the host: outside the engine, and never for what waits for the waiting thread itself.

A body may submit tasks, and a with-block in a body waits. Such a thread waits for work (events) or for a claim, and
others may wait for it: for the end of its body, or of the tasks that it holds open, of whatever context. Each wait is
noted before it begins; the one that would close a circle is refused.
"""

from __future__ import annotations

import logging
import operator
import weakref

from stf.errors import TaskStateError

log = logging.getLogger("stf")
RUNNING: dict = {}  # thread -> the late task whose body it runs, or the callback that it calls, of whatever context
BLOCKED: dict = {}  # thread -> what it waits for
ENGINES: dict = {}  # id -> a weak reference to the engine; it takes itself out

running_bodies = 0
open_tasks = 0  # of all engines
repeated_scopes = 0  # recordings that are open, of all engines, and will be launched again and again


def enlist(engine):
    """There is one more engine."""
    ENGINES[id(engine)] = weakref.ref(engine)
    return 0


def delist(engine):
    """An engine goes."""
    try:
        ENGINES.pop(id(engine), None)
    except MemoryError:
        return 0  # what stays there is a reference to nothing
    return 0


def living_engines():
    """Return the engines that there are."""
    return [engine for engine in [reference() for reference in list(ENGINES.values())] if engine is not None]


class Pause(Exception):
    """What was begun cannot go on before `events`: leave the engine, wait, begin again."""

    def __init__(self, events: EventSet):
        self.events = EventSet()
        self.events.update(events)


class WorkWait:
    """A wait for events, and for what stands before an open slot."""

    def __init__(self, port, events=None, slot=-1):
        self.port = port
        self.events = EventSet() if events is None else events
        self.slot = slot

    def threads(self):
        """Threads that run a body which must end first."""
        port: Port = self.port
        return port.runners(self.events, self.slot)


class ClaimWait:
    """A wait for a data that other tasks hold."""

    def __init__(self, engine, version):
        self.engine = engine
        self.version = version

    def threads(self):
        """Threads that hold it."""
        return [task.thread for task in self.engine.opened() if task.has_claim_on(self.version)]


class Callback:
    """What a worker calls when a task is done: who waits in it is inside of it, as a body is inside of its task.

    Nobody is there to catch what it raises, which is logged.
    """

    def __init__(self, task, fn):
        self.task = task
        self.engine = task.engine
        self.fn = fn

    @property
    def call_site(self):
        """The line that submitted its task."""
        return self.task.call_site

    def label(self):
        """Return what messages call its task."""
        return self.task.label()

    def works_on(self, data):
        """A callback has no data."""
        return False

    def __call__(self):
        global running_bodies
        thread: object = PyThread_get_thread_ident()
        running_bodies += 1
        try:
            RUNNING[thread] = self
            self.fn(self.task)
        except BaseException:
            log.exception("a callback of task %s raised", self.label())
        finally:
            RUNNING.pop(thread, None)
            running_bodies -= 1


# -- waiting -------------------------------------------------------------------------------------------------------


def wait(port, events, task=None):
    """Block until `events` are complete, which is True; no gate may be held. A `task` is to begin then.

    Raises
    ------
    TaskStateError
        They cannot be before this thread goes on.
    """
    events_port: Port = port
    thread = PyThread_get_thread_ident()
    if not is_waited_for(thread):
        return events_port.wait(events, -1.0)
    note(thread, WorkWait(port, events), task)
    try:
        return events_port.wait(events, -1.0)
    finally:
        BLOCKED.pop(thread, None)


def enter(port, task, slot, late):
    """Wait until what an open task does on a slot may stand there; no gate may be held.

    `late` says whether queued bodies of its engine have not run yet.
    """
    if open_tasks == 1 and not late:
        port.enter(slot)  # no other task and no queued body stands before it, which could wait for this thread
        return 0
    return enter_noted(port, slot, PyThread_get_thread_ident(), task)


def enter_slot(port, slot):
    """Wait until all that stands on a slot was given to the device; no gate may be held."""
    inner: Port = port
    thread = PyThread_get_thread_ident()
    if is_waited_for(thread):
        return enter_noted(inner, slot, thread, None)
    return inner.enter(slot)


def enter_noted(port: Port, slot, thread, task):
    """Enter a slot by a thread for which others may wait; for `task`, unless that is None."""
    note(thread, WorkWait(port, None, slot), task)
    try:
        port.enter(slot)
    finally:
        BLOCKED.pop(thread, None)
    return 0


def note(thread, what, task):
    """Note a wait before it begins, for a task or None; refuse the one that closes a circle."""
    BLOCKED[thread] = what
    if is_endless(thread):
        del BLOCKED[thread]
        raise TaskStateError(describe(thread, task))


def park(port, events, baton, timeout_s):
    """Wait until another thread releases a baton, at the latest after `events`; False if the time ran out."""
    events_port: Port = port
    thread = PyThread_get_thread_ident()
    if not is_waited_for(thread):
        return events_port.park(baton, timeout_s)
    note(thread, WorkWait(port, events), None)
    try:
        return events_port.park(baton, timeout_s)
    finally:
        BLOCKED.pop(thread, None)


def settles(port, events: EventSet):
    """Wait for `events`, unless that wait would never end; say which."""
    events_port: Port = port
    thread = PyThread_get_thread_ident()
    if not ends(port, events):
        return False
    BLOCKED[thread] = WorkWait(port, events)
    try:
        events_port.wait(events, -1.0)
    finally:
        BLOCKED.pop(thread, None)
    return True


# -- circles -------------------------------------------------------------------------------------------------------


def ends(port, events: EventSet):
    """Return whether this thread could wait for `events` at all."""
    thread = PyThread_get_thread_ident()
    if not is_waited_for(thread):
        return True
    before = BLOCKED.get(thread)
    BLOCKED[thread] = WorkWait(port, events)
    try:
        return not is_endless(thread)
    finally:
        if before is None:
            del BLOCKED[thread]
        else:
            BLOCKED[thread] = before


def is_waited_for(thread):
    """Return whether others may wait for what a thread is inside of: a body, or tasks that it holds open."""
    return thread in RUNNING or (open_tasks > 0 and len(held_by(thread)) > 0)


def held_by(thread):
    """Return the tasks that a thread holds open, in whatever context."""
    return [task for engine in living_engines() for task in engine.opened() if task.thread == thread]


def is_endless(thread):
    """Return whether the wait that a thread has noted is, by way of others' waits, one for itself."""
    seen = {thread}
    queue = [thread]
    while queue:
        blocked = BLOCKED.get(queue.pop())
        for other in blocked.threads() if blocked is not None else ():
            if other == thread:
                return True
            if other not in seen:
                seen.add(other)
                queue.append(other)
    return False


def describe(thread, task):
    """Return what to say of a wait that would never end."""
    who = "this wait" if task is None else f"task {task.label()}"
    outer = RUNNING.get(thread)
    if isinstance(outer, Callback):
        return (
            f"{who} inside a callback of task {outer.label()} ({outer.call_site}) waits for what comes after that "
            "callback; let the callback return first"
        )
    if outer is not None:
        return (
            f"{who} inside the body of task {outer.label()} ({outer.call_site}) waits for data that is not free before "
            "that body ends; give the data to the outer task, or submit the inner one after it"
        )
    held = min(held_by(thread), key=operator.attrgetter("id"))  # as tasks are numbered when they begin
    if held is task:
        return (
            f"{who} waits for a body that waits for data of this task; let that body end first (wait for what it "
            "writes), or give it the data"
        )
    return (
        f"{who} waits for what waits for task {held.label()} ({held.call_site}), which this thread holds open; "
        "end that task first"
    )
