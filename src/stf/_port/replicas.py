"""Where data are: layouts and replicas.

States of a replica::

            copied from a valid one                written by a task
    INVALID ────────────────────────▶ SHARED ───────────────────────▶ MODIFIED
       ▲                                │ ▲                               │
       └──── another replica written ───┘ └────────── copied from ────────┘

A MODIFIED replica is the only valid one; SHARED ones are equal. Memory may be there in every state.
"""

from __future__ import annotations

import cython


class Piece:
    """The memory of one place under an address that several places share, as the owner of a replica.

    `mapping` is the driver's (`Driver.reserve`), `number` that of the place in it.
    """

    __slots__ = ("mapping", "number")

    def __init__(self, mapping, number):
        self.mapping, self.number = mapping, number


@cython.freelist(64)
@cython.cclass
class Layout:
    """How an array lies in memory: shape, strides in bytes, item size. Never changes.

    `interface`, where given, allocates and copies instances that are no plain memory. `library` is that of the array
    which was registered, if bodies are to get such arrays.
    """

    def __init__(self, shape, strides, dtype, itemsize, interface=None, nbytes=None, library=None):
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.dtype = dtype
        self.itemsize = itemsize
        self.interface = interface
        self.library = library
        if nbytes is None:
            nbytes = itemsize
            for n in self.shape:
                nbytes *= n
        self.nbytes = nbytes

    def packed(self):
        """Return the same array without gaps, its axes in the same order of strides."""
        if self.is_packed:
            return self
        if self.packed_form is None:
            strides = packed_strides(self.shape, self.strides, self.itemsize)
            if strides == self.strides or self.interface is not None:
                self.is_packed = True  # no reference to itself, which only the garbage collector would find
                return self
            self.packed_form = Layout(self.shape, strides, self.dtype, self.itemsize, library=self.library)
        return self.packed_form

    def __repr__(self):
        return f"Layout({self.shape}, {self.strides}, {self.dtype})"


def layout_of(shape, strides, dtype, itemsize):
    """Return the layout of an array, as its library tells it."""
    layout: Layout = Layout.__new__(Layout)
    layout.shape = shape
    layout.strides = strides
    layout.dtype = dtype
    layout.itemsize = itemsize
    nbytes: cython.longlong = itemsize
    most: cython.longlong = 9223372036854775807
    i: cython.Py_ssize_t
    for i in range(len(layout.shape)):
        extent: cython.longlong = layout.shape[i]
        if extent and nbytes > most // extent:
            raise OverflowError(f"an array of shape {shape} and {itemsize} bytes an element is too large for memory")
        nbytes *= extent
    layout.nbytes = nbytes
    return layout


def make_replica(data, place, layout):
    """Return a replica without memory."""
    replica: Replica = Replica.__new__(Replica)
    replica.data = data
    replica.place = place
    replica.layout = layout
    replica.ready = EventSet.__new__(EventSet)
    replica.number = -1
    return replica


def home_of(data, place, layout):
    """Return the user's memory of a data, as a replica."""
    replica = make_replica(data, place, layout)
    replica.home = True
    return replica


def span_of(replica):
    """(address, bytes) of the memory that an array lies in, gaps included: its first element need not be the lowest."""
    layout = replica.layout
    low, high = 0, layout.itemsize
    for n, step in zip(layout.shape, layout.strides, strict=True):
        low += min((n - 1) * step, 0)
        high += max((n - 1) * step, 0)
    return (replica.address + low, high - low) if layout.nbytes else (replica.address, 0)


def packed_strides(shape, strides, itemsize):
    """Strides, in bytes, of a gap-free array whose axes nest as `strides` nest (ties keep C order)."""
    ndim = len(shape)
    nesting = sorted(range(ndim), key=lambda axis: (abs(strides[axis]), -axis))
    packed = [0] * ndim
    step = itemsize
    for axis in nesting:
        packed[axis] = step
        step *= max(shape[axis], 1)
    return tuple(packed)


@cython.final
@cython.cclass
class FreeLists:
    """Lists that tasks kept their replicas in, cleared: one per length modulo 8."""

    def __init__(self):
        self.lists = [None] * 8

    def take(self, count):
        """Return a list of as many times None."""
        found: list = self.lists[count & 7]
        if found is None or len(found) != count:
            found = [None] * count
            untrack(found)  # only tasks have it, which the collector does not look into either
            return found
        self.lists[count & 7] = None
        return found

    def give(self, items):
        """Keep a list that nobody else has."""
        i: cython.Py_ssize_t
        for i in range(len(items)):
            if items[i] is not None:
                items[i] = None
        self.lists[len(items) & 7] = items
        return 0


@cython.freelist(1024)
@cython.no_gc
@cython.cclass
class Replica:
    """One copy of a data at one data place."""

    def shadow(self):
        """Return the same memory as a recording sees it, with a state of its own; never evicted."""
        other = make_replica(self.data, self.place, self.layout)
        other.home = self.home
        other.pinned = self.pinned
        other.address = self.address
        other.instance = self.instance
        other.owner = self.owner
        other.adopted = self.adopted
        other.pins = 1
        if self.views is None:
            self.views = {}
        other.views = self.views
        other.real = self if self.real is None else self.real
        return other

    def has_memory(self):
        return self.address != 0 or self.instance is not None

    def __repr__(self):
        state = ("invalid", "shared", "modified")[self.state]
        return f"<replica at {self.place}: {state}, {self.layout.nbytes} bytes at {self.address:#x}>"
