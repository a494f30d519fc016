"""Parameters of recorded graphs: values that each launch may give anew."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from stf._engine.values import Asked

__all__ = ["Param"]


class ValueNeededError(TypeError):
    """The values of parameters were needed while a graph was recorded; `names` are the parameters'."""

    def __init__(self, story: str, names: Iterable[str]) -> None:
        super().__init__(story)
        self.names = frozenset(names)


class Param(Asked):
    """A value that a recorded graph gets at each launch; made by ``g.param(name, default)``.

    Tasks take it in place of a number. Arithmetic gives another that is computed from it at each launch; what needs the
    value while recording (``if``, ``==``, ``range``, ``float``, ``str``) is an error, since a recording holds for all
    values.

    Attributes
    ----------
    name : str
        By which ``g.launch(name=value)`` gives it.
    default : object
        The value where a launch gives none.
    """

    def __init__(self, name: str, default: Any) -> None:
        super().__init__()
        self.name = name
        self.default = default
        self.size = 8  # bytes that a kernel has for it, if it is an integer
        self.in_kernels: list[Param] = []  # what kernels take that is this, or is computed from it

    @property
    def bases(self) -> tuple[Param, ...]:
        """The parameters that it is computed from; itself."""
        return (self,)

    def give_to_kernel(self, size: int) -> None:
        """Remember that a kernel takes it, in so many bytes, so that a launch can say at once what does not fit."""
        self.size = min(self.size, size)
        for base in self.bases:
            if not any(known is self for known in base.in_kernels):
                base.in_kernels.append(self)

    def number_in(self, values: dict[str, Any] | None) -> Any:
        """The value in a launch, of the type that it had when it was recorded.

        Raises
        ------
        TypeError
            It is none of that type.
        """
        asked = self.asked
        if asked[0] is not values:  # every kernel that takes it asks
            value, recorded = self.value_in(values), self.value_in(None)
            if isinstance(value, Param):  # of a graph around, whose launches say what it is
                value.give_to_kernel(self.size)
                self._checked(value.value_in(None), recorded)
            else:
                value = self._checked(value, recorded)
            self.asked = asked = values, value
        return asked[1]

    def _checked(self, value: Any, recorded: Any) -> Any:
        """A value as one of the type that was recorded."""
        if type(value) is type(recorded) and not isinstance(value, int):
            return value
        try:
            number = type(recorded)(value)
            fits = type(number) is not int or -(1 << 8 * self.size - 1) <= number < 1 << 8 * self.size
            if fits and (number == value or (number != number and value != value)):
                return number
        except (TypeError, ValueError, OverflowError):
            pass
        raise TypeError(
            f"parameter '{self.name}' is a kernel's argument of type {type(recorded).__name__}, as its default was"
            f"{f', of {self.size} bytes' if isinstance(recorded, int) else ''}; got {value!r}, which is none"
        )

    def value_in(self, values: dict[str, Any] | None) -> Any:
        """The value in a launch."""
        return self.default if values is None else values.get(self.name, self.default)

    def _derive(self, operation: Callable[..., Any], *others: Any, swapped: bool = False) -> DerivedParam:
        return DerivedParam(operation, (*others, self) if swapped else (self, *others))

    def __add__(self, other: Any) -> DerivedParam:
        return self._derive(operator.add, other)

    def __radd__(self, other: Any) -> DerivedParam:
        return self._derive(operator.add, other, swapped=True)

    def __sub__(self, other: Any) -> DerivedParam:
        return self._derive(operator.sub, other)

    def __rsub__(self, other: Any) -> DerivedParam:
        return self._derive(operator.sub, other, swapped=True)

    def __mul__(self, other: Any) -> DerivedParam:
        return self._derive(operator.mul, other)

    def __rmul__(self, other: Any) -> DerivedParam:
        return self._derive(operator.mul, other, swapped=True)

    def __truediv__(self, other: Any) -> DerivedParam:
        return self._derive(operator.truediv, other)

    def __rtruediv__(self, other: Any) -> DerivedParam:
        return self._derive(operator.truediv, other, swapped=True)

    def __pow__(self, other: Any) -> DerivedParam:
        return self._derive(operator.pow, other)

    def __rpow__(self, other: Any) -> DerivedParam:
        return self._derive(operator.pow, other, swapped=True)

    def __floordiv__(self, other: Any) -> DerivedParam:
        return self._derive(operator.floordiv, other)

    def __rfloordiv__(self, other: Any) -> DerivedParam:
        return self._derive(operator.floordiv, other, swapped=True)

    def __mod__(self, other: Any) -> DerivedParam:
        return self._derive(operator.mod, other)

    def __rmod__(self, other: Any) -> DerivedParam:
        return self._derive(operator.mod, other, swapped=True)

    def __neg__(self) -> DerivedParam:
        return self._derive(operator.neg)

    def __pos__(self) -> DerivedParam:
        return self._derive(operator.pos)

    def __abs__(self) -> DerivedParam:
        return self._derive(abs)

    def refuse(self, *_: Any) -> Any:
        """Raise ValueNeededError: who asks needs the value while it is recorded."""
        raise ValueNeededError(
            f"the value of parameter '{self.name}' is not known while a graph is recorded: pass it to tasks as it is, "
            "or give a plain number where the value shapes the graph",
            [base.name for base in self.bases],
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("value", "_as_parameter_"):  # what a kernel's argument is asked for
            self.refuse()
        raise AttributeError(f"parameter '{self.name}' has no attribute '{name}'")

    __bool__ = __int__ = __index__ = __float__ = __complex__ = __lt__ = __le__ = __gt__ = __ge__ = refuse
    __eq__ = __ne__ = __hash__ = __str__ = __format__ = refuse  # identity would answer, and be recorded
    __round__ = __trunc__ = __floor__ = __ceil__ = __divmod__ = __rdivmod__ = refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __invert__ = refuse
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = refuse
    __iter__ = __len__ = __contains__ = refuse
    __array_ufunc__ = None  # so that NumPy leaves arithmetic to us

    def __repr__(self) -> str:
        return f"<parameter {self.name}={self.default!r}>"


class DerivedParam(Param):
    """What is computed from parameters, at each launch."""

    def __init__(self, operation: Callable[..., Any], operands: tuple[Any, ...]) -> None:
        names = [operand.name for operand in operands if isinstance(operand, Param)]
        self._operation = operation
        self._operands = operands
        super().__init__(" and ".join(dict.fromkeys(names)), self._compute(None))

    @property
    def bases(self) -> tuple[Param, ...]:
        """The parameters that it is computed from."""
        return tuple(base for operand in self._operands if isinstance(operand, Param) for base in operand.bases)

    def _compute(self, values: dict[str, Any] | None) -> Any:
        operands = [o.value_in(values) if isinstance(o, Param) else o for o in self._operands]
        try:
            return self._operation(*operands)
        except TypeError as error:
            given = ", ".join(f"'{base.name}' = {base.value_in(values)!r}" for base in self.bases)
            raise TypeError(f"a value that is computed from parameters cannot be with {given}: {error}") from error

    def value_in(self, values: dict[str, Any] | None) -> Any:
        """The value in a launch."""
        return self._compute(values)
