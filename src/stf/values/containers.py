"""Containers: values that are known by what they contain, and what that is."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import types
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import Access, DataHandle

__all__ = [
    *("ORDERED", "Container", "data_in", "is_container", "is_plain_container", "items_of", "join", "named_items"),
    *("object_array", "split"),
]

FIELD = dataclasses._FIELD  # type: ignore[attr-defined]  # one of the class, and no InitVar or ClassVar
ORDERED: tuple[Any, ...] = (MappingView, Sequence, collections.deque)
WITH_ITEMS: tuple[Any, ...] = (*ORDERED, Set)
KINDS = (Mapping, *WITH_ITEMS, bytearray, array.array, np.ndarray, np.void, types.SimpleNamespace)
PLAIN: tuple[type, ...] = (  # which have nothing beside their items
    *(list, tuple, dict, set, frozenset, bytearray, types.MappingProxyType, types.SimpleNamespace),
    *(collections.deque, collections.OrderedDict, collections.Counter, collections.ChainMap, array.array, np.ndarray),
    *(type({}.keys()), type({}.values()), type({}.items()), np.void),
)


def is_container(value: Any) -> bool:
    """Return whether a value is known by what it contains; texts and ranges cannot change."""
    if isinstance(value, (str, bytes, range, memoryview)):
        return False
    return isinstance(value, KINDS) or dataclasses.is_dataclass(type(value))


def is_plain_container(value: Any) -> bool:
    """Return whether a container has nothing beside its items, so that another one with these is as good."""
    if dataclasses.is_dataclass(type(value)):
        return getattr(type(value), "__eq__", None) is not object.__eq__
    return type(value) in PLAIN or (isinstance(value, tuple) and hasattr(value, "_fields"))


def items_of(value: Any) -> Iterable[Any]:
    """Return what a container contains, of values that may be containers, data or parameters themselves."""
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
    """Return the attributes of a namespace, or of a dataclass, whether they are fields or not."""
    found = dict(vars(value)) if hasattr(value, "__dict__") else {}
    if dataclasses.is_dataclass(type(value)):
        found |= {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return list(found.items())


def data_in(values: Iterable[Any], around: tuple[int, ...] = ()) -> Iterator[Any]:
    """Logical data among arguments, in accesses and containers too; `around` are containers, by identity."""
    for value in values:
        if isinstance(value, DataHandle):
            yield value
        elif isinstance(value, Access):
            yield value.data
        elif hasattr(value, "parts") and (hasattr(value, "expand_mode") or hasattr(value, "expand")):
            yield from data_in(value.parts)
        elif is_container(value) and id(value) not in around:
            yield from data_in(items_of(value), (*around, id(value)))


class Container(NamedTuple):
    """A container that can be built again of other items: ``join(kind, what, items)``.

    `what` is the type of a sequence, the keys of a dict, a dataclass with the names of its fields, or the shape of an
    array of objects.
    """

    kind: str
    what: Any
    items: list[Any]


def split(value: Any) -> Container | None:
    """Return a container in parts; None for what is none, or is not built of its items alone."""
    if isinstance(value, (list, tuple)):
        return Container("sequence", type(value), [*value])
    if isinstance(value, dict):
        return Container("dict", [*value], [*value.values()])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return Container("dataclass", (value, names), [getattr(value, name) for name in names])
    if is_object_of_data(value):
        return Container("dataclass", (value, [*vars(value)]), [*vars(value).values()])
    if isinstance(value, np.ndarray) and value.dtype == object:
        return Container("object array", value.shape, [*value.ravel()])
    return None


def is_object_of_data(value: Any) -> bool:
    """Return whether an object of a class of the user's has data among its attributes."""
    known = getattr(value, "__dict__", None)
    if type(known) is not dict or isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return False
    has_data = any(isinstance(item, DataHandle) for item in known.values())
    if has_data and hasattr(type(value), "__del__"):
        raise TypeError(
            f"a task's body gets a copy of an object with arrays in place of its data, and {type(value).__name__} has "
            "__del__, which would run for the copy; pass the data themselves"
        )
    return has_data


def join(kind: str, what: Any, items: list[Any]) -> Any:
    """Return a container of such a kind with these items."""
    if kind == "sequence":
        return getattr(what, "_make", what)(items)
    if kind == "dict":
        return dict(zip(what, items, strict=True))
    if kind == "dataclass":
        return with_fields(what[0], zip(what[1], items, strict=True))
    return object_array(items, what)


def with_fields(value: Any, items: Iterable[tuple[str, Any]]) -> Any:
    """Return a copy of a dataclass with other fields.

    One that cannot be made of its fields is not initialized again.
    """
    fields = getattr(type(value), "__dataclass_fields__", {}).values()
    if fields and type(value).__dataclass_params__.init and all(f.init and f._field_type is FIELD for f in fields):
        return dataclasses.replace(value, **dict(items))
    if fields:
        found = copy.copy(value)
    else:
        found = object.__new__(type(value))
        found.__dict__.update(vars(value))
    for name, item in items:
        object.__setattr__(found, name, item)
    return found


def object_array(values: list[Any], shape: tuple[int, ...]) -> Any:
    """Return an array of objects."""
    result = np.empty(len(values), object)
    for i, value in enumerate(values):
        result[i] = value
    return result.reshape(shape)
