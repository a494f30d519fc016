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

from collections.abc import Sequence
from types import CodeType
from typing import Any

from stf._engine.access import READ
from stf._support.code_facts import facts_of
from stf._support.code_writing import returning
from stf.interop import adapters

__all__ = ["LastValues", "augmented_in", "called_in", "telling"]


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
            if value is before or not hasattr(before, "shape") or adapters.shares_memory(value, before):
                continue
            if name not in self.called or getattr(value, "shape", None) == before.shape:
                raise TypeError(
                    f"task '{getattr(fn, '__name__', 'body')}' computes a new {type(value).__name__} for its parameter "
                    f"'{name}', which was {described(before)}, so nothing is written to its data; give all operands of "
                    f"`{name} += ...` the same library, write into the array, `{name}[...] = ...`, or return the result"
                )


def described(value: Any) -> str:
    """Return a type by its name and, if others share that, its library."""
    kind = type(value)
    return f"a {kind.__module__.partition('.')[0]}.{kind.__name__}"


def augmented_in(code: CodeType) -> tuple[str, ...]:
    """Return the parameters that a function binds anew by ``+=`` and the like in the end, whatever it did before."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    augmented: set[str] = set()
    deleted: set[str] = set(code.co_cellvars)
    for step in facts_of(code).steps:
        if step.of != "local" or step.does == "load":
            continue
        if step.does == "delete":
            deleted.add(step.name)
        elif step.parts[0].is_in_place:
            augmented.add(step.name)
        else:  # a view, or something of its own: what comes behind it counts
            augmented.discard(step.name)
    return tuple(name for name in given if name in augmented and name not in deleted)


def called_in(code: CodeType) -> frozenset[str]:
    """Return the parameters that a function binds to what a call gives, where no line may write into an array."""
    steps = facts_of(code).steps
    if any(step.is_in_place or (step.of == "item" and step.does != "load") for step in steps):
        return frozenset()
    if "out" in code.co_names or any(isinstance(known, tuple) and "out" in known for known in code.co_consts):
        return frozenset()
    found: set[str] = set()
    others: set[str] = set(code.co_cellvars)
    for step in [step for step in steps if step.of in ("local", "cleared")]:
        if step.does == "delete" or step.user.is_load("attribute"):
            others.add(step.name)  # a method may write
        elif step.does == "store":
            value = step.parts[0].original
            values = [part.original for part in (value.parts if value.does == "join" else [value])]  # of either way
            is_called = any(one.does == "call" and one.of != "spread" for one in values)
            if is_called or not (value.is_load("local") and value.name == step.name):
                (found if is_called else others).add(step.name)
    return frozenset(found - others)


def telling(code: CodeType, modes: Sequence[int]) -> CodeType | None:
    """Return code that returns its augmented parameters with a mode that writes, in place of None; None without any."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    written = {name for name, mode in zip(given, modes, strict=False) if mode & ~READ}
    called, augmented = called_in(code), augmented_in(code)
    names = [name for name in given if name in written and (name in called or name in augmented)]
    values = LastValues(names, [given.index(name) for name in names], called)
    return returning(code, values, names) if names else None
