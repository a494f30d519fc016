"""Host memory of the user's that is registered with CUDA, so that copies of it run beside everything else.

Registering takes time (20 to 50 ms per GiB, and never less than 0.1 ms), so small arrays are left as they are. Undoing
it waits for the devices; so what nobody uses stays until somebody registers more and a bound is passed, and is found
again by whoever registers it anew. That is so where an object holds the memory; memory that only has an address may be
somebody else's at once, so its registration ends with its last user. So is memory of a buffer: an array of NumPy's made
with ``ndarray(buffer=...)`` keeps its owner, but not its owner from closing it.

CUDA waits for some of the devices before it undoes a registration, and not for all: a copy of another device that is on
its way would fail, and the device would be lost. So a user lets go when the last event of its uses is over (see
`base.Registered`), and where a range grows under its users, all devices are waited for first.

CUDA has one table for the process, and copies nothing that is registered in part only. So all drivers share `Table`,
and what overlaps is registered as one; but what kernels use in place stays as it is. CUDA is called with no lock held:
it waits for devices, and these may wait for bodies that come here. Others who need the same memory wait until it has
answered; who needs it no more is taken note of meanwhile.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stf._drivers.base import address_of, extent
from stf._support.sync import Turns

PIN_FROM = 1 << 16
UNUSED_LIMIT = 1 << 30
ORPHANS_LIMIT = 1 << 28
OWN_REFERENCES = 2  # of an array: the table's, and the one that a call of `getrefcount` adds
HOLDERS = ("torch", "cupy", "cupyx", "jaxlib")  # libraries whose objects hold the memory that they give to NumPy


@dataclass(eq=False)
class Pin:
    """A registered range, the drivers that use it, with how many data each, and which of them registered it.

    `is_registered` is False of one that could not be again when it was to grow.
    """

    start: int
    end: int
    owner: Any
    registrar: Pins
    lasts: bool
    is_registered: bool = True
    in_place: bool = False  # kernels use it where it lies
    users: dict[Pins, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return self.end - self.start


class Change(NamedTuple):
    """A range that CUDA works on, the thread that has called it, and the pin that comes or goes, if that is known."""

    start: int
    end: int
    thread: int
    pin: Pin | None


class Table:
    """What is registered in this process: ranges that do not overlap, by address; and those that CUDA works on."""

    def __init__(self) -> None:
        self.pins: dict[int, Pin] = {}
        self.starts: list[int] = []  # sorted
        self.changing: list[Change] = []
        self.unused = 0  # bytes
        self.changed = Turns()

    def overlapping(self, start: int, end: int) -> list[Pin]:
        """Return the ranges that have memory in common with another one, which is not empty."""
        first = max(bisect_right(self.starts, start) - 1, 0)
        found = [self.pins[at] for at in self.starts[first : bisect_left(self.starts, end)]]
        return [pin for pin in found if pin.end > start]

    def add(self, pin: Pin) -> None:
        self.pins[pin.start] = pin
        insort(self.starts, pin.start)
        self.unused += 0 if pin.users else pin.nbytes

    def remove(self, pin: Pin) -> None:
        self.unused -= 0 if pin.users else pin.nbytes
        del self.pins[pin.start]
        del self.starts[bisect_left(self.starts, pin.start)]

    def claim(self, start: int, end: int) -> None:
        """Wait until no other thread changes anything in a range; under the lock, which is free meanwhile."""
        me = threading.get_ident()
        while any(one.start < end and start < one.end and one.thread != me for one in self.changing):
            self.changed.wait()

    def known(self, start: int, end: int) -> list[Pin]:
        """Return the pins that have memory in common with a range, those too that come or go just now."""
        changing = [one.pin for one in self.changing if one.pin is not None and one.start < end and start < one.end]
        return [*self.overlapping(start, end), *changing]


table = Table()


@dataclass(eq=False)
class Pins:
    """What a driver has registered, or uses of what others have.

    Parameters
    ----------
    register : callable
        ``register(address, nbytes)``; False if it cannot be, or is already.
    unregister : callable
        ``unregister(address)``.
    settle : callable
        ``settle()`` waits for all that the driver's devices have been given.
    registered : container of int
        The addresses that `register` has registered: Ctrl-C comes when that is done, and hides what it returns.
    """

    register: Callable[[int, int], bool]
    unregister: Callable[[int], None]
    settle: Callable[[], None] = lambda: None
    registered: Container[int] = ()
    leaving: list[tuple[int, int, Any]] = field(default_factory=list)  # uses that are over, to be taken off

    def __len__(self) -> int:
        return sum(pin.registrar is self and pin.is_registered for pin in list(table.pins.values()))

    def hold(
        self,
        address: int,
        nbytes: int,
        owner: Any,
        smallest: int = PIN_FROM,
        in_place: bool = False,
        lasting: bool = False,
    ) -> int:
        """Register the array that memory is part of, or count one user more; 0 where it stays as it is.

        Arrays of less than `smallest` bytes are left alone, unless they lie in what is registered; so is memory that
        may be somebody else's at once, with `lasting`. `in_place` says that kernels will use it where it lies.
        """
        start, size, lasts = base_of(owner, address, nbytes)
        if size <= 0:
            return 0
        self.take_off()
        if any(is_of_another(pin, owner) for pin in table.overlapping(start, start + size)):
            self.settle()  # that memory is gone, and nobody has looked whether the devices are done with it
            self.take_off()
        low, high = start, start + size
        with table.changed:
            while True:
                table.claim(low, high)
                found = table.overlapping(low, high)
                if len(found) == 1 and found[0].start <= low and high <= found[0].end:
                    pin = found[0]
                    return self.use(pin, owner if lasts and pin.nbytes == size else pin.owner, in_place)
                if (not found and size < smallest) or (lasting and not lasts):
                    return 0
                if table.unused > UNUSED_LIMIT and self.forget_beside(low, high):
                    continue  # the lock was free meanwhile
                span = min([low, *(pin.start for pin in found)]), max([high, *(pin.end for pin in found)])
                if span == (low, high):
                    break
                low, high = span  # what overlaps is registered with it, if that is to wait for
            me = threading.get_ident()
            entries = [Change(low, high, me, None), *(Change(pin.start, pin.end, me, pin) for pin in found)]
            table.changing += entries
            try:
                return self.renew(Pin(low, high, owner, self, lasts and not found), found, in_place)
            finally:
                for entry in entries:
                    table.changing.remove(entry)
                table.changed.notify_all()

    def use(self, pin: Pin, owner: Any, in_place: bool) -> int:
        """Count one user more, if it is registered."""
        if not pin.is_registered:
            return 0
        table.unused -= 0 if pin.users else pin.nbytes
        pin.users[self] = pin.users.get(self, 0) + 1
        pin.owner = owner
        pin.in_place = pin.in_place or in_place
        return 1

    def renew(self, pin: Pin, found: list[Pin], in_place: bool) -> int:
        """Register a range instead of those in it."""
        if any(old.in_place for old in found):
            return 0
        self.change(found, None)
        if self.change([], pin) or (self.forget(lambda pin: not pin.users) and self.change([], pin)):
            for old in found:
                for driver, count in old.users.items():
                    pin.users[driver] = pin.users.get(driver, 0) + count
                old.users = {}
            table.unused -= pin.nbytes if pin.users else 0
            return self.use(pin, pin.owner, in_place)
        for old in found:  # as it was
            if old.users:
                self.register_again(old)
        return 0

    def register_again(self, pin: Pin) -> None:
        """Register what its users need still; they may have gone meanwhile, and their drivers with them."""
        if not self.change([], pin):
            table.add(pin)
        if not pin.users:
            self.change([pin], None)

    def change(self, gone: list[Pin], new: Pin | None) -> bool:
        """Let CUDA undo some registrations, or make one; the lock is free meanwhile."""
        me = threading.get_ident()
        entries = [Change(pin.start, pin.end, me, pin) for pin in (gone if new is None else [*gone, new])]
        users = {user for pin in gone for user in pin.users}
        for pin in gone:
            table.remove(pin)
        table.changing.extend(entries)
        table.changed.release()
        made = False
        left: list[Pin] = []
        try:
            for user in users:
                user.settle()
            for pin in gone:
                if pin.is_registered:
                    pin.registrar.unregister(pin.start)
            made = new is not None and bool(new.registrar.register(new.start, new.nbytes))
        except BaseException:
            made = new is not None and new.start in new.registrar.registered
            left = [pin for pin in gone if pin.is_registered and pin.start in pin.registrar.registered]
            raise
        finally:
            table.changed.acquire()
            for pin in left:
                table.add(pin)
            for entry in entries:
                table.changing.remove(entry)
            if new is not None:
                new.is_registered = made
            if made and new is not None:
                table.add(new)
            table.changed.notify_all()
        return made

    def let_go(self, address: int, nbytes: int, owner: Any) -> int:
        """One user less."""
        start, size, _ = base_of(owner, address, nbytes)
        with table.changed:
            for pin in table.known(start, start + size):
                if self in pin.users:
                    self.leave(pin, 1)
                    break
        return 0

    def let_go_later(self, address: int, nbytes: int, owner: Any) -> int:
        """One user less, from the next call on that may wait for devices; this one may be a destructor's."""
        self.leaving.append((address, nbytes, owner))
        return 0

    def take_off(self) -> int:
        """Take off the users that have let go."""
        while self.leaving:
            try:
                use = self.leaving.pop(0)
            except IndexError:
                break  # another thread has
            self.let_go(*use)
        return 0

    def leave(self, pin: Pin, count: int) -> None:
        """Count users less; the last one undoes what would not last."""
        left = pin.users.pop(self) - count
        if left > 0:
            pin.users[self] = left
        if not pin.users and table.pins.get(pin.start) is pin:
            pin.in_place = False
            table.unused += pin.nbytes
            if not (pin.lasts and pin.is_registered):
                self.change([pin], None)

    def forget(self, goes: Callable[[Pin], bool]) -> bool:
        """Undo registrations; whether there were any."""
        gone = [pin for pin in table.pins.values() if goes(pin)]
        for pin in gone:
            if table.pins.get(pin.start) is pin and goes(pin):
                self.change([pin], None)
        return bool(gone)

    def forget_beside(self, low: int, high: int) -> bool:
        """Undo the registration of what nobody uses, but for what overlaps a range; whether there was any."""
        return self.forget(lambda pin: not pin.users and (pin.end <= low or high <= pin.start))

    def forget_unused(self) -> int:
        """Undo the registration of what nobody uses."""
        self.take_off()
        if table.pins:
            with table.changed:
                self.forget(lambda pin: not pin.users and pin.registrar is self)
        return 0

    def forget_orphans(self) -> int:
        """Undo the registration of arrays that nobody has any more but this table, if they are large.

        The caller of a context that ends has work on the devices, which that would wait for.
        """
        self.take_off()
        if table.unused > ORPHANS_LIMIT:
            with table.changed:
                self.forget(lambda pin: not pin.users and sys.getrefcount(pin.owner) == OWN_REFERENCES)
        return 0

    def close(self) -> None:
        """Undo all of this driver's; what others use of it is registered by one of them."""
        self.take_off()
        with table.changed:
            for pin in table.known(0, 1 << 64):
                if self in pin.users:
                    self.leave(pin, pin.users[self])
            self.forget(lambda pin: not pin.users and pin.registrar is self)
            for pin in [pin for pin in table.pins.values() if pin.registrar is self]:
                if table.pins.get(pin.start) is pin:
                    self.change([pin], None)
                    if pin.users:
                        pin.registrar = next(iter(pin.users))
                        self.register_again(pin)


