"""Recordings: tasks that are kept instead of run, and launched as one task, once or often.

While a recording is open, the engine works on versions of its own and on a `RecordingPort`: nothing of the scope around
it changes but that memory is reserved. A data that is first read inside must be valid there when the recording is
launched (an *entry*); where it is valid at the end is known too (*finals*). So a launch is one task of the
scope around: it waits, brings the entries, plays the program, and says what is valid now.

Replicas of a recording are *shadows* of those around it: the same memory, with states of their own. The real ones are
pinned as long as the recording lives, since the program knows their addresses.
"""

from __future__ import annotations

import threading
import time

import cython
import numpy as np

from stf._engine import host_waits, outcomes, recording_caches, reductions, thread_turns
from stf._engine.failures import Failure, raise_failures
from stf._engine.queued_bodies import QueuedBody
from stf._recording import device_loops, parcels, persistent, segments
from stf._recording.device_graphs import outlive
from stf._support.sync import make_lock
from stf.errors import TaskStateError

NOTHING = EventSet()


@cython.final
@cython.cclass
class RecordingScope(Scope):
    """A scope whose tasks are recorded; its fields are in the .pxd."""

    def __init__(self, engine, port, thread, description, runs_once, patient):
        Scope.__init__(self, port, engine.scope, thread, description, runs_once, patient)
        self.engine = engine
        self.first_data = engine.next_data + 1
        self.parts = []
        self.touched, self.skips = [], []
        self.held = []
        self.after = EventSet()
        self.temporaries = []
        self.outcome = Outcome() if runs_once else None

    def version_for(self, data):
        """Return the version of data for this scope, the innermost, through all scopes around it."""
        chain: list = []
        scope: Scope = self
        while scope.records and data.version.scope is not scope:
            chain.append(scope)
            scope = scope.parent
        for inner in reversed(chain):
            cython.cast(RecordingScope, inner).take_up(data)
        return data.version

    def take_up(self, data: Data):
        """Let a data have a version of this scope."""
        outer = data.version
        version = make_version(self, outer)
        version.phantom = outer.valid > 0 or outer.partials is not None or outer.is_poisoned()
        version.valid = 1 if version.phantom else 0
        version.frozen, version.frozen_by = outer.frozen, outer.frozen_by
        version.take_writers(outer)
        version.writers.take_numbers(outer.writers)  # whose events the launch waits for
        version.readers.take_numbers(outer.readers)
        if not self.runs_once:
            version.outcome = None
        self.touched.append(data)
        data.version = version
        data.recorded += 1
        return 0

    def replica_for(self, data, version, place, mode):
        """Return the shadow of a replica at `place`; the content from before counts if nothing was written since."""
        shadow: Replica = version.find(place)
        if shadow is None:
            real: Replica = self.real_replica(data, version.parent, place)
            self.held.append((data, real))
            real.pins += 1
            shadow = real.shadow()
            version.replicas.append(shadow)
        is_entry = mode & READ and shadow.state == INVALID and not version.joined & WRITE
        if is_entry and (version.phantom or version.entries):
            version.valid = 1 if version.phantom else version.valid + 1
            version.phantom = False
            version.entries = [*(version.entries or ()), place]
            shadow.state = SHARED
        return shadow

    def real_replica(self, data: Data, outer: Version, place):
        """Return the replica at `place` in the scope around, with memory."""
        if self.parent.records:
            return self.parent.replica_for(data, outer, place, 0)
        real: Replica = outer.find(place)
        if real is None:
            real = make_replica(data, place, data.layout.packed())
            outer.replicas.append(real)
        if not real.has_memory():
            self.reserve(data, real)
        self.after.update(real.ready)  # another recording may have reserved it, and never used it
        return real

    def reserve(self, data: Data, replica: Replica):
        """Give a replica real memory, outside of all recordings."""
        engine: Engine = self.engine
        port, coherency = engine.root, engine.coherency
        scope = coherency.enter(engine.root_scope)
        try:
            slot = port.begin(replica.place, NOTHING, COMPUTE)
            try:
                coherency.allocate(data, replica, slot)
            finally:
                replica.ready.add(port.end(slot))
        finally:
            coherency.enter(scope)
        return 0

    def allocate(self, data, replica):
        """Memory that only the program uses."""
        self.reserve(data, replica)
        self.after.update(replica.ready)
        replica.ready.clear()
        return 0

    def free_later(self, replica):
        """Keep memory that the program needs no more until there is no program."""
        self.temporaries.append(replica.shadow())
        return 0

    def discard(self):
        """Forget what was recorded: it never was."""
        engine: Engine = self.engine
        with engine.gate:
            check_closing(engine, self)
            for data in list(self.touched):
                if data.version.partials is not None:
                    reductions.forget_partials(engine, data)
            recording = Recording(engine, self)
            leave_scope(engine, self)
        recording.close()

    def abandon(self):
        """Forget it, if it is open still: the tasks that are open in it will not end."""
        engine: Engine = self.engine
        if engine.scope is not self:
            return
        for item in engine.opened():
            task: TaskCore = item
            error = TaskStateError(
                f"task {task.label()} ({task.call_site}) was open when {self.description} was given up"
            )
            engine.fail(task, Failure.of(task, error, True))
        self.discard()

    def leave(self):
        """Say that nobody will end it, if it is open still: an exception came between, or its with-block is gone."""
        self.thread = thread_turns.ABANDONED


