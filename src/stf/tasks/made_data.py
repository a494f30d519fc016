"""New data at a call: how they lie, what the user gets of them, and what their body gets. Compiled.

`new_data` says what a function returns; this is what each call does. Programs return data by the million, so nothing
here makes a list, or an object that is not kept.
"""

from __future__ import annotations

import cython

from stf._engine.access import handle_type, must_have_shape

HANDLE_TYPE: list = handle_type
NO_ARGUMENTS: tuple = ()


def layout_like(value):
    """Return the layout of new data that are like an argument; None where that is no packed array."""
    if not isinstance(value, DataHandle):
        return None
    layout: Layout = cython.cast(DataHandle, value).core.layout
    if layout is not None and layout.dtype is None:
        raise must_have_shape(cython.cast(DataHandle, value).core)
    if layout is None or layout.library is not None or layout.interface is not None:
        return None
    return layout.packed()


def new_handle(core):
    """Return what the user holds of new data."""
    kind = HANDLE_TYPE[0]
    handle: DataHandle = stf_new(kind, NO_ARGUMENTS) if cython.compiled else kind.__new__(kind)
    handle.core = core
    return handle


def first_of(values, count):
    """Return the first items of a list as a tuple."""
    i: cython.int
    if not cython.compiled:
        return tuple(values[:count])
    found: tuple = PyTuple_New(count)
    for i in range(count):
        value = values[i]
        Py_INCREF(value)
        PyTuple_SET_ITEM(found, i, value)
    return found
