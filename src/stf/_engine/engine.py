# cython: nonecheck=False
"""The engine's entry: a task begins, ends or fails; nothing else changes the state.

A begin joins double accesses, claims the data, collects the events to wait for, opens a slot on the port and provides
replicas. An end closes the slot and makes its event the data's last writer or one of its readers.
"""

from __future__ import annotations

import cython

from stf._engine import (
    adoption,
    claims,
    host_waits,
    initial_content,
    invariants,
    outcomes,
    parts,
    prefetching,
    reductions,
    retiring,
    room,
    thread_turns,
    windows,
)
from stf._engine.failures import raise_failures
from stf._engine.versions import Copied, derived_outcome
from stf.errors import CaptureError, ContextMismatchError, OutOfMemoryError

SPARED: cython.int = 4  # tasks; the head of `coherency` has the figures


class Engine(EngineState):
    """Orders tasks and keeps data coherent, on one port."""

    # -- a task's life -----------------------------------------------------------------------------------------

    def enter(self):
        must_have_room(BEGINS)
        self.gate.enter()
        if self.dropped or self.closed is not None:
            try:
                if self.closed is not None:
                    raise thread_turns.closed_error(self)
                if not self.scope.records:
                    retiring.drain(self)
            except BaseException:
                self.gate.leave()
                raise
        return 0

    def to_ask(self, task):
        """Return what records by itself and has a say before a task begins.

        None if there is nothing, or it just takes it.
        """
        gathering: Gathering = self.gathering
        return (
            None if gathering is None or gathering.takes(task, self.scope, self.dropped, self.deferred) else gathering
        )

    def begin(self, task):
        """Claim, order and provide; the task is open afterwards. Nothing has changed if this raises."""
        if self.window is not None:
            self.window.release_before(task)
        while True:
            if self.gathering is not None and (gathering := self.to_ask(task)) is not None:
                must_have_room(LAUNCHES)
                gathering.before(task)
            self.enter()
            if task.begin_retries:
                self.coherency.pauses = task.begin_retries
            baton = None
            try:
                if self.ending and not task.is_single_launch:  # what was gathered is launched
                    thread_turns.must_not_end(self)
                if (
                    self.gathering is not None
                    and (gathering := self.to_ask(task)) is not None
                    and not gathering.suits(task)
                ):
                    raise thread_turns.CameBetweenError
                if not self.scope.takes_mine():
                    thread_turns.check_thread(self, task)
                conflict = self.admit(task)
                if conflict is None:
                    self.start(task)
                else:
                    baton = claims.await_claim(self, task, conflict)
            except BaseException as reason:
                try:
                    self.coherency.pauses = 0
                    thread_turns.note_crowd(self, reason)
                    self.cancel(task)
                finally:
                    self.gate.leave()
                if not self.can_begin_again(task, reason):
                    raise
                continue
            if task.begin_retries:
                self.coherency.pauses = 0
            self.gate.leave()
            if baton is None:
                return 0
            try:
                self.port.park(baton, -1.0)
            finally:
                host_waits.BLOCKED.pop(PyThread_get_thread_ident(), None)

    def end(self, task):
        """Close the task's slot; its event orders what comes after."""
        must_have_room(ENDS)
        self.gate.enter()
        try:
            self.port.writes = task.writes
            if task.inputs is not None and task.outcome is None:
                task.outcome = derived_outcome(task.inputs)
            if task.choice is not None:
                self.end_time(task)
            event = self.port.end(task.slot)
            self.finish(task, event)
            if self.validate and not self.scope.records:
                invariants.check_state(self)
        finally:
            self.gate.leave()
        if self.blocking and not self.scope.records:
            self.settle(event)
        return 0

    def fail(self, task, failure):
        """Close the slot of a task whose body raised: what it was to write is poisoned."""
        self.gate.enter()
        try:
            task.outcome = Outcome(False, failure)
            self.finish(task, self.port.abort(task.slot))
            if self.observer is not None:
                failure.tell(self.observer, task.id, False)
        finally:
            self.gate.leave()
        return 0

    def begin_queued(self, task):
        """Begin a task whose body runs later: its outcome is open until then."""
        if self.root.captured or (self.scope.records and thread_turns.is_repeated(self)):  # it runs in every launch
            return self.begin(task)
        self.make_queued(task)
        self.hold_back_if_due()
        return self.begin(task)

    def make_queued(self, task):
        """Let a task's outcome be open until its body has run."""
        task.outcome = Outcome.__new__(Outcome)
        task.outcome.pending = True
        self.since_look += 1
        return 0

    def queue(self, task, call):
        """Put a queued body on the slot of an open task, and end the task."""
        self.gate.enter()
        try:
            if task.inputs is not None and task.outcome is None:
                task.outcome = derived_outcome(task.inputs)
            self.put_call(task.slot, call, self.place(task.where).enqueues)
            if task.choice is not None:
                self.end_time(task)
            event = self.port.end(task.slot)
            self.finish(task, event)
        finally:
            self.gate.leave()
        if self.blocking and not self.scope.records and PyThread_get_thread_ident() not in host_waits.RUNNING:
            self.settle(event)
        return 0

    def end_time(self, task):
        """Let the time end that who chose the place of a task wants to know, where the body only enqueues work."""
        if not self.scope.records and self.place(task.where).enqueues:
            task.choice.ends(self.port.stream_number(task.slot))
        return 0

    def settle(self, event):
        """Wait for one task, and raise what failed (STF_BLOCKING)."""
        events = EventSet()
        events.add(event)
        thread_turns.await_bodies(self, host_waits.settles, self.root, events)
        raise_failures(outcomes.take_failures(self))

    def hold_back_if_due(self, ahead=False):
        """Hold back who submits, where many bodies were queued since the last look; `ahead` of counting one more."""
        is_due: cython.bint = self.since_look > 0 and self.since_look + ahead > self.max_pending >> 1
        if is_due and self.max_pending and not self.scope.records:
            self.hold_back()
        return 0

    def hold_back(self):
        """Back-pressure: keep at most `max_pending` queued bodies in flight, by halves.

        When half of them were submitted since the last look, wait for those submitted before it. A body that submits
        never waits: it may be what the others wait for. Nor does who submits tasks of a window: a body may wait for the
        last of them.
        """
        thread = PyThread_get_thread_ident()
        if thread in host_waits.RUNNING or (self.window is not None and self.window.is_submitted_by(thread)):
            return 0
        tails = EventSet()
        self.gate.enter()  # a body may be in the middle of a submission
        try:
            self.root.flush()
            self.root.tails(tails)
        finally:
            self.gate.leave()
        host_waits.settles(self.root, self.backlog if self.max_pending > 1 else tails)
        self.backlog = tails
        self.since_look = 1  # the one that is about to begin
        return 0

    # -- handles -----------------------------------------------------------------------------------------------

    def is_done(self, event):
        """Return whether the task that ends with an event has run."""
        return self.closed is not None or self.root.done(event)

    def is_ready(self, data):
        """Return whether the content of a data is there, or known to be spoilt.

        Nobody who reads it where it is would wait.
        """
        self.submit_held()
        version = data.version
        if version.valid == 0 and not data.token and version.outcome is None:
            return False
        if version.accumulators != 0 or version.partials is not None or version.claims < 0:
            return False
        if version.outcome is not None and version.outcome.failed() is None and is_open(version.outcome):
            return False
        return all([self.is_done(event) for event in version.writers.tolist()])

    def tails(self, fence=None):
        """Return the events of all that was submitted so far; a task that is a `fence` behind it is counted."""
        self.submit_held()
        events = EventSet()
        self.enter()
        try:
            self.root.flush()
            self.root.tails(events)
            if fence is not None:
                self.next_task += 1
                fence.id = self.next_task
                self.kinds.add(fence.kind, 1)
                if self.observer is not None:
                    self.observer.task(fence)
        finally:
            self.gate.leave()
        return events

    def await_baton(self, events, baton, timeout_s):
        """Block the host until another thread releases a baton, at the latest after `events`; False if time ran out."""
        return host_waits.park(self.root, events, baton, timeout_s)

    def call_after(self, task, events, fn):
        """Let a worker call ``fn(task)`` after `events`."""
        self.submit_held()
        call = host_waits.Callback(task, fn)
        self.enter()
        try:
            self.root.flush()
            slot: cython.int = self.root.begin(0, events, COMPUTE)
            try:
                self.root.call(slot, call)
            except BaseException:
                self.root.abort(slot)
                raise
            self.root.writes = 0
            self.callbacks.add(self.root.end(slot))
        finally:
            self.gate.leave()
        return 0

    def next_use(self, data: Data, number):
        """Say which task uses a data next, by its number: eviction takes first what is needed last."""
        data.next_use = number
        self.coherency.spared = SPARED
        self.coherency.reorder(data.version)

    def prefetch(self, numbers, places, following):
        """Bring data, by their numbers, to where task `following` of a plan reads them, if memory runs out there."""
        prefetching.bring(self, numbers, places, following)
        return 0

    def forget_next_uses(self):
        """Know of no next uses any more: eviction goes by last use."""
        self.next_uses = None
        self.coherency.spared = 0
        for item in self.coherency.data.values():
            data: Data = item
            data.next_use = NEVER
            self.coherency.reorder(data.version)

    # -- waiting -----------------------------------------------------------------------------------------------

    def wait_events(self, events, timeout_s):
        """Block the host until `events` are complete; False if the time ran out."""
        return self.root.wait(events, timeout_s) if timeout_s >= 0 else host_waits.wait(self.root, events)

    def synchronize(self, timeout_s):
        """Block until everything has run; then what was released and waited for its outcome is settled."""
        tails = self.tails()
        if not self.wait_events(tails, timeout_s):
            return False
        if not self.deferred and not self.orphans:
            return True
        self.patiently(retiring.settle_all, tails)
        return self.wait_events(tails, timeout_s)

    def patiently(self, action, *args):
        """Do ``action(engine, *args)`` inside; when it cannot go on yet, wait outside and begin it again."""
        self.submit_held()
        retries = 0
        while True:
            thread_turns.forget_left(self)
            thread_turns.check_outside(self, action)
            self.enter()
            if self.scope.records:  # another thread began a graph meanwhile
                self.gate.leave()
                continue
            self.coherency.pauses = retries
            old = None
            try:
                return action(self, *args)
            except host_waits.Pause as pause:
                events = pause.events
            except parts.OutdatedError as reason:
                old = reason
            finally:
                self.coherency.pauses = 0
                self.gate.leave()
            if old is not None:
                old.relation.refresh(old.place)
                continue
            room.end_pause(self, events, retries)
            retries += 1

    def can_begin_again(self, task: TaskCore, reason):
        """After a begin that was taken back: wait for what it lacked, or make room; False if that is no use."""
        if isinstance(reason, CaptureError):
            outcomes.refuse_capture(task, reason)
        if isinstance(reason, thread_turns.OtherThreadRecordsError):
            return thread_turns.await_scope(self, reason.scope)
        if isinstance(reason, host_waits.Pause):
            room.end_pause(self, reason.events, task.begin_retries)
            task.begin_retries += 1
            return True
        if isinstance(reason, OutOfMemoryError):
            return room.find_room(self, task, reason)
        if isinstance(reason, parts.OutdatedError):
            reason.relation.refresh(reason.place)
            return True
        return isinstance(reason, thread_turns.CameBetweenError)

    def is_quiet(self):
        """Return whether nothing is open and no body runs, here or in another engine."""
        is_idle: cython.bint = host_waits.open_tasks == 0 and host_waits.running_bodies == 0
        return is_idle and self.closed is None and not self.scope.records

    # -- claims ------------------------------------------------------------------------------------------------

    @cython.nonecheck(True)  # of users' accesses
    def admit(self, task):
        """Check and claim every access; return the version in conflict, or None."""
        i: cython.int
        if task.uses is None:
            task.uses = task.accesses
        task.claimed = 0
        self.serial += 1
        for i in range(len(task.uses)):
            use = cython.cast(Access, task.uses[i])
            if use.core.mark == self.serial:
                self.unclaim(task, i)
                claims.join_duplicates(self, task)
                return self.admit(task)
            use.core.mark = self.serial
            if use.core.linked is not None and windows.needs_parts(task, use):
                self.unclaim(task, i)
                windows.use_parts(self, task)
                return self.admit(task)
            conflict = self.claim(task, use)
            if conflict is not None:
                self.unclaim(task, i)
                return conflict
            task.claimed += 1
        if task.inputs is not None:
            outcomes.refuse_poison(self, task)
        return None

    def claim(self, task, use):
        """Claim one data; return its version if somebody holds it in a conflicting mode."""
        data = use.core
        if data.engine is not self:
            raise ContextMismatchError(
                f"task {task.label()} belongs to one context and {data.describe()} to another; register the array "
                "with the context of the task"
            )
        version = data.version
        if version.scope is not self.scope:
            version = self.scope.version_for(data)
        if version.frozen or data.tiles or data.released or version.partials is not None:
            if claims.check_guards(self, task, use, version):
                return version
            version = data.version
        if data.linked is not None:
            related = parts.conflict(self, task, use)
            if related is not None:
                return related
        mode = use.mode
        if mode & WRITE:
            if version.claims != 0 or version.accumulators != 0:
                return version
        elif mode & READ:
            if version.claims < 0 or version.accumulators != 0:
                return version
        elif version.claims != 0 or (version.accumulators != 0 and version.op != use.op):
            return version
        elif self.scope.records and version.partials is None and initial_content.adds_in_place(self, task, use):
            return self.claim(task, initial_content.in_place(task, use))
        if mode & READ:
            self.look_at_content(task, use, version)
        if mode & WRITE:
            version.claims = -1
        elif mode & READ:
            version.claims += 1
        else:
            version.accumulators += 1
        return None

    def look_at_content(self, task, use, version):
        """Raise for what a task is about to read and nobody has written; it fails with who writes it."""
        if version.valid == 0 and not use.core.token:
            initial_content.must_have_content(self, task, use)
        if version.outcome is not None and not task.is_single_launch:
            outcomes.inherit(task, version)
        return 0

    def unclaim(self, task, count):
        """Give back the claims of the first `count` accesses."""
        i: cython.int
        for i in range(count):
            use = cython.cast(Access, task.uses[i])
            version = use.core.version
            if use.mode & WRITE:
                version.claims = 0
            elif use.mode & READ:
                version.claims -= 1
            else:
                version.accumulators -= 1
        task.claimed = 0
        if self.claim_queue:
            claims.wake_claimants(self)
        return 0

    # -- start and finish --------------------------------------------------------------------------------------

    def start(self, task):
        """Collect what to wait for, open the slot and provide the replicas."""
        missing: cython.bint = self.collect(task)
        waits = self.waits
        task.id = self.next_task + 1
        self.port.priority = task.priority
        kind: cython.int = IN_ORDER if task.keeps_order else COMPUTE
        task.slot = self.port.begin(task.where, waits, HOST if task.blocks_caller and self.root.captured else kind)
        self.next_task += 1
        if task.kind != "task" and not task.is_single_launch:
            self.kinds.add(task.kind, 1)  # at once: other threads may look while memory is provided
        if self.observer is not None:
            task.add_predecessors(waits)
        if missing:
            self.provide_all(task)
        task.state = OPEN
        task.thread = PyThread_get_thread_ident()
        self.list_open(task)
        if task.choice is not None and not self.scope.records and self.place(task.where).enqueues:
            task.choice.begins(self.port.stream_number(task.slot))
        if self.next_uses is not None and not self.scope.records:
            self.next_uses.begun(task)
        if task.is_single_launch:
            self.withdrawn += 1  # its tasks were counted, and told, when they were recorded
            return 0
        cython.cast(Pool, self.coherency.pools[task.where]).tasks += 1
        if self.observer is not None:
            self.observer.task(task)
            task.predecessors = None  # a list less for the cyclic collector, while its body waits
        return 0

    def collect(self, task):
        """Note what a task waits for, and the replicas that it finds; return whether some are missing."""
        i: cython.int
        missing: cython.bint = False
        affine: cython.int = self.place(task.where).memory
        uses: tuple = task.uses
        count: cython.int = len(uses)
        rewrites: cython.int = 0
        rewritten: cython.longlong = 0
        waits = self.waits
        waits.clear()
        if task.binds_late and (self.scope.records or not self.adopts):
            task.binds_late = False
        task.writes = count
        replicas: list = self.free_lists.take(count)
        task.replicas = replicas
        for i in range(count):
            use = cython.cast(Access, uses[i])
            version = use.core.version
            if use.mode == ACCUMULATE:
                missing = True
                task.writes = 0
                continue
            waits.update(version.writers)
            if use.mode & WRITE:
                if version.writers.count == 1 and version.readers.count == 0:
                    if rewrites == 0:
                        rewritten = version.writers.items[0]
                    rewrites += version.writers.items[0] == rewritten
                waits.update(version.readers)
                if version.partials is not None:
                    reductions.wait_for_partials(version, waits)
            else:
                task.writes = 0
            if use.core.token:
                continue
            place: cython.int = affine if use.place == AFFINE else use.place
            task.remote |= place != affine
            replica = version.find(place)
            if replica is None:
                replica = adoption.result_replica(task, use, version, place)
                if replica is None:
                    missing = True
                    continue
                replica.pins += 1
                replicas[i] = replica
            elif is_missing(task, use, replica):
                missing = True
            else:
                replica.pins += 1
                waits.update(replica.ready)
                replicas[i] = replica
        self.port.rewrites = rewrites
        self.port.rewritten = rewritten
        return missing

    def provide_all(self, task):
        """Give every access that lacks one a replica: allocations, copies, partials."""
        i: cython.int
        self.coherency.asking = task
        try:
            if self.outside:
                self.coherency.outside = outside_events_before(self, task)
            for i in range(len(task.uses)):
                use = cython.cast(Access, task.uses[i])
                if task.replicas[i] is None and not use.core.token:
                    place: cython.int = self.place(task.where).memory if use.place == AFFINE else use.place
                    if use.mode == ACCUMULATE:
                        task.replicas[i] = reductions.provide_partial(self, task, i, use, place)
                    else:
                        version = use.core.version
                        task.replicas[i] = self.coherency.provide(use.core, version, place, use.mode, task.slot)
                        if use.core.layout.interface is not None and use.core.version.outcome is not None:
                            outcomes.inherit(task, use.core.version)
                        if type(version.outcome) is Copied and use.mode & READ:
                            outcomes.inherit_copies(task, version.outcome, place)
        finally:
            self.coherency.asking = self.coherency.outside = None
        return 0

    def cancel(self, task: TaskCore):
        """Return a task that could not start: its claims go back; return the event of what it already caused."""
        event = 0
        was_open: cython.bint = task.state == OPEN
        if was_open:
            task.state = NEW
            self.unlist_open(task)
            self.uncount(task)
        if task.slot >= 0:
            if not (was_open and task.is_single_launch):  # which is counted already
                self.withdrawn += 1
            if task.kind != "task" and not task.is_single_launch:
                self.kinds.add(task.kind, -1)
            event = self.port.abort(task.slot)
            task.slot = -1
        if task.replicas is not None:
            for item in task.replicas:
                replica: Replica = item
                if replica is not None:
                    replica.pins -= 1
                    replica.ready.add(event)
                    self.coherency.reorder(cython.cast(Data, replica.data).version)
        if task.partials is not None:
            reductions.cancel_partials(self, task, event)
        task.replicas = task.partials = None
        self.unclaim(task, task.claimed)
        return event

    def withdraw(self, task: TaskCore):
        """Take back an open task whose body never ran: nothing has changed. Return the event of what it waited for."""
        self.gate.enter()
        try:
            return self.cancel(task)
        finally:
            self.gate.leave()

    def finish(self, task, event):
        """Make `event` the last write, or one of the reads, of every access; give the claims back.

        From here on the task keeps no handle alive: data that the user dropped meanwhile goes (and tiles join).
        """
        i: cython.int
        near: cython.int = 0
        wrote: cython.bint = task.partials is not None
        uses: tuple = task.uses
        replicas: list = task.replicas
        self.coherency.tick += 1
        outcome = task.outcome
        if outcome is None and task.inputs is not None:
            outcome = derived_outcome(task.inputs)
        for i in range(len(uses)):
            use = cython.cast(Access, uses[i])
            version = use.core.version
            replica = cython.cast(Replica, replicas[i])
            if replica is not None:
                replica.pins -= 1
                replica.last_use = self.coherency.tick
                if replica.position and not replica.is_recent and use.mode != ACCUMULATE:  # partial results stay
                    self.coherency.note_use(replica)
            if use.mode & WRITE:
                wrote = True
                note_write(self, task, use, replica, event, outcome)
            elif use.mode & READ:
                version.claims -= 1
                if event != 0:
                    near = version.readers.add_near(event, near)
                version.joined |= use.mode
                if replica is not None and replica.ready.count == 0 and replica.state == INVALID:
                    replica.ready.add(event)
        if task.partials is not None:
            reductions.finish_partials(self, task, event, outcome)
        if self.observer is not None:
            self.tell_end(task, outcome)
        if not wrote and not self.scope.records:
            note_reader(self.readers, task, event)
        task.event = event if not self.scope.records else GATHERED if self.scope.runs_once else RECORDED
        if task.event == GATHERED and outcome is None:
            task.outcome = self.scope.outcome
        task.state = ENDED
        task.context = None  # a task that was submitted keeps no context alive
        self.unlist_open(task)
        self.let_go(task)
        if self.claim_queue:
            claims.wake_claimants(self)
        return 0

    def tell_end(self, task, outcome):
        """Tell observers that a task has ended; its number goes with its event, unless they know the tasks in it."""
        for item in () if task.is_single_launch else task.uses:
            use: Access = item
            if use.mode & WRITE:
                use.core.version.writers.add_number(task.id)
            elif use.mode & READ:
                use.core.version.readers.add_number(task.id)
        if outcome is None or not outcome.pending:  # else its worker says so
            self.observer.ended(task.id)
        return 0

    def let_go(self, task):
        """A task that has ended holds no handle: data that the user drops are released, body run or not."""
        i: cython.int
        if self.scope.records or (task.outcome is not None and task.outcome.pending):
            uses: tuple = task.uses
            cores: list = task.replicas
            task.written_mask = 0
            for i in range(len(uses)):
                use = cython.cast(Access, uses[i])
                cores[i] = use.core
                if use.mode != READ or i > 61:
                    task.written_mask |= cython.cast(cython.longlong, 1) << min(i, 62)
            task.cores = cores  # now that all is there: its body may fail meanwhile, and say what it was to write
        else:
            self.free_lists.give(task.replicas)
        task.accesses = task.uses = task.replicas = task.partials = None
        return 0


