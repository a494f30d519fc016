"""Checks of single bodies, on when STF_VALIDATE=1.

What is only read must not change, nor registered arrays that were not declared; what is written must be whole, and
nothing is launched on a default stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stf import config
from stf._engine import claims, retiring, tiles
from stf._port.events import EventSet
from stf.errors import AccessError, Error
from stf.interop import adapters
from stf.interop.dlpack import DEFAULT_STREAMS
from stf.tasks import capsules, comparing

log = logging.getLogger("stf")
PATTERN = 0xA5
PATIENCE_S = 1.0  # how long a release waits: what it waits for may be waiting for who releases
FEW = 8  # bytes: 0xA5 is a value like another one
COUNTED_THERE = 1 << 16  # bytes, from which on a device looks itself, if CuPy is there
LOOKED_AT = 4 << 20  # bytes of registered arrays that were not declared, for each task


class Launches:
    """Sees launches on CUDA's default streams, which nothing orders with the task's data.

    Parameters
    ----------
    task : Task
        An open task whose body runs in this thread. On the host it may use CUDA as it likes, also inside of a task on a
        device.
    """

    def __init__(self, task: Any) -> None:
        self.is_free = not task.engine.places[task.where].enqueues
        from stf.interop import cupti

        self.watch = cupti.Watch()
        if task.state_name() == "open" and not task.runs_later:
            self.begin()

    def begin(self) -> None:
        """Look from now on."""
        self.watch.begin()

    def undo(self) -> None:
        """The body raised: that is told, and not where it launched."""
        self.watch.end()

    def start(self) -> None:
        """The task is started by hand: what the thread does until it is ended may be no part of it."""
        self.watch.end()

    def __call__(self, task: Any) -> None:
        """Look no longer; name the line of the first such launch."""
        self.watch.end()
        lines = self.watch.lines
        if not lines or self.is_free or task.stream_ptr() in DEFAULT_STREAMS:
            return
        raise AccessError(
            f"task {task.label()} launched on CUDA's default stream ({lines[0]}), which nothing orders with the task's "
            "data; launch on the task's stream: t.cupy(), t.torch(), t.numba() and function tasks make it the current "
            "one, and t.stream_ptr() is for what takes a stream"
        )


class BodyWatch:
    """Checksums what a task only reads, prefills what it only writes, and looks again afterwards.

    Parameters
    ----------
    task : Task
        An open task. For a body that runs in place, the watch begins at once.
    """

    def __init__(self, task: Any) -> None:
        self.label = task.label()
        self.launches = launches_of(task)
        self.read: list[tuple[str, str, Any]] = []
        self.written: list[tuple[str, Any]] = []
        self.has_begun = False
        self.saved: list[Any] = []  # what host memory held that is to be overwritten
        for access, mode, replica in used_by(task):
            array = None if access.mode == 4 else array_of(task, replica, mode != 1)
            if array is None:
                continue
            if mode == 1:
                self.read.append((access.data_name, access.data.last_writer(), array))
            elif mode == 2 and task.kind != "part" and type(array) is not Later:  # of a grid, others write the rest
                self.written.append((access.data_name, array))
        self.sums: list[int] = []
        self.others = Others(task)
        if task.state_name() == "open" and not task.runs_later:
            self.begin()

    def begin(self) -> None:
        """Take the checksums and fill what is to be overwritten; once."""
        if self.has_begun:
            return
        self.has_begun = True
        self.saved = [None if isinstance(array, OnDevice) else array.copy() for _, array in self.written]
        self.sums = [checksum(array) for _, _, array in self.read]
        for _, array in self.written:
            prefill(array)
        self.others.begin()
        if self.launches is not None:
            self.launches.begin()

    def start(self) -> None:
        """The task is started by hand: what it does is not told from what comes before its end."""
        self.others.before.clear()
        if self.launches is not None:
            self.launches.start()
            self.launches = None

    def undo(self) -> None:
        """The body raised: what it left untouched is what it was before, as it would be without all this."""
        if self.launches is not None:
            self.launches.undo()
        for (_, array), saved in zip(self.written, self.saved, strict=False):  # none, if it has not begun
            if saved is not None and array.nbytes:
                restore(array, saved)

    def __call__(self, task: Any) -> None:
        """Compare; name the data, the task, and who wrote the data before."""
        if self.launches is not None:
            self.launches(task)
        self.others()
        for (name, writer, array), before in zip(self.read, self.sums, strict=True):
            if checksum(array) != before:
                raise AccessError(
                    f"task {self.label} changed logical data '{name}' (written by {writer}), which it opened only for "
                    "reading; open it with rw(), or work on a copy"
                )
        for name, array in self.written:
            untouched = count_untouched(array)
            if untouched:
                raise AccessError(
                    f"task {self.label} opened logical data '{name}' with write() and left {untouched} of "
                    f"{array.nbytes} "
                    "bytes untouched; write all of it, or open it with rw() (ReadWrite) if it adds to what was there"
                )


class Others:
    """The registered arrays of the host that a task did not declare: what a body changes of them nobody orders.

    Only those are looked at that no other task can be changing meanwhile, up to a number of bytes, in turn.

    Parameters
    ----------
    task : Task
        An open task.
    """

    turn = 0  # at which data the next task begins to look

    def __init__(self, task: Any) -> None:
        self.engine, self.label = task.engine, task.label()
        self.declared = {tiles.whole(access.data.core).id for access in task.accesses}
        self.before: list[tuple[Any, Any, tuple[Any, ...], int]] = []
        self.next_data = self.engine.next_data

    def begin(self) -> None:
        """Take the checksums."""
        with self.engine.gate:
            known = list(self.engine.coherency.data.values())
        start = Others.turn % len(known) if known else 0
        left = LOOKED_AT
        for data in known[start:] + known[:start]:
            if left <= 0:
                break
            Others.turn += 1
            if not self.is_other(data) or data.layout.nbytes > left:
                continue
            state, array = self.state_of(data), None
            if state is not None:
                left -= data.layout.nbytes
                array = adapters.view(data.home, False, "numpy")
                self.before.append((data, array, state, checksum(array)))

    def is_other(self, data: Any) -> bool:
        """Return whether it is a whole array in memory of the host, of which the task uses no part."""
        home = data.home
        if home is None or home.place != 0 or data.token or data.tiles or data.layout.interface is not None:
            return False
        return tiles.whole(data).id not in self.declared and data.layout.nbytes > 0

    def state_of(self, data: Any) -> tuple[Any, ...] | None:
        """Return what is another after anything that may change the array; None if something may be changing it now."""
        engine = self.engine
        with engine.gate:
            version, home = data.version, data.home
            if data.released or home is None or version.claims < 0 or version.accumulators or version.frozen:
                return None
            if version.partials is not None or not (engine.all_done(version.writers) and engine.all_done(home.ready)):
                return None
            return id(version), home.state, home.address, version.writers.tolist(), home.ready.tolist()

    def __call__(self) -> None:
        """Compare; name the data and the task. New data may be tiles, which others write to."""
        if self.engine.next_data != self.next_data:
            return
        for data, array, state, before in self.before:
            if checksum(array) != before and self.state_of(data) == state:
                raise AccessError(
                    f"task {self.label} changed the array of {data.describe()}, which it did not declare; pass the "
                    "data to the task with rw(), and use the parameter that stands for them"
                )


class Later:
    """The memory of a replica that awaits what a body on the host returns (`_engine.adoption`), or what one returned.

    It has an address, a shape and a type only when that body has run. So it is looked at when somebody asks.
    """

    def __init__(self, replica: Any) -> None:
        self.replica = replica

    def content(self) -> Any:
        """Return the array that was adopted, or else the memory that somebody else needed before."""
        if not self.replica.address:  # nothing was returned: that is told, and not what is there
            return np.empty(0, np.uint8)
        return adapters.view(self.replica, False, "numpy")


class OnDevice:
    """The memory of a replica that a device uses as it is; each look waits for the task's stream."""

    def __init__(self, task: Any, replica: Any) -> None:
        layout = replica.layout
        self.port, self.slot = task.engine.port, task.slot
        reach = [(n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True)] if layout.nbytes else []
        self.first = -sum(step for step in reach if step < 0)
        self.address, self.layout = replica.address - self.first, layout
        self.extent = sum(map(abs, reach)) + layout.itemsize if layout.nbytes else 0
        self.is_whole = self.extent == layout.nbytes
        self.nbytes = layout.nbytes
        self.is_on_host = replica.place == 0
        self.ordinal = task.engine.places[task.where].ordinal

    def move(self, target: int, source: int) -> None:
        """Copy all of it, one of the two being elsewhere in host memory."""
        if self.is_on_host:
            self.port.drain(self.slot)
            ctypes.memmove(target, source, self.extent)
        else:
            self.port.copy_and_wait(self.slot, target, source, self.extent)

    def content(self) -> Any:
        """Return a copy on the host, with the same strides."""
        raw = np.empty(self.extent, np.uint8)
        if self.extent:
            self.move(raw.ctypes.data, self.address)
        return self.over(raw)

    def is_finite(self) -> bool:
        """Return whether the device finds all values finite; False if it does not, or cannot tell."""
        cupy = sys.modules.get("cupy")
        if cupy is None or self.is_on_host or self.extent < COUNTED_THERE or self.layout.dtype.kind not in "fc":
            return False
        self.port.drain(self.slot)
        try:
            with cupy.cuda.Device(self.ordinal), cupy.cuda.Stream(non_blocking=True) as stream:
                memory = cupy.cuda.UnownedMemory(self.address, self.extent, self, self.ordinal)
                pointer = cupy.cuda.MemoryPointer(memory, self.first)
                array = cupy.ndarray(self.layout.shape, self.layout.dtype, pointer, self.layout.strides)
                found = cupy.isfinite(array).all()
                stream.synchronize()
                return bool(found)
        except Exception as error:  # there may be no memory for it; a copy to the host does
            log.debug("%s is not looked at on the device: %s", self.layout.shape, error)
            return False

    def over(self, raw: Any) -> Any:
        layout = self.layout
        return np.ndarray(layout.shape, layout.dtype, raw, self.first, layout.strides)

    def prefill(self) -> None:
        """Fill with the pattern; an array with gaps is left as it is, since others may write into those."""
        if self.is_whole and self.extent:
            raw = np.empty(self.extent, np.uint8)
            prefill(self.over(raw))
            self.move(self.address, raw.ctypes.data)


