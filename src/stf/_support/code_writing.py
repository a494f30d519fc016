"""Functions whose bytecode is written: other returns, other variables. Beside `code_facts`, all that names opcodes.

No instruction moves, so that lines, jumps and handlers of exceptions stay as they are. What is written takes the place
of what was there, or lies in a block at the end.
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from stf._support.code_facts import facts_of

__all__ = ["closing_over", "returning"]

OPCODE = dis.opmap
WIDE = 256  # values of an argument that needs no prefix
LOAD = OPCODE.get("LOAD_FAST_CHECK", OPCODE["LOAD_FAST"])  # the one that sees that a variable has no value


def returning(code: CodeType, constant: Any, names: Sequence[str]) -> CodeType | None:
    """Return code that returns a constant and local variables, as a tuple, where it returned None.

    Each such ``return`` jumps to a block at the end. One without room for the jump, 512 bytes or more before the next,
    stays as it is. Return None if all do.
    """
    units = bytearray(code.co_code)
    target = len(units)
    ends = [target]  # where a jump may lead: to the block, or to another jump to it
    steps = facts_of(code).steps
    nones = [one for one, after in itertools.pairwise(steps) if after.does == "return" and one.is_none]
    for one in reversed(nones):
        start, end = span(units, one.offset)
        replaced = next((found for place in ends if (found := jump(start, end, place)) is not None), None)
        if replaced is not None:
            units[start:end] = replaced
            ends.append(start)
    if len(ends) == 1:
        return None
    block = unit(OPCODE["LOAD_CONST"], len(code.co_consts))
    for name in names:
        block += unit(LOAD, code.co_varnames.index(name))
    block += unit(OPCODE["BUILD_TUPLE"], len(names) + 1) + unit(OPCODE["RETURN_VALUE"], 0)
    return code.replace(
        co_code=bytes(units + block),
        co_consts=(*code.co_consts, constant),
        co_stacksize=code.co_stacksize + len(names) + 1,
        co_linetable=code.co_linetable + without_lines(len(block) // 2),
    )


def closing_over(code: CodeType, free: tuple[str, ...], variables: Mapping[str, str]) -> CodeType:
    """Return code with these free variables, which it reads in place of global ones: `variables`, by name.

    It is for compilers, which follow its bytes; nobody runs it.
    """
    first = len(code.co_varnames) + len(set(code.co_cellvars) - set(code.co_varnames))
    units = bytearray(code.co_code)
    for step in facts_of(code).loads("global"):
        if step.name in variables:
            start, end = span(units, step.offset)
            read = unit(OPCODE["LOAD_DEREF"], first + free.index(variables[step.name]))
            units[start:end] = read + unit(OPCODE["NOP"], 0) * ((end - start - len(read)) // 2)
    return code.replace(co_code=bytes(units), co_freevars=free)


def span(units: bytearray, offset: int) -> tuple[int, int]:
    """Return where an instruction begins, with its prefix, and where it ends, with its cache."""
    start, end = offset, offset + 2
    while start and units[start - 2] == dis.EXTENDED_ARG:
        start -= 2
    while end < len(units) and units[end] == OPCODE["CACHE"]:
        end += 2
    return start, end


def jump(start: int, end: int, target: int) -> bytes | None:
    """Return a jump to `target`, in place of what is there from `start` to `end`; None if it is too far."""
    distance = (target - end) // 2
    if distance >= (WIDE * WIDE if end - start > 2 else WIDE):
        return None
    prefix = bytes((dis.EXTENDED_ARG, distance // WIDE)) if end - start > 2 else b""
    found = prefix + bytes((OPCODE["JUMP_FORWARD"], distance % WIDE))
    return unit(OPCODE["NOP"], 0) * ((end - start - len(found)) // 2) + found


def unit(opcode: int, argument: int) -> bytes:
    """Return an instruction with its argument."""
    prefix = bytes((dis.EXTENDED_ARG, argument // WIDE)) if argument >= WIDE else b""
    return prefix + bytes((opcode, argument % WIDE))


def without_lines(count: int) -> bytes:
    """Return entries of a table of lines (Objects/locations.md of CPython) for so many units that are on none."""
    entries = [min(8, count - done) for done in range(0, count, 8)]
    return bytes(0xF8 | (size - 1) for size in entries)
