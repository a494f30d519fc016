"""Launches: a recording, or a routine of several, is submitted as one task of the scope around.

Then all that the engine knows of order, poison, eviction and threads holds for launches. These are the steps::

    submit ──▶ submit_held ──▶ submit_open ──▶ submit_begun ──▶ run_at_root, or a node of the recording around
      holds it   begins the     brings data,     does it, and
                 task           takes a turn     says where data are now

An access says of data one mode and one place. A launch may need more: data at two places (`entries`), data that are
valid at several places afterwards (`finals`), and data that a branch writes, or not. Where accesses say it all, a
launch is *plain*: a begin, the work, and an end, as most replayed calls are. Else `bring_entries` brings the rest, and
`set_finals` says where all is. What launches with the recorded data need is found out once (`Routine.needed`).

Launches with other data (`rebinding`) are not ordered by their data, but use the same partial results. So the launches
of several threads take turns (`take_turn`), and each comes after the last one (`Routine.last`).

What a failed launch was to write is poisoned. Data that no user can write anew, as a counter is, would stay so for
good; so the next launch forgets the failure of those that it writes before it reads them (`forget_failures`).
"""

from __future__ import annotations

import cython

from stf._engine import host_waits, invariants, outcomes, parts, tiles, user_arrays
from stf._engine.access import must_be_writeable, shared
from stf._engine.failures import Failure
from stf.errors import GraphClosedError, TaskFailedError


@cython.final
@cython.cclass
class Needed:
    """A use of a launch, and the access that it is; see the .pxd."""

    def __init__(self, of: Use, data: Data, recorded):
        self.use = of
        self.core = data
        self.entries = of.entries
        mode: cython.int = of.mode
        neutral_op = of.neutral_op
        lacks: cython.bint = of.conditional and neutral_op is None
        if lacks and (recorded or not (has_content(data.version) or data.is_dropped or data.private)):
            # it may be elsewhere when this is done again; or nobody wrote it before
            neutral_op = data.engine.keep_previous
            lacks = False
        self.without_content = lacks and not has_content(data.version)
        if of.conditional and not self.without_content:  # it may stay as it is
            mode = RW
            self.entries = [*of.entries, *[place for place in of.finals if place not in of.entries]]
        access: Access = Access.__new__(Access)
        access.data = None
        access.core = data
        access.mode = mode
        access.op = neutral_op
        access.place = (self.entries or of.finals or [AFFINE])[0]
        self.access = access
        brings_all = not of.conditional and len(self.entries) <= 1
        self.is_plain = brings_all and (of.finals is None or (len(of.finals) == 1 and of.finals[0] == access.place))
        unread: cython.bint = of.unread or (of.conditional and not of.mode & READ)
        own: cython.bint = data.private and of.mode != READ
        self.is_stale = unread or own or of.neutral_op is data.engine.keep_previous


@cython.final
@cython.cclass
class Needs:
    """The needs of a launch, its accesses, and whether bodies run on the host."""

    def __init__(self, uses, late):
        self.uses = uses
        self.late = late
        self.accesses = tuple([cython.cast(Needed, needed).access for needed in uses])
        self.plain = all([cython.cast(Needed, needed).is_plain for needed in uses])
        self.stale = [needed for needed in uses if cython.cast(Needed, needed).is_stale] or None


def needs_of(routine, rebinding):
    """Return what a launch needs: the same for all with the routine's data."""
    if rebinding is None and routine.needed is not None:
        return routine.needed
    recorded = not routine.engine.scope.runs_once
    uses = [
        Needed(use, use.data if rebinding is None else rebinding.data.get(use.data.id, use.data), recorded)
        for use in routine.uses
    ]
    needs = Needs(uses, routine.calls())
    if rebinding is None and not any([use.conditional for use in routine.uses]):
        routine.needed = needs
    return needs


def has_content(version: Version):
    """Return whether data have a content."""
    return version.valid > 0 or version.phantom or version.partials is not None


def submit(engine: Engine, task: TaskCore, routine, values=None, rebinding=None):
    """Launch a routine as one task, perhaps with other data than those that it was recorded with.

    `values` are those of the parameters that are not as they are by default.

    Raises
    ------
    TaskStateError
        It was closed.
    """
    if not routine.hold():  # closed meanwhile, it goes with this launch
        raise GraphClosedError(f"{routine.description} was closed before it could be launched")
    try:
        return submit_held(engine, task, routine, values, rebinding)
    finally:
        routine.close()


