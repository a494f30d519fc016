"""Results of replayed functions: kept without the handles of data in them, which are their users' to drop."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any
from weakref import ref

from stf._engine.access import DataHandle
from stf.data.logical_data import new_handle
from stf.data.registry import handle_of
from stf.tasks.task import Task
from stf.values.containers import Container, join, split

NOTHING: Mapping[Any, Any] = {}


class KeptData:
    """Data that a recording holds."""

    __slots__ = ("core",)

    def __init__(self, handle: Any) -> None:
        self.core = handle.core
        self.core.given = ref(handle)


def kept(value: Any, held: Collection[Any], around: tuple[int, ...] = ()) -> Any:
    """Return a result as it is kept: without handles of data that are `held`, in it or in its lists, tuples and dicts.

    What contains itself is kept as it is.
    """
    kind = type(value)
    if kind is Task:
        return None  # the handle of a recorded task, which runs in every launch
    if isinstance(value, DataHandle):
        return KeptData(value) if value.core in held else value
    is_named = issubclass(kind, tuple) and hasattr(kind, "_make")
    is_fields = dataclasses.is_dataclass(kind)
    container = split(value) if kind in (dict, list, tuple) or is_named or is_fields else None
    if container is None or id(value) in around:
        return value
    items = [kept(item, held, (*around, id(value))) for item in container.items]
    if not any(map(is_kept, items)):
        return value
    what = (without_fields(value, container.what[1]), container.what[1]) if is_fields else container.what
    return container._replace(what=what, items=items)


def without_fields(value: Any, names: list[str]) -> Any:
    """Return a copy of a dataclass that holds nothing."""
    found = copy.copy(value)
    for name in names:
        object.__setattr__(found, name, None)
    return found


def is_kept(value: Any) -> bool:
    """Return whether a handle is to be given in the place of a value, or of something in it."""
    return isinstance(value, (KeptData, Container))


def given(value: Any, others: Mapping[Any, Any] = NOTHING) -> Any:
    """Return the result of a call, of what is kept; `others` are handles of data that the launch has made instead."""
    if isinstance(value, KeptData):
        other = others.get(value.core.id)
        return handle_of(value.core.engine, value.core) if other is None else other
    if not isinstance(value, Container):
        return value
    return join(value.kind, value.what, [given(item, others) for item in value.items])


def in_use(value: Any, first_data: int) -> dict[Any, Any]:
    """Return handles of data that the recorded call has made, and that somebody has still, with new data for each.

    The next launch would change what its user holds. So it makes the others, in place of these.
    """
    found: dict[Any, Any] = {}
    for item in value.items if isinstance(value, Container) else (value,):
        if isinstance(item, Container):
            found |= in_use(item, first_data)
        elif isinstance(item, KeptData) and item.core.id > first_data and not item.core.token:
            core = item.core
            handle = None if core.given is None else core.given()
            if handle is not None and core.home is None and core.linked is None and core.parent is None:
                found[handle] = new_handle(core.engine, core.layout.packed(), core.name)
    return found


def hold(graph: Any, result: Any) -> Any:
    """Return the recording of a graph, if data in it are to be given: whoever closes it, it lives until its `close`."""
    recording = graph._recording if is_kept(result) else None
    return recording if recording is not None and recording.hold() else None
