"""What is refused before anything is compiled, by a body's instructions: compilers would drop it without a word."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from stf.kernels.captured import attribute_names, codes_in, global_names, is_users_module, variables_read
from stf.tasks.lost_results import reach_of, rebound_in, statement_of, untouched_in, uses_in

__all__ = ["must_be_plain", "must_contribute", "must_not_fail", "must_store", "returns_of"]

WRITE = 2
WHOLE = {None, ..., slice(None)} if sys.version_info >= (3, 12) else {None, ...}  # constants of an index, of ``x[:]``
COMPUTES = ("BINARY_OP", "COMPARE_OP")
NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT", "BUILD_SLICE", "BUILD_TUPLE", "CACHE")  # that make up a constant index

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


def must_store(body: types.FunctionType, first: int, items: tuple[Any, ...], where: str, is_one: bool = True) -> None:
    """Raise TypeError for a body that does not write an array as it says: `items` are given from parameter `first` on.

    It binds the parameter to something else, or changes what it only reads, or all of an array for each element; or,
    unless it `is_one` element, each adds to one place, at the same time, so that most of what they add is lost. GPUs
    refuse some of that, too, with words about types.

    Parameters
    ----------
    body : function
    first : int
        Of the parameters that stand for `items`.
    items : tuple of Access or None
        None for arrays that are reduced into.
    where : str
        What messages call the body.
    is_one : bool
        Whether the body runs for one element alone, or finds out by itself what it works on.
    """
    code = body.__code__
    given = dict(zip(code.co_varnames[first : first + len(items)], items, strict=False))
    arrays = {name for name, item in given.items() if item is None or item.mode & WRITE or item.data.core.layout.shape}
    written = {name for name in arrays if given[name] is None or given[name].mode & WRITE}
    for name, line in rebound_in(code).items():
        if name in written:
            raise TypeError(
                f"{where} binds its parameter '{name}' to something else in line {line}, so nothing is written to its "
                f"data; write an element, `{name}[...] = ...`"
            )
    instructions = list(dis.get_instructions(code))
    untouched = untouched_in(code, instructions)
    for name, item in given.items():
        if name in untouched and item is not None and item.mode == WRITE:
            raise TypeError(
                f"{where} is to write its parameter '{name}', and never uses it, so nothing would write its data; "
                f"write an element, `{name}[...] = ...`, or call the parameter '_{name}' if it only orders tasks"
            )
    for name, line in dropped_from(code, arrays):
        raise TypeError(
            f"{where} computes something from '{name}' in line {line} and drops it; store it, `y[...] = ...`"
        )
    for name, line in changed_in(code):
        if name in arrays - written:
            refuse_read_only(where, name, line)
        if name in written:
            refuse_whole(where, name, line)
    around = arrays_around(body)
    for use, name, line in uses_of(code):
        if use == "compute":
            if name in written:
                raise TypeError(
                    f"{where} computes with all of '{name}' in line {line}, while other elements change it; name an "
                    f"element, `{name}[i]`"
                )
        elif name in arrays - written:
            refuse_read_only(where, name, line)
        elif name in around:
            raise TypeError(
                f"{where} writes in line {line} to '{name}', an array around it, of which kernels get a copy; register "
                "it with ctx.logical_data and pass an access"
            )
    for name, line, is_whole in () if is_one else changed_for_all(code):
        if name not in written or given[name] is None:
            continue
        if not is_whole:
            raise TypeError(
                f"{where} adds to one place of '{name}' in line {line}, for all elements at the same time, which loses "
                "most of it; return what each contributes, and pass a reduction, lS.reduce(stf.reducer.sum)"
            )
        if given[name].data.core.layout.shape:
            refuse_whole(where, name, line)


def dropped_from(code: types.CodeType, arrays: set[str]) -> Iterator[tuple[str, int]]:
    """The arrays of whose elements a statement computes a number that nothing takes, and the line."""
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    for at, (before, after) in enumerate(itertools.pairwise(instructions)):
        computes = before.opname in COMPUTES or before.opname.startswith("UNARY")
        if computes and after.opname == "POP_TOP" and not after.is_jump_target:
            statement = instructions[statement_of(instructions, at) : at]
            names = [name for one in statement for kind, name in uses_in(one) if kind == "LOAD" and name in arrays]
            if names:
                yield names[0], line_of(before, code)


def refuse_whole(where: str, name: str, line: int) -> None:
    """Raise TypeError for a change of a whole array by each element."""
    raise TypeError(
        f"{where} changes all of '{name}' in line {line}, and does so for each element; change one element, "
        f"`{name}[i] = ...`, or return what each contributes, and pass a reduction, lS.reduce(stf.reducer.sum)"
    )


def refuse_read_only(where: str, name: str, line: int) -> None:
    """Raise TypeError for a write to what is only read."""
    raise TypeError(f"{where} writes in line {line} to '{name}', which it only reads; pass it with rw() or write()")


def arrays_around(fn: types.FunctionType) -> set[str]:
    """The variables around a function that hold arrays of NumPy's, unless it has variables of its own of that name."""
    found = dict(cells_of(fn))
    found |= {name: fn.__globals__[name] for name in global_names(fn.__code__) if name in fn.__globals__}
    return {name for name, value in found.items() if type(value) is np.ndarray} - set(fn.__code__.co_varnames)