def launches_of(task: Any) -> Launches | None:
    """Return what sees a task's launches, if anything does."""
    from stf.interop import cupti

    return Launches(task) if task.engine.places[task.where].enqueues or cupti.is_watched() else None


def await_home(engine: Any, data: Any) -> None:
    """Before a release, which makes the array writeable: wait until it holds what tasks wrote."""
    if data.home is None or not data.write_back or claims.inside(engine, threading.get_ident()) is not None:
        return
    with contextlib.suppress(Error):  # the release says what is wrong
        if engine.wait_events(engine.patiently(writers_of, data), PATIENCE_S) and not data.version.may_fail():
            engine.wait_events(engine.patiently(retiring.refresh, data), PATIENCE_S)


def writers_of(_engine: Any, data: Any) -> EventSet:
    """Return what wrote the data last."""
    events = EventSet()
    events.update(data.version.writers)
    return events


def used_by(task: Any) -> Iterator[tuple[Any, int, Any]]:
    """Return each access of a task to an array, how the task uses its data, and the replica."""
    for i, access in enumerate(task.accesses):
        replica = task.replica_of(i)
        if replica is not None and replica.layout.interface is None:
            yield access, task.joined_mode(i), replica


def array_of(task: Any, replica: Any, writeable: bool) -> Any:
    """Return what a task sees of a replica: an array, `OnDevice`, `Later`, or None for another device's memory."""
    engine = task.engine
    if engine.places[task.where].enqueues:  # its work comes later, also on memory of the host
        return OnDevice(task, replica) if replica.place in (0, engine.places[task.where].memory) else None
    if replica.awaits_result and not replica.address:
        return Later(replica)
    return None if engine.places[replica.place].enqueues else adapters.view(replica, writeable, "numpy")