def open_scope(engine: Engine, port, thread, description, runs_once=False, patient=False, owner=None):
    """Record what comes, for `port`, until `close_scope`; whatever happens, its `owner` has it as `scope`."""
    if engine.ending:
        thread_turns.must_not_end(engine)
    if engine.last_open is not None:
        task: TaskCore = engine.last_open
        raise thread_turns.TurnError(
            f"{description} cannot be opened while task {task.label()} ({task.call_site}) is open; end it first"
        )
    patient = patient or engine.scope.patient
    scope = RecordingScope(engine, port, thread, description, runs_once, patient)
    host_waits.repeated_scopes += not runs_once
    enter_scope(engine, scope)
    if owner is not None:
        owner.scope = scope
    return scope


def open_in_turn(engine: Engine, port, thread, description, patient, patience, owner):
    """Open a scope once other threads let it, which wait for its end if it is `patient`.

    None where tasks are gathered, or a scope was left open. TurnError if they don't let it in so many seconds.
    """
    waiting = thread_turns.Deadline(engine, patience)
    while True:
        with engine.gate:
            if engine.scope.records and (
                engine.scope.thread == thread_turns.ABANDONED or thread_turns.gathers(engine.scope)
            ):
                return None  # the tasks come before it; and what was left open goes
            if not thread_turns.is_used_by_others(engine, thread):
                return open_scope(engine, port, thread, description, False, patient, owner)
            if waiting.is_over():
                waiting.refuse(description)
        time.sleep(thread_turns.STEP_S)


def enter_scope(engine: Engine, scope):
    engine.scope = scope
    engine.port = scope.port
    engine.coherency.enter(scope)
    return 0


def release_dropped(engine: Engine):
    """Release what the user dropped, as every entry does outside of recordings."""
    engine.enter()
    engine.gate.leave()


def join_tiles(engine: Engine):
    """Let data be whole again whose tiles were dropped, before what is recorded uses them."""
    if not engine.scope.records:
        release_dropped(engine)
        recording_caches.give_up_left(engine)
        if any([data.parent is not None for data in engine.deferred]):  # by bodies that have not run yet
            engine.synchronize(-1.0)


