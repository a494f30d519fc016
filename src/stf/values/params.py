"""Parameters of recorded graphs: values that each launch may give anew."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stf._port.late_values import Asked
from stf.values.arithmetic import Arithmetic
from stf.values.containers import is_container, items_of

__all__ = ["Param"]


class NotComputedError(Exception):
    """While a graph was recorded, something could not be computed from the values that parameters have then."""


def is_of_parameters(error: BaseException) -> bool:
    """Return whether an error comes from computing with parameters, before a launch."""
    return getattr(error, "_stf_is_of_parameters", False)


class ValueNeededError(TypeError):
    """The values of parameters were needed while a graph was recorded; `names` are the parameters'."""

    def __init__(self, description: str, names: Iterable[str]) -> None:
        super().__init__(description)
        self.names = frozenset(names)


def no_graph() -> None:
    """The graph of a parameter that was computed, whose bases have theirs."""


class Param(Arithmetic, Asked):
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
    graph : callable
        A reference to the graph that it is of.
    """

    def __init__(self, name: str, default: Any, graph: Callable[[], Any] | None = None) -> None:
        super().__init__()
        self.name = name
        self.default = default
        self.graph = graph or no_graph
        self.size = 8  # bytes that a kernel has for it, if it is an integer
        self.in_kernels: list[Param] = []  # what kernels take that is this, or is computed from it
        self.derived: list[Param] = []  # what is computed from it
        self.is_needed = False  # its value was asked for while it is recorded
        self.is_optional = False  # a number can take its place, which is recorded
        self.is_spoilt = False  # something could not be computed from it while it is recorded

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
        """Return the value in a launch, of the type that it had when it was recorded.

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
        """Return a value as one of the type that was recorded."""
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
        """Return the value in a launch."""
        return self.default if values is None else values.get(self.name, self.default)

    def _combine(self, operation: Callable[..., Any], *operands: Any) -> Any:
        return DerivedParam(operation, operands) if all(map(is_known_later, operands)) else NotImplemented

    def _compare(self, operation: Callable[..., Any], other: Any) -> Any:
        is_ours = isinstance(other, Arithmetic) and not isinstance(other, Param)
        return NotImplemented if is_ours else self.refuse()  # data make a condition of it

    def _refuse_function(self, function: Any) -> Any:
        return self.refuse()

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Raise ValueNeededError: who asks needs the value while it is recorded."""
        for base in self.bases:
            base.is_needed = True
        raise ValueNeededError(
            f"the value of parameter '{self.name}' is not known while a graph is recorded: pass it to tasks as it is, "
            "or give a plain number where the value shapes the graph (of a replay: name it static)",
            [base.name for base in self.bases],
        )

    def must_be_recorded(self) -> None:
        """Raise TypeError unless its graph is being recorded: elsewhere it has no value."""
        for base in self.bases:
            graph = base.graph()
            if graph is None or graph._recorder is None:
                whose = "its graph" if graph is None else f"graph '{graph.name}'"
                raise TypeError(
                    f"parameter '{base.name}' has a value in launches of {whose}, of which this task is no part; give "
                    "it a number, or submit it inside of `with g:`"
                )

    def __getattr__(self, name: str) -> Any:
        if name in ("value", "_as_parameter_") or hasattr(self.default, name):
            self.refuse()  # what a kernel's argument is asked for, or a number
        raise AttributeError(f"parameter '{self.name}' has no attribute '{name}'")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """For ``isinstance``: the type of its values, which is that of its default in all launches of a replay."""
        return type(self.default)

    __bool__ = __int__ = __index__ = __float__ = __complex__ = refuse
    __eq__ = __ne__ = __hash__ = __str__ = __format__ = refuse  # identity would answer, and be recorded
    __round__ = __trunc__ = __floor__ = __ceil__ = __divmod__ = __rdivmod__ = refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __invert__ = refuse
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = refuse
    __iter__ = __len__ = __contains__ = __array__ = refuse

    def __repr__(self) -> str:
        for base in self.bases:
            base.is_needed = True  # who reads it might decide by it
        return f"<parameter {self.name}={self.default!r}>"


class DerivedParam(Param):
    """What is computed from parameters, at each launch."""

    def __init__(self, operation: Callable[..., Any], operands: tuple[Any, ...]) -> None:
        names = [operand.name for operand in operands if isinstance(operand, Param)]
        self.operation = operation
        self.operands = operands
        self.computed: tuple[Any, Any] = (None, None)  # the values of a launch, and a number that these give
        try:
            default = self._compute(None)
        except Exception:
            for base in self.bases:
                base.is_spoilt = True  # the program may go on, in a way that holds for this value alone
            raise
        super().__init__(" and ".join(dict.fromkeys(names)), default)
        for base in {id(base): base for base in self.bases}.values():
            base.derived.append(self)

    @property
    def bases(self) -> tuple[Param, ...]:
        """The parameters that it is computed from."""
        return tuple(base for operand in self.operands if isinstance(operand, Param) for base in operand.bases)

    def _compute(self, values: dict[str, Any] | None) -> Any:
        operands = [o.value_in(values) if isinstance(o, Param) else o for o in self.operands]
        try:
            return self.operation(*operands)
        except TypeError as error:
            given = ", ".join(f"'{base.name}' = {base.value_in(values)!r}" for base in self.bases)
            raise TypeError(f"a value that is computed from parameters cannot be with {given}: {error}") from error
        except Exception as error:
            error._stf_is_of_parameters = True  # type: ignore[attr-defined]
            raise

    def value_in(self, values: dict[str, Any] | None) -> Any:
        """Return the value in a launch, which all tasks that take it ask for."""
        computed = self.computed
        if values is not None and computed[0] is values:
            return computed[1]
        value = self._compute(values)
        if type(value) is int or type(value) is float:
            self.computed = values, value
        return value


def is_known_later(value: Any) -> bool:
    """Return whether it may be computed with at each launch: a parameter or a number, which cannot change in place."""
    return isinstance(value, (Param, bool, int, float, complex, np.generic))


def with_params(given: Any) -> Any:
    """Return the arguments of a ``*parameter`` or ``**parameter``: known at a launch, if parameters are among them."""
    if not any(isinstance(item, Param) for item in items_of(given)):
        return given
    refuse_hidden([item for item in items_of(given) if not isinstance(item, Param)])
    if isinstance(given, dict):
        return DerivedParam(lambda *items: dict(zip(given, items, strict=True)), tuple(given.values()))
    return DerivedParam(lambda *items: items, tuple(given))


def refuse_hidden(container: Any, around: tuple[int, ...] = ()) -> None:
    """Raise ValueNeededError for parameters in a container, which those who get it would take for numbers.

    It is in others, which are `around`, by identity.
    """
    inner = (*around, id(container))
    for item in items_of(container):
        if isinstance(item, Param):
            item.refuse()
        elif is_container(item) and id(item) not in inner:
            refuse_hidden(item, inner)


LOOKED_AT = 4096  # of what a body holds: one with more holds the user's whole program
OPAQUE = (type, str, bytes, int, float, complex, np.ndarray, np.generic, types.ModuleType, types.CodeType, type(None))


def refuse_reachable(*roots: Any) -> None:
    """Raise ValueNeededError for optional parameters that a body could reach: in functions, generators, objects.

    What belongs to stf, classes, modules and the globals of functions are left out.
    """
    seen: set[int] = set()
    left = [*roots]
    while left and len(seen) < LOOKED_AT:
        thing = left.pop()
        kind = type(thing)  # isinstance would say of a parameter that it is a number
        if issubclass(kind, Param):
            if any(base.is_optional for base in thing.bases):
                thing.refuse()
            continue
        if id(thing) in seen or issubclass(kind, OPAQUE) or kind.__module__.partition(".")[0] == "stf":
            continue
        seen.add(id(thing))
        if kind is types.FunctionType:
            left += [thing.__closure__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
        else:
            left += gc.get_referents(thing)
