"""Containers: values that are known by what they contain, and what that is."""

from __future__ import annotations

import array
import collections
import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from typing import Any

import numpy as np

from stf._engine.access import DataHandle

__all__ = ["ORDERED", "data_in", "is_container", "is_plain_container", "items_of", "named_items"]

ORDERED: tuple[Any, ...] = (MappingView, Sequence, collections.deque)
WITH_ITEMS: tuple[Any, ...] = (*ORDERED, Set)
KINDS = (Mapping, *WITH_ITEMS, bytearray, array.array, np.ndarray, np.void, types.SimpleNamespace)
PLAIN: tuple[type, ...] = (  # which have nothing beside their items
    *(list, tuple, dict, set, frozenset, bytearray, types.MappingProxyType, types.SimpleNamespace),
    *(collections.deque, collections.OrderedDict, collections.Counter, collections.ChainMap, array.array, np.ndarray),
    *(type({}.keys()), type({}.values()), type({}.items()), np.void),
)


def is_container(value: Any) -> bool:
    """Whether a value is known by what it contains; texts and ranges cannot change."""
    if isinstance(value, (str, bytes, range, memoryview)):
        return False
    return isinstance(value, KINDS) or dataclasses.is_dataclass(type(value))


def is_plain_container(value: Any) -> bool:
    """Whether a container has nothing beside its items, so that another one with these is as good."""
    if dataclasses.is_dataclass(type(value)):
        return getattr(type(value), "__eq__", None) is not object.__eq__
    return type(value) in PLAIN or (isinstance(value, tuple) and hasattr(value, "_fields"))


def items_of(value: Any) -> Iterable[Any]:
    """What a container contains, of values that may be containers, data or parameters themselves."""
    if isinstance(value, np.ndarray):
        return value.ravel() if value.dtype == object else ()
    if isinstance(value, np.void):  # a record
        return list(value.tolist()) if value.dtype.hasobject else ()
    if isinstance(value, (bytearray, array.array)):
        return ()
    if isinstance(value, Mapping):
        return [*value.values(), *value]
    if isinstance(value, WITH_ITEMS):
        return [*value]
    return [item for _, item in named_items(value)]


def named_items(value: Any) -> list[tuple[str, Any]]:
    """The attributes of a namespace, or of a dataclass, whether they are fields or not."""
    found = dict(vars(value)) if hasattr(value, "__dict__") else {}
    if dataclasses.is_dataclass(type(value)):
        found |= {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return list(found.items())


def data_in(values: Iterable[Any], around: tuple[int, ...] = ()) -> Iterator[Any]:
    """Logical data among arguments, in containers too; those are in others, which are `around`, by identity."""
    for value in values:
        if isinstance(value, DataHandle):
            yield value
        elif hasattr(value, "parts") and hasattr(value, "expand_mode"):
            yield from value.parts
        elif is_container(value) and id(value) not in around:
            yield from data_in(items_of(value), (*around, id(value)))
