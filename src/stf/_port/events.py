# cython: nonecheck=False
"""Events and the dependency rule.

An event is one integer, ``lane << LANE_SHIFT | sequence number``; 0 is no event. Of two events on a lane the later
covers the earlier, and that is all the engine knows of them.

The rule, per data: a read waits for the last writers; a write waits for the last writers and the readers since.

For observers, a set bears the numbers of what ends with its events: of tasks, and with a minus sign of operations. They
go wherever the events go, so that pictures show the order that the engine made, and no rule stands twice. Events that a
later one of their lane replaces leave their numbers. Where nobody observes, there are none.
"""

from __future__ import annotations

import cython


@cython.freelist(4096)
@cython.final
@cython.no_gc
@cython.cclass
class EventSet:
    """Events, at most one per lane; the first eight are stored inline."""

    def __cinit__(self):
        self.capacity = INLINE_EVENTS
        if cython.compiled:
            self.items = self.inline_items
        else:
            self.items = [0] * INLINE_EVENTS

    def __dealloc__(self):
        if cython.compiled and self.items != self.inline_items:
            free(self.items)

    def add(self, event):
        """Add `event`, unless a later one of its lane is there; replace an earlier one."""
        i: cython.int
        if event == 0:
            return 0
        for i in range(self.count):
            if (self.items[i] ^ event) >> LANE_SHIFT == 0:
                if self.items[i] < event:
                    self.items[i] = event
                return 0
        return self.append(event)

    def add_near(self, event, near):
        """Add an event that is one, as `add` does; return where it stands. Its lane is looked for at `near` first.

        A task's end goes to each of its data, and data that are used together have the lanes in the same order.
        """
        i: cython.int
        if near < self.count and (self.items[near] ^ event) >> LANE_SHIFT == 0:
            if self.items[near] < event:
                self.items[near] = event
            return near
        self.add(event)
        for i in range(self.count):
            if (self.items[i] ^ event) >> LANE_SHIFT == 0:
                return i
        return 0

    def append(self, event):
        if self.count == self.capacity:
            grow(self)
        self.items[self.count] = event
        self.count += 1
        return 0

    def update(self, other):
        i: cython.int
        for i in range(other.count):
            self.add(other.items[i])
        if other.numbers is not None:
            self.add_numbers(other.numbers)
        return 0

    def clear(self):
        self.count = 0
        if self.numbers is not None:
            self.numbers = None
        return 0

    def add_number(self, number):
        """Say that a task, or with a minus sign an operation, ends with one of the events."""
        if self.numbers is None:
            self.numbers = [number]
        else:
            self.numbers.append(number)
        return 0

    def take_numbers(self, other):
        """Have the numbers of others, of whose events something else takes the place."""
        self.numbers = None if other.numbers is None else list(other.numbers)
        return 0

    def add_numbers(self, numbers):
        """Say that all of these end with the events; the list stays the caller's."""
        if self.numbers is None:
            self.numbers = list(numbers)
        else:
            self.numbers.extend(numbers)
        return 0

    def tolist(self):
        return [self.items[i] for i in range(self.count)]

    def __repr__(self):
        return f"EventSet({[(lane_of(e), sequence_of(e)) for e in self.tolist()]})"


if not cython.compiled:

    def made(kind):
        """Make a set as compiled code does, by `__new__` alone."""
        events = object.__new__(kind)
        events.__cinit__()
        return events

    EventSet.__new__ = made
    del EventSet.__dealloc__


def grow(events):
    i: cython.int
    if not cython.compiled:
        events.items.extend([0] * events.capacity)
    else:
        items = cython.cast("int64_t*", malloc(2 * events.capacity * cython.sizeof(cython.longlong)))
        if items == cython.NULL:
            raise MemoryError
        for i in range(events.count):
            items[i] = events.items[i]
        if events.items != events.inline_items:
            free(events.items)
        events.items = items
    events.capacity *= 2
    return 0


def lane_of(event):
    """Return the lane of an event, for people and tests."""
    return event >> LANE_SHIFT


def sequence_of(event):
    """Return the sequence number of an event on its lane."""
    number: cython.longlong = event  # as a Python object, the mask would be a C int
    return number & SEQUENCE
