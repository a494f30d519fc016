"""Results of replayed functions: kept without the handles of data in them, which are their users' to drop."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from weakref import ref

from stf._engine.access import DataHandle
from stf.registry import handle_of


class KeptData:
    """Data that a recording holds, and the handle of it that was given last."""

    __slots__ = ("core", "last")

    def __init__(self, handle: Any) -> None:
        self.core = handle.core
        self.last = ref(handle)

    def handle(self) -> Any:
        """The same handle while somebody has it, else another one."""
        known = self.last()
        if known is None:
            known = handle_of(self.core.engine, self.core)
            self.last = ref(known)
        return known


class KeptItems:
    """A list, tuple or dict with data in it, as it is kept."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: Any, items: Any) -> None:
        self.kind = kind
        self.items = items


def kept(value: Any, held: Collection[Any]) -> Any:
    """A result as it is kept: without handles of data that are `held`, in it or in its lists, tuples and dicts."""
    kind = type(value)
    if isinstance(value, DataHandle):
        return KeptData(value) if value.core in held else value
    if kind is dict:
        items = {key: kept(item, held) for key, item in value.items()}
        return KeptItems(kind, items) if any(map(is_kept, items.values())) else value
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_make")):
        parts = [kept(item, held) for item in value]
        return KeptItems(kind, parts) if any(map(is_kept, parts)) else value
    return value


def is_kept(value: Any) -> bool:
    """Whether a handle is to be given in the place of a value, or of something in it."""
    return isinstance(value, (KeptData, KeptItems))


def given(value: Any) -> Any:
    """The result of a call, of what is kept."""
    if isinstance(value, KeptData):
        return value.handle()
    if not isinstance(value, KeptItems):
        return value
    if value.kind is dict:
        return {key: given(item) for key, item in value.items.items()}
    parts = [given(item) for item in value.items]
    return getattr(value.kind, "_make", value.kind)(parts)