def content_of(array: Any) -> Any:
    return array.content() if isinstance(array, (OnDevice, Later)) else array


def checksum(watched: Any) -> int:
    array = content_of(watched)
    if not array.nbytes:
        return 0
    whole = np.zeros(array.shape, array.dtype)  # a copy of records leaves the bytes between fields as they are
    whole[...] = array
    return zlib.crc32(whole.reshape(-1).view(np.uint8).data)


def pattern_of(dtype: Any) -> bytes:
    """One element's worth of filler: a NaN with a payload of its own for floats, else 0xA5."""
    kind = np.dtype(dtype)
    if kind.kind == "f" and kind.itemsize == 8:
        return np.uint64(0x7FF8A5A5A5A5A5A5).tobytes()
    if kind.kind == "f" and kind.itemsize == 4:
        return np.uint32(0x7FC0A5A5).tobytes()
    if kind.kind == "c":
        half = pattern_of(np.dtype(f"f{kind.itemsize // 2}"))
        return half + half
    return bytes([PATTERN]) * kind.itemsize


def prefill(array: Any) -> None:
    """Fill with the pattern: NaN where there is one, else the byte 0xA5."""
    if not array.nbytes:
        return
    if isinstance(array, OnDevice):
        array.prefill()
        return
    raw = np.frombuffer(pattern_of(array.dtype) * array.size, array.dtype)
    array[...] = raw.reshape(array.shape)


