"""What a function knows beside its arguments: the variables of its closure, and of the functions that it uses."""

from __future__ import annotations

import collections
import dis
import functools
import sysconfig
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from stf.functions import TaskFunction

__all__ = ["Variable", "is_function", "variables_of"]

LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
CHANGING = frozenset(  # methods of containers
    (
        *("append", "appendleft", "add", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem"),
        *("popleft", "remove", "reverse", "rotate", "setdefault", "sort", "update", "subtract", "fill", "put"),
    )
)


class Variable(NamedTuple):
    """A variable of a closure: what a container in it holds is watched, unless functions there change that."""

    name: str
    cell: types.CellType
    is_watched: bool

    @property
    def content(self) -> Any:
        """What it is now; None if it is not bound."""
        try:
            return self.cell.cell_contents
        except ValueError:
            return None


def variables_of(functions: Iterable[tuple[str, Any]]) -> list[Variable]:
    """The variables of functions, and of those that these know, named with the way there.

    What was bound to a function by ``functools.partial`` is such a variable, too. Those of libraries' functions are
    left out, but not what is a user's behind them, as behind a decorator.
    """
    found: list[Variable] = []
    seen: set[int] = set()
    queue = collections.deque(functions)
    while queue:
        way, fn = queue.popleft()
        if id(fn) in seen:
            continue
        seen.add(id(fn))
        if isinstance(fn, functools.partial):
            bound = [(str(i), value) for i, value in enumerate(fn.args)] + list(fn.keywords.items())
            known = [Variable(f"{way}bound {name}", types.CellType(value), True) for name, value in bound]
            queue.append((way, fn.func))
        elif isinstance(fn, types.FunctionType):
            known = own_variables(way, fn)
        else:
            queue.append((way, wrapped_by(fn)))
            continue
        found += [variable for variable in known if isinstance(fn, functools.partial) or is_of_users(fn.__code__)]
        queue.extend((f"{variable.name}.", variable.content) for variable in known if is_function(variable.content))
    return found


def own_variables(way: str, fn: types.FunctionType) -> list[Variable]:
    """The variables of one function's closure."""
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    return [Variable(way + name, cell, not is_changed(fn.__code__, name)) for name, cell in cells]


def is_function(value: Any) -> bool:
    """Whether it is a function in Python, or has one inside."""
    return isinstance(value, (types.FunctionType, functools.partial)) or wrapped_by(value) is not None


def wrapped_by(value: Any) -> Any:
    """The function that a method, a task function or a decorated one calls; None for what is no such thing."""
    if isinstance(value, types.MethodType):
        return value.__func__
    if isinstance(value, TaskFunction):
        return value.fn
    return getattr(value, "__dict__", {}).get("__wrapped__")


@functools.lru_cache(maxsize=1024)
def is_of_users(code: types.CodeType) -> bool:
    """Whether a function is none of a library's."""
    return not code.co_filename.startswith((*LIBRARIES, "<frozen"))


@functools.lru_cache(maxsize=1024)
def is_changed(code: types.CodeType, name: str) -> bool:
    """Whether a function, or one inside of it, changes what a variable holds: ``log.append(x)``, ``table[key] = x``."""
    instructions = list(dis.get_instructions(code))
    used, stored, line = set(), set(), None
    for i, instruction in enumerate(instructions):
        line = instruction.positions.lineno if instruction.positions is not None else line
        if (
            instruction.opname.startswith("LOAD_")
            and instruction.opname.endswith("DEREF")
            and instruction.argval == name
        ):
            used.add(line)
            after = instructions[i + 1]
            if after.opname in ("LOAD_ATTR", "LOAD_METHOD") and after.argval in CHANGING:
                return True
        elif instruction.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            stored.add(line)
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType) and name in part.co_freevars]
    return bool(used & stored) or any(is_changed(part, name) for part in inner)
