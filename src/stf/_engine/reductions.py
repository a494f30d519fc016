"""Task-level reductions: partial results, taken in turn by tasks that commute, and folded by the next access."""

from __future__ import annotations

import cython

from stf._engine import host_waits
from stf._engine.queued_bodies import fold_call
from stf._engine.versions import derived_outcome
from stf.errors import OutOfMemoryError

FILLED_HERE: cython.int = 1 << 14  # bytes, which take about a microsecond


class Partial:
    """One partial result of a task-level reduction: a replica that accumulating tasks take in turn."""

    def __init__(self, replica):
        self.replica = replica
        self.events = EventSet()
        self.needs_fill = True


def provide_partial(engine: EngineState, task: TaskCore, index, use: Access, place):
    """Return a partial that no open task uses: one at rest, else a new one, else the one that is free the soonest."""
    version = use.core.version
    partials = [] if version.partials is None else version.partials
    here = [p for p in partials if p.replica.place == place and not p.open]
    chosen = next((p for p in here if all(engine.port.done(e) for e in p.events.tolist())), None)
    total = sum(p.replica.place == place for p in partials)
    if chosen is None and here and total >= engine.max_partials:
        chosen = here[0]
    if chosen is None:
        chosen = Partial(make_replica(use.core, place, use.core.layout.packed()))
        engine.coherency.allocate(use.core, chosen.replica, task.slot)
    else:
        engine.port.join(task.slot, chosen.events)
        partials.remove(chosen)
    partials.append(chosen)
    version.partials = partials
    version.op = use.op
    chosen.open = True
    replica: Replica = chosen.replica
    replica.pins += 1
    if task.partials is None:
        task.partials = []
    task.partials.append((index, chosen))
    return replica


def finish_partials(engine: EngineState, task: TaskCore, event, outcome):
    """Make `event` the last use of the partials that the task was given."""
    for index, item in task.partials:
        partial: Partial = item
        use: Access = task.uses[index]
        version = use.core.version
        version.accumulators -= 1
        partial.open = partial.needs_fill = False
        contributors = partial.events.numbers
        partial.events.clear()
        partial.events.add(event)
        if engine.observer is not None:
            partial.events.add_numbers(contributors or [])
            partial.events.add_number(task.id)
        version.wrote = task.symbol
        version.wrote_code = task.code
        version.wrote_lasti = task.lasti
        if outcome is not None:
            before = version.outcome
            both = [o for o in (before, outcome) if o is not None]
            version.outcome = both[0] if len(both) == 1 else derived_outcome(both)


def cancel_partials(engine: EngineState, task: TaskCore, event):
    """Take back the partials of a task that could not start; new ones hold nothing yet."""
    for index, item in task.partials:
        partial: Partial = item
        use: Access = task.uses[index]
        version = use.core.version
        partial.open = False
        partial.events.add(event)
        if partial.needs_fill:
            version.partials.remove(partial)
            engine.coherency.drop_partial(version, partial.replica, partial.events)
        if not version.partials:
            version.partials = version.op = None


def combine(engine: EngineState, data: Data, wanted=0):
    """Fold the partials of a reduction into the data, on the host, where its array is.

    Data that are filled at their first use (`fill_later`) are filled at the data place `wanted`.
    """
    if data.version.partials:
        combine_partials(engine, data)
        return
    if wanted == 0 and engine.root.captured:  # a device does it: no body on the host in each launch
        wanted = engine.place(engine.context().default_code).memory
    fill(engine, data, wanted, data.version.op)


def fill_later(data: Data, op, task: TaskCore):
    """Let the first use of a data find it filled, as if a task had done it: there are no partials to be folded."""
    version = data.version
    version.partials, version.op = [], op
    version.set_writer(task.symbol, task.code, task.lasti, None)


def fill(engine: EngineState, data: Data, place, op):
    """Fill a data, which has no content, with the neutral element of an operator: at a data place, or on the host."""
    if not adopt_filled(engine, data, place, op) and not fill_at(engine, data, place, op):
        where: cython.int = place_of_replica(engine, place)
        enqueues: cython.bint = engine.place(where).enqueues or engine.place(where).is_remote
        fold(engine, data, 0 if enqueues else place, [], op)


