"""Data, handles and accesses.

`Data` is the engine's record; `DataHandle` is what the user holds. When the last handle goes, the record stays in the
engine until what uses it has run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cython

from stf.errors import AccessError, ContextMismatchError, not_copied

handle_type: list[Any] = []  # the class of what users hold of data: one
shared = [False]  # whether any memory is registered in several live contexts, so that data became read-only
MODE_NAMES = {1: "read", 2: "write", 3: "rw", 4: "accumulate"}


@cython.freelist(1024)
@cython.no_gc
@cython.cclass
class Data:
    """The engine's record of one logical data: its layout, its home and its current version."""

    def label(self):
        """Return what messages call it: ``'X'`` or ``data 3``."""
        return f"'{self.name}'" if self.name else f"data{self.id}"

    def describe(self):
        """Label, dtype and shape, for messages."""
        if self.token:
            return f"token {self.label()}"
        if self.layout.dtype is None:
            return f"logical data {self.label()} (of a shape that is not known yet)"
        return f"logical data {self.label()} ({self.layout.dtype}, shape {self.layout.shape})"


def make_data(engine, dropped, ident, layout, name, token, scope):
    """Return a data that has no replica yet."""
    data: Data = Data.__new__(Data)
    data.engine, data.dropped = engine, dropped
    data.id = ident
    data.layout = layout
    data.name = name
    data.token = token
    data.write_back = True
    data.next_use = NEVER
    data.version = make_version(scope, None)
    return data


@cython.freelist(64)
@cython.cclass
class MemorySpan:
    """The memory of the user's that a data is registered with, from the byte `low` up to `high`.

    `handle` is a weak reference to the data's, `book` the address book that it stands in, `code` and `lasti` the line
    that registered it.
    """

    def find_bounds(self, layout):
        """Lowest address and the one past the highest; equal for empty arrays."""
        i: cython.int
        low: cython.longlong = self.address
        high: cython.longlong = self.address
        for i in range(len(layout.shape)):
            extent: cython.longlong = layout.shape[i]
            step: cython.longlong = layout.strides[i]
            if extent == 0:
                self.low = self.high = self.address
                return 0
            if step < 0:
                low += (extent - 1) * step
            else:
                high += (extent - 1) * step
        self.low = low
        self.high = high + layout.itemsize
        return 0


class AddressBook:
    """Knows in which memory which data are; the API has it."""

    def give_up(self, span, last):
        """A data is given up; what used its memory last ends with the events `last`."""
        return 0

    def is_shared(self, data):
        """Return whether a data may only be read since another context has its memory."""
        return False

    def must_be_alone(self, data):
        """Let a data be writeable again, if no other context has its memory any more; else raise AccessError."""
        return None


class DataHandle:
    """Base of what users hold; made by a context."""

    def __init__(self, core):
        self.core = core

    def read(self, data_place=None):
        """Return an access that reads.

        Parameters
        ----------
        data_place : data_place, optional
            Where the data must be; by default in the memory of the place where the task runs.

        Raises
        ------
        TypeError
            `data_place` is no data place.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     x = ctx.logical_data_ones(3)
        ...     ctx.task(1, x.read())(lambda x: print(x.sum()))
        ...     ctx.task(1, x.read(stf.data_place.host()))(lambda x: print(x.sum()))
        3.0
        3.0
        """
        return make_access(self, READ, data_place)

    def write(self, data_place=None):
        """Return an access that overwrites: the old content is not brought in, and poison is healed.

        Raises
        ------
        AccessError
            The data is read-only.
        TypeError
            `data_place` is no data place.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_empty(3)
        ...     with ctx.task(x.write()) as t:
        ...         t[0][:] = 4.0
        ...     print(x.numpy())
        [4. 4. 4.]
        """
        return make_access(self, WRITE, data_place)

    def rw(self, data_place=None):
        """Return an access that reads and writes; see `read` and `write`.

        Raises
        ------
        TypeError
            `data_place` is no data place.
        AccessError
            The data are read-only.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_ones(3)
        ...     with ctx.task(x.rw()) as t:
        ...         t[0][:] += 1
        ...     print(x.numpy())
        [2. 2. 2.]
        """
        return make_access(self, RW, data_place)

    def place_code(self, data_place):
        """Return the engine's number of a data place; the API overrides it."""
        return int(data_place)

    def __copy__(self):
        """Return the data itself: a handle is what its user holds of it."""
        return self

    def __deepcopy__(self, memo):
        raise TypeError(f"{self.core.describe()} is not copied with what holds it; use lX.empty_like() and ctx.copy")

    def __reduce__(self):
        raise TypeError(f"{self.core.describe()} belongs to a context of this process; pickle lX.numpy()")

    def __del__(self):
        core = self.core
        if core is not None and not core.released:
            drop(core.dropped, core)


