"""Which memory is registered: the same memory again is the same data, overlapping memory is a mistake.

Compiled, since programs register arrays by the thousand.
"""

from __future__ import annotations

import itertools
import weakref
from _thread import RLock  # threading's is a function

import numpy as np

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf import config
from stf._engine import release
from stf._engine.instances import Layout
from stf.data import LogicalData
from stf.interop.arrays import describe
from stf.interop.memory import view_at

MAX_WORK = 100_000  # of NumPy's search for a byte that two arrays share
SWEPT = 64  # at most so many are forgotten per registration
EMPTY = 64  # the address of an array without elements, for those that have none


class Entry:
    """The memory of one data, from the byte `low` up to `high`, and a weak reference to its handle."""

    def __init__(self, ident, memory, handle):
        self.ident = ident
        self.shape = memory.shape
        self.strides = memory.strides
        self.dtype = memory.dtype
        self.readonly = memory.readonly
        self.handle = None if handle is None else weakref.ref(handle)
        self.address = memory.address or -id(memory.owner)  # empty arrays on devices are all at 0
        self.find_bounds(memory.dtype.itemsize)

    def find_bounds(self, itemsize):
        """Lowest address and the one past the highest; equal for empty arrays."""
        i: cython.int
        low: cython.longlong = self.address
        high: cython.longlong = self.address
        for i in range(len(self.shape)):
            extent: cython.longlong = self.shape[i]
            step: cython.longlong = self.strides[i]
            if extent == 0:
                self.low = self.high = self.address
                return 0
            if step < 0:
                low += (extent - 1) * step
            else:
                high += (extent - 1) * step
        self.low = low
        self.high = high + itemsize
        return 0

    def is_same(self, other):
        """Whether two arrays are the same one."""
        return (
            self.address == other.address
            and self.readonly == other.readonly
            and self.shape == other.shape
            and self.strides == other.strides
            and (self.dtype is other.dtype or self.dtype == other.dtype)
        )

    def living(self):
        """The handle of the data, or None; one that was released has this memory no more."""
        handle: DataHandle = None if self.handle is None else self.handle()
        return None if handle is None or handle.core.released else handle


class Registry:
    """The registered memory of one context.

    Its lock is taken inside the engine's gate, where data are given up; so nothing here enters the engine. It may be
    taken again by its thread: a garbage collection inside may run a finalizer that registers.
    """

    def __init__(self):
        self.sorted = []  # entries, by (low, ident)
        self.entries = {}
        self.longest = 0
        self.lock = RLock()
        self.leaving = {}  # data id: the last events on memory that is given up

    def position(self, low, ident):
        """Where an entry is, or would be."""
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t = len(self.sorted)
        while first < last:
            middle: cython.Py_ssize_t = (first + last) >> 1
            entry = cython.cast(Entry, self.sorted[middle])
            if entry.low < low or (entry.low == low and entry.ident < ident):
                first = middle + 1
            else:
                last = middle
        return first

    def find(self, wanted):
        """The handle of the data that has exactly this memory, or None."""
        with self.lock:
            i: cython.Py_ssize_t = self.position(wanted.low, -1)
            while i < len(self.sorted):
                entry = cython.cast(Entry, self.sorted[i])
                if entry.low != wanted.low:
                    break
                if entry.is_same(wanted):
                    handle = entry.living()
                    if handle is not None:
                        return handle
                i += 1
        return None

    def overlapping(self, wanted):
        """The ids of data whose memory overlaps, in the order of their addresses."""
        found = []
        if wanted.low == wanted.high:
            return found
        with self.lock:
            i: cython.Py_ssize_t = self.position(wanted.low - self.longest, -1)
            while i < len(self.sorted):
                entry = cython.cast(Entry, self.sorted[i])
                if entry.low >= wanted.high:
                    break
                if entry.high > wanted.low and shares_memory(wanted, entry):
                    found.append(entry.ident)
                i += 1
        return found

    def add(self, entry, known):
        """Remember the memory of a data; False if memory overlaps that is not `known`: another thread was first."""
        with self.lock:
            if entry.low == entry.high:
                if self.find(entry) is not None:
                    return False
            elif self.sorted:
                for ident in self.overlapping(entry):
                    if ident not in known:
                        return False
            self.entries[entry.ident] = entry
            self.sorted.insert(self.position(entry.low, entry.ident), entry)
            self.longest = max(self.longest, entry.high - entry.low)
        return True

    def is_dropping(self, ident):
        """Whether the handle of a data is gone, so that it will be given up."""
        entry: Entry = self.entries.get(ident)
        return entry is not None and entry.handle is not None and entry.handle() is None

    def leave(self, ident, last):
        """A data is given up; whoever registers its memory comes after the events `last`."""
        with self.lock:
            if last.count and ident in self.entries:
                self.leaving[ident] = last
            else:
                self.remove(ident)

    def sweep(self, is_done):
        """Forget what was given up and is not in use any more, the oldest first."""
        with self.lock:
            for ident, last in list(itertools.islice(self.leaving.items(), SWEPT)):
                if not is_done(last):
                    break
                self.remove(ident)

    def remove(self, ident):
        """Forget a data."""
        self.leaving.pop(ident, None)
        found = self.entries.pop(ident, None)
        if found is not None:
            entry: Entry = found
            del self.sorted[self.position(entry.low, entry.ident)]