def adopt_filled(engine: EngineState, data: Data, place, op):
    """Let a small array that is filled now be the memory of data that had none; see `adoption`. No task does it."""
    version = data.version
    is_new: cython.bint = len(version.replicas) == 0 and version.outcome is None and data.linked is None
    observed: cython.bint = engine.observer is not None or engine.root.captured or engine.scope.records
    layout = data.layout
    if not is_new or observed or not engine.adopts or layout.interface is not None:
        return False
    if layout.nbytes == 0 or layout.nbytes > FILLED_HERE:
        return False
    found = op.filled(layout)
    if found is None:
        return False
    replica = make_replica(data, place, layout)
    replica.owner, replica.address = found
    replica.views = {True: replica.owner}
    replica.adopted = True
    version.replicas.append(replica)
    version.own(replica)
    version.partials = version.op = None
    engine.next_task += 1
    engine.kinds.add("fill", 1)
    cython.cast(Pool, engine.coherency.pools[place_of_replica(engine, place)]).tasks += 1
    return True


def fill_at(engine: EngineState, data: Data, place, op):
    """Fill a data with the neutral element of an operator where bodies only enqueue; False if that is not possible."""
    where: cython.int = place_of_replica(engine, place)
    fills: cython.bint = engine.place(where).enqueues or engine.place(where).is_remote
    if place == 0 or not fills or data.layout.interface is not None:
        return False
    version = data.version
    task: TaskCore = combining_task(engine, data, place)
    task.outcome = None  # there is no body that may fail
    version.claims = -1
    task.claimed = 1
    try:
        engine.start(task)
        if not engine.port.fill(task.slot, task.replicas[0], op.pattern(data.layout.dtype)):
            engine.cancel(task)
            return False
    except BaseException:
        engine.cancel(task)
        raise
    engine.finish(task, engine.port.end(task.slot))
    return True


def combine_partials(engine: EngineState, data: Data):
    """An internal late task on the host that folds the partials."""
    version = data.version
    if all([partial.needs_fill for partial in version.partials]):  # of tasks that were taken back
        forget_partials(engine, data)
        return
    fold(engine, data, 0, version.partials, version.op)


def fold(engine: EngineState, data: Data, place, partials, op):
    """An internal late task that folds partials into a data; into the neutral element, where there is no content."""
    version = data.version
    initialised = version.valid > 0
    task: TaskCore = combining_task(engine, data, place)
    before, version.partials = version.partials, None
    version.claims = -1
    task.claimed = 1
    staged = []
    for item in partials:
        task.add_predecessors(cython.cast(Partial, item).events)
    try:
        engine.start(task)
        sources = [stage_partial(engine, task, item, staged) for item in partials]
        fills_here: cython.bint = not partials and fill_here(engine, task, op)
    except BaseException:
        event = engine.cancel(task)
        version.partials = before
        for item in partials:
            partial: Partial = item
            partial.events.add(event)
        drop_after(engine, version, staged, event)
        raise
    if fills_here:
        engine.finish(task, engine.port.end(task.slot))
        version.op = None
        return
    target: Replica = task.replicas[0]
    call = fold_call(task, op.combiner(target, sources, initialised))
    if engine.scope.records:
        kept = [cython.cast(Replica, source).shadow() for source in sources]  # which are dropped below
        call.make = Combiner(op, target, kept, initialised)
    engine.put_call(task.slot, call)
    event = engine.port.end(task.slot)
    engine.finish(task, event)
    version.op = None
    drop_after(engine, version, [item.replica for item in partials] + staged, event)


def fill_here(engine: EngineState, task: TaskCore, op):
    """Fill a few bytes in this thread; return False if the memory is still in use, or somebody looks at what runs.

    A worker would take several times as long to wake.
    """
    target: Replica = task.replicas[0]
    observed: cython.bint = engine.observer is not None or engine.root.captured
    if target.layout.nbytes > FILLED_HERE or engine.scope.records or observed:
        return False
    if not engine.port.try_enter(task.slot):
        return False
    op.fill_at(target)
    task.outcome = None
    return True


