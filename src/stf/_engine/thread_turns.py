"""Turns: what threads and contexts may do beside a recording that is open.

A recording belongs to the thread that opened it. Tasks of other threads wait for its end, or hear of it; those of other
contexts would be no part of it.
"""

from __future__ import annotations

import logging
import threading
import time

import cython

from stf._engine import host_waits
from stf._engine.access import MODE_NAMES
from stf.errors import AccessError, ContextClosedError, OutOfMemoryError, TaskStateError

STANDS_BACK = 8  # how often a wait lets others come before it
ABANDONED = 1  # in place of the thread of a scope that nobody will end; no thread has this number
PATIENCE_S = 30.0  # how long a thread waits for another one's recording, or with its own
BODY_PATIENCE_S = 0.2  # how long a body waits for an open task of another thread, which may be waiting for it
LAUNCH_PATIENCE_S = 3.0  # and for one that is a launch, for which the device's library may have to make a graph
STEP_S = 0.0005  # how often it looks
REPORTED_S = 1.0  # how long who ends a context waits for other threads before it says so
log = logging.getLogger("stf")


class TurnError(TaskStateError):
    """Others did not let a thread record."""


class OutsideError(TaskStateError):
    """What moves memory cannot be recorded."""


class CameBetweenError(Exception):
    """Another thread began to launch, or to record, before a task could begin."""


class OtherThreadRecordsError(TaskStateError):
    """Another thread has a recording open."""

    def __init__(self, description, scope):
        super().__init__(description)
        self.scope = scope


def check_thread(engine: EngineState, task: TaskCore):
    """Tasks of other threads are no part of a recording, and cannot begin while it is open."""
    scope = engine.scope
    if scope.thread and scope.thread != PyThread_get_thread_ident():
        raise OtherThreadRecordsError(
            f"task {task.label()} ({task.call_site}) cannot begin while another thread has {scope.description} open; "
            "let it end first",
            scope,
        )
    if scope.runs_once and host_waits.repeated_scopes:
        check_elsewhere(engine, task)


def waits_for_loan(engine: EngineState, task: TaskCore, data: Data, version: Version, mode):
    """Return True where a task waits for the end of a loan of another thread's; else raise AccessError."""
    thread = PyThread_get_thread_ident()
    holds_nothing = version.frozen_by not in (0, thread) and not host_waits.is_waited_for(thread)
    if holds_nothing and (not engine.scope.records or engine.scope.runs_once):
        return True
    gone = "" if version.frozen_by else ", and what ctx.freeze returned is gone: keep it until then"
    raise AccessError(
        f"{data.describe()} is frozen for {MODE_NAMES[version.frozen]}; task {task.label()} cannot open it for "
        f"{MODE_NAMES[mode]} before unfreeze{gone}"
    )


def begin_ending(engine: EngineState):
    """Be the thread that finalizes a context, after another one that does; one that is gone will not."""
    thread = PyThread_get_thread_ident()
    end = 0.0
    while True:
        other = engine.ending
        is_gone: cython.bint = False
        if other != 0:
            now = time.monotonic()
            end = end or now + PATIENCE_S
            is_gone = now > end or other not in [t.ident for t in threading.enumerate()]
        engine.gate.enter()
        try:
            if engine.ending == 0 or engine.ending == thread or (is_gone and engine.ending == other):
                engine.ending = thread
                return 0
        finally:
            engine.gate.leave()
        time.sleep(STEP_S)


def note_crowd(engine: EngineState, reason):
    """Remember of what could not begin for want of memory whether tasks of other threads, which end, hold some."""
    if isinstance(reason, OutOfMemoryError) and engine.last_open is not None:
        thread = PyThread_get_thread_ident()
        threads = {task.thread for task in engine.opened()}
        reason.is_crowded = thread not in threads and thread not in host_waits.RUNNING


def waits_for_room(task: TaskCore, reason):
    """Wait a little for memory that tasks of other threads hold; False if there is none, or it has taken too long."""
    if not reason.is_crowded or task.begin_retries * STEP_S > PATIENCE_S:
        return False
    task.begin_retries += 1
    time.sleep(STEP_S)
    return True


def must_not_end(engine: EngineState):
    """Raise ContextClosedError while another thread finalizes the context, but for bodies, which it waits for."""
    thread = PyThread_get_thread_ident()
    if thread != engine.ending and thread not in host_waits.RUNNING:
        raise ContextClosedError(f"{engine.context()!r} is being finalized by another thread; make a new one")