def submit_held(engine: Engine, task: TaskCore, routine, values, rebinding):
    """Launch a routine that lives until then."""
    needs = needs_of(routine, rebinding)
    if not routine.runs_once and (engine.has_dropped or engine.dropped):  # else the tasks were ordered when they came
        take_arrays(engine, needs.uses)
    if needs.stale is not None:
        forget_failures(engine, needs.stale)
    if shared[0]:
        for item in needs.uses:
            needed: Needed = item
            if needed.core.readonly and needed.access.mode != READ:
                must_be_writeable(needed.core, f"cannot be written by task {task.label()}")
    task.accesses = needs.accesses
    task.is_single_launch = routine.runs_once
    late: cython.bint = needs.late
    try:
        if late:
            engine.begin_queued(task)
        else:
            engine.begin(task)
    except TaskFailedError as error:
        return outcomes.skip(engine, task, error)
    engine.launching += 1  # nobody records before it has said where its data are
    try:
        submit_open(engine, task, routine, needs, values, rebinding)
    finally:
        engine.launching -= 1
    return 0


def take_arrays(engine: Engine, uses):
    """Arrays whose data the user has dropped are the user's, who may have written to them since the last launch."""
    found = [cython.cast(Needed, needed).core for needed in uses]
    engine.enter()  # what was dropped meanwhile
    try:
        owners = {}
        on_streams: cython.bint = engine.root.callers is not None  # also pinned memory of the host
        for data in found:
            if not user_arrays.is_of_user(data):
                continue
            whole: Data = tiles.whole(data)
            if data.home.place > 0 or (on_streams and hasattr(whole.owner, "__cuda_array_interface__")):
                owners[whole.id] = whole.owner
    finally:
        engine.gate.leave()
    producers = {}
    if engine.ask_producer is not None:
        for ident, owner in owners.items():  # libraries are asked outside: they may log, or call back
            producers[ident] = engine.ask_producer(owner)
    engine.gate.enter()
    try:
        if engine.scope.runs_once:
            user_arrays.take_homes(engine, found, producers)
    finally:
        engine.gate.leave()
    return 0


def submit_open(engine: Engine, task: TaskCore, routine, needs, values, rebinding):
    """Bring what a launch that has begun needs, and do it."""
    late: cython.bint = needs.late
    plain: cython.bint = needs.plain and not engine.scope.records and rebinding is None and not routine.runs_once
    plain = plain and routine.last is None
    turn: cython.bint = False
    around: cython.bint = False
    try:
        if not plain or routine.after.count > 0:
            bring_entries(engine, task, routine, needs.uses, rebinding)
        if not engine.scope.records and not late and task.inputs is not None:
            outcomes.check_inputs(engine, task)
        if not engine.scope.records and (routine.is_shared or rebinding is not None or routine.last is not None):
            around = take_turn(task, routine)
            turn = True
    except BaseException as error:
        if task.state == OPEN:
            engine.withdraw(task)
        if isinstance(error, TaskFailedError):
            return outcomes.skip(engine, task, error)
        raise
    try:
        submit_begun(engine, task, routine, needs, values, rebinding, plain)
    finally:
        if turn:
            if not around:
                routine.holder = 0
            routine.turn.release()
    return 0


def submit_begun(engine: Engine, task: TaskCore, routine, needs, values, rebinding, plain):
    """Do a launch that has what it needs, and say where its data are valid then."""
    i: cython.Py_ssize_t
    uses, late = needs.uses, needs.late
    task.fate = BEGUN  # it cannot be called off
    if engine.scope.records:
        has_outcome: cython.bint = late and engine.scope.runs_once  # a gathering scope may have opened it just now
        port: RecordingPort = engine.port
        port.run(task.slot, (RUN, routine, values, task.outcome if has_outcome else None, task.inputs))
        engine.scope.parts.append(routine)
        routine.holders += 1
        routine.owners += 1
        engine.scope.after.update(routine.after)
        if routine.last is not None:
            engine.scope.after.update(routine.last)
    else:
        if rebinding is not None or routine.last is not None:
            follow_last(engine, task, routine)
        run_at_root(engine, task, routine, values, late, rebinding)
    if plain and routine.last is None:
        engine.end(task)
        return 0
    engine.gate.enter()
    try:
        engine.port.writes = task.writes
        event: cython.longlong = engine.port.end(task.slot)
        engine.finish(task, event)
        last: EventSet = routine.last if not engine.scope.records else None
        for i in range(len(uses)):
            needed = cython.cast(Needed, uses[i])
            use, core = needed.use, needed.core
            if needed.without_content and engine.scope.records:
                core.version.conditional = True
            if use.finals is not None:
                set_finals(core, use.finals)
                if last is not None:
                    last.update(core.version.writers)
            if routine.runs_once:
                take_writers(use)
        spoil(engine, routine)
        if routine.awaited is not None:
            bring_forward(routine.awaited)
        if engine.validate and not engine.scope.records:
            invariants.check_state(engine)
    finally:
        engine.gate.leave()
    if engine.blocking and not engine.scope.records:
        engine.settle(event)
    return 0


