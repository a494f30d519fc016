"""Parts: data that stand for a region of other data, with memory and a version of their own.

Four kinds of data are related to each other::

    whole     what the user registered: one array, with replicas as all data have
    part      a region of the whole, at home in the memory of one device
    padded    a part with margins around it, in the same memory: what a read with a halo gets
    window    an array over the memory of several parts, where these lie under one address

*A whole and its parts* have memory of their own, and their contents are brought together when a task needs that.
Each version notes when it was last written (`Version.written_at`, which counts the ends of tasks). So of a region it is
known which of the two is newer::

    parts agree ──part written──▶ part is newer ──`gather` copies it into the whole──▶ parts agree
         │                                                                               ▲
         └──whole written──▶ whole is newer ──`scatter` copies the region to the part────┘

`Relation.synced` is the time of the last such copy: what was written later is newer. A claim finds that it would read
old content and raises `OutdatedError`; the caller submits the copy, an ordinary task, outside of the gate, and begins
again. The copy's own claim looks once more whether it is needed, since another thread may have written meanwhile.

*A part and its padded form* lie in the same memory. A task that writes the part comes after those that read the padded
form. An `exchange` is a task that writes the padded form: it copies the edges of the neighbours into the margins. It
is due when the part or a neighbour was written after the last one (`Version.seen`), so each halo costs one copy a
neighbour and step. Neighbours that pushed their edges when they are written were tried: a task may not see edges of a
later step than its own, so each edge needs two buffers, chosen by the parity of the step. Margins that are filled by
whoever reads them need no second buffer: the copy is a reader of the neighbour, and the next writer comes after it.

*A window* (see `windows`) uses the parts in it, which order it and carry its content.

In a recording nothing is brought together, since each launch would copy what may be newer by then: a launch is a task
of the scope around, whose claims see to it. So one recording may read a whole and its parts, but writes only one of
both. An `exchange` is recorded as other tasks are.
"""

from __future__ import annotations

import cython

from stf._engine import thread_turns
from stf._port.events import EventSet
from stf._port.replicas import Piece
from stf.errors import AccessError, TaskStateError

GATHER, SCATTER, EXCHANGE = "gather", "scatter", "exchange"  # kinds of tasks


class OutdatedError(Exception):
    """Tell who begins a task that data have to be brought up to date first, by ``relation.refresh(place)``."""

    def __init__(self, relation, place):
        super().__init__()
        self.relation, self.place = relation, place


class NotNeededError(Exception):
    """Tell who submits a copy that another thread has made it meanwhile."""


@cython.cclass
class Relation:
    """How data are related to others; the fields are in the .pxd."""

    def __init__(self, data, kind, whole, part, refresh):
        self.data, self.kind, self.whole, self.part = data, kind, whole, part
        self.others, self.neighbours = [], []
        self.refresh = refresh

    def is_newer_part(self):
        """Return whether a part was written after its whole, and after the last copy between both."""
        mine: cython.longlong = outermost(self.data.version).written_at
        return mine > outermost(self.whole.version).written_at and mine > self.synced

    def is_older_part(self):
        """Return whether the whole was written after a part, and after the last copy between both."""
        its: cython.longlong = outermost(self.whole.version).written_at
        return its > outermost(self.data.version).written_at and its > self.synced


def whole_of(data: Data):
    """Return the whole that data are a part of, in whatever form; else the data themselves."""
    relation = data.linked
    if relation is None or cython.cast(Relation, relation).whole is None:
        return data
    return cython.cast(Relation, relation).whole


def make_whole(engine: EngineState, data: Data, refresh):
    """Make data a whole, whose content ``refresh(place)`` brings up to date."""
    data.linked = Relation(data, WHOLE, None, None, refresh)
    if data.version.valid or data.version.outcome is not None:
        note_change(engine, data)


def make_part(engine: EngineState, data: Data, whole: Data, refresh):
    """Make data a part of `whole`."""
    data.linked = Relation(data, PART, whole, None, refresh)
    relation_of(whole).others.append(data)