def closed_error(engine: EngineState):
    """Return the error for who uses a context that was finalized, or forked."""
    return ContextClosedError(f"{engine.context()!r} {engine.closed}")


def await_others(engine: EngineState):
    """Before a context ends: wait for tasks that other threads have open, and shortly for what they record.

    They begin no more (`must_not_end`). Those of threads that are gone will not end, nor those of this one. It
    waits for no daemon threads at the end of the process, nor when an exception ends the context.
    """
    if (engine.last_open is None and not engine.scope.records) or not threading.main_thread().is_alive():
        return 0
    start = time.monotonic()
    is_reported = False
    while time.monotonic() < start + PATIENCE_S:
        waits_for_all: cython.bint = engine.cancelled is None
        others = {thread.ident for thread in threading.enumerate() if waits_for_all or not thread.daemon}
        others.discard(threading.get_ident())
        held = [task for task in engine.opened() if task.thread in others and task.thread not in host_waits.RUNNING]
        scope = engine.scope
        records = scope.thread in others and time.monotonic() < start + BODY_PATIENCE_S
        if not held and not records:
            return 0
        if held and not is_reported and time.monotonic() > start + REPORTED_S:
            is_reported = True
            task = held[len(held) - 1]
            log.warning("finalize waits for task %s (%s) of another thread to end", task.label(), task.call_site)
        time.sleep(STEP_S)
    return 0


def gathers(scope):
    """Return whether a scope gathers the tasks of a context on graphs, until somebody waits."""
    return scope.records and scope.runs_once and not scope.thread


def is_repeated(engine: EngineState):
    """Return whether the tasks of this thread are recorded, to run in every launch."""
    scope = engine.scope
    return not scope.runs_once and scope.thread in (0, PyThread_get_thread_ident())


def await_end(scope):
    """Wait until a recording of another thread is over; False if nobody is to wait for it, or it takes too long."""
    end = time.monotonic() + PATIENCE_S
    while scope.patient and time.monotonic() < end:
        if not is_open(scope) or scope.thread == ABANDONED:
            return True
        time.sleep(STEP_S)
    return False


def await_scope(engine: EngineState, scope):
    """Wait for a recording of another thread, or forget what was left open; False if that took too long."""
    if scope.thread == ABANDONED:
        forget_left(engine)
        return True
    return await_end(scope)


def forget_left(engine: EngineState):
    """Forget the scopes that were left open."""
    while engine.gathering is not None and engine.gathering.is_abandoned:
        engine.gathering.give_way()
    while engine.scope.thread == ABANDONED:
        engine.scope.abandon()
    return 0


def abandon_own(engine: EngineState):
    """Forget what this thread was recording when an exception left its context, with blocks that nothing has ended."""
    scope = engine.scope
    while not scope.runs_once and scope.thread == PyThread_get_thread_ident():
        scope.abandon()
        scope = engine.scope


def is_open(scope):
    """Return whether a scope is the engine's, or around it."""
    inner = scope.engine.scope
    while inner is not None and inner is not scope:
        inner = inner.parent
    return inner is scope


def check_elsewhere(engine: EngineState, task: TaskCore):
    """A task of another context is no part of a recording, and would not be repeated."""
    if task.is_single_launch:
        return 0  # of tasks that were given before
    thread = PyThread_get_thread_ident()
    for other in host_waits.living_engines():
        scope = other.scope
        if other is not engine and scope.thread == thread and not scope.runs_once:
            raise TaskStateError(
                f"task {task.label()} ({task.call_site}) is of another context than {scope.description}, inside of "
                "which it was submitted: it would run now, and in no launch; submit it before or after"
            )
    return 0


def inside(engine: EngineState, action):
    """Return ``action(engine)``, done beside what other threads do, and beside a recording: it moves no memory."""
    engine.enter()
    try:
        return action(engine)
    finally:
        engine.gate.leave()


def check_outside(engine: EngineState, action):
    """What waits or moves memory cannot be done inside of a recording; what is launched once is launched here."""
    if engine.gathering is not None:
        engine.gathering.step_out()
        scope = engine.scope
        if scope.thread == PyThread_get_thread_ident() and engine.gathering.has(scope):
            engine.gathering.flush()  # a graph_scope, which goes on
    scope = engine.scope
    if scope.records and scope.thread != PyThread_get_thread_ident() and await_end(scope):
        return
    if scope.thread:  # else another thread began it meanwhile, and it is tried again
        name = getattr(action, "__name__", "this").replace("_", " ")
        if scope.thread == PyThread_get_thread_ident():
            raise OutsideError(f"{name} is not possible inside of {scope.description}; do it before or after")
        raise TurnError(f"{name} is not possible while another thread has {scope.description} open; let it end first")