def forget_failures(engine: Engine, stale):
    """Let data be that a failed launch has spoilt, if none but launches see them: none reads what is left there."""
    with engine.gate:
        for item in stale:
            core = cython.cast(Needed, item).core
            outcome = core.version.outcome
            if (core.private or core.is_dropped) and outcome is not None and outcome.failed() is not None:
                core.version.outcome = None
    return 0


def take_turn(task: TaskCore, routine):
    """Wait for the launches of other threads that have begun; say whether one of this thread is around it.

    Launches with other data are not ordered by their data, but all use partial results that are the program's.
    """
    thread = PyThread_get_thread_ident()
    if not routine.turn.acquire(False):
        host_waits.note(thread, routine, task)
        try:
            routine.turn.acquire()
        finally:
            host_waits.BLOCKED.pop(thread, None)
    if routine.holder:
        return True
    routine.holder = thread
    return False


def follow_last(engine: Engine, task: TaskCore, routine):
    """Come after the last launch, which may have had other data: its program has memory of its own."""
    engine.gate.enter()
    try:
        before: EventSet = routine.last
        if before is None:  # those before had the recorded data
            before = EventSet()
            for use in routine.uses:
                data: Data = use.data
                before.update(data.version.writers)
        engine.port.join(task.slot, before)
        routine.last = before
    finally:
        engine.gate.leave()
    return 0


def bring_entries(engine: Engine, task: TaskCore, routine, uses, rebinding):
    """Bring data to the further places where a routine needs them, and wait for its memory."""
    i: cython.Py_ssize_t
    engine.gate.enter()
    engine.coherency.asking, engine.coherency.pauses = task, NEVER
    try:
        for i in range(len(uses)):
            needed = cython.cast(Needed, uses[i])
            use, data = needed.use, needed.core
            if len(needed.entries) > 1:
                for place in needed.entries[1:]:
                    replica = engine.coherency.provide(data, data.version, place, READ, task.slot)
                    replica.pins -= 1
            if use.finals is not None and engine.scope.records:
                for place in use.finals:
                    if data.version.find(place) is None:
                        engine.scope.replica_for(data, data.version, place, 0)
        if rebinding is not None:
            rebinding.reserve(engine, task, routine)
        if not engine.scope.records:
            engine.port.join(task.slot, routine.after)
            if engine.all_done(routine.after):
                routine.after.clear()
    finally:
        engine.coherency.asking, engine.coherency.pauses = None, 0
        engine.gate.leave()
    return 0


def run_at_root(engine: Engine, task: TaskCore, routine, values, late, rebinding):
    """Do the work of a launch; a failure on the way poisons what the task writes."""
    frame = make_frame(engine, task, values, variables_here(), rebinding)
    launch = frame.launch
    launch.outcome, launch.inputs = task.outcome, task.inputs
    frame.whole = routine if task.outcome is not None else None
    try:
        routine.run(frame)
        if late:
            frame.finish_calls()
    except BaseException as error:
        failure = launch.failure  # of a body that ran in this call
        if failure is None or failure.exception is not error.__cause__:
            failure = Failure.of(task, error, True)
        engine.fail(task, failure)
        failure.forget_frames()
        raise
    return 0


def take_writers(of: Use):
    """Take over who wrote data in a recording that is launched once, who read them since, and how that goes."""
    data: Data = of.data
    inner: Version = of.version
    if inner is None:
        return 0
    if inner.joined & WRITE:
        data.version.take_writers(inner)
        data.version.writers.take_numbers(inner.writers)
    data.version.readers.take_numbers(inner.readers)
    return 0


def spoil(engine: Engine, routine):
    """Poison what tasks were to write that were skipped, for good reason, while they were recorded."""
    for item in routine.spoilt:
        data: Data = item[0]
        if data.version.scope is not engine.scope:
            engine.scope.version_for(data)
        data.version.take_writers(item[1])
        if data.linked is not None:
            parts.note_change(engine, data)
    for failure, skipped in routine.skips:
        if not engine.scope.records:
            outcomes.tell_again(engine, failure, skipped)
        else:
            engine.scope.skips.append((failure, skipped))
    return 0


def bring_forward(awaited):
    """Say of data that somebody waits for when they are there, and when they are read, not when the launch is over."""
    for item, brought, read in zip(awaited.data, awaited.brought, awaited.read, strict=True):
        version: Version = cython.cast(Data, item).version
        numbers = version.writers.numbers
        version.writers.clear()
        for event in brought:
            version.writers.add(event)
        if numbers is not None:
            version.writers.add_numbers(numbers)
        for event in read:
            version.readers.add(event)
    return 0


def set_finals(data: Data, places: list):
    """Say where a data is valid after a launch that wrote it."""
    version: Version = data.version
    engine: Engine = data.engine
    version.forget_content()
    for place in places:
        replica: Replica = version.find(place)
        replica.state = MODIFIED if len(places) == 1 else SHARED
        replica.copy_round = 0
        version.valid += 1
    engine.coherency.reorder(version)
    return 0