def close_scope(engine: Engine, scope, patient=False, waiting=None, owner=None):
    """End a scope; return its recording, or None if a task is open and the caller is `patient`.

    Of the data of a task that is `waiting` the launch says when they are there, which may be long before its end.
    Whatever happens, its `owner` has the recording as `closed`, and no scope any more.

    Raises
    ------
    TaskFailedError
        One of its tasks failed, and what that was to write was not written since.
    """
    with engine.gate:
        if patient and engine.last_open is not None:
            return None
        check_closing(engine, scope)
        for data in list(scope.touched):
            if data.version.partials is not None:
                reductions.combine(engine, data)
        failed = failures_in(scope)
        awaited = None if waiting is None else awaited_by(waiting, scope)
        recording = Recording(engine, scope)
        recording.awaited = awaited
        leave_scope(engine, scope)
        if owner is not None:
            owner.scope, owner.closed = None, recording
    if failed:
        if owner is not None:
            owner.closed = None
        recording.close()
        raise_failures(failed[:1])
    return recording


def awaited_by(task: TaskCore, scope: RecordingScope):
    """Return what brings the data of a task that waits; None if that is the whole program, or none are written."""
    port: RecordingPort = scope.port
    program = port.program
    used = [cython.cast(Access, access).core for access in task.accesses]
    written = [data for data in used if data.version.scope is scope and data.version.joined & WRITE]
    brought, read = [], []
    for data in written:
        events = EventSet()
        events.update(data.version.writers)
        for replica in data.version.replicas:
            if replica.state != INVALID:
                events.update(replica.ready)
        brought.append([port.node_of(event) for event in events.tolist()])
        read.append([port.node_of(event) for event in data.version.readers.tolist()])
    if not written or program.ends_with({node for nodes in brought for node in nodes}):
        return None
    return segments.Awaited(written, program, brought, read)


def failures_in(scope):
    """Return what failed while it was recorded, and left data unwritten; where bodies do not say so themselves."""
    outcomes = [] if scope.runs_once else [data.version.outcome for data in scope.touched]
    found = [outcome.failed() for outcome in outcomes if outcome is not None]
    return [failure for failure in found if failure is not None]


def check_closing(engine: Engine, scope):
    if engine.scope is not scope:
        raise TaskStateError(f"{scope.description} cannot be closed before what was opened inside of it")
    if engine.last_open is not None:
        raise TaskStateError(
            f"{scope.description} cannot be closed while task {engine.last_open.label()} is open; end it first"
        )


def leave_scope(engine: Engine, scope):
    """Go on in the scope around, where all is as before."""
    for item in scope.touched:
        data: Data = item
        data.version = data.version.parent
        engine.coherency.reorder(data.version)
    host_waits.repeated_scopes -= not scope.runs_once
    enter_scope(engine, scope.parent)
    scope.parts = []


@cython.final
@cython.cclass
class Use:
    """How a recording uses a data: the joined mode, where it must be valid before, and where it is valid after.

    `had_content` says whether there was any before the recording; a launch that finds none goes on from the neutral
    element of the operator `neutral_op`, where that is known.
    """

    def __init__(self, data, mode, entries, finals, had_content):
        self.data = data
        self.mode = mode
        self.entries, self.finals = entries, finals
        self.had_content = had_content


def use_of(data: Data):
    """Return how the tasks of the innermost scope used data; None if none did."""
    version = data.version
    mode: cython.int = version.joined
    if mode == 0:
        return None
    outer = version.parent
    had_content = outer.valid > 0 or outer.partials is not None or outer.is_poisoned()
    if data.token:
        ordering = Use(data, mode, [], None, True)
        if version.scope.runs_once:
            ordering.version = version
        return ordering
    entries = list(version.entries or ())
    finals = None
    if mode & WRITE:
        mode = RW if entries else WRITE
        finals = [replica.place for replica in version.replicas if replica.state != INVALID]
    use = Use(data, mode, entries, finals, had_content)
    use.conditional = version.conditional
    if version.neutral_op is not None and entries:
        use.neutral_op, use.had_content = version.neutral_op, True
    if version.scope.runs_once:
        use.version = version
    return use