def yield_to_recorders(engine: EngineState, task: TaskCore):
    """Let a task that is a wait of the user's be open no more while it waits: others may want to record meanwhile.

    It is taken back, and begun again when its data are there; others may have written them by then. A few times only,
    since they might go on and on.
    """
    for _ in range(STANDS_BACK):
        if not has_to_wait(engine, task) or (engine.pending() == 0 and threading.active_count() == 1):
            return 0
        before = EventSet()
        before.add(engine.withdraw(task))
        host_waits.wait(engine.root, before, task)
        engine.begin(task)
    return 0


def has_to_wait(engine: EngineState, task: TaskCore):
    """Return whether what an open task reads is not there yet."""
    i: cython.int
    port: Port = engine.root
    for i in range(len(task.uses)):
        use = cython.cast(Access, task.uses[i])
        replica = cython.cast(Replica, task.replicas[i])
        if is_pending(port, use.core.version.writers) or (replica is not None and is_pending(port, replica.ready)):
            return True
    return False


def is_pending(port: Port, events: EventSet):
    """Return whether one of `events` is not complete."""
    i: cython.int = 0
    while i < events.count and port.done(events.items[i]):
        i += 1
    return i < events.count


def is_used_by_others(engine: EngineState, thread):
    """Return whether other threads record, launch what was recorded, or hold tasks open."""
    scope = engine.scope
    if scope.thread == thread:
        return False  # they wait for this one
    if engine.launching or (engine.gathering is not None and engine.gathering.launcher not in (0, thread)):
        return True
    if scope.thread:
        return True
    threads = {task.thread for task in engine.opened()}
    return len(threads) > 0 and thread not in threads


def await_bodies(engine: EngineState, wait, *args):
    """Wait in a launch, or for one: bodies that have begun hear that they are not to wait for its end."""
    engine.driving += 1
    try:
        wait(*args)
    finally:
        engine.driving -= 1


def is_awaited(engine: EngineState, thread):
    """Return whether a thread runs a body that a launch may be waiting for, which nobody records beside."""
    return engine.driving > 0 and thread in host_waits.RUNNING


class Deadline:
    """How long a thread waits for others before it records.

    As long as a launch takes, and else so many seconds. A body of a task does not wait for what may be waiting for it:
    a launch that waits for bodies, or a task that another thread has had open for a while.
    """

    def __init__(self, engine: EngineState, seconds):
        self.engine = engine
        self.seconds = seconds
        self.thread = threading.get_ident()
        self.is_in_body = self.thread in host_waits.RUNNING
        self.end = time.monotonic() + seconds
        self.oldest, self.since = None, 0.0
        self.patience = seconds

    def is_over(self):
        """Return whether it has waited long enough."""
        now = time.monotonic()
        if not self.is_in_body:
            if self.engine.launching:
                self.end = now + self.seconds
            return now > self.end
        scope = self.engine.scope
        recorder = scope.thread
        oldest = None
        for task in self.engine.opened():  # the last begun first
            if task.thread not in (self.thread, recorder):
                oldest = task
        if oldest is not self.oldest:
            self.oldest, self.since = oldest, now
        if oldest is not None:
            self.patience = LAUNCH_PATIENCE_S if self.engine.launching else BODY_PATIENCE_S
        held = oldest is not None and now - self.since > self.patience
        return held or now > self.end or is_awaited(self.engine, self.thread)

    def refuse(self, description):
        """Raise TurnError."""
        refuse_turn(self.engine, description, min(self.patience, self.seconds))


def refuse_turn(engine: EngineState, description, patience):
    """Raise TurnError: others did not let this thread record."""
    task: TaskCore = engine.last_open
    if is_awaited(engine, PyThread_get_thread_ident()):
        raise TurnError(
            f"{description} cannot be opened in a body while a launch of the same context waits for bodies, perhaps "
            "for this one: a loop or a branch that the host decides about, or any with STF_BLOCKING=1; submit the "
            "tasks as they are, or record them before and launch that in the body"
        )
    what = engine.scope.description if engine.scope.records else "a launch" if task is None else f"task {task.label()}"
    raise TurnError(
        f"{description} could not be opened for {patience:g} s, in which another thread had {what} open; let it "
        "end first"
    )