def restore(array: Any, saved: Any) -> None:
    """Put back what elements held that still hold the pattern."""
    untouched = still_filled(array).reshape(array.shape)
    array[untouched] = saved[untouched]


def still_filled(array: Any) -> Any:
    """Return which elements hold the pattern, in the order of the indices."""
    pattern = np.frombuffer(pattern_of(array.dtype), np.uint8)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
    return (raw == pattern).all(axis=1)


def count_untouched(watched: Any) -> int:
    """Bytes of elements that still hold the pattern; small elements count only where all of them do.

    A few bytes may be the pattern by chance.
    """
    if isinstance(watched, OnDevice) and not watched.is_whole:
        return 0
    array = content_of(watched)
    if not array.nbytes:
        return 0
    untouched = int(still_filled(array).sum())
    whole = untouched == array.size and array.nbytes >= FEW
    return untouched * array.itemsize if whole or array.itemsize >= 4 else 0


def watch(task: Any, is_recorded: bool) -> Any:
    """Return what looks at a body: at its arrays too, unless it is recorded, and runs later; None if nothing does."""
    checks: list[Any] = []
    if task.engine.validate:
        checks.append(launches_of(task) if is_recorded else BodyWatch(task))
    if task.engine.wants_finite and not is_recorded:
        checks.append(finite_for(task))
    if comparing.current and not is_recorded:
        arrays = [(name, mode, functools.partial(content_of, array)) for name, mode, array in arrays_in(task)]
        checks.append(begun(comparing.current[-1].check_for(task, arrays), task))
    if config.capsule is not None and not is_recorded:
        checks.append(capsules.kept_for(task, array_of, content_of))
    known = [check for check in checks if check is not None]
    return Checks(known) if len(known) > 1 else known[0] if known else None


def arrays_in(task: Any, suits: Callable[[Any], bool] | None = None) -> list[tuple[str, int, Any]]:
    """Return the name of each data of a task, how it is used, and the array; of data whose dtype `suits` alone."""
    found = [
        (access.data_name, mode, array_of(task, replica, mode != 1))
        for access, mode, replica in used_by(task)
        if suits is None or suits(replica.layout.dtype)
    ]
    return [each for each in found if each[2] is not None]


