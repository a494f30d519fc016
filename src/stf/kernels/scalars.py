"""Arithmetic of scalar data as one launch of one small kernel (scalars.cu), which gets a program with its arguments.

The kernel interprets the program, so that a device loads one module for all expressions. A kernel compiled for each
expression would have to be loaded when the expression is new, and CUDA refuses that while a stream is captured in its
stricter modes. It would also cost each new expression a run of NVRTC.

Types are NumPy's, and are worked out here when an expression is submitted. An array library computes what the kernel
has no instruction for (complex numbers, powers, exponentials, parameters): `program_of` returns None.
"""

from __future__ import annotations

import operator
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from stf.kernels.arguments import Kernel
from stf.kernels.compile.nvrtc import compile_cpp
from stf.kernels.kernel_handles import KernelSource
from stf.kernels.launching import Config, launch_alone
from stf.values.arithmetic import OPERATORS

__all__ = ["launch", "program_of"]

SOURCE = Path(__file__).with_name("scalars.cu").read_text()


def enumerators(kind: str) -> dict[str, int]:
    """Return the numbers of an enum of the kernel's by their names there."""
    (names,) = re.findall(rf"enum {kind} {{(.*?)}}", SOURCE, re.DOTALL)
    return {name: number for number, name in enumerate(re.findall(r"\w+", names))}


ARRAYS, WORDS, REGISTERS = (int(size) for size in re.findall(r"#define STF_\w+ (\d+)", SOURCE))
NUMBERS = enumerators("Type")
OPERATIONS = enumerators("Operation")
FUNCTIONS = {symbol: function for function, symbol in OPERATORS.items()}
OF_NUMBERS = {np.sqrt, np.maximum, np.minimum, np.equal, np.not_equal, np.less, np.less_equal, np.negative, np.absolute}
OF_NUMBERS |= {np.add, np.subtract, np.multiply, np.true_divide, np.floor_divide, np.remainder}
OF_TRUTH = {np.logical_and, np.logical_or, np.logical_xor, np.logical_not, np.equal, np.not_equal}
TURNED = {np.greater: np.less, np.greater_equal: np.less_equal}


class NotThereError(Exception):
    """The kernel has nothing for it."""


class ScalarProgram:
    """The instructions so far; each leaves its result in a register of its own."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.used = 0
        self.loaded: dict[int, int] = {}

    def put(
        self, operation: str, one: int = 0, other: int = 0, *words: int, target: int | None = None, kind: int = 0
    ) -> int:
        """Append an instruction; return the register of its result."""
        if target is None:
            target, self.used = self.used, self.used + 1
        self.words += [OPERATIONS[operation] | target << 8 | one << 16 | other << 24 | kind << 32, *words]
        if self.used > REGISTERS or len(self.words) >= WORDS:
            raise NotThereError
        return target

    def load(self, position: int, kind: np.dtype[Any]) -> int:
        """Return the register of an array's value."""
        if position not in self.loaded:
            if position >= ARRAYS:
                raise NotThereError
            self.loaded[position] = self.put("LOAD", position, number_of(kind))
        return self.loaded[position]

    def constant(self, value: Any, kind: np.dtype[Any]) -> int:
        """Return the register of a number."""
        if isinstance(value, complex | np.complexfloating):
            raise NotThereError
        found = kind.type(value)  # OverflowError for a Python int that it cannot hold
        word = float_word(float(found)) if is_float(kind) else int(found) & (1 << 64) - 1
        return self.put("CONSTANT", 0, 0, word)

    def converted(self, register: int, kind: np.dtype[Any], to: np.dtype[Any]) -> int:
        """Return the register of the same number as another type."""
        if kind == to:
            return register
        if is_float(kind) and to.kind == "b":
            return self.put("IS_NOT_ZERO", register)
        if is_float(kind) and not is_float(to):
            register = self.put("TO_UNSIGNED" if to.kind == "u" else "TO_INTEGER", register)
        elif is_float(to) and not is_float(kind):
            register = self.put("TO_FLOAT" if kind.kind == "i" else "UNSIGNED_TO_FLOAT", register, number_of(to))
        return self.put("NARROW", register, number_of(to))


def launch(task: Any, plan: Any, accesses: list[Any]) -> bool:
    """Have a task that has not begun compute an expression into its first data; False where the kernel cannot."""
    kinds = [access.data.core.layout.dtype for access in accesses]
    program = program_of(plan, kinds, kinds[0])
    if program is None:
        return False
    launch_alone(task, KERNEL, ONE_THREAD, (*accesses, *[0] * (ARRAYS - len(accesses)), program))
    return True


