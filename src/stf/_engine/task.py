"""A task, as the engine knows it: a place and its accesses, from begin to end."""

from __future__ import annotations

import sys

import cython

from stf._support.call_sites import site_text
from stf.errors import TaskStateError, not_copied

READERS: cython.int = 64  # that are remembered


@cython.freelist(32)
@cython.no_gc
@cython.cclass
class TaskCore:
    """A place and its accesses, from begin to end."""

    def __cinit__(self):
        self.slot = -1
        self.kind = "task"

    def __reduce_ex__(self, protocol):
        raise not_copied(f"task {self.label()} ({self.call_site})", "build another one with ctx.task(...)")

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

    def stays_outside_recordings(self):
        """Return whether no recording can hold it.

        It has several streams, or works on what functions of the user's make.
        """
        if self.outside_recordings:
            return True
        for item in self.accesses:
            access: Access = item
            if not access.core.token and access.core.layout.interface is not None:
                return True
        return False

    def label(self):
        """Return what messages call it.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     with ctx.task(ctx.logical_data_ones(3).read(), name="sum") as t:
        ...         print(t.label())
        'sum'
        """
        return f"'{self.symbol}'" if self.symbol else f"#{self.id}"

    @property
    def call_site(self):
        """The line that submitted the task, as ``file.py:12``.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     with ctx.task(ctx.logical_data_ones(3).rw()) as t:
        ...         print(t.call_site.count(":"))
        1
        """
        return site_text(self.code, self.lasti)

    def record(self, section):
        """Return what observers keep of a task, in a section: of it they make text when somebody asks.

        The section, the id, name, kind, place, device, code and offset of the line that submitted it, the numbers of
        what it waits for, and of each access (data << 3 | mode) and the name of the data.
        """
        place: object = self.engine.place(self.where).name if self.where >= 0 else "auto"
        waits: object = () if self.predecessors is None else numbers_of(self.predecessors)
        record: tuple
        access: Access
        if len(self.accesses) == 1:
            access = self.accesses[0]
            mode: object = access.core.id << 3 | access.mode
            where: object = self.where - 1
            id_: object = self.id
            name, core = self.symbol, access.core
            record = (section, id_, name, self.kind, place, where, self.code, self.lasti, waits, mode, core.name)
        else:
            found = [section, self.id, self.symbol, self.kind, place, self.where - 1, self.code, self.lasti, waits]
            for item in self.accesses:
                access = item
                found.append(access.core.id << 3 | access.mode)
                found.append(access.core.name)
            record = tuple(found)
        untrack_tuple(record)
        return record

    def tell(self, log: list, described: set, section):
        """Add what observers keep of a task to a log, unless something in it is new to them; return whether it did."""
        i: cython.Py_ssize_t
        if self.choice is not None:
            return False
        record: tuple = self.record(section)
        for i in range(9, len(record), 2):
            if record[i] not in described:
                return False
        log.append(record)
        return True

    @property
    def waits_for(self):
        """Return the numbers of the tasks, and with a minus sign of the operations, that it waits for.

        They are known to observers only, when they are told of the task.
        """
        return () if self.predecessors is None else numbers_of(self.predecessors)

    def add_predecessors(self, events: EventSet):
        """Add what ends with events that it waits for, where somebody observes."""
        if events.numbers is not None:
            if self.predecessors is None:
                self.predecessors = []
            self.predecessors.extend(events.numbers)
        return 0

    @property
    def is_open(self):
        return self.state == OPEN

    @property
    def runs_later(self):
        """Whether its body was queued, and has not run yet."""
        return self.outcome is not None and self.outcome.pending

    @property
    def device(self):
        """Index of the device it runs on; -1 for the host.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     with ctx.task(1, ctx.logical_data_ones(3).read()) as t:
        ...         print(t.device)
        1
        """
        if self.is_held:
            self.engine.submit_held()
        if self.where < 0:
            raise TaskStateError(f"device of task {self.label()}, whose place is chosen when it begins; start it first")
        return self.where - 1

    @property
    def place_name(self):
        return self.engine.place(self.where).name if self.where >= 0 else "auto"

    def position_of(self, index):
        """Return where the data of access `index` stands among the joined accesses."""
        if self.uses is self.accesses:
            return index
        access: Access = self.accesses[index]
        for i, item in enumerate(self.uses):
            use: Access = item
            if use.core is access.core:
                return i
        raise IndexError(f"task {self.label()} was not given access {index}")

    def recorded_replica(self, index):
        """Return what a recorded body knows of the memory of an access: a partial result is dropped soon."""
        replica: Replica = self.replica_at(index)
        return replica.shadow() if replica.real is None else replica.real

    def targets(self):
        """Return the memory that a recorded body may write."""
        accesses = range(len(self.accesses))
        written = [i for i in accesses if self.replica_at(i) is not None and self.joined_mode(i) != READ]
        return [self.recorded_replica(i) for i in written]

    def replica_at(self, index):
        """Return the replica that access `index` was given."""
        return self.replicas[self.position_of(index)]

    def joined_mode(self, index):
        """Return the mode of access `index`, joined with others to the same data."""
        return cython.cast(Access, self.uses[self.position_of(index)]).mode

    def partials_to_fill(self):
        """Positions of accumulating accesses whose partial must be filled with the neutral value."""
        return [] if self.partials is None else [i for i, partial in self.partials if partial.needs_fill]

    def held_replicas(self):
        """Return the replicas that an open task was given."""
        return [replica for replica in self.replicas if replica is not None]

    def holds(self, data: Data):
        """Return whether the task has a claim on `data`."""
        return any([use.core is data for use in joined_of(self)])

    def has_claim_on(self, version):
        """Return whether the open task keeps others from the data of `version`."""
        for item in self.uses or ():
            use: Access = item
            if use.core.version is version:
                return True
        return False

    def works_on(self, data: Data):
        """Return whether the body of a queued task was given `data`."""
        return any([core is data for core in self.cores or ()])

    def joined_accesses(self):
        """(data, joined mode) per data, for observers."""
        return [(use.core, use.mode) for use in joined_of(self)]

    def state_name(self):
        """``"new"``, ``"open"`` or ``"ended"``."""
        return ("new", "open", "ended")[self.state]

    def state_in_body(self):
        """Its state for who uses it: a queued body runs when it has ended for the engine."""
        is_in_body = self.views is not None and (self.bodies > 0 or self.runs_later)
        return OPEN if self.state == ENDED and is_in_body else self.state

    def writes_core(self, index):
        """Return whether a queued task writes the data at `index` of `cores` (past 62 of them: as if it did)."""
        return bool((self.written_mask >> min(index, 62)) & 1)

    def data_nbytes(self):
        """Return how many bytes the data of the task have."""
        total: cython.longlong = 0
        for item in self.accesses:
            access: Access = item
            if access.core.layout is not None:
                total += access.core.layout.nbytes
        return total

    def written(self):
        """Labels of what the task writes."""
        if self.cores is not None:
            return [core.label() for i, core in enumerate(self.cores) if self.writes_core(i)]
        return [use.core.label() for use in joined_of(self) if use.mode != READ]


