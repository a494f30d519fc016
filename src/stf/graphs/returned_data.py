"""Results of replayed functions: kept without the handles of data in them, which are their users' to drop."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from weakref import ref

from stf._engine.access import DataHandle
from stf.data.registry import handle_of
from stf.tasks.task import Task
from stf.values.containers import Container, join, split


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
    container = split(value) if kind in (dict, list, tuple) or is_named else None
    if container is None or id(value) in around:
        return value
    items = [kept(item, held, (*around, id(value))) for item in container.items]
    return container._replace(items=items) if any(map(is_kept, items)) else value


def is_kept(value: Any) -> bool:
    """Return whether a handle is to be given in the place of a value, or of something in it."""
    return isinstance(value, (KeptData, Container))


def given(value: Any) -> Any:
    """Return the result of a call, of what is kept: the same handles while somebody has them, else others."""
    if isinstance(value, KeptData):
        return handle_of(value.core.engine, value.core)
    if not isinstance(value, Container):
        return value
    return join(value.kind, value.what, [given(item) for item in value.items])


def hold(graph: Any, result: Any) -> Any:
    """Return the recording of a graph, if data in it are to be given: whoever closes it, it lives until its `close`."""
    recording = graph._recording if is_kept(result) else None
    return recording if recording is not None and recording.hold() else None
