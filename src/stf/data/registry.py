"""Which memory is registered: the same memory again is the same data, overlapping memory is a mistake.

Compiled, since programs register arrays by the thousand.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol, overload
from weakref import ref

import cython
import numpy as np

from stf import config
from stf._engine import lifetime, recording_caches, retiring, thread_turns, tiles, user_arrays
from stf._support.arguments import name_of, truth
from stf._support.call_sites import site_text
from stf.data import sharing
from stf.data.composite import find_interface, interfaces
from stf.data.creation import check_memory_is_at, custom_data
from stf.data.filling import prefetch
from stf.interop.arrays import describe, describers
from stf.interop.known_arrays import describe_cupy, describe_numpy
from stf.interop.memory import view_at
from stf.places.places import CompositePlace, ReplicatedPlace
from stf.places.table import place_of_memory, place_of_producer
from stf.tasks.checks import must_be_open

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from stf.data.logical_data import LogicalData
    from stf.places.places import DataPlace
    from stf.tasks.task import ContextCore

    class _OnDevice(Protocol):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]: ...

    class _DLPack(Protocol):
        def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    _Array = np.ndarray[Any, Any] | np.generic | complex | Buffer | _OnDevice | _DLPack

FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep  # code there registers nothing of its own
MAX_WORK = 100_000  # of NumPy's search for a byte that two arrays share
SWEPT = 64  # at most so many are forgotten per registration
NOTHING: dict = {}
OF_CUPY: object = describe_cupy
OF_NUMPY: object = describe_numpy
KNOWN: dict = describers
protected: set = set()  # the addresses of the arrays that are read-only for now (STF_VALIDATE)
EMPTY = 64  # the address of an array without elements, for those that have none


@cython.cclass
class RegistryEntry(MemorySpan):
    """A span in the registry. It has no fields of its own, so that the freelist of spans keeps it."""

    def take(self, memory):
        """Say what memory it is, by what `interop` says of an array."""
        dtype = memory.dtype
        self.address = memory.address
        if self.address == 0:  # as those of empty arrays on devices are
            if 0 not in memory.shape:
                raise ValueError(
                    f"{type(memory.owner).__name__} of shape {tuple(memory.shape)} has no memory: its address is 0; "
                    "allocate it again"
                )
            self.address = -id(memory.owner)
        self.layout = layout_of(memory.shape, memory.strides, dtype, dtype.itemsize)
        self.readonly = memory.readonly
        self.find_bounds(self.layout)
        return 0

    def is_same(self, other):
        """Return whether two arrays are the same one."""
        mine, its = self.layout, other.layout
        return (
            self.address == other.address
            and self.readonly == other.readonly
            and mine.shape == its.shape
            and mine.strides == its.strides
            and (mine.dtype is its.dtype or mine.dtype == its.dtype)
        )

    def find_site(self):
        """The innermost line outside stf registers it."""
        if cython.compiled:
            self.code = stf_call_site_outside(FOLDER, cython.address(self.lasti))
        else:
            frame = sys._getframe(0)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER):
                frame = frame.f_back
            self.code, self.lasti = frame.f_code, frame.f_lasti
        return 0

    def describe(self):
        """Return which data it is, and the line that registered it."""
        return f"{self.living().core.describe()}, registered at {site_text(self.code, self.lasti)}"

    def living(self):
        """Return the handle of the data, or None; one that was released has this memory no more."""
        handle: DataHandle = None if self.handle is None else self.handle()
        return None if handle is None or handle.core.released else handle


class Registry(AddressBook):
    """The registered memory of one context.

    Its lock is taken inside the engine's gate, where data are given up; so nothing here enters the engine. It may be
    taken again by its thread: a garbage collection inside may run a finalizer that registers.
    """

    def __init__(self):
        self.shared = {}  # data id: who else has its memory, (context, data id); see `sharing`
        self.sorted = []  # entries, by (low, ident)
        self.longest = 0
        self.gate = NestingGate()
        self.added = 0  # how often
        self.leaving = {}  # data id: (entry, the last events on its memory), for what is given up

    def position(self, low, ident):
        """Return where an entry is, or would be."""
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t = len(self.sorted)
        while first < last:
            middle: cython.Py_ssize_t = (first + last) >> 1
            entry = cython.cast(RegistryEntry, self.sorted[middle])
            if entry.low < low or (entry.low == low and entry.ident < ident):
                first = middle + 1
            else:
                last = middle
        return first

    def find(self, wanted):
        """Return the handle of the data that has exactly this memory, or None."""
        self.gate.enter()
        try:
            i: cython.Py_ssize_t = self.position(wanted.low, -1)
            while i < len(self.sorted):
                entry = cython.cast(RegistryEntry, self.sorted[i])
                if entry.low != wanted.low:
                    break
                if entry.is_same(wanted):
                    handle = entry.living()
                    if handle is not None:
                        return handle
                i += 1
        finally:
            self.gate.leave()
        return None

    def is_free(self, wanted):
        """Return whether no memory that is known may overlap, nor is the very same."""
        self.gate.enter()
        try:
            free: cython.bint = len(self.leaving) == 0
            if free and len(self.sorted) > 0:
                i: cython.Py_ssize_t = self.position(wanted.low - self.longest, -1)
                while free and i < len(self.sorted):
                    entry = cython.cast(RegistryEntry, self.sorted[i])
                    if entry.low > wanted.high:
                        break
                    free = entry.high <= wanted.low and entry.low != wanted.low
                    i += 1
        finally:
            self.gate.leave()
        return free

    def overlapping(self, wanted):
        """Return the ids of data whose memory overlaps, in the order of their addresses."""
        found = []
        if wanted.low == wanted.high:
            return found
        self.gate.enter()
        try:
            i: cython.Py_ssize_t = self.position(wanted.low - self.longest, -1)
            while i < len(self.sorted):
                entry = cython.cast(RegistryEntry, self.sorted[i])
                if entry.low >= wanted.high:
                    break
                if entry.high > wanted.low and shares_memory(wanted, entry):
                    found.append(entry.ident)
                i += 1
        finally:
            self.gate.leave()
        return found

    def holder_of(self, obj, on_cuda):
        """Return the memory of living data that an array lies in, at least in part; None if there is none."""
        wanted = entry_of(describe(obj, on_cuda))
        self.gate.enter()
        try:
            idents = self.overlapping(wanted)
            found = [entry for entry in self.sorted if entry.ident in idents] if idents else ()
        finally:
            self.gate.leave()
        for one in found:
            entry: RegistryEntry = one
            if entry.living() is not None:
                return entry
        return None

    def add(self, entry, known, seen):
        """Remember the memory of a data; False if memory overlaps that is not `known`: another thread was first.

        That was looked for when `seen` had been added.
        """
        self.gate.enter()
        try:
            if self.added != seen:
                if entry.low == entry.high:
                    if self.find(entry) is not None:
                        return False
                else:
                    for ident in self.overlapping(entry):
                        if ident not in known:
                            return False
            entry.book = self
            self.sorted.insert(self.position(entry.low, entry.ident), entry)
            self.longest = max(self.longest, entry.high - entry.low)
            self.added += 1
        finally:
            self.gate.leave()
        return True

    def give_up(self, span, last):
        """A data is given up; whoever registers its memory comes after the events `last`."""
        self.gate.enter()
        try:
            if last.count:
                self.leaving[span.ident] = (span, last)
            else:
                self.remove(span)
        finally:
            self.gate.leave()
        return 0

    def is_shared(self, data):
        """Return whether a data may only be read since another context has its memory."""
        return data.id in self.shared

    def must_be_alone(self, data):
        """Let a data be writeable again, if no other context has its memory any more; else raise AccessError."""
        sharing.must_be_alone(self, data)

    def last_use(self, ident):
        """Return the last events on memory that is given up; None if it is not."""
        found = self.leaving.get(ident)
        return None if found is None else found[1]

    def sweep(self, is_done):
        """Forget what was given up and is not in use any more, the oldest first."""
        self.gate.enter()
        try:
            for ident, (entry, last) in list(itertools.islice(self.leaving.items(), SWEPT)):
                if not is_done(last):
                    break
                if self.leaving.pop(ident, None) is not None:
                    self.remove(entry)
        finally:
            self.gate.leave()

    def remove(self, span):
        """Forget the memory of a data."""
        del self.sorted[self.position(span.low, span.ident)]
        return 0


def is_dropping(data: Data):
    """Return whether the handle of a data is gone, so that it will be given up."""
    entry: RegistryEntry = data.span
    return entry is not None and entry.handle is not None and entry.handle() is None


def array_over(entry: RegistryEntry):
    """Return a NumPy array over memory, for its address alone."""
    layout = entry.layout
    return view_at(entry.address, layout.shape, layout.strides, layout.dtype, None, True)


def shares_memory(one: RegistryEntry, other: RegistryEntry):
    """Return whether two arrays have a byte in common; True where that is too hard to say."""
    try:
        return np.shares_memory(array_over(one), array_over(other), max_work=MAX_WORK)
    except np.exceptions.TooHardError:
        return True


# -- registering -----------------------------------------------------------------------------------------------------


@overload
def logical_data(
    context: ContextCore,
    obj: _Array,
    data_place: DataPlace | None = None,
    *,
    name: str | None = None,
    symbol: str | None = None,
    write_back: bool = True,
    readonly: bool = False,
) -> LogicalData: ...
@overload
def logical_data(
    context: ContextCore,
    obj: Any,
    data_place: DataPlace | None = None,
    *,
    name: str | None = None,
    symbol: str | None = None,
    write_back: bool = True,
    readonly: bool = False,
) -> Any: ...
@cython.binding(True)
def logical_data(
    context,
    obj,
    data_place=None,
    *,
    name=None,
    symbol=None,
    write_back=True,
    readonly=False,
):
    """Register an array; from now on it belongs to the tasks, until the end of the context.

    Parameters
    ----------
    obj : array
        An array of NumPy, CuPy, torch, Numba or JAX, a ``cuda.core`` Buffer or StridedMemoryView, anything with
        ``__cuda_array_interface__``, DLPack or the buffer protocol, a scalar, or a registered type. Any strides,
        any number of axes, any dtype without Python objects. It is kept alive, and never copied. Tasks wait for
        what its library's current stream is given so far; an object that tells no stream must be ready.
    data_place : DataPlace, optional
        Where it is; found out by itself, but for ``data_place.managed()``. ``data_place.composite(grid, part)`` gives
        partitioned data (`PartitionedData`), ``data_place.replicated(grid)`` copies the array to each place.
    name : str, optional
        For messages and pictures.
    write_back : bool
        Refresh the array when the data is released or the context finalized.
    readonly : bool
        Refuse accesses that write.

    Returns
    -------
    LogicalData
        The same object for the same memory, while it lives.

    Raises
    ------
    TypeError
        `obj` is no array.
    ValueError
        Its memory overlaps that of another live data.
    OverflowError
        By its shape it has more bytes than any memory.
    AccessError
        Another live context writes its memory.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> X = np.arange(4.0)
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data(X, name="x")
    ...     print(x.shape, x.dtype, x.nbytes)
    ...     ctx.fill(x, 5.0)
    (4,) float64 32
    >>> X  # written back at the end
    array([5., 5., 5., 5.])
    """
    if context.engine.closed is not None:
        must_be_open(context)
    label = None if name is None and symbol is None else name_of(name, symbol)
    if type(write_back) is not bool or type(readonly) is not bool:
        write_back, readonly = truth("write_back", write_back), truth("readonly", readonly)
    custom = find_interface(obj) if interfaces else None
    if custom is not None:
        return custom_data(context, obj, custom, label, write_back, readonly, logical_data)
    if isinstance(obj, DataHandle):
        raise TypeError(f"{obj!r} is logical data already")
    if data_place is not None and isinstance(data_place, (CompositePlace, ReplicatedPlace)):
        return over_places(context, obj, data_place, label, write_back, readonly)
    result = register(context, obj, data_place, label, write_back, readonly)
    if result.core.linked is None:
        return result
    from stf.data import partitioned

    return partitioned.known_form(result)


def over_places(context, obj, data_place, name, write_back, readonly):
    """Return the data of an array over several memories."""
    handle = register(context, obj, None, name, write_back, readonly)
    if isinstance(data_place, ReplicatedPlace):
        prefetch(context, handle, data_place)
        return handle
    from stf.data import partitioned

    return partitioned.partitioned_form(context, handle, data_place)


def register(context: ContextCore, obj, data_place, label, write_back, readonly):
    """Return the data of an array: the one that it is already, or a new one."""
    this: Registration = Registration.__new__(Registration)
    this.context, this.engine, this.registry = context, context.engine, cython.cast(Registry, context.registry)
    this.obj, this.data_place, this.label = obj, data_place, label
    this.write_back, this.readonly = write_back, readonly
    while True:
        this.look()
        handle = this.make_way()
        if handle is not None:
            return check_same(handle, readonly, write_back)
        if this.before is None:
            continue
        handle = this.add()
        if handle is not None:
            if len(lifetime.live) > 1:
                must_be_apart(context, this.entry, handle)
            return handle


@cython.final
@cython.freelist(4)
@cython.cclass
class Registration:
    """An array on its way to be data: where it lies, who had its memory, and the data that it becomes.

    No lock is held from one step to the next, since each may wait for tasks. So another thread may have registered the
    same memory meanwhile, or dropped what has it, or made the array read-only (STF_VALIDATE). The next step sees that,
    by what was `seen` before, and all is done again: `before` is None then, or `add` returns None.
    """

    def look(self):
        """Find out where the array lies."""
        engine, obj, context = self.engine, self.obj, self.context
        describer = KNOWN.get(type(obj))
        if describer is OF_CUPY:
            self.memory = cupy_memory(obj, context.on_cuda)
        elif describer is OF_NUMPY:
            self.memory = numpy_memory(obj)
        else:
            self.memory = describe(obj, context.on_cuda)
        self.was_readonly = self.memory.readonly
        if self.data_place is not None:
            check_memory_is_at(context, obj, self.memory, self.data_place)
        if engine.validate and config.validate:
            self.memory = unprotected(obj, engine, self.registry, self.memory)
        if engine.gathering is not None and engine.dropped:
            engine.gathering.step_out()
        engine.enter()  # what the user dropped is released, before memory is compared
        engine.gate.leave()
        self.entry = entry_of(self.memory)
        if self.memory.library is not None:
            self.entry.layout.library = self.memory.library
        return 0

    def make_way(self):
        """Return the data that the array is already; else find who had its memory, `before`, and return None."""
        engine, entry = self.engine, self.entry
        self.seen, self.before = self.registry.added, NOTHING
        if not self.registry.is_free(entry):
            known = known_data(engine, self.registry, entry, self.memory.stream)
            if known is not None:
                return known
            self.before = last_uses(engine, self.registry, entry, self.label)
        if not (self.readonly or self.memory.readonly) and not nests(entry.layout) and overlaps_itself(entry.layout):
            raise ValueError(
                f"{self.label or 'this array'} ({entry.layout.dtype}, shape {entry.layout.shape}) overlaps itself: "
                "some of its elements lie at the same address; register a copy, or only to read (readonly=True)"
            )
        watched = engine.validate and config.validate
        if watched and describe(self.obj, self.context.on_cuda).readonly != self.was_readonly:
            self.before = None
        return None

    def add(self):
        """Return new data with its home in the memory; None if another thread was first."""
        engine, memory, entry = self.engine, self.memory, self.entry
        place: cython.int = 0
        if self.data_place is not None or memory.is_on_device:
            place = place_of(self.context, engine, memory, self.data_place)
        engine.enter()
        try:
            core: Data = engine.add_data(entry.layout, self.label, False)
            try:
                handle = new_handle(core)
            except BaseException:
                engine.forget_new(core)
                raise
            core.write_back = False  # until all is well
            if memory.stream is not None:
                made_at: cython.int = place
                if memory.is_on_device and engine.place(place).ordinal < 0:  # host or managed memory
                    made_at = place_of_producer(self.context, place, memory)
                user_arrays.wait_on_producer(engine, core, made_at, memory.stream)
        finally:
            engine.gate.leave()
        core.readonly = self.readonly or memory.readonly
        core.owner = memory.owner
        engine.set_home(core, place, memory.address or EMPTY, memory.owner)
        if self.before is not NOTHING:
            for last in self.before.values():
                if last is not None:
                    core.version.writers.update(last)  # somebody else had the memory before
        entry.ident = core.id
        entry.handle = reference_to(handle)
        entry.find_site()
        if not self.registry.add(entry, self.before, self.seen):
            return None
        core.write_back = self.write_back and not core.readonly
        core.span = entry
        if engine.validate:
            protect(engine, core)
        return handle


def must_be_apart(context, entry, handle):
    """Raise AccessError if another context writes the memory that was registered, which is given up then."""
    try:
        sharing.look_elsewhere(context, entry, handle.core)
    except BaseException:
        handle.core.write_back = False
        handle.release()
        raise


def nests(layout):
    """Return whether each axis steps over the ones after it, so that all elements lie apart; in C order they do."""
    i: cython.Py_ssize_t
    reach: cython.longlong = layout.itemsize
    for i in range(len(layout.shape) - 1, -1, -1):
        extent: cython.longlong = layout.shape[i]
        step: cython.longlong = layout.strides[i]
        step = -step if step < 0 else step
        if extent > 1 and step < reach:
            return False
        if extent > 1:
            reach += step * (extent - 1)
    return True


def overlaps_itself(layout):
    """Return whether elements of an array share bytes: two that differ along an axis, whatever else they differ in."""
    if layout.nbytes == 0:
        return False
    reach = layout.itemsize
    for step, extent in sorted((abs(step), n) for n, step in zip(layout.shape, layout.strides, strict=True) if n > 1):
        if step < reach:
            break
        reach += step * (extent - 1)
    else:
        return False
    whole = np.lib.stride_tricks.as_strided(np.empty(1, f"V{layout.itemsize}"), layout.shape, layout.strides)
    for axis, extent in enumerate(layout.shape):
        first, others = [whole[(slice(None),) * axis + (part,)] for part in (slice(0, 1), slice(1, None))]
        with contextlib.suppress(np.exceptions.TooHardError):
            if extent > 1 and np.shares_memory(first, others, max_work=1_000_000):  # addresses alone
                return True
    return False


def entry_of(memory):
    """Return what is compared of the memory of an array."""
    entry: RegistryEntry = RegistryEntry.__new__(RegistryEntry)
    entry.take(memory)
    return entry


def known_data(engine: Engine, registry: Registry, wanted: RegistryEntry, producer):
    """Return the handle of the data that has exactly this memory, or None.

    Data that only a recording holds get one again.
    """
    handle = registry.find(wanted)
    if handle is not None:
        return handle
    engine.enter()
    try:
        for ident in registry.overlapping(wanted):
            data: Data = engine.coherency.data.get(ident)
            if data is not None and not data.released and is_dropping(data):
                entry: RegistryEntry = data.span
                if entry.is_same(wanted):
                    handle = new_handle(data)
                    entry.handle = reference_to(handle)
                    user_arrays.adopt(engine, data, producer)
                    protect(engine, data)
                    return handle
    finally:
        engine.gate.leave()
    return None


def reference_to(handle):
    """Return a weak reference."""
    return PyWeakref_NewRef(handle, None) if cython.compiled else ref(handle)


def unprotected(obj, engine: Engine, registry: Registry, memory):
    """Return what an array was before its registration, or that of the array it is a view of, made it read-only."""
    if memory.readonly:
        while isinstance(obj, np.ndarray):
            if id(obj) in protected:
                return memory.replaced(readonly=False)
            obj = obj.base
        writeable = memory.replaced(readonly=False)
        known = known_data(engine, registry, entry_of(writeable), writeable.stream)
        if known is not None and isinstance(known.core.protection, Protected):
            return writeable
    return memory


def last_uses(engine: Engine, registry: Registry, entry: RegistryEntry, name):
    """Return who had the memory, and the events that its next user must wait for; ValueError if live data have it.

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
            if engine.window is not None and engine.window.is_waiting():
                engine.submit_held()  # a task that is held may be all that has it
                return None
            if engine.gathering is not None and is_dropping(clash):
                engine.gathering.step_out()  # it goes when what was gathered is launched
                if not (clash.recorded or clash.tiles):
                    return None
            if not engine.scope.records and is_dropping(clash) and clash in engine.dropped:
                return None  # another thread has dropped it just now
            if is_dropping(clash) and let_go(engine, clash):
                return None
            by_whom, remedy = "", "release the other first"
            if clash.is_dropped and clash.tiles:
                names, remedy = tiles.refusal(engine, clash)
                by_whom = f", which is split into {clash.tiles} tiles {names}"
            elif clash.is_dropped:
                by_whom, remedy = ", which a recorded graph uses", "close() that first"
            raise ValueError(
                f"the memory of {name or 'this array'} ({entry.layout.dtype}, shape {entry.layout.shape}) overlaps "
                f"that of {clash.describe()}{by_whom}; register one array and split it with tiles(), or {remedy}"
            )
        if clash is not None:
            sharing.settle(engine, clash)
        engine.gate.enter()  # another thread may be about to give it up: it has left the engine, and is not here yet
        try:
            events[ident] = registry.last_use(ident)
        finally:
            engine.gate.leave()
    return events


