"""Conditions and arithmetic of scalars that are logical data: computed by a task, not by the host."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle

if TYPE_CHECKING:
    from stf.contexts import Context

__all__ = ["Condition", "Expression", "equal"]


class Expression:
    """Arithmetic of zero-dimensional (or one-element) logical data and constants, such as ``rs / pAp``.

    ``alpha.assign(rs / pAp)`` computes it, in one task.
    """

    def __init__(self, operation: Callable[..., Any], *operands: Any) -> None:
        self.operation = operation
        self.operands = operands

    def leaves(self) -> Iterator[Any]:
        """The logical data that it reads, each as often as it stands there."""
        for operand in self.operands:
            if isinstance(operand, Expression):
                yield from operand.leaves()
            elif isinstance(operand, DataHandle):
                yield operand

    def planned(self, positions: dict[int, int]) -> Plan:
        """The same with positions in place of the data, by their numbers."""
        found: list[Any] = []
        for operand in self.operands:
            if isinstance(operand, Expression):
                found.append(operand.planned(positions))
            elif isinstance(operand, DataHandle):
                found.append(Argument(positions[operand.core.id]))
            else:
                found.append(operand)
        return Plan(self.operation, tuple(found))

    def submit(self, context: Context, target: Any) -> None:
        """Compute it into `target`, as a task."""
        reads = {leaf.core.id: leaf for leaf in self.leaves()}
        for leaf in reads.values():
            context._check_mine(leaf)
        first = target.rw() if reads.pop(target.core.id, None) is not None else target.write()
        positions = {number: position for position, number in enumerate([target.core.id, *reads])}
        task = context.make_task_at([first, *(leaf.read() for leaf in reads.values())], "assign")
        task.find_site_outside()
        library = "cupy" if context.engine.port_enqueues(task.where) else "numpy"
        task.run_late(Computation(self.planned(positions)), (), library)

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth of an expression of logical data is not known while a program is submitted; use "
            "ctx.if_(condition) or ctx.while_loop(condition), or look at the value with float(lS)"
        )

    __hash__ = object.__hash__


class Argument(NamedTuple):
    """The array at a position among those that a body gets."""

    position: int


class Plan(NamedTuple):
    """An expression that knows no data: what a body may hold."""

    operation: Callable[..., Any]
    operands: tuple[Any, ...]

    def value(self, arrays: list[Any]) -> Any:
        """Compute it."""
        found: list[Any] = []
        for operand in self.operands:
            if isinstance(operand, Plan):
                found.append(operand.value(arrays))
            elif isinstance(operand, Argument):
                found.append(arrays[operand.position])
            else:
                found.append(operand)
        return self.operation(*found)


class Computation:
    """The body of an assignment; its first array is the result."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.__name__ = "assign"

    def __call__(self, *arrays: Any) -> None:
        arrays[0][...] = self._plan.value([array.reshape(()) for array in arrays])


class Arithmetic:
    """The operators of what may stand in an expression."""

    __slots__ = ()

    def _not_scalar(self) -> Any:
        """What is said of operands that may not."""
        return NotImplemented

    def _or_refuse(self, found: Any) -> Any:
        return self._not_scalar() if found is None else found

    def __add__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.add, self, other))

    def __radd__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.add, other, self))

    def __sub__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.sub, self, other))

    def __rsub__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.sub, other, self))

    def __mul__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.mul, self, other))

    def __rmul__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.mul, other, self))

    def __truediv__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.truediv, self, other))

    def __rtruediv__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.truediv, other, self))

    def __pow__(self, other: Any) -> Any:
        return self._or_refuse(combined(operator.pow, self, other))

    def __neg__(self) -> Any:
        return self._or_refuse(combined(operator.neg, self))

    def __abs__(self) -> Any:
        return self._or_refuse(combined(operator.abs, self))

    def __lt__(self, other: Any) -> Any:
        return self._or_refuse(compared(operator.lt, self, other))

    def __le__(self, other: Any) -> Any:
        return self._or_refuse(compared(operator.le, self, other))

    def __gt__(self, other: Any) -> Any:
        return self._or_refuse(compared(operator.gt, self, other))

    def __ge__(self, other: Any) -> Any:
        return self._or_refuse(compared(operator.ge, self, other))


class Value(Expression, Arithmetic):
    """An expression that is a number."""


class Condition(Expression):
    """A comparison of scalars, or several joined by ``&``, ``|`` and ``~``."""

    def __and__(self, other: Any) -> Any:
        return joined(np.logical_and, self, other)

    def __or__(self, other: Any) -> Any:
        return joined(np.logical_or, self, other)

    def __invert__(self) -> Condition:
        return Condition(np.logical_not, self)


def equal(a: Any, b: Any) -> Condition:
    """Return the condition that two scalars are equal; ``==`` of logical data says whether they are the same data.

    Parameters
    ----------
    a, b : LogicalData, expression or number
        One of them logical data, or made of such.
    """
    if not any(isinstance(x, (DataHandle, Expression)) for x in (a, b)):
        raise TypeError("equal compares logical data; both of these are plain values")
    found = compared(operator.eq, a, b)
    if found is None:
        raise TypeError(f"equal takes zero-dimensional logical data and numbers, got {a!r} and {b!r}")
    return found


def is_operand(value: Any) -> bool:
    """Whether it may stand in an expression."""
    if isinstance(value, (Value, bool, int, float, complex, np.generic)):
        return True
    return isinstance(value, DataHandle) and not value.core.token and value.core.layout.nbytes == element_size(value)


def element_size(data: Any) -> int:
    return int(data.core.layout.itemsize)


def combined(operation: Callable[..., Any], *operands: Any) -> Value | None:
    """An expression; None for what may not stand in one."""
    return Value(operation, *operands) if all(map(is_operand, operands)) else None


def compared(operation: Callable[..., Any], *operands: Any) -> Condition | None:
    """A condition; None for what may not stand in one."""
    return Condition(operation, *operands) if all(map(is_operand, operands)) else None


def joined(operation: Callable[..., Any], one: Any, other: Any) -> Any:
    return Condition(operation, one, other) if isinstance(other, Condition) else NotImplemented
