"""Results that get lost: what a function computes, and nothing reaches its data.

``def f(x: stf.Read, y: stf.Write): y = 2 * x`` computes an array and drops it; ``2 * x`` alone, with the ``return``
forgotten, never touches ``y``. The bytecode tells, and only what is certain counts: the array that was given is only an
operand before its name is bound anew, or not used at all, and nothing is returned.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["LostResults", "given_in", "lost_results_of", "reach_of", "rebound_in", "uses_in"]

JUMPS = {*dis.hasjrel, *dis.hasjabs}
ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
NOTHING = ("NOP", "EXTENDED_ARG", "KW_NAMES", "RESUME")
PUSHES = ("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLOSURE", "PUSH_NULL")
MOVES = ("SWAP", "COPY", "UNPACK_SEQUENCE", "UNPACK_EX")
COMPARES = ("COMPARE_OP", "IS_OP", "CONTAINS_OP")
COMPUTES = frozenset({"+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"})  # a new array each
LIBRARIES = {"np", "numpy", "cp", "cupy", "jnp", "torch"}
NEW_ARRAYS = {  # functions of these that compute a new array from so many arguments, unless they are given one for it
    **dict.fromkeys(("exp", "log", "sqrt", "square", "sin", "cos", "tan", "tanh", "abs", "absolute", "negative"), 1),
    **dict.fromkeys(("relu", "sigmoid", "sign", "floor", "ceil", "isfinite", "isnan", "reciprocal"), 1),
    **dict.fromkeys(("maximum", "minimum", "add", "subtract", "multiply", "divide", "true_divide", "power", "mod"), 2),
    **dict.fromkeys(("matmul", "dot", "hypot", "arctan2", "fmax", "fmin", "logical_and", "logical_or", "outer"), 2),
    **dict.fromkeys(("clip", "clamp", "where"), 3),
    **dict.fromkeys(
        ("cumsum", "sort", "zeros_like", "ones_like", "full_like", "empty_like", "concatenate", "stack"), 1
    ),
}
METHODS = {"clip", "clamp", "copy", "round", "cumsum", "dot", "sum", "mean", "max", "min", "exp", "sqrt", "abs", "relu"}
GIVEN = object()  # the parameter, among what an expression has pushed
LOOKERS = {"eval", "exec", "locals", "vars"}


class LostResults(NamedTuple):
    """What the code of a function tells about results that it loses.

    `rebound` are parameters that it binds to something else, with the line; `untouched` those that it never uses, if it
    ends at all; `dropped` are the variables of the first statement that computes something and drops it, and its line,
    or None; it `returns` a value, or not.
    """

    rebound: dict[str, int]
    untouched: frozenset[str]
    dropped: tuple[frozenset[str], int] | None
    returns: bool


def lost_results_of(code: CodeType) -> LostResults:
    """What code tells."""
    instructions = list(dis.get_instructions(code))
    return LostResults(
        rebound_in(code), untouched_in(code, instructions), dropped_in(instructions), returns_something(instructions)
    )


def untouched_in(code: CodeType, instructions: list[dis.Instruction]) -> frozenset[str]:
    """The parameters that code never uses, and whose names do not begin with an underscore."""
    ends = any(one.opname in ("RETURN_VALUE", "RETURN_CONST") for one in instructions)
    if not ends or not LOOKERS.isdisjoint(code.co_names):
        return frozenset()
    used = {name for one in instructions for _, name in uses_in(one)}
    given = {name for name in given_in(code) if not name.startswith("_")}
    return frozenset(given - used - set(code.co_cellvars))


def given_in(code: CodeType) -> tuple[str, ...]:
    """The names of all parameters, those of ``*args`` and ``**kwargs`` last."""
    has = [bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)]
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + sum(has)]


def dropped_in(instructions: list[dis.Instruction]) -> tuple[frozenset[str], int] | None:
    """(variables, line) of the first statement that computes a new array from some, and does nothing with it."""
    for i, one in enumerate(instructions):
        loads = [name for kind, name in uses_in(one) if kind == "LOAD"]
        if not loads or "STORE" in one.opname:
            continue
        names = names_to_drop(instructions, i)
        is_computed = names[-1:] and (names[-1] in COMPARES or names[-1].startswith(("BINARY_OP", "UNARY_")))
        is_called = names[-1:] == ["CALL"] and names.count("CALL") == 1
        if (is_computed and is_operand(instructions, i, 0)) or (is_called and calls_for_new_array(instructions, i)):
            line = one.positions.lineno if one.positions is not None else None
            statement = instructions[statement_of(instructions, i) : i + len(names) + 2]
            return frozenset(name for part in statement for kind, name in uses_in(part) if kind == "LOAD"), line or 0
    return None


def names_to_drop(instructions: list[dis.Instruction], i: int) -> list[str]:
    """What a statement does from an instruction on, if it has no branches and its value is dropped; else nothing."""
    names: list[str] = []
    for one in instructions[i + 1 :]:
        if one.opname == "POP_TOP":
            return names
        if one.is_jump_target or one.opcode in JUMPS or one.opname.startswith(("STORE_", "RETURN_", "POP_")):
            return []
        names.append(one.opname)
    return []


def rebound_in(code: CodeType) -> dict[str, int]:
    """The parameters of a function that it binds to something else and never stores into, with the line where.

    Those whose names begin with an underscore are left out: their author does not use them.
    """
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = {name for name in given if not name.startswith("_")} - set(code.co_cellvars)
    instructions = list(dis.get_instructions(code))
    stores = {name for one in instructions for kind, name in uses_in(one) if kind == "STORE"}
    names &= stores
    if not names or not LOOKERS.isdisjoint(code.co_names) or returns_something(instructions):
        return {}
    if any(one.opname == "LOAD_FAST_AND_CLEAR" for one in instructions):  # the variable of a comprehension
        return {}
    starts = [entry.target for entry in getattr(dis.Bytecode(code), "exception_entries", ())]
    found = {name: rebinding_line(instructions, starts, name) for name in given if name in names}
    return {name: line for name, line in found.items() if line is not None}


def description_of_rebound(label: str, name: str, code: CodeType, line: int) -> str:
    """The error for a task that binds a parameter, which it is to write, to something else."""
    return (
        f"task '{label}' binds its parameter '{name}' to something else ({code.co_filename}:{line}), so nothing is "
        f"written to its data; write into the array, `{name}[...] = ...`, or return the result, `return ...`"
    )


def description_of_untouched(label: str, name: str) -> str:
    """The error for a task that does not use a parameter, which it is to write, and returns nothing."""
    return (
        f"task '{label}' is to write its parameter '{name}', and neither uses it nor returns a value, so nobody would "
        f"write its data; write into the array, `{name}[...] = ...`, return the result, or call the parameter "
        f"'_{name}' if it only orders tasks"
    )


def description_of_dropped(label: str, name: str) -> str:
    """The warning for a task that computes something from a parameter, and drops it."""
    return (
        f"task '{label}' computes something from '{name}' and drops it; assign it, `{name}[...] = ...`, change the "
        "array in place, or return the result"
    )


def uses_in(instruction: dis.Instruction) -> Iterator[tuple[str, str]]:
    """What an instruction does with local variables, in order: ("LOAD", "STORE" or "DELETE", name)."""
    if "_FAST" not in instruction.opname:
        return
    value = instruction.argval
    names = value if isinstance(value, tuple) else (value,)
    kinds = [word for word in instruction.opname.split("_") if word in ("LOAD", "STORE", "DELETE")]
    yield from zip(kinds, names, strict=False)


def returns_something(instructions: list[dis.Instruction]) -> bool:
    """Whether a function may return anything but None."""
    for before, one in zip([None, *instructions], instructions, strict=False):
        if one.opname == "RETURN_CONST" and one.argval is not None:
            return True
        if one.opname == "RETURN_VALUE":
            is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if one.is_jump_target or not is_none:
                return True
    return False


def rebinding_line(instructions: list[dis.Instruction], starts: list[int], name: str) -> int | None:
    """The first line that binds a parameter anew; None if what was given may have been written, or kept."""
    is_given = reach_of(instructions, starts, name)
    line = None
    for i, one in enumerate(instructions):
        here = is_given.get(i, False)
        uses = list(uses_in(one))
        for k, (kind, used) in enumerate(uses):
            if used != name or not here:
                continue
            if kind == "LOAD":
                if not is_operand(instructions, i, len([use for use in uses[k + 1 :] if use[0] == "LOAD"])):
                    return None
            else:
                here = False
                if kind == "STORE" and line is None:
                    line = one.positions.lineno if one.positions is not None else None
    return line


def reach_of(instructions: list[dis.Instruction], starts: list[int], name: str) -> dict[int, bool]:
    """Whether a parameter may be what was given still, by instruction that is reached; handlers begin with it."""
    at = {one.offset: i for i, one in enumerate(instructions)}
    is_given: dict[int, bool] = {}
    left = [(0, True), *((at[start], True) for start in starts)]
    while left:
        i, given = left.pop()
        if i >= len(instructions) or is_given.get(i) in (True, given):
            continue
        is_given[i] = given
        one = instructions[i]
        given = given and not any(used == name and kind != "LOAD" for kind, used in uses_in(one))
        if one.opcode in JUMPS:
            left.append((at[one.argval], given))
        if one.opname not in ENDS and one.opname not in ALWAYS:
            left.append((i + 1, given))
    return is_given


def is_operand(instructions: list[dis.Instruction], i: int, above: int) -> bool:
    """Whether a value that was just pushed, with so many `above` it, is computed with, and nothing else."""
    if above == 0 and calls_for_new_array(instructions, i):
        return True
    for one in instructions[i + 1 :]:
        name = one.opname
        if one.is_jump_target or one.opcode in JUMPS:
            return False
        if name == "BINARY_OP" and above < 2:
            return above == 0 or one.argrepr in COMPUTES
        if name in COMPARES and above < 2:
            return True
        if name.startswith("UNARY_") and above == 0:
            return True
        if name in NOTHING:
            continue
        effect = dis.stack_effect(one.opcode, one.arg, jump=False)
        pushes = name in PUSHES or (name.startswith("LOAD_FAST") and "STORE" not in name)
        if not pushes and (above == 0 or above + effect < 1 or name in MOVES):
            return False
        above += effect
    return False


def calls_for_new_array(instructions: list[dis.Instruction], i: int) -> bool:
    """Whether the value that instruction `i` pushes is an argument of a call that computes a new array from it.

    ``np.maximum(y, 0)``, or ``y.clip(0, 1)``, in an expression without branches or keywords.
    """
    following = [one for one in instructions[i + 1 :] if one.opname not in NOTHING]
    if following[0].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return following[0].argval in METHODS and not has_keywords(instructions, i)
    if has_keywords(instructions, i):
        return False
    stack: list[Any] = []
    for j in range(statement_of(instructions, i), len(instructions)):
        one, depth = instructions[j], len(stack)
        if one.opname in NOTHING or one.opname == "PRECALL":
            continue
        if one.is_jump_target or one.opcode in JUMPS:
            return False
        if one.opname == "CALL":
            count = one.arg or 0
            if depth < count + 2:
                return False
            given, callee = stack[depth - count :], stack[depth - count - 2 : depth - count]
            if GIVEN in given:
                known = [what for what in callee if isinstance(what, tuple)]
                return bool(known) and count <= NEW_ARRAYS.get(known[0][1], 0)
            del stack[depth - count - 2 :]
            stack.append(None)
        elif one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if not stack or stack[-1] is GIVEN:
                return False
            base = stack.pop()
            stack += [(base, one.argval) if base in LIBRARIES else None] * (1 + dis.stack_effect(one.opcode, one.arg))
        elif one.opname in PUSHES or (one.opname.startswith("LOAD_FAST") and "STORE" not in one.opname):
            pushed = dis.stack_effect(one.opcode, one.arg)
            tag: Any = one.argval if one.opname in ("LOAD_GLOBAL", "LOAD_DEREF") else GIVEN if j == i else None
            stack += [tag] * pushed
        elif one.opname in ("BINARY_OP", "BINARY_SUBSCR", *COMPARES) and depth > 1 and GIVEN not in stack[-2:]:
            stack[-2:] = [None]
        elif not (one.opname.startswith("UNARY_") and depth and stack[-1] is not GIVEN):
            return False
    return False


def statement_of(instructions: list[dis.Instruction], i: int) -> int:
    """Where the statement of an instruction begins: after the last one that leaves nothing on the stack."""
    while i > 0 and not instructions[i - 1].opname.startswith(("STORE_", "POP_", "RESUME", "DELETE_")):
        i -= 1
    return i


def has_keywords(instructions: list[dis.Instruction], i: int) -> bool:
    """Whether the statement of an instruction calls anything with keywords, such as ``out=``."""
    for one in instructions[statement_of(instructions, i) :]:
        if one.opname in ("KW_NAMES", "CALL_KW", "CALL_FUNCTION_EX"):
            return True
        if one.opname.startswith(("STORE_", "POP_TOP")):
            return False
    return False