def let_go(engine: Engine, data: Data):
    """Let what keeps a dropped data, or tiles of it, go: bodies that run, replayed functions; whether there was any.

    What other threads record is in the way of what was dropped.
    """
    scope = engine.scope
    if scope.thread == threading.get_ident():
        return False
    waiting = retiring.deferred_within(engine, data)
    for tile in waiting:
        sharing.settle(engine, tile)
    if waiting or recording_caches.give_up_dropped(engine, data):
        return True
    is_going: cython.bint = data in engine.dropped or (data.is_dropped and data.recorded == 0 and data.tiles == 0)
    return is_going and (not scope.records or thread_turns.await_scope(engine, scope))


def is_live(engine: Engine, data: Data):
    """Return whether a data is in use still; another thread may be about to release it."""
    if data.released:
        return False
    engine.enter()
    try:
        return not data.released
    finally:
        engine.gate.leave()


def handle_of(engine: Engine, data: Data):
    """Return what the user holds of a data, which may have dropped it; only a recording holds it then."""
    engine.gate.enter()
    try:
        entry: RegistryEntry = data.span
        known = entry.living() if entry is not None else data.given() if data.given is not None else None
        if known is not None:
            return known
        handle = new_handle(data)
        data.given = reference_to(handle)
        if entry is not None:
            entry.handle = data.given
            protect(engine, data)
        user_arrays.undrop(engine, data)
        return handle
    finally:
        engine.gate.leave()


