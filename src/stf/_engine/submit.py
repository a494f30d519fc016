"""The engine's entry: a task begins, ends or fails; nothing else changes the state.

A begin joins double accesses, claims the data, collects the events to wait for, opens a slot on the port and provides
replicas. An end closes the slot and makes its event the data's last writer or one of its readers.
"""

from __future__ import annotations

import threading
import time
from collections import deque

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.access import MODE_NAMES, Access, Data
from stf._engine.coherency import Coherency
from stf._engine.deps import EventSet
from stf._engine.failures import Failure, site_text
from stf._engine.instances import Replica
from stf._engine.scopes import Outcome, Scope, Version, is_open
from stf._sync import Gate
from stf.errors import (
    AccessError,
    ContextClosedError,
    ContextMismatchError,
    TaskStateError,
    UninitializedDataError,
)

if not cython.compiled:
    import sys

    from stf._sync import PyThread_get_thread_ident

    INVALID, SHARED, MODIFIED = 0, 1, 2
    READ, WRITE, RW, ACCUMULATE, AFFINE = 1, 2, 3, 4, -1
    COMPUTE, COPY_IN, COPY_OUT, HOST = 0, 1, 2, 3
    NEW, OPEN, ENDED = 0, 1, 2


class TaskCore:
    """A place and its accesses, from begin to end."""

    def __cinit__(self):
        self.lasti = 0
        self.slot = -1
        self.state = NEW
        self.kind = "task"

    def find_site(self):
        """Remember the line that is running: it submits this task."""
        if cython.compiled:
            self.code = stf_call_site(cython.address(self.lasti))
        else:
            frame = sys._getframe(1)
            while frame.f_globals.get("__name__", "").startswith("stf.") and frame.f_back is not None:
                frame = frame.f_back
            self.code, self.lasti = frame.f_code, frame.f_lasti
        return 0

    def set_site(self, frame):
        """Say which frame submits this task (for wrappers written in Python)."""
        self.code = frame.f_code
        self.lasti = frame.f_lasti

    def label(self):
        """What messages call it."""
        return f"'{self.symbol}'" if self.symbol else f"{self.kind} {self.id}"

    @property
    def call_site(self):
        """The line that submitted the task, as ``file.py:12``."""
        return site_text(self.code, self.lasti)

    @property
    def is_open(self):
        return self.state == OPEN

    @property
    def device(self):
        """Index of the device it runs on; -1 for the host."""
        return self.place - 1

    @property
    def place_name(self):
        return self.engine.place_names[self.place]

    def position_of(self, index):
        """Where the data of access `index` stands among the joined accesses."""
        if self.uses is self.accesses:
            return index
        access: Access = self.accesses[index]
        for i, item in enumerate(self.uses):
            use: Access = item
            if use.core is access.core:
                return i
        return -1

    def replica_at(self, index):
        """The replica that access `index` was given."""
        return self.replicas[self.position_of(index)]

    def joined_mode(self, index):
        """The mode of access `index`, joined with others to the same data."""
        use: Access = self.uses[self.position_of(index)]
        return use.mode

    def fresh_partials(self):
        """Positions of accumulating accesses whose partial must be filled with the neutral value."""
        return [] if self.partials is None else [i for i, partial in self.partials if partial.fresh]

    def written(self):
        """Labels of what the task writes."""
        return [a.core.label() for a in cores_of(self) if a.mode != READ]


if not cython.compiled:
    TaskCore.__init__ = TaskCore.__cinit__
    for _name in ("engine", "id", "place", "accesses", "uses", "replicas", "partials", "symbol", "code", "outcome",
                  "inputs", "thread"):
        setattr(TaskCore, _name, None)


def cores_of(task):
    """The joined accesses of a task (for cold paths)."""
    result = []
    for item in task.uses or task.accesses:
        use: Access = item
        result.append(UseView(use.core, use.mode))
    return result


class UseView:
    """A joined access, seen from Python."""

    def __init__(self, core, mode):
        self.core = core
        self.mode = mode


class Partial:
    """One partial result of a task-level reduction: a replica that accumulating tasks take in turn."""

    def __init__(self, replica):
        self.replica = replica
        self.events = EventSet()
        self.open = False
        self.fresh = True


