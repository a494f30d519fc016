"""Conditions and arithmetic of scalars that are logical data: computed by a task, not by the host."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf._port.native import PYTHON_NS, NativeBody, python_call
from stf._support.completion import Shown
from stf.values.arithmetic import Arithmetic, Operator
from stf.values.params import Param

__all__ = ["Condition", "Expression", "equal", "sample_of"]


class Expression:
    """Arithmetic of zero-dimensional (or one-element) logical data and numbers, such as ``rs / pAp``.

    ``alpha.assign(rs / pAp)`` computes it, in one task.
    """

    def __init__(self, operation: Callable[..., Any], *operands: Any) -> None:
        self.operation = operation
        self.operands = operands

    def leaves(self, kind: Any = DataHandle) -> Iterator[Any]:
        """The logical data that it reads, or what else of a kind it takes, each as often as it stands there."""
        for operand in self.operands:
            if isinstance(operand, Expression):
                yield from operand.leaves(kind)
            elif isinstance(operand, kind):
                yield operand

    def planned(self, positions: dict[int, int]) -> ConditionPlan:
        """The same with positions in place of data and parameters, by the identity of their cores and of them."""
        found: list[Any] = []
        for operand in self.operands:
            if isinstance(operand, Expression):
                found.append(operand.planned(positions))
            elif isinstance(operand, DataHandle):
                found.append(ConditionArgument(positions[id(operand.core)]))
            elif isinstance(operand, Param):
                found.append(ConditionArgument(positions[id(operand)]))
            else:
                found.append(operand)
        return ConditionPlan(self.operation, tuple(found))

    def __bool__(self) -> bool:
        raise TypeError(
            "the truth of an expression of logical data is not known while a program is submitted; use "
            "ctx.if_(condition) or ctx.while_loop(condition), or look at the value with float(lS)"
        )

    __hash__ = object.__hash__


class ConditionArgument(NamedTuple):
    """The array, or the number, at a position among what a body gets."""

    position: int


class ConditionPlan(NamedTuple):
    """An expression that knows neither data nor parameters: what a body may hold."""

    operation: Callable[..., Any]
    operands: tuple[Any, ...]

    def value(self, given: list[Any]) -> Any:
        """Compute it of scalars."""
        found: list[Any] = []
        for operand in self.operands:
            if isinstance(operand, ConditionPlan):
                found.append(operand.value(given))
            elif isinstance(operand, ConditionArgument):
                found.append(given[operand.position])
            else:
                found.append(operand)
        return self.operation(*found)


class Computation:
    """The body of an assignment: `count` arrays, of which the first is the result, then values of parameters."""

    def __init__(self, plan: ConditionPlan, count: int) -> None:
        self._plan = plan
        self._count = count
        self.__name__ = "assign"

    def __call__(self, *given: Any) -> None:
        scalars = [array.reshape(()) for array in given[: self._count]]
        given[0][...] = self._plan.value([*scalars, *given[self._count :]])

    def native(self, args: tuple[Any, ...], workers: int) -> NativeBody:
        """Return the step of a loop that computes it."""
        return NativeBody([[python_call(self, args)]], PYTHON_NS)


def joined_both_ways(operation: Callable[..., Any]) -> tuple[Operator, Operator]:
    """Return the methods of an operator of conditions, as `both_ways` does."""
    return lambda self, other: joined(operation, self, other), lambda self, other: joined(operation, other, self)


class Scalar(Arithmetic):
    """The operators of what may stand in an expression."""

    __slots__ = ()

    def _not_scalar(self) -> Any:
        """Return what is said of operands that may not."""
        return NotImplemented

    def _combine(self, operation: Callable[..., Any], *operands: Any) -> Any:
        return Value(operation, *operands) if all(map(is_operand, operands)) else self._not_scalar()

    def _ask(self, question: Callable[..., Any], *operands: Any) -> Any:
        return Condition(question, *operands) if all(map(is_operand, operands)) else self._not_scalar()

    def _compare(self, operation: Callable[..., Any], other: Any) -> Any:
        if operation in (operator.eq, operator.ne) and isinstance(other, np.generic):  # as `==` of those asks
            return operation is operator.ne
        return self._ask(operation, self, other)

    __and__, __rand__ = joined_both_ways(np.logical_and)
    __or__, __ror__ = joined_both_ways(np.logical_or)
    __xor__, __rxor__ = joined_both_ways(np.logical_xor)

    def __invert__(self) -> Condition:
        if truth_of(self) is None:
            raise TypeError("~ is of conditions and scalars of dtype bool; compare first, as in ~(residual > tol)")
        return Condition(np.logical_not, self)

    def _refuse_function(self, function: Any) -> Any:
        self._not_scalar()
        raise TypeError(
            f"numpy.{function.__name__} of scalar data takes scalars of one context and numbers; for more, write a task"
        )


class Value(Expression, Scalar):
    """An expression that is a number."""


class Condition(Shown, Expression, Scalar):
    """A comparison of scalars, or several joined by ``&``, ``|``, ``^`` and ``~``.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     s, done = ctx.logical_data(np.array(5.0)), ctx.logical_data(np.array(False))
    ...     with ctx.while_loop((s > 1) & ~done) as loop:
    ...         s.assign(s - 1)
    ...     print(loop.iterations)
    4
    """


def equal(a: Any, b: Any) -> Condition:
    """Return the condition that two scalars are equal; ``==`` of logical data says whether they are the same data.

    Parameters
    ----------
    a, b : LogicalData, expression or number
        One of them logical data, or made of such.

    Raises
    ------
    TypeError
        Neither is logical data, or one is no scalar.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     s = ctx.logical_data(np.array(3))
    ...     with ctx.if_(stf.equal(s, 3)):
    ...         s.assign(s + 1)
    ...     print(ctx.wait(s))
    4
    """
    if not any(isinstance(x, (DataHandle, Expression)) for x in (a, b)):
        raise TypeError("equal compares logical data; both of these are plain values")
    if not (is_operand(a) and is_operand(b)):
        raise TypeError(f"equal takes zero-dimensional logical data and numbers, got {a!r} and {b!r}")
    return Condition(operator.eq, a, b)


def sample_of(node: Any) -> Any:
    """Return a number of the type that an expression gives, computed of ones.

    Of Python's types if it has none of NumPy's.
    """
    if isinstance(node, DataHandle):
        return np.ones((), node.core.layout.dtype)[()]
    if not isinstance(node, Expression):
        return node.__class__(1)  # which is that of a parameter's default
    operands = [sample_of(operand) for operand in node.operands]
    typed = [one.dtype for one in operands if isinstance(one, np.generic)]
    if typed:  # as of NumPy 2, numbers of Python's take part with the dtype of the others
        kinds = {"i": "iufc", "f": "fc", "c": "c"}
        whole = np.result_type(*typed)
        for at, one in enumerate(operands):
            kind = None if isinstance(one, (bool, np.generic)) else np.asarray(one).dtype.kind
            if kind is not None and whole.kind in kinds.get(kind, ""):
                operands[at] = whole.type(one)
    with np.errstate(all="ignore"):
        return node.operation(*operands)


def is_operand(value: Any) -> bool:
    """Return whether it may stand in an expression."""
    if isinstance(value, (Value, Condition, Param, bool, int, float, complex, np.generic)):
        return True
    if not isinstance(value, DataHandle) or value.core.token:
        return False
    layout = value.core.layout
    return layout.nbytes == layout.itemsize


def truth_of(value: Any) -> Any:
    """Return what may be joined to a condition: another one, or scalar data of truth values; else None.

    No truth value, which is what ``==`` of logical data gives: it says whether they are the same data.
    """
    if isinstance(value, Condition):
        return value
    is_flag = isinstance(value, DataHandle) and is_operand(value) and value.core.layout.dtype == np.bool_
    return value if is_flag else None


def joined(operation: Callable[..., Any], one: Any, other: Any) -> Any:
    """Two conditions joined; NotImplemented for what is none.

    TypeError for truth values: what is True or False here was decided before anything ran.
    """
    for value in (one, other):
        if isinstance(value, (bool, np.bool_)):
            raise TypeError(
                f"&, | and ^ join conditions of logical data, got {value}; `==` of logical data says whether they are "
                "the same data, stf.equal(a, b) is the condition"
            )
    if truth_of(one) is None or truth_of(other) is None:
        return NotImplemented
    return Condition(operation, one, other)


def itself(value: Any) -> Any:
    """Return the value; unlike ``+value``, also of truth values."""
    return value
