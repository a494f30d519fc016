"""Signatures: what must be equal in two calls of a function for one recording to hold for both."""

from __future__ import annotations

import array
import collections
import enum
import numbers
import weakref
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf._port.late_values import PLAIN
from stf.values.containers import ORDERED, data_in, is_container, is_plain_container, named_items
from stf.values.params import Param

__all__ = [
    "Itself",
    "Signature",
    "SignaturePart",
    "VaryingNumbers",
    "covers",
    "differences",
    "given_in",
    "key_of",
    "names_of_static",
    "params_of",
]

ENOUGH = 3  # values of a number, and it is a parameter
COMPARED = 1 << 20  # bytes of an array of NumPy's up to which its content counts, and not just which one it is


class SignaturePart(NamedTuple):
    """What of one argument, or of one variable of the closure, must be equal; of a parameter, its type alone."""

    name: str
    kind: Any
    value: Any = None
    is_param: bool = False

    @property
    def is_described(self) -> bool:
        """Whether it says something of a call; functions are what they are in nearly all of them."""
        return self.is_param or not (self.value is None or self.kind.__name__ in ("TaskFunction", "function"))

    def describe(self) -> str:
        """Say what it is."""
        if self.is_param:
            return f"{self.name} any {self.kind.__name__}"
        return f"{self.name} {in_short((self.kind, self.value))}"


Signature = tuple[SignaturePart, ...]


class Itself:
    """Which object it is: one that comes later at the same address is another one. Kept alive only where it must be."""

    __slots__ = ("_hash", "_reference")

    def __init__(self, value: Any) -> None:
        self._hash = id(value)
        try:
            self._reference: Callable[[], Any] | None = weakref.ref(value)
        except TypeError:
            holds_data = next(data_in([value]), None) is not None  # which live as long as their user wants
            self._reference = None if holds_data else lambda: value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Itself):
            return NotImplemented
        if self._reference is None or other._reference is None:
            return self._reference is other._reference and self._hash == other._hash
        mine = self._reference()
        return mine is not None and mine is other._reference()

    def __hash__(self) -> int:
        return self._hash


class VaryingNumbers:
    """Which numbers among a function's arguments are parameters of its recordings.

    A number is part of the signature until three values of it were seen. From then on each launch may give another,
    unless its value was needed while it was recorded, or it was named static.
    """

    def __init__(self, static: Iterable[str]) -> None:
        self.static = set(static)
        self.params: set[str] = set()
        self._seen: dict[str, set[Any]] = {}

    def see(self, arguments: Mapping[str, Any]) -> None:
        """Count the values of a call."""
        for name, value in arguments.items():
            if name not in self.static and name not in self.params and is_number(value):
                seen = self._seen.setdefault(name, set())
                seen.add(key_of(value))
                if len(seen) >= ENOUGH:
                    self.params.add(name)
                    del self._seen[name]

    def are_needed(self, names: Iterable[str]) -> None:
        """Know that the function asks for values: they are part of the signature, and stay it."""
        self.static |= set(names)
        self.params -= self.static

    def part_of(self, name: str, value: Any) -> SignaturePart:
        """Return what of an argument is part of the signature."""
        if name in self.params and is_number(value):
            return SignaturePart(name, type(value), is_param=True)
        return SignaturePart(name, *key_of(value))


def in_short(key: tuple[Any, Any]) -> str:
    """Return what a key is of, in a few words."""
    kind, value = key
    if kind is DataHandle:
        return f"data {value}"
    if kind in (list, tuple) and isinstance(value, tuple):
        text = ", ".join(map(in_short, value[:9]))
    else:
        text = str(value) if kind in PLAIN or isinstance(value, (str, float)) else ""
    return text if 0 < len(text) < 40 else kind.__name__


def is_number(value: Any) -> bool:
    """Return whether it is a number, and no truth value, nor a member of an enumeration, which is only itself."""
    return not isinstance(value, (Param, bool, np.bool_, enum.Enum)) and isinstance(value, (numbers.Number, np.number))


def key_of(value: Any, around: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """Return what must be equal for a recording to hold: its type, and what is to be compared of it.

    `around` are the containers that it is in, by identity.
    """
    kind = type(value)
    if kind in PLAIN or (kind is float and value and value == value):
        return kind, value
    if isinstance(value, DataHandle):
        return DataHandle, value.core.id
    if is_number(value):
        return kind, repr(value)  # zeros may differ in their signs, and a NaN is itself
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return kind, (value.dtype.str, value.tobytes())  # equal in other units, it is computed with in those
    if kind is slice:
        return kind, (key_of(value.start), key_of(value.stop), key_of(value.step))
    if is_container(value):
        if id(value) in around:
            return kind, around.index(id(value))
        return kind, content_of(value, (*around, id(value)))
    try:
        hash(value)
    except (TypeError, ValueError):  # such as a memoryview that may be written
        return kind, Itself(value)
    is_itself = type.__getattribute__(kind, "__hash__") is object.__hash__
    if is_itself or hasattr(value, "__dlpack__"):  # of which == is an array
        return kind, Itself(value)
    return kind, value


def content_of(value: Any, around: tuple[int, ...]) -> Any:
    """Return what a container holds, to be compared; which one it is, too, if it may be more than its items."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return value.shape, tuple(key_of(item, around) for item in value.ravel())
        if value.nbytes > COMPARED:
            return Itself(value)
        return Itself(value), value.dtype.str, value.shape, value.strides, value.tobytes()
    if isinstance(value, np.void):  # of an array of records, which may change
        return value.dtype, key_of(value.item(), around) if value.dtype.hasobject else value.tobytes()
    if isinstance(value, array.array):
        found: Any = value.typecode, value.tobytes()
    elif isinstance(value, bytearray):
        found = bytes(value)
    elif isinstance(value, Mapping):
        found = tuple([(key_of(key, around), key_of(item, around)) for key, item in value.items()])
    elif isinstance(value, ORDERED):
        found = tuple([key_of(item, around) for item in value])
    elif isinstance(value, Set):
        found = frozenset([key_of(item, around) for item in value])
    else:
        found = tuple([(name, key_of(item, around)) for name, item in named_items(value)])
    if isinstance(value, collections.deque):
        found = value.maxlen, found
    if is_plain_container(value):
        return found
    return Itself(value), found, tuple([(name, key_of(item, around)) for name, item in named_items(value)])


def params_of(key: Signature) -> set[str]:
    """Return the names of the parameters of recordings with a signature."""
    return {part.name for part in key if part.is_param}


def given_in(key: Signature, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters that a call gives."""
    return {part.name: arguments[part.name] for part in key if part.is_param}


def covers(key: Signature, other: Signature) -> bool:
    """Return whether one recording holds for all calls that another one holds for: a parameter stands for any value."""
    pairs = zip(key, other, strict=False)
    return len(key) == len(other) and all(one[:2] == part[:2] if one.is_param else one == part for one, part in pairs)


def differences(one: Signature | None, other: Signature | None) -> str:
    """Return what differs between two signatures, by name."""
    before = {part.name: part for part in one or ()}
    return ", ".join(part.name for part in other or () if before.get(part.name) != part) or "nothing that is known"


def names_of_static(static: Any) -> tuple[str, ...]:
    """Return the names that `static` lists, or is."""
    names = (static,) if isinstance(static, str) else static if isinstance(static, Iterable) else (static,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"static= is a list of the names of parameters, got {static!r}")
    return tuple(names)