if not cython.compiled:
    TaskCore.__cinit__(TaskCore)


def joined_of(task: TaskCore):
    """Return the joined accesses of a task; those that it was given, before they are joined."""
    return task.uses or task.accesses or ()


def numbers_of(predecessors: list):
    """Return what a task waits for, each once, in order."""
    if len(predecessors) == 1:
        numbers: tuple = (predecessors[0],)
    else:
        numbers = tuple(sorted(set(predecessors)))
    untrack_tuple(numbers)
    return numbers


def references(task):
    """Return how many references to a task there are, and some that the calls add."""
    return sys.getrefcount(task)


def count_own_references():
    """Return what `references` says of a task that only a local variable holds."""
    task = TaskCore()
    return references(task)


OWN_REFERENCES = count_own_references()


def make_access_like(access, mode):
    """Return the same access with another mode."""
    merged: Access = Access.__new__(Access)
    merged.data = access.data
    merged.core = access.core
    merged.mode = mode
    merged.place = access.place
    merged.op = access.op
    return merged


@cython.final
@cython.cclass
class KindCount:
    """How many tasks of one kind have begun."""


@cython.final
@cython.cclass
class KindCounts:
    """How many tasks have begun, by kind."""

    def __init__(self):
        self.counts = {}

    def add(self, kind, by):
        """Count `by` tasks more."""
        of_kind: KindCount = self.counts.get(kind)
        if of_kind is None:
            self.counts[kind] = of_kind = KindCount()
        of_kind.count += by
        return 0

    def items(self):
        """Kinds and numbers, as of a dict."""
        counts = []
        for kind, item in self.counts.items():
            of_kind: KindCount = item
            counts.append((kind, of_kind.count))
        return counts


def note_reader(readers, task, event):
    """Remember a task that wrote nothing, and ends with `event`, among the last of them: no data tells of it."""
    if task.kind != "wait":
        if len(readers) >= READERS:
            del readers[: READERS // 2]
        try:
            readers.append((event, task.symbol, task.code, task.lasti))
        except MemoryError:
            return 0  # only messages ask for it, and the end of a task must not fail
    return 0
