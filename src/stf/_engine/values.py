"""Values of parameters: when two launches have the same."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

UNKNOWN = object()
UNASKED = object(), None
PLAIN = (int, bool, str, bytes, type(None))  # what is equal, and of one type, is the same
INEXACT = (float, complex)


@cython.cclass
class Asked:
    """What of a parameter every node asks that takes it: the values of a launch, and what it is then."""

    def __init__(self):
        self.asked = UNASKED


def is_same(value, other):
    """Whether values that cannot change are the same: zeros may differ in their signs."""
    if type(value) is not type(other):
        return False
    if type(value) in INEXACT:
        return value is other or (value == other and repr(value) == repr(other))
    return type(value) in PLAIN and value == other


def are_same(values, others):
    """Whether values of parameters are the same: numbers by value, other objects by identity."""
    return all([one is other or is_same(one, other) for one, other in zip(values, others, strict=True)])


def are_fixed(values):
    """Whether no value of a launch can change in place."""
    return values is not None and all([type(value) in PLAIN or type(value) in INEXACT for value in values.values()])


def is_as_before(values, last):
    """Whether two launches have the same values."""
    if values is None or type(last) is not dict or len(values) != len(last):
        return False
    return all([is_same(value, last.get(name, UNKNOWN)) for name, value in values.items()])