class LateCall:
    """A body that runs later, on a worker: it checks its inputs, runs, and says how it went."""

    def __init__(self, engine, task, body):
        self.engine = engine
        self.body = body
        self.outcome = task.outcome
        self.inputs = task.inputs
        self.task = task
        self.watched = engine.observer is not None

    def __call__(self):
        outcome = self.outcome
        failure = None
        for item in self.inputs or ():
            failure = item.failed()
            if failure is not None:
                break
        else:
            failure = self.run()
        outcome.failure = failure
        outcome.pending = False
        self.body = self.task = self.inputs = None

    def run(self):
        """Run the body; return its failure, or None."""
        engine: Engine = self.engine
        thread = PyThread_get_thread_ident()
        engine.running.add(thread)
        task = self.task
        start = time.perf_counter_ns() if self.watched else 0
        try:
            self.body()
        except BaseException as exception:
            failure = Failure(task.label(), task.call_site, exception, task.written())
            engine.failures.append(failure)
            return failure
        finally:
            engine.running.discard(thread)
            if self.watched:
                name = task.symbol or task.kind
                engine.observer.ran(task.id, name, task.place - 1, thread, start, time.perf_counter_ns(), "task")
        return None


class Engine:
    """Orders tasks and keeps data coherent, on one port."""

    def __init__(self, port, place_names, affine, limits, max_partials=2, max_pending=0):
        self.port = port
        self.place_names = list(place_names)
        self.affine = list(affine)
        self.coherency = Coherency(port, place_names, limits)
        self.gate = Gate()
        self.dropped = []
        self.deferred = []
        self.failures = []
        self.opened = []
        self.closed = None
        self.observer = None
        self.validate = False
        self.scope = None
        self.kinds = {}
        self.tasks_by_place = [0] * len(self.place_names)
        self.next_data = 0
        self.next_task = 0
        self.serial = 0
        self.waits = EventSet()
        self.claim_queue = []
        self.late = deque()
        self.max_pending = max_pending
        self.max_partials = max_partials
        self.running = set()

    # -- data --------------------------------------------------------------------------------------------------

    def new_data(self, layout, name=None, token=False):
        """Record a data; it has no replica yet."""
        self.enter()
        try:
            self.next_data += 1
            data = Data(self, self.next_data, layout, name, token)
            self.coherency.data[data.id] = data
        finally:
            self.gate.leave()
        return data

    def set_home(self, data, place, address, owner, valid=True):
        """Say where the user's memory of `data` is."""
        replica = Replica(data, place, data.layout, True)
        replica.address = address
        replica.owner = owner
        data.home = replica
        data.version.replicas.append(replica)
        if valid:
            version: Version = data.version
            version.own(replica)

    # -- a task's life -----------------------------------------------------------------------------------------

    def enter(self):
        if self.closed is not None:
            raise ContextClosedError(self.closed)
        self.gate.enter()
        if self.dropped:
            try:
                self.drain()
            except BaseException:
                self.gate.leave()
                raise
        return 0

    def begin(self, task):
        """Claim, order and provide; the task is open afterwards. Nothing has changed if this raises."""
        while True:
            self.enter()
            try:
                conflict = self.admit(task)
                if conflict is None:
                    self.start(task)
                    return 0
                baton = self.await_claim(task, conflict)
            finally:
                self.gate.leave()
            baton.acquire()

    def end(self, task):
        """Close the task's slot; its event orders what comes after."""
        self.gate.enter()
        try:
            self.finish(task, self.port.end(task.slot))
        finally:
            self.gate.leave()
        return 0

    def fail(self, task, failure):
        """Close the slot of a task whose body raised: what it was to write is poisoned."""
        self.gate.enter()
        try:
            task.outcome = Outcome(False, failure)
            self.finish(task, self.port.abort(task.slot))
        finally:
            self.gate.leave()
        return 0

    def submit(self, task, prepare):
        """Begin a task with a late body, queue the body that `prepare(task)` returns, and end it."""
        task.outcome = Outcome(True)
        self.begin(task)
        try:
            body = prepare(task)
        except BaseException as error:
            self.fail(task, Failure(task.label(), task.call_site, error, task.written(), True))
            raise
        self.gate.enter()
        try:
            self.port.call(task.slot, LateCall(self, task, body))
            event = self.port.end(task.slot)
            self.finish(task, event)
        finally:
            self.gate.leave()
        if self.max_pending:
            self.hold_back(event)
        return 0

    def hold_back(self, event):
        """Back-pressure: with `max_pending` late bodies in flight, wait for the oldest."""
        self.late.append(event)
        if len(self.late) > self.max_pending and PyThread_get_thread_ident() not in self.running:
            events = EventSet()
            events.add(self.late.popleft())
            self.port.wait(events, -1.0)

    # -- claims ------------------------------------------------------------------------------------------------

    def admit(self, task):
        """Check and claim every access; return the version in conflict, or None."""
        i: cython.int = 0
        if task.uses is None:
            task.uses = task.accesses
        self.serial += 1
        try:
            for i in range(len(task.uses)):
                use: Access = task.uses[i]
                if use.core.mark == self.serial:
                    self.unclaim(task, i)
                    self.join_duplicates(task)
                    return self.admit(task)
                use.core.mark = self.serial
                conflict = self.claim(task, use)
                if conflict is not None:
                    self.unclaim(task, i)
                    return conflict
        except BaseException:
            self.unclaim(task, i)
            raise
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
            version = self.import_version(data)
        if version.frozen or data.tiles or data.released or version.partials is not None:
            self.check_guards(task, use, version)
            version = data.version
        mode = use.mode
        if mode & WRITE:
            if version.claims != 0 or version.accumulators != 0:
                return version
        elif mode & READ:
            if version.claims < 0 or version.accumulators != 0:
                return version
        elif version.claims != 0:
            return version
        if mode & READ:
            if version.outcome is not None:
                self.inherit(task, version, data)
            if version.valid == 0 and not data.token:
                raise UninitializedDataError(
                    f"{data.describe()} is read by task {task.label()} before anything wrote it; write it first, or "
                    "create it with logical_data_zeros"
                )
        if mode & WRITE:
            version.claims = -1
            version.holder = task
        elif mode & READ:
            version.claims += 1
            version.holder = task
        else:
            version.accumulators += 1
            version.holder = task
        return None

    def unclaim(self, task, count):
        """Give back the claims of the first `count` accesses."""
        i: cython.int
        for i in range(count):
            use: Access = task.uses[i]
            version = use.core.version
            if use.mode & WRITE:
                version.claims = 0
            elif use.mode & READ:
                version.claims -= 1
            else:
                version.accumulators -= 1
            version.holder = None
        if self.claim_queue:
            self.wake_claimants()
        return 0

    def check_guards(self, task, use, version):
        """The rare states of a data: released, split, frozen, or with partial results of a reduction."""
        data = use.core
        if data.released:
            raise AccessError(f"{data.describe()} was released; task {task.label()} cannot use it")
        if data.tiles:
            raise AccessError(
                f"{data.describe()} is split into {data.tiles} tiles; task {task.label()} must use those, or drop "
                "them first (del, or release)"
            )
        if version.frozen & WRITE or (version.frozen and use.mode != READ):
            raise AccessError(
                f"{data.describe()} is frozen for {MODE_NAMES[version.frozen]}; task {task.label()} cannot open it for "
                f"{MODE_NAMES[use.mode]} before unfreeze"
            )
        if version.partials is not None and version.claims == 0 and version.accumulators == 0:
            if use.mode & READ or (use.mode == ACCUMULATE and use.op != version.op):
                self.combine(data)
            elif use.mode == WRITE:
                self.forget_partials(data)

    def await_claim(self, task, version):
        """Queue for a data that another task holds; an error if this thread itself holds one."""
        thread = PyThread_get_thread_ident()
        holder: TaskCore = version.holder
        for item in self.opened:
            other: TaskCore = item
            if other.thread == thread:
                raise TaskStateError(
                    f"task {task.label()} needs data that task {holder.label()} ({holder.call_site}) holds, while this "
                    f"thread holds task {other.label()} ({other.call_site}) open; end that task first"
                )
        baton = threading.Lock()
        baton.acquire()
        self.claim_queue.append(baton)
        return baton

    def wake_claimants(self):
        queue, self.claim_queue = self.claim_queue, []
        for baton in queue:
            baton.release()

    def join_duplicates(self, task):
        """One access per data: joined modes, one place."""
        joined = {}
        for item in task.accesses:
            access: Access = item
            known: Access = joined.get(access.core.id)
            if known is None:
                joined[access.core.id] = access
                continue
            if known.place != access.place:
                raise ValueError(
                    f"task {task.label()} asks for {access.core.describe()} at two data places at once; ask for one"
                )
            if known.mode != access.mode:
                if known.mode == ACCUMULATE or access.mode == ACCUMULATE:
                    raise AccessError(
                        f"task {task.label()} both accumulates into and accesses {access.core.describe()}; do either"
                    )
                merged = make_access_like(access, known.mode | access.mode)
                joined[access.core.id] = merged
        task.uses = list(joined.values())
        return 0

    # -- outcomes ----------------------------------------------------------------------------------------------

    def inherit(self, task, version, data):
        """Look at how the writing of an input went: fail now, or remember to look again."""
        outcome = version.outcome
        failure = outcome.failed()
        if failure is not None:
            if failure.delivered or task.outcome is None:
                failure.delivered = True
                self.spoil(task, failure)
                raise failure.error_of_reader(task.label(), data.describe())
            if task.inputs is None:
                task.inputs = []
            task.inputs.append(outcome)
        elif is_open(outcome):
            if task.inputs is None:
                task.inputs = []
            task.inputs.append(outcome)
        else:
            version.outcome = None
        return 0

    def spoil(self, task, failure):
        """A task that will not run leaves what it was to write poisoned."""
        for item in task.uses:
            use: Access = item
            if use.mode != READ and use.core.engine is self:
                use.core.version.outcome = Outcome(False, failure)
        return 0

    def check_inputs(self, task):
        """After a task's inputs are complete: raise if one of them is poisoned (the task is failed then)."""
        for item in task.inputs or ():
            failure = item.failed()
            if failure is not None:
                failure.delivered = True
                if failure in self.failures:
                    self.failures.remove(failure)
                self.fail(task, failure)
                raise failure.error_of_reader(task.label(), "its input")
        return 0

    def take_failures(self):
        """What failed and was not told yet."""
        taken = []
        while self.failures:
            failure = self.failures.pop(0)
            if not failure.delivered:
                taken.append(failure)
        return taken

    # -- start and finish --------------------------------------------------------------------------------------

    def start(self, task):
        """Collect what to wait for, open the slot and provide the replicas."""
        i: cython.int
        missing: cython.bint = False
        place: cython.int
        waits = self.waits
        waits.clear()
        replicas = []
        for i in range(len(task.uses)):
            use: Access = task.uses[i]
            version = use.core.version
            replica: Replica = None
            if use.mode != ACCUMULATE:
                waits.update(version.writers)
                if use.mode & WRITE:
                    waits.update(version.readers)
            if use.mode == ACCUMULATE:
                missing = True
            elif not use.core.token:
                place = use.place
                if place == AFFINE:
                    place = self.affine[task.place]
                replica = version.find(place)
                if replica is None or not replica.has_memory() or (use.mode & READ and replica.state == INVALID):
                    missing = True
                    replica = None
                else:
                    replica.pins += 1
                    waits.update(replica.ready)
            replicas.append(replica)
        task.replicas = replicas
        self.next_task += 1
        task.id = self.next_task
        try:
            task.slot = self.port.begin(task.place, waits, COMPUTE)
            if missing:
                self.provide_all(task)
        except BaseException:
            self.cancel(task)
            raise
        task.state = OPEN
        task.thread = PyThread_get_thread_ident()
        self.opened.append(task)
        self.tasks_by_place[task.place] += 1
        if self.observer is not None:
            self.observer.task(task)
        return 0

    def provide_all(self, task):
        """Give every access that lacks one a replica: allocations, copies, partials."""
        self.coherency.asking = task
        try:
            for i in range(len(task.uses)):
                use: Access = task.uses[i]
                if task.replicas[i] is None and not use.core.token:
                    place: cython.int = use.place
                    if place == AFFINE:
                        place = self.affine[task.place]
                    if use.mode == ACCUMULATE:
                        task.replicas[i] = self.provide_partial(task, i, use, place)
                    else:
                        task.replicas[i] = self.coherency.provide(
                            use.core, use.core.version, place, use.mode, task.slot
                        )
        finally:
            self.coherency.asking = None

    def cancel(self, task):
        """A task that could not start: what it already caused stays ordered, its claims are given back."""
        event = 0
        if task.slot >= 0:
            event = self.port.abort(task.slot)
            task.slot = -1
        for i in range(len(task.uses)):
            use: Access = task.uses[i]
            replica: Replica = task.replicas[i]
            if replica is not None:
                replica.pins -= 1
                replica.ready.add(event)
        for _, partial in task.partials or ():
            partial.open = False
            partial.events.add(event)
        task.partials = None
        self.unclaim(task, len(task.uses))

    def finish(self, task, event):
        """Make `event` the last write, or one of the reads, of every access; give the claims back."""
        i: cython.int
        self.coherency.tick += 1
        outcome = task.outcome
        if outcome is None and task.inputs is not None:
            outcome = self.derive(task)
        for i in range(len(task.uses)):
            use: Access = task.uses[i]
            version = use.core.version
            replica: Replica = task.replicas[i]
            if replica is not None:
                replica.pins -= 1
                replica.last_use = self.coherency.tick
            if use.mode & WRITE:
                version.claims = 0
                version.writers.clear()
                version.writers.add(event)
                version.readers.clear()
                version.outcome = outcome
                version.joined |= use.mode
                if replica is not None:
                    version.own(replica)
                    replica.ready.clear()
                version.wrote = task.symbol
                version.wrote_code = task.code
                version.wrote_lasti = task.lasti
            elif use.mode & READ:
                version.claims -= 1
                version.readers.add(event)
                version.joined |= use.mode
                if replica is not None and replica.ready.count == 0 and replica.state == INVALID:
                    replica.ready.add(event)
            version.holder = None
        if task.partials is not None:
            self.finish_partials(task, event, outcome)
        task.state = ENDED
        if self.opened[len(self.opened) - 1] is task:
            self.opened.pop()
        else:
            self.opened.remove(task)
        if self.claim_queue:
            self.wake_claimants()
        return 0

    def derive(self, task):
        """The outcome of what a task computes from inputs that may still fail."""
        sources = [item for item in task.inputs if is_open(item) or item.failed() is not None]
        return Outcome(False, None, sources) if sources else None

    # -- task-level reductions ---------------------------------------------------------------------------------

    def provide_partial(self, task, index, use, place):
        """A partial that no open task uses: one at rest, else a new one, else the one that is free the soonest."""
        version = use.core.version
        if version.partials is None:
            version.partials = []
            version.op = use.op
        here = [p for p in version.partials if p.replica.place == place and not p.open]
        chosen = next((p for p in here if all(self.port.done(e) for e in p.events.tolist())), None)
        total = sum(p.replica.place == place for p in version.partials)
        if chosen is None and here and total >= self.max_partials:
            chosen = here[0]
        if chosen is None:
            chosen = Partial(Replica(use.core, place, use.core.layout.packed()))
            self.coherency.allocate(use.core, chosen.replica, task.slot)
            version.partials.append(chosen)
        else:
            self.port.join(task.slot, chosen.events)
            chosen.fresh = False
        version.partials.remove(chosen)
        version.partials.append(chosen)
        chosen.open = True
        replica: Replica = chosen.replica
        replica.pins += 1
        if task.partials is None:
            task.partials = []
        task.partials.append((index, chosen))
        return replica

    def finish_partials(self, task, event, outcome):
        for index, partial in task.partials:
            use: Access = task.uses[index]
            version = use.core.version
            version.accumulators -= 1
            partial.open = False
            partial.events.clear()
            partial.events.add(event)
            if outcome is not None:
                before = version.outcome
                both = [o for o in (before, outcome) if o is not None]
                version.outcome = both[0] if len(both) == 1 else Outcome(False, None, both)

    def combine(self, data):
        """Fold the partials of a reduction into the data: an internal late task."""
        version = data.version
        partials, version.partials = version.partials, None
        op, version.op = version.op, None
        outcome = version.outcome
        initialised = version.valid > 0
        task = TaskCore()
        use: Access = Access.__new__(Access)
        use.data = None
        use.core = data
        use.mode = RW if initialised else WRITE
        use.place = AFFINE
        use.op = None
        task.engine = self
        task.kind = "combine"
        task.place = self.place_of_replica(partials[0].replica.place)
        task.accesses = task.uses = [use]
        task.outcome = Outcome(True)
        if outcome is not None:
            task.inputs = [outcome]
        version.claims = -1
        self.start(task)
        replicas = []
        for partial in partials:
            self.port.join(task.slot, partial.events)
            replicas.append(partial.replica)
        staged = [self.stage_partial(task, replica) for replica in replicas]
        body = op.combiner(task.replicas[0], staged, initialised)
        self.port.call(task.slot, LateCall(self, task, body))
        event = self.port.end(task.slot)
        self.finish(task, event)
        for replica in replicas + [r for r in staged if r not in replicas]:
            replica.ready.clear()
            replica.ready.add(event)
            version.replicas.append(replica)
            self.coherency.discard(version, replica, False)

    def stage_partial(self, task, replica):
        """Bring a partial to where it is combined."""
        place = self.affine[task.place]
        if replica.place == place:
            return replica
        staged = Replica(replica.data, place, replica.layout)
        self.coherency.allocate(replica.data, staged, task.slot)
        self.port.copy(task.slot, staged, replica)
        return staged

    def place_of_replica(self, data_place):
        """An execution place whose affine memory is `data_place`."""
        return self.affine.index(data_place, 1) if data_place in self.affine[1:] else 0

    def forget_partials(self, data):
        """A pure write makes the partials moot; it still comes after them."""
        version = data.version
        partials, version.partials = version.partials, None
        for partial in partials:
            for event in partial.events.tolist():
                version.readers.add(event)
            self.coherency.drop_partial(version, partial)
        version.op = None

    # -- release -----------------------------------------------------------------------------------------------

    def drain(self):
        """Release what the user dropped (finalizers only append to a list)."""
        while self.dropped:
            data = self.dropped.pop()
            if not data.released:
                self.release_now(data)
        return 0

    def release_now(self, data):
        """Write the data home, free its replicas, forget it; later if its content may still turn out poisoned."""
        version = data.version
        data.released = True
        if version.partials is not None:
            if data.home is not None and data.write_back:
                self.combine(data)
            else:
                self.forget_partials(data)
        if self.is_dirty(data) and version.outcome is not None:
            failure = version.outcome.failed()
            if failure is None and is_open(version.outcome):
                self.deferred.append(data)
                return
        self.retire(data)

    def is_dirty(self, data):
        """Whether the user's memory lacks what tasks computed, and wants it."""
        home = data.home
        return home is not None and data.write_back and home.state == INVALID and data.version.valid > 0

    def retire(self, data):
        version = data.version
        poisoned = version.outcome is not None and version.outcome.failed() is not None
        if data.write_back and not poisoned:
            self.coherency.write_home(data)
        self.coherency.drop_replicas(data)
        self.coherency.data.pop(data.id, None)
        if data.parent is not None:
            self.join_tile(data, poisoned)
        if self.observer is not None:
            self.observer.data_removed(data.id)

    def join_tile(self, data, poisoned):
        """A tile that goes hands its events, and its poison, to the data it was cut from."""
        parent = data.parent
        version: Version = parent.version
        tile_version: Version = data.version
        for events in (tile_version.writers, tile_version.readers):
            for event in events.tolist():
                version.writers.add(event)
        if data.home is not None:
            for event in data.home.ready.tolist():
                version.writers.add(event)
        if poisoned or (tile_version.outcome is not None and is_open(tile_version.outcome)):
            both = [o for o in (version.outcome, tile_version.outcome) if o is not None]
            version.outcome = Outcome(False, None, both)
        if data.home.state == INVALID and not poisoned:
            version.unwritten_tiles = True
        parent.tiles -= 1
        if parent.tiles == 0:
            if version.unwritten_tiles and not version.was_valid:
                for replica in version.replicas:
                    replica.state = INVALID
                version.valid = 0
            version.unwritten_tiles = False

    def retire_deferred(self):
        """Release what waited for its outcome to be known."""
        waiting, self.deferred[:] = list(self.deferred), []
        for data in waiting:
            outcome = data.version.outcome
            if outcome is not None and outcome.failed() is None and is_open(outcome):
                self.deferred.append(data)
            else:
                self.retire(data)

    # -- scopes ------------------------------------------------------------------------------------------------

    def open_scope(self):
        """Open a scope; what is done to data in it becomes one task of the scope around it."""
        if self.opened:
            raise TaskStateError(f"a scope cannot be opened while task {self.opened[-1].label()} is open; end it first")
        self.scope = Scope(self.scope, PyThread_get_thread_ident())
        return self.scope

    def close_scope(self, scope, failure=None):
        """Commit the versions of `scope`, or poison what it wrote if its body failed."""
        if self.scope is not scope:
            raise TaskStateError("scopes close in the reverse order of their opening")
        if self.opened:
            raise TaskStateError(f"a scope cannot be closed while task {self.opened[-1].label()} is open; end it first")
        self.scope = scope.parent
        for data in scope.touched:
            version: Version = data.version
            data.version = version.committed()
            if failure is not None and version.joined & WRITE:
                data.version.outcome = Outcome(False, failure)

    def import_version(self, data):
        """The version of a data for the innermost scope."""
        chain = []
        scope = self.scope
        while scope is not None and data.version.scope is not scope:
            chain.append(scope)
            scope = scope.parent
        for inner in reversed(chain):
            data.version = data.version.imported(inner)
            inner.touched.append(data)
        return data.version


def make_access_like(access, mode):
    """The same access with another mode."""
    merged: Access = Access.__new__(Access)
    merged.data = access.data
    merged.core = access.core
    merged.mode = mode
    merged.place = access.place
    merged.op = access.op
    return merged