def joined_uses(recordings, may_not_run=()):
    """Return how several recordings use their data together, when some of them may not run.

    What may not be written is read and written, if there was content before, which then stays. `finals` are where the
    first that writes leaves it: the others see to it that it is valid there too.
    """
    joined = {}
    for recording in recordings:
        for use in recording.uses:
            known = joined.get(use.data.id)
            if known is None:
                known = joined[use.data.id] = Use(use.data, 0, [], None, use.had_content)
            known.mode |= WRITE if use.unread else use.mode
            if use.neutral_op is not None:
                known.had_content = True
                if known.neutral_op is None or known.neutral_op is use.data.engine.keep_previous:
                    known.neutral_op = use.neutral_op
            if use.finals is not None and (recording in may_not_run or use.conditional):
                known.conditional = True
            known.entries += [place for place in use.entries if place not in known.entries]
            if known.finals is None and use.finals is not None:
                known.finals = use.entries or use.finals[:1]
    for use in joined.values():
        use.unread = use.conditional and not use.mode & READ
        if use.finals is not None and use.had_content and (use.conditional or use.mode & READ):
            use.mode = RW
            use.entries += [place for place in use.finals if place not in use.entries]
    return list(joined.values())


@cython.cclass
class Routine:
    """The work of a launch: a recording, or several of them; its fields are in the .pxd."""

    parent = None  # as a data that was cut from no other: both are dropped by users

    def __init__(self, engine, parts, runs_once):
        self.engine = engine
        self.parts = parts
        self.runs_once = runs_once
        self.uses = []
        self.after = EventSet()
        self.owners = 1
        self.turn = make_lock(threading.RLock)
        self.spoilt, self.skips = [], []

    def threads(self):
        """Return the thread whose turn it is, for others that wait for theirs."""
        return [self.holder] if self.holder else []

    def poison(self, failure):
        """Say of what it was to write that it failed, as its launch did not begin."""
        engine: Engine = self.engine
        with engine.gate:
            for use in self.uses:
                data: Data = use.data
                if use.mode & WRITE and not data.token and not data.version.is_poisoned():
                    data.version.outcome = Outcome(False, failure)
            self.tell_tasks(failure)

    def tell_tasks(self, failure):
        """Let the handles of its tasks know that it was not launched."""
        for part in self.parts:
            part.tell_tasks(failure)

    def run(self, frame):
        """Do the work of a launch after what is on the slot."""
        raise NotImplementedError

    def put(self, frame):
        """Do it node by node, or as a part of a graph."""
        raise NotImplementedError

    def calls(self):
        """Return whether bodies run on the host, and do not say themselves how they went."""
        return not self.runs_once and self.has_calls()

    def has_calls(self):
        """Return whether bodies run on the host."""
        return any([part.has_calls() for part in self.parts])

    def flags(self):
        """Return the data that decisions in it look at, which only the host reads on the host."""
        return [flag for part in self.parts for flag in part.flags()]

    def close(self):
        """Give the memory up; what was launched goes on."""
        engine: Engine = self.engine
        engine.gate.enter()
        try:
            self.close_inside()
        finally:
            engine.gate.leave()

    def close_inside(self):
        """Do what `close` does, for who is inside of the engine; those who run it hold it too."""
        self.owners -= 1
        if self.owners == 1 and self.is_lent:  # by a replayed function alone
            self.is_lent = False
            self.become_cached()
        if self.owners > 0 or self.closed:
            return
        self.closed = True
        for item in self.parts:
            part: Routine = item
            part.is_lent = False
            part.close_inside()
        self.give_up()

    def hold(self):
        """Have one owner more, who closes it; False if it is closed."""
        engine: Engine = self.engine
        with engine.gate:
            self.owners += not self.closed
            return not self.closed

    def become_cached(self):
        """Be among what a replayed function keeps; so are its parts, when nobody else has them."""
        for item in self.parts:
            part: Routine = item
            if part.owners == 1:
                part.become_cached()
            else:
                part.is_lent = True

    def leave(self):
        """Be no part of a recording any more, whose launches used its memory."""
        self.holders -= 1
        if self.is_shared and self.engine.closed is None:
            if self.last is None:
                self.last = EventSet()
            self.engine.root.tails(self.last)

    def give_up(self):
        """Give up what is its own."""
        if self.graph is not None and self.graph.is_captured():
            outlive(self.engine, self.graph)