def place_of(context, engine: Engine, memory, data_place):
    """Return the engine's number of the place of an array on a device, or of one that the user says where it is."""
    i: cython.Py_ssize_t
    if data_place is None and memory.ordinal >= 0:
        for i in range(1, len(engine.places)):
            if engine.place(i).ordinal == memory.ordinal:
                return i
    return place_of_memory(context, memory, data_place)


def check_same(known, readonly, write_back):
    """Return what the same memory is already, unless it is now asked for with other options."""
    if readonly > known.readonly or write_back < known.core.write_back:
        raise ValueError(
            f"this memory is {known.core.describe()} already; readonly and write_back cannot differ, say them "
            "when it is registered first (or set_write_back)"
        )
    return known


def protect(engine: Engine, data: Data):
    """Make a registered array read-only: from now on its memory belongs to tasks (STF_VALIDATE)."""
    is_asked = engine.validate and config.validate and isinstance(data.owner, np.ndarray)
    if is_asked and data.owner.flags.writeable and may_be_writeable_again(data.owner):
        data.protection = Protected(data.owner)


class Protected:
    """Keeps an array read-only for its user as long as this lives, and views of it that are taken meanwhile for good.

    Other arrays over the same memory stay as they are.
    """

    def __init__(self, array):
        self.array = array
        protected.add(id(array))
        array.flags.writeable = False

    def __del__(self):
        protected.discard(id(self.array))
        self.array.flags.writeable = True


def may_be_writeable_again(array):
    """Return whether NumPy lets a writeable array be read-only for a while: it looks at who owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    if array.base is None:
        return True
    try:
        view = memoryview(array.base)
    except TypeError:  # a tensor, a capsule of DLPack's
        return False
    return not view.readonly and view.c_contiguous
