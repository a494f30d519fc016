"""Host memory of the user's that is registered with CUDA, so that copies of it run beside everything else.

Registering takes time (about 20 ms per GiB, and never less than 0.1 ms), so small arrays are left as they are. Undoing
it waits for the devices; so what nobody uses stays until somebody registers more and a bound is passed, and is found
again by whoever registers it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

PIN_FROM = 1 << 16
UNUSED_LIMIT = 1 << 30
OWN_REFERENCES = 2  # of an array: the table's, and the one that a call of `getrefcount` adds


class Pin:
    """A registered array, and how many data lie in it."""

    def __init__(self, nbytes: int, owner: Any) -> None:
        self.nbytes = nbytes
        self.owner = owner
        self.users = 1


class Pins:
    """What is registered, by address.

    Parameters
    ----------
    register : callable
        ``register(address, nbytes)``; False if it cannot be, or is already.
    unregister : callable
        ``unregister(address)``.
    """

    def __init__(self, register: Callable[[int, int], bool], unregister: Callable[[int], None]) -> None:
        self.register = register
        self.unregister = unregister
        self.table: dict[int, Pin] = {}
        self.unused_bytes = 0

    def __len__(self) -> int:
        return len(self.table)

    def hold(self, address: int, nbytes: int, owner: Any, smallest: int = PIN_FROM) -> int:
        """Register the array that memory is part of, or count one user more; 0 where it stays as it is.

        Arrays of less than `smallest` bytes are left alone.
        """
        start, extent = base_of(owner, address, nbytes)
        pin = self.table.get(start)
        if pin is not None and pin.nbytes >= extent:
            if pin.users == 0:
                self.unused_bytes -= pin.nbytes
            pin.users += 1
            pin.owner = owner
            return 1
        if pin is not None and pin.users:
            return self.extend(start, pin, extent, owner)
        if self.unused_bytes > UNUSED_LIMIT:
            self.forget_unused()
        if extent < smallest or not (self.register(start, extent) or self.register_again(start, extent)):
            return 0
        self.table[start] = Pin(extent, owner)
        return 1

    def extend(self, start: int, pin: Pin, extent: int, owner: Any) -> int:
        """Register more of what is registered for others; a part alone is of no use, since CUDA refuses to copy it."""
        self.unregister(start)
        is_longer = self.register(start, extent)
        if not is_longer and not self.register(start, pin.nbytes):
            del self.table[start]
            return 0
        if is_longer:
            pin.nbytes, pin.owner, pin.users = extent, owner, pin.users + 1
        return int(is_longer)

    def register_again(self, start: int, extent: int) -> bool:
        """Try once more without what nobody uses, which may be in the way or take what there is of pinned memory."""
        if not self.unused_bytes:
            return False
        self.forget_unused()
        return self.register(start, extent)

    def let_go(self, address: int, nbytes: int, owner: Any) -> int:
        """One user less."""
        pin = self.table.get(base_of(owner, address, nbytes)[0])
        if pin is None or pin.users == 0:
            return 0
        pin.users -= 1
        if pin.users == 0:
            self.unused_bytes += pin.nbytes
        return 0

    def forget_unused(self) -> int:
        """Undo the registration of what nobody uses."""
        if not self.table:
            return 0
        for start in [start for start, pin in self.table.items() if pin.users == 0]:
            self.unregister(start)
            del self.table[start]
        self.unused_bytes = 0
        return 0

    def forget_orphans(self) -> int:
        """Undo the registration of arrays that nobody has any more but this table."""
        for start, pin in list(self.table.items()):
            if pin.users == 0 and sys.getrefcount(pin.owner) == OWN_REFERENCES and self.table.pop(start, None) is pin:
                self.unused_bytes -= pin.nbytes
                self.unregister(start)
        return 0

    def close(self) -> None:
        """Undo all of them."""
        for pin in self.table.values():
            pin.users = 0
        self.forget_unused()


def base_of(owner: Any, address: int, nbytes: int) -> tuple[int, int]:
    """(address, bytes) of the whole array that a view is part of: it is registered once."""
    base = owner
    while hasattr(getattr(base, "base", None), "__array_interface__"):
        base = base.base
    interface = getattr(base, "__array_interface__", None)
    if interface is None:
        return address, nbytes
    start, extent = interface["data"][0], base.nbytes
    if interface.get("strides") is not None:  # the array itself has gaps, or goes backwards
        steps = [(n - 1) * step for n, step in zip(base.shape, base.strides, strict=True)]
        low = sum(step for step in steps if step < 0)
        start, extent = start + low, sum(step for step in steps if step > 0) - low + base.itemsize
    return (start, extent) if start <= address and address + nbytes <= start + extent else (address, nbytes)