class Combiner:
    """What makes the body that folds partials into another data than the recorded one."""

    def __init__(self, op, target, sources, initialised):
        self.op = op
        self.target = target
        self.sources = sources
        self.initialised = initialised

    def __call__(self, rebinding):
        other = rebinding.replica_for(self.target.real)
        mine = self.target if other is self.target.real else other  # which may be gone when the body looks
        return self.op.combiner(mine, self.sources, self.initialised)


def make_room(engine: EngineState):
    """Fold partial results where nothing else can be evicted; whether there were any."""
    if engine.scope.records:
        return False  # nothing of a recording runs now
    try:
        folded = engine.patiently(fold_at_rest)
    except OutOfMemoryError:
        return False
    return folded is not None and host_waits.settles(engine.root, folded)


def fold_at_rest(engine: EngineState):
    """Fold, on the host, partials on devices that no open task uses; the events of that, or None if there are none."""
    for item in engine.coherency.pools[1:]:
        pool: Pool = item
        for partial in list(pool.partials):
            data: Data = cython.cast(Replica, partial).data
            version: Version = data.version
            if version.partials is None or version.frozen or version.claims or version.accumulators:
                continue
            combine_partials(engine, data)
            return version.writers
    return None


def drop_after(engine: EngineState, version: Version, replicas, event):
    """Free replicas that were used up to `event`."""
    for item in replicas:
        replica: Replica = item
        replica.ready.clear()
        replica.ready.add(event)
        version.replicas.append(replica)
        engine.coherency.discard(version, replica, False)


def combining_task(engine: EngineState, data: Data, data_place):
    """Return the internal task that folds partials."""
    use: Access = Access.__new__(Access)
    use.data = None
    use.core = data
    use.mode = RW if data.version.valid > 0 else WRITE
    use.place = AFFINE
    use.op = None
    partials: list = data.version.partials
    kind = "combine" if partials is None or partials else "fill"
    task: TaskCore = engine.new_task(kind, place_of_replica(engine, data_place))
    task.accesses = task.uses = (use,)
    task.symbol = kind
    task.code = data.version.wrote_code
    task.lasti = data.version.wrote_lasti
    if not engine.root.captured and engine.scope.runs_once:
        task.outcome = Outcome(True)
    if data.version.outcome is not None:
        task.inputs = [data.version.outcome]
    return task


def stage_partial(engine: EngineState, task: TaskCore, partial: Partial, staged):
    """Return a partial where it is combined; what is allocated for that is added to `staged`."""
    place = engine.place(task.where).memory
    engine.port.join(task.slot, partial.events)
    if partial.replica.place == place:
        return partial.replica
    replica = make_replica(partial.replica.data, place, partial.replica.layout)
    engine.coherency.allocate(replica.data, replica, task.slot)
    staged.append(replica)
    number: cython.longlong = engine.coherency.number_operation()
    engine.port.copy(task.slot, replica, partial.replica, None, number)
    nbytes: cython.longlong = replica.layout.nbytes
    engine.coherency.note("copy", replica.data, partial.replica.place, place, nbytes, number, partial.events.numbers)
    return replica


def place_of_replica(engine: EngineState, data_place):
    """Return an execution place whose affine memory is `data_place`."""
    found = [place.number for place in engine.places if place.number and place.memory == data_place]
    return found[0] if found else 0


def wait_for_partials(version: Version, waits: EventSet):
    """A pure write comes after what was accumulated before."""
    for item in version.partials:
        partial: Partial = item
        waits.update(partial.events)


def forget_partials(engine: EngineState, data: Data):
    """A pure write, or the end of the data, makes the partials moot."""
    version = data.version
    partials, version.partials = version.partials, None
    for item in partials:
        partial: Partial = item
        version.readers.update(partial.events)
        engine.coherency.drop_partial(version, partial.replica, partial.events)
    version.op = None
