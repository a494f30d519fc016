"""What is refused before anything is compiled, by a body's instructions: compilers would drop it without a word."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator

from stf.kernels.captured import codes_in, global_names

__all__ = ["must_contribute", "must_not_fail", "returns_of"]

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