def changed_for_all(code: types.CodeType) -> Iterator[tuple[str, int, bool]]:
    """The arrays that a body surely changes at an index that is the same for all elements, before any branch.

    With the line, and whether that is all of the array: ``x[:] = ...``. Else it adds: ``x[0] += ...``, or ``x[0] = x[0]
    + ...``; what it only sets may be a flag.
    """
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG")]
    read: set[tuple[Any, ...]] = set()
    for at, array in enumerate(instructions):
        if "IF" in array.opname or array.opname == "FOR_ITER":
            return  # what comes now may be for some of them alone
        if not array.opname.startswith("LOAD_FAST"):
            continue
        end = at + 1
        while instructions[end].opname in CONSTANTS:
            end += 1
        if end == at + 1:
            continue
        place = (array.argval, *[(one.opname, repr(one.argval)) for one in instructions[at + 1 : end]])
        after, again = instructions[end].opname, instructions[min(end + 1, len(instructions) - 1)].opname
        is_store = after in ("STORE_SUBSCR", "STORE_SLICE")
        if after == again == "COPY" or (is_store and place in read):
            yield str(array.argval), line_of(array, code), False
        elif is_store and {one.argval for one in instructions[at + 1 : end] if one.opname == "LOAD_CONST"} <= WHOLE:
            yield str(array.argval), line_of(array, code), True
        elif after in ("BINARY_SUBSCR", "BINARY_SLICE") or instructions[end].argrepr == "[]":
            read.add(place)


def changed_in(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """The parameters that a body changes as a whole, by ``x += ...``, and the line."""
    instructions = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "EXTENDED_ARG")]
    for at, (before, store) in enumerate(itertools.pairwise(instructions), 1):
        if before.opname != "BINARY_OP" or not before.argrepr.endswith("="):
            continue
        for kind, name in list(uses_in(store))[:1]:
            if kind == "STORE" and reach_of(instructions, [], name).get(at):  # what was given, and nothing else
                yield name, line_of(store, code)


def uses_of(code: types.CodeType) -> Iterator[tuple[str, str, int]]:
    """What a body does with variables that hold arrays: ``"store"`` or ``"compute"``, the name, and the line.

    It stores by ``x[...] = ...``, and computes with all of an array by ``2 * x``. Names are followed over the stack of
    the interpreter, from one jump to the next, as long as they mean what the body was given.
    """
    instructions = list(dis.get_instructions(code))
    reach: dict[str, dict[int, bool]] = {}
    stack: list[str | None] = []
    for at, one in enumerate(instructions):
        if one.is_jump_target:
            stack.clear()
        name = one.opname
        if name in ("CACHE", "EXTENDED_ARG", "NOP", "RESUME"):
            continue
        loads = [used for kind, used in uses_in(one) if kind == "LOAD"]
        depth = {"STORE_SUBSCR": 2, "STORE_SLICE": 3}.get(name)
        operands = stack[-depth : len(stack) - depth + 1] if depth else stack[-2:] if name in COMPUTES else []
        if name.startswith("UNARY"):
            operands = stack[-1:]
        for used in operands:
            if used is not None and not (name == "BINARY_OP" and one.argrepr.endswith(("=", "]"))):  # see `changed_in`
                yield "store" if depth else "compute", used, line_of(one, code)
        if name in ("COPY", "SWAP"):
            place = one.arg or 1
            stack[:0] = [None] * (place - len(stack))
            if name == "COPY":
                stack.append(stack[-place])
            else:
                stack[-place], stack[-1] = stack[-1], stack[-place]
        elif loads and "STORE" not in name:
            for used in loads:
                known = reach.setdefault(used, reach_of(instructions, [], used))
                stack.append(used if known.get(at) else None)
        elif name in ("LOAD_DEREF", "LOAD_GLOBAL"):
            stack += [*[None] * (dis.stack_effect(one.opcode, one.arg) - 1), one.argval]
        else:
            effect = dis.stack_effect(one.opcode, one.arg, jump=False)
            pops = name.startswith(("STORE", "POP", "RETURN", "DELETE"))
            if effect <= 0:
                del stack[len(stack) - min(len(stack), -effect + (not pops)) :]
            stack += [None] * (max(effect, 1) if not pops else 0)


def line_of(instruction: dis.Instruction, code: types.CodeType) -> int:
    """The line of an instruction."""
    return (instruction.positions.lineno if instruction.positions is not None else None) or code.co_firstlineno


def must_be_plain(body: types.FunctionType, where: str) -> None:
    """Raise TypeError for a body that is more than a function of its arguments, or calls such a function."""
    for fn in functions_of(body, set()):
        who = where if fn is body else f"{where} calls '{fn.__name__}', which"
        if fn.__code__.co_flags & NO_FUNCTION:
            raise TypeError(
                f"{who} is a coroutine or a generator, which kernels cannot run; write it with def, no yield"
            )
        for code in codes_in(fn.__code__):
            for instruction in dis.get_instructions(code):
                name, is_free = instruction.argval, instruction.argval in fn.__code__.co_freevars
                if instruction.opname == "STORE_GLOBAL" or (instruction.opname == "STORE_DEREF" and is_free):
                    raise TypeError(
                        f"{who} assigns to '{name}', a variable around it, in line {line_of(instruction, code)}, which "
                        "kernels cannot: elements run beside each other; return what each contributes, and pass a "
                        "reduction, lS.reduce(stf.reducer.sum)"
                    )
            names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars, *code.co_names)
            ours = next((name for name in names if name.startswith("_stf_")), None)
            if ours is not None:
                raise TypeError(
                    f"{who} has a variable '{ours}'; names that begin with _stf_ are those of stf, rename it"
                )


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
    modules = [value for value in values if isinstance(value, types.ModuleType) and is_users_module(value)]
    values += [value for _, value in cells_of(fn)]
    values += [value for one in modules for _, _, value in variables_read(one, attribute_names(fn.__code__))]
    for value in values:
        if isinstance(value, types.FunctionType):
            yield from functions_of(value, seen)


def cells_of(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables of a function's closure that have a value."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            yield name, cell.cell_contents
