"""What a function has bound its parameters to when it is over, where it may have lost what it computed.

``y += x`` changes an array in place, as long as its library does so. NumPy and CuPy give way to operands of other
libraries, and JAX arrays never change: then ``y`` is another object afterwards, and what it holds is lost. Python tells
nobody. Nor does it of ``y = np.roll(y, 1)``, whose result goes nowhere. So such a function runs as a copy whose
``return`` without a value gives the parameters in question back, behind a constant of the code: a block at the end of
the bytecode does it, and each such ``return`` jumps there. No instruction moves, so that lines, jumps and handlers of
exceptions stay as they are. A ``return`` without another one, or the end, within 512 bytes of code has no room for such
a jump, and is not seen.

Tried instead: profile functions and `sys.monitoring` (slow, or in the way of the user's own), compiling the source
again (often there is none).
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType
from typing import Any

from stf.interop import adapters
from stf.tasks.lost_results import NOTHING, uses_in

__all__ = ["LastValues", "augmented_in", "called_in", "telling"]

READ = 1
WRITES = ("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")
OPCODE = dis.opmap
WIDE = 256  # values of an argument that needs no prefix
LOAD = OPCODE.get("LOAD_FAST_CHECK", OPCODE["LOAD_FAST"])  # the one that sees that a variable has no value


class LastValues:
    """Which parameters come back behind it, as a constant of the code that returns them."""

    __slots__ = ("called", "names", "positions")

    def __init__(self, names: Sequence[str], positions: Sequence[int], called: frozenset[str]) -> None:
        self.names = tuple(names)
        self.positions = tuple(positions)
        self.called = called  # those that a call gave a new value, and which nothing else changes

    def check(self, result: tuple[Any, ...], given: Sequence[Any], fn: Any) -> None:
        """Raise TypeError if a parameter is not what the function was given."""
        for name, position, value in zip(self.names, self.positions, result[1:], strict=True):
            before = given[position]
            if value is before or not hasattr(before, "shape") or adapters.share_memory(value, before):
                continue
            if name not in self.called or getattr(value, "shape", None) == before.shape:
                raise TypeError(
                    f"task '{getattr(fn, '__name__', 'body')}' computes a new {type(value).__name__} for its parameter "
                    f"'{name}', which was {described(before)}, so nothing is written to its data; give all operands of "
                    f"`{name} += ...` the same library, write into the array, `{name}[...] = ...`, or return the result"
                )


def described(value: Any) -> str:
    """A type by its name and, if others share that, its library."""
    kind = type(value)
    return f"a {kind.__module__.partition('.')[0]}.{kind.__name__}"


def augmented_in(code: CodeType) -> tuple[str, ...]:
    """The parameters that a function binds anew by ``+=`` and the like in the end, whatever it did before."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    augmented: set[str] = set()
    deleted: set[str] = set(code.co_cellvars)
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if one.opname in NOTHING:
            continue
        stores = [(kind, name) for kind, name in uses_in(one) if kind != "LOAD"]
        for position, (kind, name) in enumerate(stores):
            operator = before.argrepr if before is not None and before.opname == "BINARY_OP" else ""
            if kind == "DELETE":
                deleted.add(name)
            elif position == 0 and operator.endswith("="):
                augmented.add(name)
            else:  # a view, or something of its own: what comes behind it counts
                augmented.discard(name)
        before = one
    return tuple(name for name in given if name in augmented and name not in deleted)


def called_in(code: CodeType) -> frozenset[str]:
    """The parameters that a function binds to what a call gives, where no line may write into an array."""
    instructions = [one for one in dis.get_instructions(code) if one.opname not in NOTHING]
    if any(one.opname in WRITES or (one.opname == "BINARY_OP" and one.argrepr.endswith("=")) for one in instructions):
        return frozenset()
    if "out" in code.co_names or any(isinstance(known, tuple) and "out" in known for known in code.co_consts):
        return frozenset()
    found: set[str] = set()
    others: set[str] = set(code.co_cellvars)
    for before, one, after in zip([None, *instructions], instructions, [*instructions[1:], None], strict=False):
        for kind, name in uses_in(one):
            if kind == "LOAD" and after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                others.add(name)  # a method may write
            elif kind == "DELETE":
                others.add(name)
            elif kind == "STORE":
                (found if before is not None and before.opname == "CALL" else others).add(name)
    return frozenset(found - others)


def telling(code: CodeType, modes: Sequence[int], first: int = 0) -> CodeType | None:
    """Code that returns, in place of None, its augmented parameters with a mode that writes; None if it has none.

    `modes` are those of the parameters from `first` on.
    """
    given = code.co_varnames[first : code.co_argcount + code.co_kwonlyargcount]
    written = {name for name, mode in zip(given, modes, strict=False) if mode & ~READ}
    called, augmented = called_in(code), augmented_in(code)
    names = [name for name in given if name in written and (name in called or name in augmented)]
    return with_block(code, names, [given.index(name) for name in names], called) if names else None


def with_block(
    code: CodeType, names: Sequence[str], positions: Sequence[int], called: frozenset[str] = frozenset()
) -> CodeType | None:
    """The code with a block at its end that returns variables, to which each ``return`` of None jumps."""
    units = bytearray(code.co_code)
    target = len(units)
    ends = [target]  # where a jump may lead: to the block, or to another jump to it
    for start, end in reversed(returns_of_none(code)):
        replaced = next((found for place in ends if (found := jump(start, end, place)) is not None), None)
        if replaced is not None:  # else more than 512 bytes of code are between this return and the next
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
        co_consts=(*code.co_consts, LastValues(names, positions, called)),
        co_stacksize=code.co_stacksize + len(names) + 1,
        co_linetable=code.co_linetable + without_lines(len(block) // 2),
    )


def returns_of_none(code: CodeType) -> list[tuple[int, int]]:
    """Where code returns None: (begin, end) of the instruction that says so, with its prefix."""
    found = []
    instructions = list(dis.get_instructions(code))
    for i, one in enumerate(instructions):
        is_none = one.opname in ("LOAD_CONST", "RETURN_CONST") and one.argval is None
        if is_none and (one.opname == "RETURN_CONST" or following(instructions, i) == "RETURN_VALUE"):
            begin = one.offset - (2 if i and instructions[i - 1].opname == "EXTENDED_ARG" else 0)
            found.append((begin, one.offset + 2))
    return found


def following(instructions: list[dis.Instruction], i: int) -> str:
    """The name of the next instruction."""
    return instructions[i + 1].opname if i + 1 < len(instructions) else ""


def jump(start: int, end: int, target: int) -> bytes | None:
    """A jump to `target`, in place of what is there from `start` to `end`; None if it is too far."""
    distance = (target - end) // 2
    if end - start == 2:
        return bytes((OPCODE["JUMP_FORWARD"], distance)) if distance < WIDE else None
    if distance >= WIDE * WIDE:
        return None
    return bytes((dis.EXTENDED_ARG, distance // WIDE, OPCODE["JUMP_FORWARD"], distance % WIDE))


def unit(opcode: int, argument: int) -> bytes:
    """An instruction with its argument."""
    prefix = bytes((dis.EXTENDED_ARG, argument // WIDE)) if argument >= WIDE else b""
    return prefix + bytes((opcode, argument % WIDE))


def without_lines(count: int) -> bytes:
    """Entries of a table of lines (Objects/locations.md of CPython) for so many units that are on none."""
    entries = [min(8, count - done) for done in range(0, count, 8)]
    return bytes(0xF8 | (size - 1) for size in entries)
