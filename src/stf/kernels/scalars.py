"""Arithmetic of scalar data as one launch of one small kernel (scalars.cu), which gets a program with its arguments.

Types are NumPy's, and are worked out here when an expression is submitted. What the kernel has no instruction for
(complex numbers, powers, exponentials, parameters) is left to an array library: `program_of` gives None.
"""

from __future__ import annotations

import enum
import operator
import struct
from pathlib import Path
from typing import Any

import numpy as np

from stf.kernels.arguments import Kernel
from stf.kernels.compile.nvrtc import compile_cpp
from stf.kernels.kernel_handles import Source
from stf.kernels.launching import Config, launch_alone

__all__ = ["launch", "program_of"]

ARRAYS, WORDS, REGISTERS = 8, 56, 32
NUMBERS = enum.IntEnum(  # of types
    "NUMBERS", "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64", start=0
)
OPERATIONS = enum.IntEnum(
    "OPERATIONS",
    "END LOAD CONSTANT STORE ROUND WRAP TO_FLOAT UNSIGNED_TO_FLOAT TO_INTEGER TO_UNSIGNED IS_NOT_ZERO "
    "FLOAT_ADD FLOAT_SUBTRACT FLOAT_MULTIPLY FLOAT_DIVIDE FLOAT_NEGATIVE FLOAT_ABSOLUTE FLOAT_SQRT FLOAT_MAXIMUM "
    "FLOAT_MINIMUM FLOAT_FLOOR_DIVIDE FLOAT_REMAINDER FLOAT_LESS FLOAT_LESS_EQUAL FLOAT_EQUAL FLOAT_NOT_EQUAL "
    "ADD SUBTRACT MULTIPLY NEGATIVE ABSOLUTE FLOOR_DIVIDE REMAINDER UNSIGNED_FLOOR_DIVIDE UNSIGNED_REMAINDER LESS "
    "LESS_EQUAL UNSIGNED_LESS UNSIGNED_LESS_EQUAL EQUAL NOT_EQUAL MAXIMUM MINIMUM UNSIGNED_MAXIMUM UNSIGNED_MINIMUM "
    "AND OR XOR NOT",
    start=0,
)
FUNCTIONS: dict[Any, np.ufunc] = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.truediv: np.true_divide,
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder,
    operator.neg: np.negative,
    operator.abs: np.absolute,
    operator.lt: np.less,
    operator.le: np.less_equal,
    operator.gt: np.greater,
    operator.ge: np.greater_equal,
    operator.eq: np.equal,
    operator.ne: np.not_equal,
}
OF_FLOATS = {
    np.add: "FLOAT_ADD",
    np.subtract: "FLOAT_SUBTRACT",
    np.multiply: "FLOAT_MULTIPLY",
    np.true_divide: "FLOAT_DIVIDE",
    np.negative: "FLOAT_NEGATIVE",
    np.absolute: "FLOAT_ABSOLUTE",
    np.sqrt: "FLOAT_SQRT",
    np.maximum: "FLOAT_MAXIMUM",
    np.minimum: "FLOAT_MINIMUM",
    np.floor_divide: "FLOAT_FLOOR_DIVIDE",
    np.remainder: "FLOAT_REMAINDER",
    np.less: "FLOAT_LESS",
    np.less_equal: "FLOAT_LESS_EQUAL",
    np.equal: "FLOAT_EQUAL",
    np.not_equal: "FLOAT_NOT_EQUAL",
}
OF_INTEGERS = {
    np.add: "ADD",
    np.subtract: "SUBTRACT",
    np.multiply: "MULTIPLY",
    np.negative: "NEGATIVE",
    np.absolute: "ABSOLUTE",
    np.floor_divide: "FLOOR_DIVIDE",
    np.remainder: "REMAINDER",
    np.maximum: "MAXIMUM",
    np.minimum: "MINIMUM",
    np.less: "LESS",
    np.less_equal: "LESS_EQUAL",
    np.equal: "EQUAL",
    np.not_equal: "NOT_EQUAL",
}
OF_UNSIGNED = OF_INTEGERS | {
    np.floor_divide: "UNSIGNED_FLOOR_DIVIDE",
    np.remainder: "UNSIGNED_REMAINDER",
    np.maximum: "UNSIGNED_MAXIMUM",
    np.minimum: "UNSIGNED_MINIMUM",
    np.less: "UNSIGNED_LESS",
    np.less_equal: "UNSIGNED_LESS_EQUAL",
}
OF_TRUTH = {
    np.logical_and: "AND",
    np.logical_or: "OR",
    np.logical_xor: "XOR",
    np.logical_not: "NOT",
    np.equal: "EQUAL",
    np.not_equal: "NOT_EQUAL",
}
TURNED = {np.greater: np.less, np.greater_equal: np.less_equal}


class NotThereError(Exception):
    """The kernel has nothing for it."""