class Finite:
    """Looks for values that are not finite in what a task reads, and then in what it writes (STF_NAN).

    A NaN spreads. Whoever sees one at the end of a program wants the task that made the first, and not those that
    passed it on. Inputs that have such values already are no fault of the task: masks are made of NaN, and maxima begin
    at minus infinity.

    Parameters
    ----------
    label : str
        Of the task.
    arrays : list
        For each data its name, how it is used, and the array, or `OnDevice`.
    """

    def __init__(self, label: str, arrays: list[tuple[str, int, Any]]) -> None:
        self.label = label
        self.inputs = [array for _, mode, array in arrays if mode != 2]
        self.outputs = [(name, array) for name, mode, array in arrays if mode != 1]
        self.had_some: bool | None = None

    def begin(self) -> None:
        """Look at what the task reads; once."""
        if self.had_some is None:
            self.had_some = any(first_wrong(array) is not None for array in self.inputs)

    def start(self) -> None:
        """The task is started by hand, which changes nothing for this."""

    def undo(self) -> None:
        """The body raised, which is told instead."""

    def __call__(self, _task: Any) -> None:
        """Look at what the task wrote; name the data, and where the first such value is."""
        for name, array in () if self.had_some else self.outputs:
            found = first_wrong(array)
            if found is not None:
                count, index, value = found
                where = f" at {index[0] if len(index) == 1 else index}" if index else ""
                raise FloatingPointError(
                    f"task {self.label} wrote {value}{where} in '{name}', the first of {count} values there that are "
                    "not finite, and had none in what it read"
                )


def finite_for(task: Any) -> Finite:
    """Return what looks at an open task."""
    return begun(Finite(task.label(), arrays_in(task, may_be_infinite)), task)


def begun(check: Any, task: Any) -> Any:
    """Return a check of an open task, or None; for a body that runs in place, it looks at once at what is read."""
    if check is not None and task.state_name() == "open" and not task.runs_later:
        check.begin()
    return check


class FiniteInLaunches:
    """Looks for values that are not finite in each launch of a body that is recorded.

    Parameters
    ----------
    task : Task
        An open task on the host, or on a CPU, which is recorded.
    """

    def __init__(self, task: Any) -> None:
        self.label = task.label()
        used = [(access.data_name, mode, replica) for access, mode, replica in used_by(task)]
        self.items = [one for one in used if may_be_infinite(one[2].layout.dtype)]

    def at(self, rebinding: Any) -> Finite:
        """Return what looks at one launch, which may use other data."""
        found: list[tuple[str, int, Any]] = []
        for name, mode, recorded in self.items:
            replica = recorded if rebinding is None else rebinding.replica_for(recorded)
            found.append((name, mode, adapters.view(replica, mode != 1, "numpy")))
        return Finite(self.label, found)


def launches_looked_at(task: Any) -> FiniteInLaunches | None:
    """Return what looks at the launches of a task that is recorded; None for what only enqueues work."""
    if not task.engine.wants_finite or task.engine.places[task.where].enqueues:
        return None
    return FiniteInLaunches(task)


class Checks:
    """Several checks of one body, in turn."""

    def __init__(self, checks: list[Any]) -> None:
        self.checks = checks

    def begin(self) -> None:
        """Begin all."""
        for check in self.checks:
            check.begin()

    def start(self) -> None:
        """Tell all that the task is started by hand."""
        for check in self.checks:
            check.start()

    def undo(self) -> None:
        """Tell all that the body raised."""
        for check in self.checks:
            check.undo()

    def __call__(self, task: Any) -> None:
        """Check; what one finds is told to those who save a task that fails."""
        try:
            for check in self.checks:
                check(task)
        except BaseException:
            for check in self.checks:
                if isinstance(check, capsules.Kept):
                    check.undo()
            raise


def may_be_infinite(dtype: Any) -> bool:
    """Return whether values of a type may be a NaN or an infinity; records are not looked at.

    None is a type that the body says.
    """
    if dtype is None:
        return True
    if dtype.kind != "V":
        return bool(dtype.kind in "fc")
    try:
        np.isfinite(np.zeros(1, dtype))  # bfloat16 and its like
    except TypeError:
        return False
    return True


def first_wrong(watched: Any) -> tuple[int, tuple[int, ...], Any] | None:
    """Return how many values are not finite, the index of the first, and that value; None if all are finite."""
    if isinstance(watched, OnDevice) and watched.is_finite():
        return None
    array = content_of(watched)
    if array.nbytes == 0 or not may_be_infinite(array.dtype) or np.isfinite(array).all():
        return None
    wrong = np.argwhere(~np.isfinite(array))
    index = tuple(int(i) for i in wrong[0])
    return len(wrong), index, array[index]