def drop(dropped, item):
    """Let the engine with this list release something at its next entry; finalizers can tell nobody of an error."""
    try:
        dropped.append(item)
    except MemoryError:
        dropped.append(item)  # the memory of whoever failed for want of it is free by now
    return 0


@cython.freelist(1024)
@cython.no_gc
@cython.cclass
class Access:
    """How a task uses a data: a mode and a data place. Made by ``lX.read()`` and its like."""

    def __copy__(self):
        """Return the access itself, which never changes."""
        return self

    def __reduce_ex__(self, protocol):
        raise not_copied(repr(self), "pickle lX.numpy()")

    def __repr__(self):
        return f"<{MODE_NAMES[self.mode]} access to {self.core.describe()}>"

    @property
    def data_id(self):
        return self.core.id

    @property
    def data_name(self):
        return self.core.name or f"data{self.core.id}"

    @property
    def array(self):
        """This access as an argument of ``ctx.launch_kernel``: a pointer, the extents, and the strides in bytes."""
        must_have_pointer(self)
        return ArrayAccess(self) if self.core.layout.shape else self

    @property
    def slice(self):
        """This access as one argument of a kernel: a struct of a pointer, the extents, and the strides in elements."""
        must_have_pointer(self)
        return SliceAccess(self)


class ArrayAccess(NamedTuple):
    """An access, for which a kernel gets a pointer, the extents, and the strides in bytes."""

    access: Any


class SliceAccess(NamedTuple):
    """An access, for which a kernel gets a struct by value: a pointer, the extents, and the strides in elements."""

    access: Any


def must_have_pointer(access: Any) -> None:
    """Raise unless a kernel can get the address of what is accessed."""
    if access.core.token or access.mode == ACCUMULATE:
        raise TypeError(f"{access!r} has no pointer; give a kernel an access to an array: lX.read(), .write() or .rw()")


def make_access(handle, mode, data_place):
    access: Access = Access.__new__(Access)
    access.data = handle
    access.core = handle.core
    access.mode = mode
    access.place = AFFINE if data_place is None else handle.place_code(data_place)
    if access.core.is_result and access.core.layout.dtype is None:
        raise must_have_shape(access.core)
    if mode != READ and access.core.readonly:
        must_be_writeable(access.core, f"cannot be opened for {MODE_NAMES[mode]}")
    return access


def must_have_shape(data: Data):
    """Return the error for who needs the shape of data before the task has run that makes them."""
    return TypeError(
        f"{data.describe()} are used where their shape must be known, which is when the task has run that returns them "
        f"({data.version.last_writers()[0][0]}); say the shape in its annotation, such as -> stf.New['(n)->(n,2)'], or "
        "wait for it before, by lX.shape"
    )


def must_be_writeable(data: Data, what):
    """Raise AccessError unless data are writeable, or are so again."""
    if shared[0] and data.span is not None:
        book: AddressBook = data.span.book
        book.must_be_alone(data)
    if data.readonly:
        raise AccessError(
            f"{data.describe()} is read-only and {what}; register a writeable array, or write to a copy (ctx.copy)"
        )
    return 0


def accumulate_access(handle, op, data_place=None):
    """Return an access that commutes with others of the same `op`; `op` fills a partial and combines two."""
    if handle.core.token:
        raise TypeError(f"{handle.core.describe()} has no content to accumulate into; open it with rw()")
    op.must_suit(handle.core)
    access: Access = make_access(handle, ACCUMULATE, data_place)
    access.op = op
    return access


def check_mine(engine: Any, data: Any) -> None:
    """Raise unless this is logical data of the engine's context."""
    if not isinstance(data, DataHandle):
        raise TypeError(f"logical data is needed, got {type(data).__name__}")
    if data.core.engine is not engine:
        raise ContextMismatchError(f"{data.core.describe()} belongs to another context")
