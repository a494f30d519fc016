"""Which values of variables are constants: a task keeps those as they are when it is submitted."""

from __future__ import annotations

import datetime
import enum
import numbers
import types

import cython
import numpy as np

PLAIN = (int, bool, float, complex, str, bytes)
CONSTANT = (np.generic, np.dtype, enum.Enum, numbers.Number, slice, range, datetime.date, datetime.timedelta)
kinds: dict = {}  # whether a type is one of these
MOST_KINDS: cython.int = 1000


def is_constant(value):
    """Return whether nobody can change a value: a number, a text, or a tuple of these.

    Members of enumerations, dtypes, dates, durations and frozen sets of constants are constants, too. None is not: many
    variables are None before a body, or what it calls, sets them.
    """
    kind = type(value)
    if value is None or kind is types.ModuleType or kind is types.FunctionType:
        return False
    if kind is tuple or kind is frozenset:
        return all([is_constant(item) for item in value])
    if kind in PLAIN:
        return True
    known = kinds.get(kind)
    if known is None:
        if len(kinds) >= MOST_KINDS:
            kinds.clear()
        known = kinds[kind] = issubclass(kind, CONSTANT)
    return known
