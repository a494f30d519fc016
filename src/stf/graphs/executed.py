"""Which functions in Python run while a call is recorded, with what their arguments are then.

Names alone do not lead to all of them: a function may come from a list, a default argument, a factory, or be the
method of an object that comes from there. So a profile function of Python's notes each call in this thread. Where
somebody else has one (`cProfile`), names alone have to do.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from typing import Any

from stf._support.code_facts import facts_of
from stf.graphs.closure_variables import is_of_users
from stf.graphs.names_read import OPAQUE, reads_of
from stf.placement.asking import asking
from stf.values.params import Param

__all__ = ["Executed"]

MOST = 256  # calls of different functions, or with other objects


class Executed:
    """A with-block that notes the functions of users that run in its thread; `submitted` are those of tasks."""

    def __init__(self) -> None:
        self.submitted: list[Any] = []
        self._noted: dict[tuple[Any, ...], tuple[types.CodeType, dict[str, Any], dict[str, Any]]] = {}
        self._is_on = False

    def __enter__(self) -> Executed:
        self._is_on = sys.getprofile() is None
        if self._is_on:
            sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_on:
            sys.setprofile(None)

    @property
    def is_whole(self) -> bool:
        """Whether there was room for all."""
        return len(self._noted) < MOST

    def functions(self) -> list[tuple[types.CodeType, dict[str, Any], dict[str, Any]]]:
        """Return what ran: its code and globals, and the objects of whose attributes it reads, by name.

        An object that lived no longer than the call was made by it, and is left out.
        """
        found = []
        for code, around, references in self._noted.values():
            objects = {name: reference() for name, reference in references.items()}
            found.append((code, around, {name: one for name, one in objects.items() if one is not None}))
        return found

    def _note(self, frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or asking.depth or not is_of_users(code.co_filename):
            return  # while a place is chosen, too: a recording keeps that
        if str(frame.f_globals.get("__name__")).partition(".")[0] in OPAQUE:  # wherever that is installed
            return
        names, typed = names_of(code)
        values: dict[str, Any] = frame.f_locals if names or typed else {}
        asked: list[Any] = list(values.values()) if None in typed else [values.get(name) for name in typed if name]
        for value in asked:
            if issubclass(type(value), Param):
                for base in value.bases:
                    base.is_needed = True  # its type here is that of a parameter, and it may decide by that
        given = {name: values[name] for name in names if name in values}
        mark = (code, *[id(value) for value in given.values()])
        if mark not in self._noted and len(self._noted) < MOST:
            references = {name: reference_to(value) for name, value in given.items()}
            objects = {name: reference for name, reference in references.items() if reference is not None}
            self._noted[mark] = code, frame.f_globals, objects


def reference_to(value: Any) -> Any:
    """Return a weak reference; None to what has none."""
    try:
        return weakref.ref(value)
    except TypeError:
        return None


@functools.lru_cache(maxsize=1024)
def names_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str | None]]:
    """Return the parameters and free variables of whose attributes code reads, and those whose `type` it asks for.

    Of those, None stands for a variable that was computed.
    """
    kinds = ("param", "free")
    names = frozenset(read.name for read in reads_of(code) if read.kind in kinds and read.attributes and read.name)
    given = (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars)
    typed: set[str | None] = set()
    for step in facts_of(code).loads("global", "name"):
        if step.name == "type":
            asked = step.user.parts[1] if step.user.is_plain_call(1) else step
            typed.add(asked.name if asked.is_load("local", "cell") and asked.name in given else None)
    return names, frozenset(typed)
