"""What a function knows beside its arguments: the variables of its closure, and of the functions that it uses."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from stf._engine.access import DataHandle
from stf._support.code_facts import facts_of
from stf.tasks.functions import TaskFunction
from stf.values.containers import is_container, items_of

__all__ = ["Variable", "is_function", "variables_of"]

CHANGING = frozenset(  # methods of containers
    (
        *("append", "appendleft", "add", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem"),
        *("popleft", "remove", "reverse", "rotate", "setdefault", "sort", "update", "subtract", "fill", "put"),
    )
)


FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, TaskFunction)
LARGEST = 64  # a container with more is no table of functions


class Variable(NamedTuple):
    """A variable of a closure: what a container in it holds is watched, unless functions there change that."""

    name: str
    cell: Any  # or a `Path`
    is_watched: bool

    @property
    def content(self) -> Any:
        """What it is now; None if it is not bound."""
        try:
            return self.cell.cell_contents
        except ValueError:
            return None


def variables_of(functions: Iterable[tuple[str, Any]]) -> list[Variable]:
    """Return the variables of functions, and of those that these know, named with the way there.

    What was bound to a function, as by ``functools.partial``, is such a variable, too. Those of libraries' functions
    are left out, but not what is a user's behind them, as behind a decorator.
    """
    found: list[Variable] = []
    seen: set[int] = set()
    queue = collections.deque(functions)
    while queue:
        way, value = queue.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        known = bound_to(way, value)
        if isinstance(value, types.FunctionType):
            own = [*own_variables(way, value), *changeable_defaults(way, value)]
            found += own if is_of_users(value.__code__.co_filename) else []
            known += own
        else:
            found += known
        queue.extend((way, inner) for inner in functions_in(value))
        queue.extend((f"{variable.name}.", inner) for variable in known for inner in functions_in([variable.content]))
    return found


def bound_to(way: str, value: Any) -> list[Variable]:
    """Return what was bound to a function: arguments, or the object whose method it is."""
    if isinstance(value, types.MethodType):
        return [Variable(f"{way}self", types.CellType(value.__self__), True)]
    if not isinstance(value, functools.partial):
        return []
    bound = [Variable(f"{way}bound {i}", types.CellType(given), True) for i, given in enumerate(value.args)]
    return bound + ([Variable(f"{way}bound", types.CellType(value.keywords), True)] if value.keywords else [])


def own_variables(way: str, fn: types.FunctionType) -> list[Variable]:
    """Return the variables of one function's closure."""
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    return [Variable(way + name, cell, not is_changed(fn.__code__, name)) for name, cell in cells]


def changeable_defaults(way: str, fn: types.FunctionType) -> list[Variable]:
    """Return the defaults of a function that may change in place."""
    defaults = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    changeable = [value for value in defaults if is_container(value) and not isinstance(value, (tuple, frozenset))]
    return [Variable(f"{way}default {i}", types.CellType(value), True) for i, value in enumerate(changeable)]


def is_function(value: Any) -> bool:
    """Return whether it is a function in Python, or has one inside."""
    return next(iter(functions_in([value])), None) is not None


def functions_in(value: Any, depth: int = 5) -> Iterator[Any]:
    """The functions in Python that a function calls or a container holds, directly or in containers in it."""
    if isinstance(value, functools.partial):
        yield value.func
    elif isinstance(value, types.MethodType):
        yield value.__func__
    elif isinstance(value, TaskFunction):
        yield value.fn
    elif isinstance(value, (list, tuple, dict, set, frozenset)):
        for item in items_of(value) if depth and len(value) <= LARGEST else ():
            if isinstance(item, FUNCTIONS) or wrapped_by(item) is not None:
                yield item
            elif isinstance(item, (list, tuple, dict, set, frozenset)):
                yield from functions_in(item, depth - 1)
    elif (inner := wrapped_by(value)) is not None:
        yield inner


def wrapped_by(value: Any) -> Any:
    """Return the function that a decorated one, or an object that can be called, calls.

    None for what is no such thing.
    """
    if isinstance(value, (DataHandle, type)):
        return None
    inner = getattr(value, "__dict__", {}).get("__wrapped__")
    call = next((vars(kind)["__call__"] for kind in type(value).__mro__ if "__call__" in vars(kind)), None)
    return inner if inner is not None else call if isinstance(call, types.FunctionType) else None


@functools.lru_cache(maxsize=1024)
def is_of_users(file: str) -> bool:
    """Return whether a file, in which a function or a module is, is none of a library's."""
    return not file.startswith((*libraries(), "<frozen"))


@functools.lru_cache(maxsize=1024)
def is_changed(code: types.CodeType, name: str) -> bool:
    """Return whether a function, or one inside of it, changes what a variable holds.

    It does so by ``log.append(x)``, ``table[key] = x`` or ``table.name = x``, and the same further down.
    """
    for step in facts_of(code).steps:
        if step.is_load("attribute") and step.name in CHANGING:
            owner = step.parts[0]
        elif step.of in ("item", "attribute") and step.does in ("store", "delete"):
            owner = step.parts[step.does == "store"].root
        else:
            continue
        if owner.is_load("cell") and owner.name == name:
            return True
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType) and name in part.co_freevars]
    return any(is_changed(part, name) for part in inner)


@functools.cache
def libraries() -> tuple[str, ...]:
    """Return the folders of Python's own modules, and of installed ones."""
    import sysconfig  # which reads files

    return tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
