"""The operators of what stands for a number that is not known yet: scalar data, expressions of them, and parameters."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Arithmetic"]


Operator = Callable[..., Any]


def both_ways(operation: Operator) -> tuple[Operator, Operator]:
    """Return the methods of an operator that stands behind the object, and of one before it."""
    return (
        lambda self, other: self._combine(operation, self, other),
        lambda self, other: self._combine(operation, other, self),
    )


def alone(operation: Operator) -> Operator:
    """Return the method of an operator of one object."""
    return lambda self: self._combine(operation, self)


def comparison(operation: Operator) -> Operator:
    """Return the method of a comparison."""
    return lambda self, other: self._compare(operation, other)


class Arithmetic:
    """Operators that all lead to `_combine`, and comparisons that lead to `_compare`.

    NumPy's functions of numbers, such as ``np.sqrt``, are operators too.
    """

    __slots__ = ()

    def _combine(self, operation: Callable[..., Any], *operands: Any) -> Any:
        """What an operation on this and others gives; NotImplemented for what cannot be combined."""
        raise NotImplementedError

    def _compare(self, operation: Callable[..., Any], other: Any) -> Any:
        """What a comparison gives."""
        raise NotImplementedError

    def _ask(self, question: Callable[..., Any], *operands: Any) -> Any:
        """Return what a function of NumPy's gives that says yes or no, such as ``np.isnan``."""
        return self._combine(question, *operands)

    def _refuse_function(self, function: Any) -> Any:
        """Raise what is to be said of a function of NumPy's that is none of numbers."""
        raise NotImplementedError

    __add__, __radd__ = both_ways(operator.add)
    __sub__, __rsub__ = both_ways(operator.sub)
    __mul__, __rmul__ = both_ways(operator.mul)
    __truediv__, __rtruediv__ = both_ways(operator.truediv)
    __floordiv__, __rfloordiv__ = both_ways(operator.floordiv)
    __mod__, __rmod__ = both_ways(operator.mod)
    __pow__, __rpow__ = both_ways(operator.pow)

    __neg__, __pos__, __abs__ = alone(operator.neg), alone(operator.pos), alone(operator.abs)
    __lt__, __le__ = comparison(operator.lt), comparison(operator.le)
    __gt__, __ge__ = comparison(operator.gt), comparison(operator.ge)

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **options: Any) -> Any:
        if method != "__call__" or options or function.nout != 1:
            return self._refuse_function(function)
        symbol: Any = OPERATORS.get(function)
        # NumPy's scalars come as arrays without axes
        operands = tuple(x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in operands)
        if symbol in SWAPPED:
            one, other = operands
            comparison, other = (symbol, other) if one is self else (SWAPPED[symbol], one)
            found = self._compare(comparison, other)
        elif all(kinds.endswith("->?") for kinds in function.types if "O" not in kinds):
            found = self._ask(function, *operands)
        else:
            found = self._combine(symbol or function, *operands)
        return self._refuse_function(function) if found is NotImplemented else found


SWAPPED = {  # comparisons, and what they are from the other side
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
    operator.eq: operator.eq,
    operator.ne: operator.ne,
}
OPERATORS = {  # of NumPy's functions, which its arrays and numbers call for their operators
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
    np.negative: operator.neg,
    np.positive: operator.pos,
    np.absolute: operator.abs,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}