def make_padded(engine: EngineState, data: Data, part: Data, neighbours, refresh):
    """Make data the padded form of a part; `neighbours` are all parts that its content comes from."""
    mine = relation_of(part)
    relation: Relation = Relation(data, PADDED, mine.whole, part, refresh)
    relation.neighbours = neighbours
    for item in mine.others:
        relation_of(item).others.append(data)
        relation.others.append(item)
    mine.others.append(data)
    data.linked = relation


def relation_of(data: Data):
    """Return how data are related to others."""
    return cython.cast(Relation, data.linked)


# -- claims --------------------------------------------------------------------------------------------------------


def conflict(engine: EngineState, task: TaskCore, use: Access):
    """Return the version of related data that a task has to wait for; None if there is none.

    Raises
    ------
    OutdatedError
        The content has to be brought together first.
    """
    relation = relation_of(use.core)
    mode: cython.int = use.mode
    if mode == ACCUMULATE:
        raise AccessError(
            f"{use.core.describe()} is partitioned, or a part, and cannot be accumulated into by task {task.label()}; "
            "accumulate into other data, and add these"
        )
    writes: cython.bint = (mode & WRITE) != 0
    if relation.kind == WINDOW:
        return None
    copies: cython.bint = task.kind == GATHER or task.kind == SCATTER
    copies |= task.kind == EXCHANGE and relation.kind == PADDED
    held = holder(engine, task, use, relation, writes, copies)
    if held is not None:
        return held
    if copies:
        must_be_needed(task, relation)
    elif engine.scope.records:
        check_recorded(engine, task, use, relation, writes)
    if relation.kind == PADDED:
        if not copies and task.kind != "graph":
            check_neighbours(task, relation)
        if mode & READ and not copies and task.kind != "graph" and has_old_margins(engine, relation):
            raise OutdatedError(relation, 0)
    elif mode & READ and not copies and not engine.scope.records and is_old(relation):
        raise OutdatedError(relation, engine.place(task.where).memory if use.place == AFFINE else use.place)
    order(engine, relation, writes)
    return None


def holder(engine: EngineState, task: TaskCore, use: Access, relation: Relation, writes, copies):
    """Return the version of related data that an open task, or a loan, keeps from this access; None if none does."""
    if relation.kind == WHOLE and not copies:
        for item in relation.others:
            part: Data = item
            if is_held(engine, task, use, part, writes):
                return part.version
            for padded in relation_of(part).others:
                if is_held(engine, task, use, padded, writes):
                    return cython.cast(Data, padded).version
    elif relation.kind == PART:
        if not copies and is_held(engine, task, use, relation.whole, writes):
            return relation.whole.version
        for padded in relation.others if writes else ():
            if is_held(engine, task, use, padded, writes):
                return cython.cast(Data, padded).version
    elif relation.kind == PADDED:
        if not copies and is_held(engine, task, use, relation.part, writes):
            return relation.part.version
        if not copies and is_held(engine, task, use, relation.whole, writes):
            return relation.whole.version
        for sibling in relation.others if writes else ():
            if is_held(engine, task, use, sibling, writes):
                return cython.cast(Data, sibling).version
    return None


def is_held(engine: EngineState, task: TaskCore, use: Access, other: Data, writes):
    """Return whether an open task or a loan of related data excludes this access; not what the task itself holds."""
    version = other.version
    if version.frozen and (version.frozen & WRITE or writes):
        return thread_turns.waits_for_loan(engine, task, other, version, use.mode)
    if version.claims == 0 or (version.claims > 0 and not writes):
        return False
    for item in task.uses:
        mine: Access = item
        if mine.core is other:
            if task.kind == "graph" and (version.claims == 1 or version.claims == -1):
                return False  # a launch, which was checked when it was recorded
            raise AccessError(
                f"task {task.label()} uses {use.core.describe()} and {other.describe()}, of which one is a part of the "
                "other, and writes one of them; use either"
            )
    return True


