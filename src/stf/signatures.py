"""Signatures: what must be equal in two calls of a function for one recording to hold for both."""

from __future__ import annotations

import dataclasses
import dis
import numbers
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf.params import Param

__all__ = ["Numbers", "Part", "Signature", "closure_of", "data_in", "differences", "is_content", "key_of", "used_cells"]

ENOUGH = 3  # values of a number, and it is a parameter
COMPARED = 1 << 20  # bytes of an array of NumPy's up to which its content counts, and not just which one it is


class Part(NamedTuple):
    """What of one argument, or of one variable of the closure, must be equal; of a parameter, its type alone."""

    name: str
    kind: Any
    value: Any = None
    is_param: bool = False

    def covers(self, other: Part) -> bool:
        """Whether all that the other one holds for, this one does."""
        return self == other or (self.is_param and self[:2] == other[:2])

    def story(self) -> str:
        """Say what it is."""
        if self.is_param:
            return f"{self.name} any {self.kind.__name__}"
        if self.kind is DataHandle:
            return f"{self.name} data {self.value}"
        told = str(self.value) if is_number(self.value) or isinstance(self.value, (str, bool)) else ""
        known_by_itself = self.kind in (type(self.value), str) or isinstance(self.value, str)
        return f"{self.name} {told if told and known_by_itself and len(told) < 40 else self.kind.__name__}"


Signature = tuple[Part, ...]


class Numbers:
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

    def part_of(self, name: str, value: Any) -> Part:
        """What of an argument is part of the signature."""
        if name in self.params and is_number(value):
            return Part(name, type(value), is_param=True)
        return Part(name, *key_of(value))


def is_number(value: Any) -> bool:
    """Whether it is a number, and no truth value."""
    return not isinstance(value, (Param, bool, np.bool_)) and isinstance(value, (numbers.Number, np.number))


def key_of(value: Any) -> tuple[Any, Any]:
    """What must be equal for a recording to hold: its type, and what is to be compared of it."""
    if isinstance(value, DataHandle):
        return DataHandle, value.core.id
    if is_number(value):
        return type(value), repr(value)  # zeros may differ in their signs, and a NaN is itself
    if isinstance(value, (list, tuple)):
        return type(value), tuple(key_of(item) for item in value)
    if isinstance(value, dict):
        return type(value), tuple((key_of(key), key_of(item)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(key_of(item) for item in value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return type(value), (value.shape, tuple(key_of(item) for item in value.ravel()))
    if isinstance(value, np.ndarray) and value.nbytes <= COMPARED:
        return type(value), (id(value), value.dtype.str, value.shape, value.strides, value.tobytes())
    if has_fields(value):
        return type(value), tuple((name, key_of(item)) for name, item in vars(value).items())
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), id(value) if hasattr(value, "__dlpack__") else value  # of which == is an array


def is_content(value: Any) -> bool:
    """Whether a value is a container, which is known by what it contains."""
    return isinstance(value, (list, tuple, dict, set, np.ndarray)) or has_fields(value)


def has_fields(value: Any) -> bool:
    """Whether an object is no more than its fields: a dataclass's, that are not hashed otherwise, or a namespace."""
    if isinstance(value, types.SimpleNamespace):
        return True
    return dataclasses.is_dataclass(value) and type(value).__hash__ is None and hasattr(value, "__dict__")


def data_in(values: Iterable[Any]) -> Iterator[Any]:
    """Logical data among arguments, in containers too."""
    for value in values:
        if isinstance(value, DataHandle):
            yield value
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from data_in(value)
        elif isinstance(value, dict):
            yield from data_in(value.values())
        elif isinstance(value, np.ndarray) and value.dtype == object:
            yield from data_in(value.ravel())
        elif hasattr(value, "parts") and hasattr(value, "expand_mode"):
            yield from value.parts


def used_cells(fn: Any) -> set[str]:
    """The variables of a function's closure that it uses itself, and not only functions inside of it."""
    code = getattr(fn, "__code__", None)
    if code is None or not code.co_freevars:
        return set()
    return {i.argval for i in dis.get_instructions(code) if i.opname.endswith("DEREF")} & set(code.co_freevars)


def closure_of(fn: Any) -> Iterator[tuple[str, Any]]:
    """Names and contents of the cells of a function's closure."""
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, None


def differences(one: Signature | None, other: Signature | None) -> str:
    """What differs between two signatures, by name."""
    before = {part.name: part for part in one or ()}
    return ", ".join(part.name for part in other or () if before.get(part.name) != part) or "nothing that is known"
