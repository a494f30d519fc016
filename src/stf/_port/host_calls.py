"""Calls on the host, and the compiled code that does the same without Python.

A driver may run the code of a call in its place. Then it asks first whether that may be, says when it begins, and tells
the call that it ran. Where the code fails, or somebody called tasks off meanwhile, the call itself is made.
"""

from __future__ import annotations

import cython

from stf._port.native import NotThisTimeError

UNMEASURED: cython.int = 15  # calls, of which the next is measured


@cython.final
@cython.freelist(64)
@cython.no_gc
@cython.cclass
class CompiledCall:
    """A function ``int(int64_t *slots)``, and what is in its slots."""

    def __dealloc__(self):
        if cython.compiled:
            free(self.slots)

    def result(self):
        """Return what is in the first slot, where the function leaves what it tells."""
        return self.slots[0]


if not cython.compiled:
    del CompiledCall.__dealloc__


@cython.no_gc
@cython.cclass
class HostCall:
    """What a driver calls on the host without arguments; perhaps there is compiled code for it."""

    def may_run_compiled(self):
        """Return whether the code may run in its place, as far as is known now; asked with a gate held."""
        return False

    def begins(self):
        """Return where the driver writes BEGUN when the code begins."""
        raise NotImplementedError

    def ran_compiled(self):
        """The code has run, and all went well; a few fields are written, and nothing is called."""
        return 0

    def call_again(self):
        """Call it, since the code has failed: it fails now, too, whatever it does."""
        return 0

    def took(self, ns):
        """The code took so long."""
        return 0


class CallTemplate:
    """How calls of one function are made, which differ in the memory of their arrays and in numbers.

    Parameters
    ----------
    call : NativeCall
        One of them.
    values : tuple
        What the body got for it: so many `arrays`, and numbers.
    cost_ns : float
        About how long it took.
    """

    def __cinit__(self, call, values, arrays, cost_ns):
        i: cython.int
        if not cython.compiled:
            return
        self.count = len(call.slots)
        self.addresses, self.numbers = len(call.addresses), len(call.numbers)
        count: cython.Py_ssize_t = self.addresses + self.numbers + 1
        self.slots = cython.cast("int64_t*", malloc((self.count + 1) * cython.sizeof(cython.longlong)))
        self.varying = cython.cast("Varying*", malloc(count * cython.sizeof(Varying)))
        if self.slots == cython.NULL or self.varying == cython.NULL:
            raise MemoryError
        for i in range(self.count):
            self.slots[i] = call.slots[i]
        for i, at in enumerate(call.addresses):
            self.varying[i].slot, self.varying[i].position = at.slot, at.argument
        for i, at in enumerate(call.numbers):
            kind = type(values[at.argument])
            own = cython.address(self.varying[self.addresses + i])
            own.slot, own.position = at.slot, at.argument - cython.cast(cython.int, arrays)
            own.form = OF_INT if kind is int else OF_FLOAT if kind is float else BY_FUNCTION

    def __init__(self, call, values, arrays, cost_ns):
        self.function, self.arrays = call.body, arrays
        self.took(cost_ns)
        found = [values[address.argument] for address in call.addresses]
        self.layouts = [(array.shape, array.strides, array.dtype) for array in found]
        self.known = [None] * len(found)
        self.nbytes = sum([array.nbytes for array in found])
        self.kinds = [type(values[at.argument]) for at in call.numbers]
        self.packed = [at.packed for at in call.numbers]

    def __dealloc__(self):
        if cython.compiled:
            free(self.slots)
            free(self.varying)

    def took(self, ns):
        """Know that a call takes so long."""
        self.cost_ns = int(ns)

    def filled(self, replicas, numbers):
        """Return a call with the arrays of these replicas, and these numbers; None if they are of another kind."""
        i: cython.int
        if not cython.compiled or len(replicas) != self.arrays:
            return None
        call: CompiledCall = CompiledCall.__new__(CompiledCall)
        size: cython.Py_ssize_t = self.count * cython.sizeof(cython.longlong)
        call.slots = cython.cast("int64_t*", malloc(size))
        if call.slots == cython.NULL:
            raise MemoryError
        memcpy(call.slots, self.slots, size)
        own = self.varying
        for i in range(self.addresses):
            replica = cython.cast(Replica, replicas[own.position])
            layout = replica.layout
            if layout is not self.known[i] and not self.is_alike(i, layout):
                return None
            if replica.address % layout.itemsize:
                return None
            call.slots[own.slot] = replica.address
            own += 1
        for i in range(self.numbers):
            value = numbers[own.position]
            if type(value) is not self.kinds[i]:
                return None
            if own.form == OF_INT:
                call.slots[own.slot] = cython.cast(cython.longlong, value)
            elif own.form == OF_FLOAT:
                number: cython.double = value
                memcpy(cython.address(call.slots[own.slot]), cython.address(number), 8)
            else:
                try:
                    call.slots[own.slot] = self.packed[i](value)
                except NotThisTimeError:
                    return None
            own += 1
        call.function, call.count, call.cost_ns = self.function, self.count, self.cost_ns
        call.nbytes = self.nbytes
        self.left -= 1
        if self.left < 0:
            self.left = UNMEASURED
            call.is_timed = True
        return call

    def is_alike(self, number, layout):
        """Return whether arrays of a layout are what the function was compiled for."""
        shape, strides, dtype = self.layouts[number]
        if layout.interface is not None or layout.dtype != dtype or layout.shape != shape or layout.strides != strides:
            return False
        self.known[number] = layout
        return True


if not cython.compiled:
    del CallTemplate.__cinit__, CallTemplate.__dealloc__