def check_neighbours(task: TaskCore, relation: Relation):
    """Refuse a task that reads a part with a halo, and writes a neighbour: where they share memory it reads both."""
    for item in task.uses:
        use: Access = item
        if use.mode != READ and use.core is not relation.data and use.core in relation.neighbours:
            raise AccessError(
                f"task {task.label()} reads {relation.part.describe()} with a halo, and writes its neighbour "
                f"{use.core.describe()}; write other data, or do that in a task after it"
            )
    return 0


def is_old(relation: Relation):
    """Return whether related data have newer content than these."""
    if relation.kind == PART:
        return relation.is_older_part()
    return any([relation_of(item).is_newer_part() for item in relation.others])


def has_old_margins(engine: EngineState, relation: Relation):
    """Return whether a part or a neighbour was written, in this scope, since the margins were filled."""
    i: cython.Py_ssize_t
    seen: list = relation.data.version.seen
    if seen is None:
        return True
    for i in range(len(relation.neighbours)):
        if stamp(engine, relation.neighbours[i]) != seen[i]:
            return True
        if not engine.scope.records and relation_of(relation.neighbours[i]).is_older_part():
            return True
    return False


def stamp(engine: EngineState, data: Data):
    """Return when data were last written in the innermost scope."""
    time: cython.longlong = data.version.written_at
    return time if data.version.scope is engine.scope else 0


def old_neighbours(engine: EngineState, data: Data):
    """Return of each neighbour whether it was written since the margins were filled; for an open exchange."""
    relation = relation_of(data)
    seen: list = data.version.seen
    if seen is None:
        return [True] * len(relation.neighbours)
    return [stamp(engine, item) != known for item, known in zip(relation.neighbours, seen, strict=True)]


def must_be_needed(task: TaskCore, relation: Relation):
    """Raise NotNeededError if a copy would bring older content over newer, as another thread was first."""
    if relation.kind == PART:
        if task.kind == GATHER and not relation.is_newer_part():
            raise NotNeededError
        if task.kind == SCATTER and not relation.is_older_part():
            raise NotNeededError
    return 0


def check_recorded(engine: EngineState, task: TaskCore, use: Access, relation: Relation, writes):
    """Refuse what no launch could order: a recording that writes a whole, or its parts, and uses the other.

    What a context gathers by itself is launched before.
    """
    data = relation.data
    mixes: cython.bint = False
    if relation.kind == WHOLE:
        for item in relation.others:
            mixes |= is_mixed(engine, item, writes)
    else:
        mixes = is_mixed(engine, relation.whole, writes and relation.kind == PART)
    gathers: cython.bint = engine.scope.runs_once and engine.gathering is not None and engine.gathering.implicit
    old: cython.bint = use.mode & READ and relation.kind != PADDED and is_old(relation)
    if gathers and (mixes or old):
        raise OutdatedError(relation, engine.place(task.where).memory if use.place == AFFINE else use.place)
    if mixes:
        raise AccessError(
            f"{data.describe()} is used by task {task.label()} in a recording that uses what it is a part of, or parts "
            "of it, and writes one of both; use only the parts there, or only the whole"
        )
    if old and data.version.valid == 0:
        raise TaskStateError(
            f"{data.describe()} is used by task {task.label()} in a recording, and its content lies in what it is a "
            "part of, or in parts of it; use it in a task before the recording, as ctx.prefetch does"
        )
    return 0


def is_mixed(engine: EngineState, other: Data, writes):
    """Return whether the innermost scope used related data so that this access cannot be ordered against it."""
    version = other.version
    return version.scope is engine.scope and version.joined and (writes or version.joined & WRITE)


def order(engine: EngineState, relation: Relation, writes):
    """Let a task that writes memory come after those that read or write the same memory as other data."""
    version = relation.data.version
    if relation.kind == WHOLE or not (writes or relation.kind == PADDED):
        return 0
    for item in relation.others:
        other = cython.cast(Data, item).version
        if other.scope is not engine.scope:
            continue
        if writes:
            version.readers.update(other.readers)
            version.readers.update(other.writers)
        else:
            version.writers.update(other.writers)
    return 0


