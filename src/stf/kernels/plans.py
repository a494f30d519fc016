"""What was found out about a kernel at its first submission, so that the next ones take microseconds.

A plan holds for calls with the same code, places of the same kind, the same space, arrays that lie alike, and numbers
of the same types. Numbers may have other values. All else that the code reads must be the same objects as before.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from stf import config
from stf.kernels.captured import Captured, global_names
from stf.kernels.foreign_kernels import order_of
from stf.kernels.reductions import Reduction

__all__ = ["Plan", "key_of", "plan_of", "remember"]

MOST = 4096
MISSING = object()
NUMBERS = frozenset(
    {
        *(int, float, bool, np.bool_, np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64),
    }
)


class Plan(NamedTuple):
    """How a kernel is submitted again.

    Attributes
    ----------
    code : code
        Of the body, kept alive, since it is known by its identity.
    submit : callable
        ``submit(task, items, numbers)``, of accesses and reductions, and of the numbers that the kernel gets.
    names : tuple of (str, type)
        Global variables whose values are numbers that the kernel gets.
    watched : list of (dict or cell, str, object)
        What must be the same.
    """

    code: types.CodeType
    submit: Callable[[Any, list[Any], tuple[Any, ...]], None]
    names: tuple[tuple[str, type], ...]
    watched: list[tuple[Any, str, Any]]

    def numbers(self, body: types.FunctionType, extra: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """What the kernel gets now; None if the plan does not hold any more."""
        for around, name, value in self.watched:
            now = around.get(name, MISSING) if type(around) is dict else around.cell_contents
            if now is not value:
                return None
        found = [*extra, *[cell.cell_contents for cell in body.__closure__ or ()]]
        for name, kind in self.names:
            value = body.__globals__.get(name)
            if type(value) is not kind:
                return None
            found.append(value)
        return tuple(found)


plans: dict[Any, Plan] = {}


def key_of(body: types.FunctionType, items: Iterable[Any], extra: tuple[Any, ...], *around: Any) -> Any:
    """What a plan depends on that is cheap to see; None if there can be none."""
    try:
        kinds = [*map(type, extra), *[type(cell.cell_contents) for cell in body.__closure__ or ()]]
        if not NUMBERS.issuperset(kinds):
            return None
        key = (id(body.__code__), config.validate, len(extra), *around, *kinds, *map(signature, items))
        hash(key)
    except (TypeError, ValueError):  # a variable without a value, or a space that is no key
        return None
    return key


def signature(item: Any) -> Any:
    """How an argument lies in memory, and how it is used."""
    access = item.access if type(item) is Reduction else item
    core = access.data.core
    if core.token:
        return access.mode
    layout = core.layout
    how = (item.op, item.accumulates) if type(item) is Reduction else None
    order = None if layout.packed() is layout else order_of(access)
    known = (layout.shape, layout.strides, access.mode, layout.interface is None, order, how)
    return (layout.dtype, *known)


def plan_of(key: Any) -> Plan | None:
    """The plan with a key."""
    return None if key is None else plans.get(key)


def remember(key: Any, body: types.FunctionType, captured: Captured, submit: Any, gives_globals: bool) -> None:
    """Keep a plan, if all that the kernel gets are numbers; `gives_globals` says whether global ones are given."""
    given = dict(zip(captured.names[captured.free :], captured.values[captured.free :], strict=True))
    if key is None or not NUMBERS.issuperset(map(type, given.values())):
        return
    names = tuple((name, type(value)) for name, value in given.items()) if gives_globals else ()
    known = dict(names)
    watched = [item for item in seen_by(body, set()) if item[0] is not body.__globals__ or item[1] not in known]
    if len(plans) >= MOST:
        plans.clear()
    plans[key] = Plan(body.__code__, submit, names, watched)


def seen_by(fn: types.FunctionType, seen: set[int]) -> Iterator[tuple[Any, str, Any]]:
    """The global variables that a function reads, and those of the functions that it calls, and their closures."""
    if id(fn) in seen:
        return
    seen.add(id(fn))
    for name in global_names(fn.__code__):
        value = fn.__globals__.get(name, MISSING)
        yield fn.__globals__, name, value
        if isinstance(value, types.FunctionType):
            yield from seen_by(value, seen)
            for cell in value.__closure__ or ():
                yield cell, "", cell.cell_contents
                if isinstance(cell.cell_contents, types.FunctionType):
                    yield from seen_by(cell.cell_contents, seen)
