"""What the annotations of a builder's body say: ``ctx.task(lX.read())(body)`` with ``x: stf.Read[np.int32]``.

The accesses of a builder say how data are used. An annotation may say so again, with the type of the elements and the
library of the arrays. Where the two differ, one of them is a mistake.
"""

from __future__ import annotations

import inspect
from typing import Any

from stf._engine.access import ACCUMULATE, MODE_NAMES, READ, WRITE, Access
from stf.tasks.parameters import read_annotation, wrong_elements

KEPT = 1024
WORDS = {READ: "Read", WRITE: "Write", READ | WRITE: "ReadWrite", ACCUMULATE: "Accumulate"}
kept: dict[Any, tuple[dict[str, Any], Any]] = {}  # what the annotations of a body say, by its code


def library_asked(fn: Any, arguments: list[Any], first: int = 0) -> str | None:
    """Compare the annotations of a body with the accesses that it is given; return the library of arrays they ask for.

    Parameters
    ----------
    fn : callable
        The body.
    arguments : list
        An item for each argument: its accesses, tokens left out; an empty one for what is no array.
    first : int
        The position of the first of them among the body's parameters.

    Raises
    ------
    TypeError
        The body uses data in another way than the access says, wants elements of another type, or arrays of two
        libraries.
    """
    library = None
    known = known_of(fn)[first:]
    if known and known[-1][1] == "*":  # which stands for all further ones
        known += [known[-1]] * len(arguments)
    for accesses, (name, _, mode, _, asked, _, element) in zip(arguments, known, strict=False):
        if not mode:
            continue
        where = f"parameter '{name}' of the body '{getattr(fn, '__name__', fn)}'"
        for access in accesses:
            if not fits(mode, access.mode):
                raise TypeError(
                    f"{where} is annotated stf.{WORDS[mode]}, and the task has a {MODE_NAMES[access.mode]} access to "
                    f"{access.data.core.describe()}; make the two agree"
                )
            if element is not None and wrong_elements(access, element) is not None:
                raise TypeError(
                    f"{where} takes elements of type {getattr(element, '__name__', element)}, got "
                    f"{access.data.core.describe()}; convert the array, or change the annotation"
                )
        if asked is not None and library not in (None, asked):
            raise TypeError(f"{where} asks for arrays of {asked}, and one before it for {library}; ask for one of them")
        library = asked or library
    return library


def must_use_as_annotated(body: Any, items: tuple[Any, ...], first: int) -> None:
    """Compare the annotations of a kernel's body with its arguments, which begin at a position."""
    if body.__annotations__:
        library_asked(body, [[item] if isinstance(item, Access) else [] for item in items], first)


def fits(annotated: int, mode: int) -> bool:
    """Return whether a body that uses data as annotated may be given an access of a mode.

    A body that only reads, or only writes, may have access for both.
    """
    if annotated == READ | WRITE and mode == WRITE:
        return False
    return annotated & mode == annotated


def known_of(fn: Any) -> list[Any]:
    """Return what the annotations of a function's parameters say, in order."""
    code, annotations = fn.__code__, fn.__annotations__
    found = kept.get(code)
    if found is not None and found[0] == annotations:
        known: list[Any] = found[1]
        return known
    known = [read_annotation(fn, *item) for item in inspect.signature(fn).parameters.items()]
    known = [said for said in known if said[1] in ("plain", "*")]  # a task, a stream or a keyword is no array
    if not (code.co_freevars and any(isinstance(kind, str) for kind in annotations.values())):  # else they may differ
        if len(kept) >= KEPT:
            kept.clear()
        kept[code] = (dict(annotations), known)
    return known