class Life:
    """What others know of a recording, who must not keep it alive: whether it was closed, and its `parcels`."""

    def __init__(self, description):
        self.description = description
        self.closed = False
        self.parcels = None


@cython.final
@cython.cclass
class Recording(Routine):
    """A program, what it uses, and the memory that it knows: `program` is what a launch does."""

    def __init__(self, engine, scope):
        Routine.__init__(self, engine, scope.parts, scope.runs_once)
        port: RecordingPort = scope.port
        self.program = port.program
        self.program.runs_once = scope.runs_once
        self.description = scope.description
        self.life = Life(scope.description)
        self.uses = [use for use in map(use_of, scope.touched) if use is not None]
        self.touched = scope.touched
        self.held = scope.held
        self.after = scope.after
        self.temporaries = scope.temporaries
        if scope.runs_once:
            self.spoilt, self.skips = outcomes.spoilt_in(scope), scope.skips
        self.outcome = scope.outcome
        pays: cython.bint = scope.runs_once or self.program.has_captures()
        self.graph = DriverGraph(0 if pays else 1)
        self.is_shared = len(self.temporaries) > 0 and not scope.runs_once
        self.loops = None if scope.runs_once else persistent.loops_by_default(engine)
        engine.coherency.recordings[id(self)] = self

    def tell_tasks(self, failure):
        """Let the handles of its tasks know that it was not launched."""
        if self.outcome is not None:
            self.outcome.failure = failure
        for body in self.program.bodies():
            if isinstance(body, QueuedBody):
                body.give_up(failure)

    def holds(self, replica):
        """Return whether it keeps a replica where it is."""
        return any([item[1] is replica for item in self.held])

    def own_memory(self, place, known):
        """Return the bytes at a place that the program alone has; of replicas that are `known`, by id, others tell."""
        replicas = [cython.cast(Replica, item) for item in self.temporaries]
        return sum([r.layout.nbytes for r in replicas if r.place == place and id(r.real) not in known])

    def has_calls(self):
        return self.program.calls > 0 or Routine.has_calls(self)

    def run(self, frame):
        """Do it: as one graph of the driver's where there are such and it pays, else node by node."""
        if self.awaited is not None:
            self.run_awaited(frame)
        elif self.plays:
            frame.play(self.program)
        elif self.loops is not None and self.run_loops(frame):
            return
        elif not self.graph.launch(frame, self) and not parcels.launch(frame, self):
            piecemeal: cython.bint = self.graph.refusal is not None and self.is_piecemeal(frame)
            frame.play(self.outline if piecemeal else self.program)

    def run_loops(self, frame):
        """Do it as a loop of compiled bodies, or with such loops in it; return whether that is so."""
        loops = self.loops
        if frame.engine.place(frame.task.where).enqueues:
            if loops.is_asked and self.graph.may_capture(frame):
                device_loops.prepare(frame, self)
            return False
        if loops.runs_left:
            loops.runs_left -= 1
            return False
        if persistent.launch(frame, self) is None:
            outline = persistent.outline_for(frame, self)
            if outline is None:
                self.loops = loops if loops.may_be_later() else None
                return False
            frame.play(outline)
        return True

    def keep_in_memory(self, frame, content):
        """Keep bytes in the memory of the place of a launch, as long as this is; return their address."""
        engine: Engine = frame.engine
        slot: cython.int = frame.slot
        layout = Layout((len(content),), (1,), None, 1)
        memory: Replica = make_replica(None, engine.place(frame.task.where).memory, layout)
        host = np.frombuffer(content, np.uint8)
        with engine.gate:
            engine.root.alloc(slot, memory)
        self.loop_memory = memory
        engine.root.copy_and_wait(slot, memory.address, host.ctypes.data, len(content))
        return memory.address

    def add_steps(self, steps):
        """Add what it does to the steps of a loop."""
        steps.add(self.program, [], None)

    def run_awaited(self, frame):
        """Do it, once, with what somebody waits for apart from the rest."""
        engine, where = frame.engine, frame.task.where
        if engine.place(where).enqueues and not engine.root.captured:
            self.awaited.cut(self, where, engine.place(where).memory)
            self.outline = self.awaited.program
        self.awaited.note(frame.play(self.awaited.program).tolist())
        return 0

    def is_piecemeal(self, frame):
        """Return whether some of it can be graphs; found out once."""
        engine, where = frame.engine, frame.task.where
        if engine.root.captured or not engine.place(where).enqueues:
            return False
        if self.outline is None:
            outline = segments.in_pieces(self, where, engine.place(where).memory, frame.task.call_site)
            if self.outline is None:  # else another thread did so meanwhile
                self.outline = outline or False
        return self.outline is not False

    def put(self, frame):
        if self.loops is None or not device_loops.launch_in(frame, self):
            frame.play(self.program)

    def refusal(self, where, memory, looped, unread, hosts=False):
        """Return why it cannot be one graph of the driver's at a place; None if it may be.

        What is done again and again there stays on one device, but for copies of the data `unread`, and is the same.
        What is done once may have bodies on the host that use no CUDA; with `hosts`, any.
        """
        if self.program.calls and looped:
            return "it has tasks on the host"
        if self.program.steps and not hosts:
            return "it has tasks on the host, which may use CUDA"
        if looped and self.program.variants:
            return "its tasks take parameters"
        if looped and not self.program.stays_at(where, memory, unread):
            return "it uses another device, or memory of the host"
        for part in self.parts:
            reason = part.refusal(where, memory, looped, unread, hosts)
            if reason is not None:
                return reason
        return None

    def give_up(self):
        engine: Engine = self.engine
        self.life.closed = True
        if self.life.parcels is not None:
            self.life.parcels.close()
        if self.loop_memory is not None and engine.closed is None:
            last = EventSet()
            engine.root.tails(last)
            engine.root.free(self.loop_memory, last, False)
        self.loop_memory = None
        for part in self.parts:
            part.leave()
        engine.coherency.recordings.pop(id(self), None)
        for item in self.held:
            replica: Replica = item[1]
            replica.pins -= 1
            replica.left = False  # launches used it on their way
            engine.coherency.reorder(cython.cast(Data, item[0]).version)
        if self.graph.is_captured() or self.program.has_captures() or self.outline:
            outlive(engine, (self.program, self.graph, self.outline))
        if engine.closed is None:
            for item in self.temporaries:
                self.free(engine, item)
        for item in self.touched:
            data: Data = item
            data.recorded -= 1
            data.cached -= self.is_cached
            if data.recorded == data.cached and data.is_dropped:
                engine.dropped.append(data)
        self.held, self.temporaries, self.touched = [], [], []

    def become_cached(self):
        """Be what a replayed function has, and can do without; so it can without what was recorded for it alone."""
        Routine.become_cached(self)
        self.is_cached = True
        for item in self.touched:
            data: Data = item
            data.cached += 1
            if data.recorded == data.cached and data.is_dropped:
                self.engine.dropped.append(data)

    def free(self, engine: Engine, replica: Replica):
        """Free memory of the program after its last launch."""
        scope = engine.coherency.enter(engine.root_scope)
        try:
            version = make_version(None, None)
            version.replicas.append(replica)
            replica.ready.clear()
            engine.root.tails(version.readers)
            version.readers.update(self.after)
            engine.coherency.discard(version, replica, False)
        finally:
            engine.coherency.enter(scope)