def base_of(owner: Any, address: int, nbytes: int) -> tuple[int, int, bool]:
    """(address, bytes) of the whole array that a view is part of: it is registered once; whether `owner` holds it."""
    base = owner
    while is_array(getattr(base, "base", None)):
        base = base.base
    if not is_array(base):
        return address, nbytes, owner is not None and not hasattr(owner, "is_freed_with_its_graph")
    flags = getattr(base, "flags", None)
    root = getattr(base, "base", None)
    lasts = bool(getattr(flags, "owndata", False)) or holds_memory(root)
    if isinstance(base, np.ndarray):
        start, is_dense = address_of(base), base.flags.c_contiguous
    else:
        interface = base.__array_interface__
        start, is_dense = interface["data"][0], interface.get("strides") is None
    end = start + base.nbytes
    if not is_dense:  # the array itself has gaps, or goes backwards
        start, end = extent(start, base.strides, base.shape, base.itemsize)
    inside = start <= address and address + nbytes <= end
    return (start, end - start, lasts) if inside else (address, nbytes, lasts)


def is_array(thing: Any) -> bool:
    """Return whether something says where its memory is, as NumPy's arrays do."""
    return isinstance(thing, np.ndarray) or hasattr(thing, "__array_interface__")


def is_of_another(pin: Pin, owner: Any) -> bool:
    """Return whether a range was registered for memory that has gone since: another object is at its addresses now."""
    return not pin.lasts and bool(pin.users) and root_of(pin.owner) is not root_of(owner)


def root_of(owner: Any) -> Any:
    """Return the object that an array has its memory of, through views of views."""
    while isinstance(getattr(owner, "base", None), np.ndarray):
        owner = owner.base
    base = getattr(owner, "base", None)
    base = owner if base is None else base
    return base.obj if isinstance(base, memoryview) else base


def holds_memory(root: Any) -> bool:
    """Return whether memory that an array has of an object stays where it is as long as that object lives."""
    if hasattr(root, "_stf_owner"):
        return root._stf_owner is not None
    kind = type(root)
    return kind.__name__ == "PyCapsule" or kind.__module__.partition(".")[0] in HOLDERS