def program_of(expression: Any, kinds: list[Any], target: Any) -> bytes | None:
    """Return the words of the program that computes an expression into array 0; None where the kernel cannot.

    Parameters
    ----------
    expression : Plan
        With positions among the arrays in place of data.
    kinds : list of dtype
        The types of the arrays.
    target : dtype
        That of array 0.
    """
    program = ScalarProgram()
    try:
        register, kind = compiled(program, expression, kinds)
        if isinstance(kind, type):  # a number alone
            register, kind = program.constant(register, np.dtype(target)), np.dtype(target)
        register = program.converted(register, kind, np.dtype(target))
        program.put("STORE", register, number_of(np.dtype(target)), target=0)
    except (NotThereError, TypeError, ValueError, OverflowError):  # whatever is wrong with it, the library says
        return None
    return struct.pack(f"<{WORDS}Q", *program.words, *[0] * (WORDS - len(program.words)))


def compiled(program: ScalarProgram, node: Any, kinds: list[Any]) -> tuple[Any, Any]:
    """Return the register and the type of an expression; of a number of Python's itself and its own type."""
    if hasattr(node, "position"):
        kind = np.dtype(kinds[node.position])
        return program.load(node.position, kind), kind
    if not hasattr(node, "operands"):
        if type(node) in (int, float, bool):
            return node, type(node)
        if isinstance(node, np.generic):
            return program.constant(node, node.dtype), node.dtype
        raise NotThereError
    operands = [compiled(program, operand, kinds) for operand in node.operands]
    if getattr(node.operation, "__name__", "") == "itself":
        return operands[0]
    if node.operation is operator.pow:
        return power(program, *operands)
    function = FUNCTIONS.get(node.operation, node.operation)
    if function in TURNED:
        function, operands = TURNED[function], operands[::-1]
    if function is np.isnan:
        function, operands = np.not_equal, operands * 2
    if function is np.absolute and getattr(operands[0][1], "kind", "") == "u":
        return operands[0]
    return applied(program, function, operands)


def power(program: ScalarProgram, base: tuple[Any, Any], exponent: tuple[Any, Any]) -> tuple[Any, Any]:
    """Squares and roots of floats, which NumPy computes as such, too."""
    if isinstance(base[1], type) or not is_float(base[1]) or not isinstance(exponent[1], type):
        raise NotThereError
    if exponent[0] == 2:
        return applied(program, np.multiply, [base, base])
    if exponent[0] == 0.5:
        return applied(program, np.sqrt, [base])
    raise NotThereError


def applied(program: ScalarProgram, function: Any, operands: list[tuple[Any, Any]]) -> tuple[int, np.dtype[Any]]:
    """Return the register and the type of what one of NumPy's functions gives."""
    if not isinstance(function, np.ufunc) or function.nout != 1 or function.nin != len(operands):
        raise NotThereError
    given = [kind for _, kind in operands]
    if all(isinstance(kind, type) for kind in given) or any(kind is bool for kind in given):
        raise NotThereError
    *taken, result = function.resolve_dtypes((*given, None))
    if len({kind.name for kind in taken}) != 1:
        raise NotThereError  # a comparison of signed with unsigned numbers
    kind = taken[0]
    name = instruction(function, kind)
    if name is None or (result != kind and result.kind != "b"):
        raise NotThereError
    registers = [
        program.constant(value, kind) if isinstance(own, type) else program.converted(value, own, kind)
        for value, own in operands
    ]
    register = program.put(name, *registers, kind=number_of(kind))
    if result.kind != "b" and kind.itemsize < 8:
        register = program.put("NARROW", register, number_of(kind))
    return register, result


def instruction(function: np.ufunc, kind: np.dtype[Any]) -> str | None:
    """Return the name of the instruction that computes a function of NumPy's on a type; None where there is none."""
    if function not in (OF_TRUTH if kind.kind == "b" else OF_NUMBERS):
        return None
    name = function.__name__.upper().removeprefix("LOGICAL_")
    if is_float(kind):
        name = f"FLOAT_{name}"
    elif kind.kind == "u" and f"UNSIGNED_{name}" in OPERATIONS:
        name = f"UNSIGNED_{name}"
    return name if name in OPERATIONS else None


def number_of(kind: np.dtype[Any]) -> int:
    """Return the kernel's number of a type, whose bytes are in this machine's order."""
    name = kind.name.upper()
    if name not in NUMBERS or not kind.isnative:
        raise NotThereError
    return NUMBERS[name]


def is_float(kind: np.dtype[Any]) -> bool:
    """Return whether registers hold it as a double."""
    return kind.kind == "f" or kind.name == "bfloat16"


def float_word(value: float) -> int:
    """Return the bits of a double."""
    (word,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(word)


def image(capability: tuple[int, int]) -> bytes:
    """Return the kernel for devices of a compute capability."""
    return compile_cpp(SOURCE, capability, ("-fmad=false",))


KERNEL = Kernel(
    KernelSource(image, "stf_compute"), [*((8 * i, 8) for i in range(ARRAYS)), (8 * ARRAYS, 8 * WORDS)], [], "assign"
)
ONE_THREAD = Config(1, 1, 0)
