"""Objects that the cyclic collector passes over, since they can be part of no cycle."""

from __future__ import annotations

import cython


def untrack(thing):
    """Let the collector pass over an object, from which nothing leads back to it."""
    if cython.compiled:
        PyObject_GC_UnTrack(cython.cast(cython.p_void, thing))
    return 0


def untrack_tuple(items: tuple):
    """Let the collector pass over a tuple if it passes over all that is in it."""
    if cython.compiled:
        for item in items:
            if PyObject_GC_IsTracked(item):
                return 0
        untrack(items)
    return 0