def outside_events_before(engine: Engine, task: TaskCore):
    """Return the events that others complete and that a task comes after: they may write its data until then."""
    found: EventSet = None
    for item in task.uses:
        use: Access = item
        if use.core.token:
            for event in use.core.version.writers.tolist():
                if event in engine.outside:
                    found = EventSet() if found is None else found
                    found.add(event)
    return found


def is_missing(task: TaskCore, use: Access, replica: Replica):
    """Return whether a task has to be given the replica of an access: an allocation, a copy, or both."""
    if use.mode & READ and replica.state == INVALID:
        return True
    return not replica.has_memory() and not adoption.may_wait(task, use, replica)


def note_write(engine: Engine, task: TaskCore, use: Access, replica: Replica, event, outcome: Outcome):
    """Make a replica the only valid one of its data, and `event` their last write."""
    version = use.core.version
    version.set_writer(task.symbol, task.code, task.lasti, outcome)
    version.claims = 0
    if version.partials is not None:
        reductions.forget_partials(engine, use.core)
    if replica is not None:
        if version.own(replica):
            engine.coherency.reorder(version)
        replica.ready.clear()
    version.writers.clear()
    version.writers.add(event)
    version.readers.clear()
    version.outcome = outcome
    version.joined |= use.mode
    if use.core.linked is not None:
        parts.note_write(engine, task, use.core)
    return 0