# -- changes -------------------------------------------------------------------------------------------------------


def note_write(engine: EngineState, task: TaskCore, data: Data):
    """Note when a task that ends, or is skipped, wrote related data; a copy leaves both sides equal."""
    relation = relation_of(data)
    version = data.version
    if relation.kind == WINDOW:
        version.outcome = None  # the parts say how it went
        return 0
    time: cython.longlong = engine.coherency.tick
    if relation.kind == WHOLE and task.kind == GATHER:
        for item in relation.others:
            part = relation_of(item)
            if not part.is_older_part():
                part.synced = time
    elif relation.kind == PART and task.kind == SCATTER:
        relation.synced = time
    elif relation.kind == PADDED:
        copies: cython.bint = task.kind == EXCHANGE
        version.seen = [stamp(engine, item) for item in relation.neighbours] if copies else None
    version.written_at = time
    return 0


def is_copy(task: TaskCore):
    """Return whether a task brings related data together."""
    return task.kind == GATHER or task.kind == SCATTER or task.kind == EXCHANGE


def note_change(engine: EngineState, data: Data):
    """Note that data have new content, which no task has written."""
    engine.coherency.tick += 1
    outermost(data.version).written_at = engine.coherency.tick
    return 0


def forget_copy(engine: EngineState, data: Data):
    """Let content that was brought by a copy be brought once more, since that was spoilt."""
    relation = relation_of(data)
    version = outermost(data.version)
    if relation.kind == PART and relation.synced and relation.synced == version.written_at:
        relation.synced = version.written_at = 0
    elif relation.kind == WHOLE:
        found = [relation_of(item) for item in relation.others]
        brought = [part for part in found if part.synced and part.synced == version.written_at]
        if brought and not any([part.is_older_part() for part in found]):
            for part in found:
                part.synced = 0
            version.written_at = 0
    return 0


def check_alone(engine: EngineState, data: Data, what):
    """Raise unless related data may be lent, cut or given up: open tasks hold none, and the content is there."""
    relation = relation_of(data)
    if relation.kind == WHOLE:
        related = [*relation.others, *[padded for item in relation.others for padded in relation_of(item).others]]
    else:
        related = [relation.whole, *relation.others]
    for item in related:
        other: Data = item
        if other.version.claims:
            held = engine.holder_of(other.version).label()
            raise TaskStateError(
                f"{data.describe()} cannot be {what} while task {held} uses {other.describe()}; end it first"
            )
        if other.version.frozen:
            raise AccessError(
                f"{data.describe()} cannot be {what} while {other.describe()} is frozen; unfreeze it first"
            )
    order(engine, relation, True)  # a loan may write
    if what != "released" and relation.kind != PADDED and is_old(relation):
        raise OutdatedError(relation, 0)
    return 0


# -- memory --------------------------------------------------------------------------------------------------------


def make_memory(engine: EngineState, layout: Layout, place, name, piece=None):
    """Return new data that nobody uses, for their memory at a place, which is never evicted; parts are cut from it.

    A `piece` is a `Piece`: the memory then lies where the driver has reserved it.
    """
    memory: Data = engine.add_data(layout, name, False)
    try:
        replica = make_replica(memory, place, layout.packed())
        memory.version.replicas.append(replica)
        replica.owner = piece
        slot = engine.root.begin(place, EventSet(), COMPUTE)
        try:
            engine.coherency.allocate(memory, replica, slot)
        finally:
            replica.ready.add(engine.root.end(slot))
    except BaseException:
        engine.forget_new(memory)
        raise
    version = memory.version
    version.own(replica)
    version.was_valid = True  # whatever lies in it: its tiles say what is content
    version.frozen = READ
    memory.write_back = False
    memory.is_dropped = True  # it goes with the last that was cut from it
    return memory


