"""What is refused before anything is compiled, by a body's instructions: compilers would drop it without a word."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

from stf.kernels.captured import codes_in, global_names
from stf.tasks.lost_results import rebound_in

__all__ = ["must_contribute", "must_not_fail", "must_store", "returns_of"]

WRITE = 2

# what instructions begin with after which there is a value for sure
VALUES = ("BINARY", "BUILD", "COMPARE", "CONTAINS", "FORMAT", "IS_OP", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "UNARY")


@functools.lru_cache(maxsize=1024)
def returns_of(code: types.CodeType) -> tuple[tuple[int, str, int], ...]:
    """For each return of a function its line, and what it returns.

    That is ``"none"``, ``"value"``, ``"tuple"`` with so many items, or ``""`` for what the instructions do not say,
    such as the result of a call.
    """
    found = []
    before = None
    for instruction in dis.get_instructions(code):
        at = instruction.positions.lineno if instruction.positions is not None else None
        line = at or code.co_firstlineno
        if instruction.opname == "RETURN_CONST":
            found.append((line, "none" if instruction.argval is None else "value", 0))
        elif instruction.opname == "RETURN_VALUE" and before is not None:
            if instruction.is_jump_target:
                found.append((line, "", 0))
            elif before.opname == "BUILD_TUPLE":
                found.append((line, "tuple", before.arg or 0))
            elif before.opname == "LOAD_CONST" and before.argval is None:
                found.append((line, "none", 0))
            else:
                found.append((line, "value" if before.opname.startswith(VALUES) else "", 0))
        before = instruction
    return tuple(found)


def must_contribute(body: types.FunctionType, count: int, where: str) -> None:
    """Raise TypeError unless a body returns what so many reductions take.

    Of what it gets from a call nothing is known here; `contributions` looks at its type.
    """
    for line, what, items in returns_of(body.__code__):
        if count == 0 and what in ("value", "tuple"):
            raise TypeError(
                f"{where} returns a value in line {line}, which nothing takes; store it in an array, or pass a "
                "reduction, lS.reduce(op)"
            )
        if count and what == "none":
            raise TypeError(
                f"{where} returns nothing in line {line}; return what it contributes, and what is neutral for the "
                "operator where that is nothing"
            )
        if count and what == "tuple" and (count == 1 or items != count):
            raise TypeError(f"{where} returns {items} values in line {line}, for {count} scalars that are reduced into")


def must_store(body: types.FunctionType, first: int, items: tuple[Any, ...], where: str) -> None:
    """Raise TypeError for a body that cannot write an array as it says: `items` are given from parameter `first` on.

    It binds the parameter to something else, so that nothing is written; or each of many elements adds to one place,
    at the same time, so that most of what they add is lost.
    """
    code = body.__code__
    names = code.co_varnames[first : first + len(items)]
    written = {name for name, item in zip(names, items, strict=False) if getattr(item, "mode", 0) & WRITE}
    for name, line in rebound_in(code).items():
        if name in written:
            raise TypeError(
                f"{where} binds its parameter '{name}' to something else in line {line}, so nothing is written to its "
                f"data; write an element, `{name}[...] = ...`"
            )
    for name, line in added_to(code):
        if name in written:
            raise TypeError(
                f"{where} adds to one place of '{name}' in line {line}, for all elements at the same time, which loses "
                "most of it; return what each contributes, and pass a reduction, lS.reduce(stf.reducer.sum)"
            )


def added_to(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """The arrays that a body surely changes at a constant index, by ``x[0] += ...`` before any branch, and the line."""
    instructions = list(dis.get_instructions(code))
    for at, (array, index, copy, again, get) in enumerate(zip(*[instructions[k:] for k in range(5)], strict=False)):
        if "IF" in instructions[at].opname or instructions[at].opname == "FOR_ITER":
            return  # what comes now may be for some of them alone
        is_place = array.opname.startswith("LOAD_FAST") and index.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
        if is_place and copy.opname == again.opname == "COPY" and get.opname in ("BINARY_SUBSCR", "BINARY_OP"):
            line = array.positions.lineno if array.positions is not None else None
            yield str(array.argval), line or code.co_firstlineno


def must_not_fail(body: types.FunctionType, where: str) -> None:
    """Raise TypeError if a body, or a function that it calls, raises or catches, which GPUs do not."""
    for fn in functions_of(body, set()):
        for code in codes_in(fn.__code__):
            for instruction in dis.get_instructions(code):
                what = {"RAISE_VARARGS": "raise or assert", "PUSH_EXC_INFO": "try or with"}.get(instruction.opname)
                if what is not None:
                    who = where if fn is body else f"{where} calls '{fn.__name__}', which"
                    raise TypeError(f"{who} has {what}, which GPUs do not; store a flag, or say .on('host')")


def functions_of(fn: types.FunctionType, seen: set[types.FunctionType]) -> Iterator[types.FunctionType]:
    """A function, and those that it calls by global variables and those of its closure."""
    if fn in seen:
        return
    seen.add(fn)
    yield fn
    values = [fn.__globals__.get(name) for name in global_names(fn.__code__)]
    values += [cell.cell_contents for cell in fn.__closure__ or ()]
    for value in values:
        if isinstance(value, types.FunctionType):
            yield from functions_of(value, seen)
