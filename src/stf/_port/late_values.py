"""Values of parameters: when two launches have the same."""

from __future__ import annotations

import enum

import cython

UNKNOWN = object()
UNASKED = object(), None
PLAIN = (int, bool, str, bytes, type(None))  # what is equal, and of one type, is the same
INEXACT = (float, complex)
IDENTICAL = (type, enum.Enum)  # of which the very same is the same


@cython.cclass
class Asked:
    """What of a parameter every node asks that takes it: the values of a launch, and what it is then."""

    def __init__(self):
        self.asked = UNASKED


def is_same(value, other):
    """Return whether values that cannot change are the same: zeros may differ in their signs."""
    if type(value) is not type(other):
        return False
    if type(value) in INEXACT:
        return value is other or (value == other and repr(value) == repr(other))
    if is_scalar(value):
        return value.dtype == other.dtype and value.tobytes() == other.tobytes()
    if type(value) is tuple:
        return len(value) == len(other) and are_same(value, other)
    return value == other if type(value) in PLAIN else value is other and isinstance(value, IDENTICAL)


def is_fixed(value):
    """Return whether a value cannot change in place."""
    if type(value) is tuple:
        return all([is_fixed(item) for item in value])
    return type(value) in PLAIN or type(value) in INEXACT or isinstance(value, IDENTICAL) or is_scalar(value)


def is_scalar(value):
    """Return whether a value is a scalar of NumPy's, of which nothing can be assigned."""
    has_methods = hasattr(value, "dtype") and hasattr(value, "tobytes") and not hasattr(value, "__setitem__")
    return has_methods and not isinstance(value, type)  # the class of such scalars has them, too


def are_same(values, others):
    """Return whether values of parameters are the same; what can change in place may have done so, and is not."""
    return all([is_same(one, other) for one, other in zip(values, others, strict=True)])


def are_fixed(values):
    """Return whether no value of a launch can change in place."""
    return values is not None and all([is_fixed(value) for value in values.values()])


def is_as_before(values, last):
    """Return whether two launches have the same values."""
    if values is None or type(last) is not dict or len(values) != len(last):
        return False
    return all([is_same(value, last.get(name, UNKNOWN)) for name, value in values.items()])