def shares_memory(one: Entry, other: Entry):
    """Whether two arrays have a byte in common; True where that is too hard to say."""
    first, second = [view_at(e.address, e.shape, e.strides, e.dtype, None, True) for e in (one, other)]
    try:
        return np.shares_memory(first, second, max_work=MAX_WORK)
    except np.exceptions.TooHardError:
        return True


# -- registering -----------------------------------------------------------------------------------------------------


def register(context, obj, name, data_place, write_back, readonly):
    """The data of an array: the one that it is already, or a new one."""
    owner: ContextCore = context
    engine: Engine = owner.engine
    registry: Registry = context.registry
    while True:
        memory = describe(obj, context.on_cuda)
        described_readonly = memory.readonly
        if data_place is not None:
            context.check_memory_is_at(obj, memory, data_place)
        if config.validate:
            memory = unprotected(registry, memory)
        if engine.epoch is not None and engine.dropped:
            engine.epoch.step_out()
        engine.enter()  # what the user dropped is released, before memory is compared
        engine.gate.leave()
        entry: Entry = Entry(0, memory, None)
        known = registry.find(entry)
        if known is not None:
            return check_same(known, readonly, write_back)
        before = last_uses(engine, registry, entry, name)
        if before is None or (config.validate and describe(obj, context.on_cuda).readonly != described_readonly):
            continue
        handle = new_data(context, engine, registry, entry, memory, name, before, write_back, readonly, data_place)
        if handle is not None:
            return handle


def unprotected(registry: Registry, memory):
    """What an array was before its registration made it read-only (STF_VALIDATE)."""
    if memory.readonly:
        writeable = memory._replace(readonly=False)
        known = registry.find(Entry(0, writeable, None))
        if known is not None and isinstance(known.core.owner, Protected):
            return writeable
    return memory


def last_uses(engine: Engine, registry: Registry, entry: Entry, name):
    """Who had the memory, and the events that its next user must wait for; ValueError if live data have it.

    None if another thread registered the very same memory since it was looked for.
    """
    if registry.leaving:
        registry.sweep(engine.all_done)
    events = {}
    for ident in registry.overlapping(entry):
        clash = engine.coherency.data.get(ident)
        if clash is not None and is_live(engine, clash):
            if registry.find(entry) is not None:
                return None
            if engine.epoch is not None and registry.is_dropping(ident):
                engine.epoch.step_out()  # it goes when what was gathered is launched
                if not clash.recorded:
                    return None
            raise ValueError(
                f"the memory of {name or 'this array'} ({entry.dtype}, shape {entry.shape}) overlaps that of "
                f"{clash.describe()}; register one array and split it with tiles(), or release the other first"
            )
        if clash is not None:
            engine.patiently(release.settle, [clash])  # its content may still turn out poisoned
        events[ident] = registry.leaving.get(ident)
    return events


def is_live(engine: Engine, data: Data):
    """Whether a data is in use still; another thread may be about to release it."""
    if data.released:
        return False
    engine.enter()
    try:
        return not data.released
    finally:
        engine.gate.leave()


def new_data(
    context, engine: Engine, registry: Registry, entry: Entry, memory, name, before, write_back, readonly, data_place
):
    """New data with its home in `memory`; None if another thread was first."""
    place: cython.int = 0
    if memory.address_of_device or data_place is not None:
        place = context.place_of_memory(memory, data_place)
    core: Data = engine.new_data(Layout(memory.shape, memory.strides, memory.dtype, memory.dtype.itemsize), name, False)
    handle = LogicalData(core)
    core.readonly = bool(readonly or memory.readonly)
    protection = None
    if config.validate and not memory.address_of_device and memory.owner.flags.writeable:
        protection = Protected(memory.owner)
    core.owner = memory.owner if protection is None else protection
    engine.set_home(core, place, memory.address or EMPTY, memory.owner)
    if memory.stream is not None:
        engine.enter()
        try:
            release.follow(engine, core, place, memory.stream)
        finally:
            engine.gate.leave()
    for last in before.values():
        if last is not None:
            engine.order_after(core, last)
    core.write_back = bool(write_back) and not core.readonly
    core.on_removed = registry.leave
    entry.ident = core.id
    entry.handle = weakref.ref(handle)
    if not registry.add(entry, before):
        core.write_back, core.on_removed = False, None
        return None
    if protection is not None:
        protection.begin()
    return handle


def check_same(known, readonly, write_back):
    """What the same memory is already, unless it is now asked for with other options."""
    if readonly > known.readonly or write_back < known.core.write_back:
        raise ValueError(
            f"this memory is {known.core.describe()} already; readonly and write_back cannot differ, say them "
            "when it is registered first (or set_write_back)"
        )
    return known


class Protected:
    """Keeps a registered array, read-only for its user, until it is dropped (STF_VALIDATE).

    Other arrays over the same memory stay as they are.
    """

    def __init__(self, array):
        self.array = array
        self.active = False

    def begin(self):
        """Make the array read-only: from now on its memory belongs to tasks."""
        self.active = True
        self.array.flags.writeable = False

    def __del__(self):
        if self.active:
            self.array.flags.writeable = True