class Program:
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
        """The register of an array's value."""
        if position not in self.loaded:
            if position >= ARRAYS:
                raise NotThereError
            self.loaded[position] = self.put("LOAD", position, number_of(kind))
        return self.loaded[position]

    def constant(self, value: Any, kind: np.dtype[Any]) -> int:
        """The register of a number."""
        if isinstance(value, complex | np.complexfloating):
            raise NotThereError
        found = kind.type(value)  # OverflowError for a Python int that it cannot hold
        word = float_word(float(found)) if is_float(kind) else int(found) & (1 << 64) - 1
        return self.put("CONSTANT", 0, 0, word)

    def converted(self, register: int, kind: np.dtype[Any], to: np.dtype[Any]) -> int:
        """The register of the same number as another type."""
        if kind == to:
            return register
        if is_float(kind):
            if is_float(to):
                return self.put("ROUND", register, number_of(to))
            if to.kind == "b":
                return self.put("IS_NOT_ZERO", register)
            register = self.put("TO_UNSIGNED" if to.kind == "u" else "TO_INTEGER", register)
            return self.put("WRAP", register, number_of(to))
        if is_float(to):
            register = self.put("TO_FLOAT" if kind.kind == "i" else "UNSIGNED_TO_FLOAT", register, number_of(to))
            return self.put("ROUND", register, number_of(to))
        return self.put("WRAP", register, number_of(to))


def launch(task: Any, plan: Any, accesses: list[Any]) -> bool:
    """Have a task that has not begun compute an expression into its first data; False where the kernel cannot."""
    kinds = [access.data.core.layout.dtype for access in accesses]
    program = program_of(plan, kinds, kinds[0])
    if program is None:
        return False
    launch_alone(task, KERNEL, ONE_THREAD, (*accesses, *[0] * (ARRAYS - len(accesses)), program))
    return True


def program_of(expression: Any, kinds: list[Any], target: Any) -> bytes | None:
    """The words of the program that computes an expression into array 0; None where the kernel cannot.

    Parameters
    ----------
    expression : Plan
        With positions among the arrays in place of data.
    kinds : list of dtype
        The types of the arrays.
    target : dtype
        That of array 0.
    """
    program = Program()
    try:
        register, kind = compiled(program, expression, kinds)
        if isinstance(kind, type):  # a number alone
            register, kind = program.constant(register, np.dtype(target)), np.dtype(target)
        register = program.converted(register, kind, np.dtype(target))
        program.put("STORE", register, number_of(np.dtype(target)), target=0)
    except (NotThereError, TypeError, ValueError, OverflowError):  # whatever is wrong with it, the library says
        return None
    return struct.pack(f"<{WORDS}Q", *program.words, *[0] * (WORDS - len(program.words)))


def compiled(program: Program, node: Any, kinds: list[Any]) -> tuple[Any, Any]:
    """The register and the type of an expression; of a number of Python's itself and its own type."""
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


def power(program: Program, base: tuple[Any, Any], exponent: tuple[Any, Any]) -> tuple[Any, Any]:
    """Squares and roots of floats, which NumPy computes as such, too."""
    if isinstance(base[1], type) or not is_float(base[1]) or not isinstance(exponent[1], type):
        raise NotThereError
    if exponent[0] == 2:
        return applied(program, np.multiply, [base, base])
    if exponent[0] == 0.5:
        return applied(program, np.sqrt, [base])
    raise NotThereError


def applied(program: Program, function: Any, operands: list[tuple[Any, Any]]) -> tuple[int, np.dtype[Any]]:
    """The register and the type of what one of NumPy's functions gives."""
    if not isinstance(function, np.ufunc) or function.nout != 1 or function.nin != len(operands):
        raise NotThereError
    given = [kind for _, kind in operands]
    if all(isinstance(kind, type) for kind in given) or any(kind is bool for kind in given):
        raise NotThereError
    *taken, result = function.resolve_dtypes((*given, None))
    if len({kind.name for kind in taken}) != 1:
        raise NotThereError  # a comparison of signed with unsigned numbers
    kind = taken[0]
    if is_float(kind):
        name = OF_FLOATS.get(function)
    elif kind.kind == "b":
        name = OF_TRUTH.get(function)
    else:
        name = (OF_UNSIGNED if kind.kind == "u" else OF_INTEGERS).get(function)
    if name is None or (result != kind and result.kind != "b"):
        raise NotThereError
    registers = [
        program.constant(value, kind) if isinstance(own, type) else program.converted(value, own, kind)
        for value, own in operands
    ]
    register = program.put(name, *registers, kind=number_of(kind))
    if result.kind != "b" and kind.itemsize < 8:
        register = program.put("ROUND" if is_float(kind) else "WRAP", register, number_of(kind))
    return register, result


def number_of(kind: np.dtype[Any]) -> int:
    """The kernel's number of a type, whose bytes are in this machine's order."""
    if kind.name not in NUMBERS.__members__ or not kind.isnative:
        raise NotThereError
    return int(NUMBERS[kind.name])


def is_float(kind: np.dtype[Any]) -> bool:
    """Whether registers hold it as a double."""
    return kind.kind == "f" or kind.name == "bfloat16"


def float_word(value: float) -> int:
    """The bits of a double."""
    (word,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(word)


def image(capability: tuple[int, int]) -> bytes:
    """Return the kernel for devices of a compute capability."""
    return compile_cpp(Path(__file__).with_name("scalars.cu").read_text(), capability, ("-fmad=false",))


KERNEL = Kernel(
    Source(image, "stf_compute"), [*((8 * i, 8) for i in range(ARRAYS)), (8 * ARRAYS, 8 * WORDS)], [], "assign"
)
ONE_THREAD = Config(1, 1, 0)