def cut(engine: EngineState, memory: Data, layout: Layout, inside: Layout, offset, name, valid, make, place=-1):
    """Return the handle, by `make`, of new data at home in a memory, `offset` bytes into it, which lie as `inside`.

    That is the memory of a `place`, where several share an address.
    """
    data: Data = engine.add_data(layout, name, False)
    data.write_back = False
    try:
        settle_in(data, memory, inside, offset, place)
        if valid:
            data.version.own(data.home)
        handle = make(data)
    except BaseException:
        engine.forget_new(data)
        raise
    data.version.writers.update(memory.version.writers)
    data.version.writers.update(data.home.ready)
    data.parent = memory
    memory.tiles += 1
    return handle


def settle_in(data: Data, memory: Data, inside: Layout, offset, place):
    """Let data have their home in a memory, without content."""
    source: Replica = memory.version.replicas[0]
    home = home_of(data, source.place if place < 0 else place, inside)
    home.address = source.address + offset or 1  # an empty array may be at 0, which means nowhere
    home.owner = source.owner if not isinstance(source.owner, Piece) else None
    home.ready.update(source.ready)
    data.home = home
    data.version.replicas.append(home)
    return 0


def forget_memory(engine: EngineState, memory: Data):
    """Give a memory up that nothing was cut from."""
    engine.dropped.append(memory)


def move(engine: EngineState, data: Data, memory: Data, moves):
    """Let a part and its padded forms be at home in a wider memory at the same place; the old memory goes.

    `moves` has each data with its layout and its offset there. The content of the part is copied; margins are filled
    anew when they are read.
    """
    for item in [data, *relation_of(data).others]:
        other: Data = item
        if other.version.claims:
            held = engine.holder_of(other.version).label()
            raise TaskStateError(f"{data.describe()} gets wider margins, and task {held} uses it; end that first")
        if other.recorded:
            raise AccessError(
                f"{data.describe()} gets wider margins, and a recorded graph knows its memory; close that first, or "
                "ask for the widest halo before you record"
            )
        if other.version.frozen:
            raise AccessError(f"{data.describe()} gets wider margins while it is frozen; unfreeze it first")
    before = data.parent
    for moved, inside, offset in moves:
        move_home(engine, moved, memory, inside, offset)
    if before.tiles == 0:
        engine.dropped.append(before)
    return 0


def move_home(engine: EngineState, data: Data, memory: Data, inside: Layout, offset):
    """Let the home of data be in another memory."""
    version, old, before = data.version, data.home, data.parent
    settle_in(data, memory, inside, offset, -1)
    if relation_of(data).kind == PADDED:
        version.readers.update(version.writers)  # which are of the old memory
        version.own(data.home)
        version.writers.update(data.home.ready)
        version.seen = None
    elif old.state != INVALID:
        engine.coherency.transfer(data, version, old, data.home)
    for events in (version.writers, version.readers, old.ready):
        before.version.writers.update(events)
    old.owner = None  # whose memory goes after its last use
    engine.coherency.discard(version, old, False)
    data.parent = memory
    memory.tiles += 1
    before.tiles -= 1
    return 0


def copy_box(engine: EngineState, task: TaskCore, target: Replica, into, source: Replica, outof, shape):
    """Copy a box between replicas of an open task; `into` and `outof` are (offset, strides) in bytes."""
    number: cython.longlong = engine.coherency.number_operation()
    first, second = window(target, into, shape), window(source, outof, shape)
    engine.port.copy(task.slot, first, second, None, number)
    if source.place != target.place and not engine.scope.records:
        nbytes: cython.longlong = first.layout.nbytes
        engine.coherency.count_copy(cython.cast(Data, target.data), source.place, target.place, nbytes, number, None)
    return 0


def window(replica: Replica, where, shape):
    """Return a box of a replica as a replica."""
    offset, strides = where
    layout = replica.layout
    found = make_replica(replica.data, replica.place, Layout(shape, strides, layout.dtype, layout.itemsize))
    found.address, found.owner, found.pinned = replica.address + offset, replica.owner, replica.pinned
    return found
