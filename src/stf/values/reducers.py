"""Reduction operators: a neutral element and a way to combine two values.

For task-level reductions (``lX.accumulate(op)``, ``stf.Accumulate[op]``): each place gets partial results of its own,
filled with the neutral element, and the next ordinary access combines them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stf._support.completion import Shown
from stf.interop import adapters
from stf.interop.dtypes import is_narrow

__all__ = ["Reducer", "reducer"]


class Reducer(Shown):
    """A commutative, associative operator.

    Parameters
    ----------
    name : str
        For messages.
    neutral : callable
        ``neutral(dtype)`` is the neutral element.
    combine : callable
        ``combine(a, b, out)`` stores the combination of two arrays.
    of_scalars : callable, optional
        ``of_scalars(a, b)`` is the combination of two numbers, for kernels that are compiled.

    Examples
    --------
    >>> stf.reducer.sum
    stf.reducer.sum
    >>> larger = stf.reducer.define(0.0, np.hypot, name="hypot")
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     length = ctx.logical_data_zeros(())
    ...     for value in 3.0, 4.0:
    ...         ctx.task(length.accumulate(larger))(lambda total, value=value: np.hypot(total, value))
    ...     print(ctx.wait(length))
    5.0
    """

    def __init__(
        self,
        name: str,
        neutral: Callable[[Any], Any],
        combine: Callable[[Any, Any, Any], Any],
        of_scalars: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.name = name
        self.neutral = neutral
        self.combine = combine
        self.suited: set[Any] | None = None  # dtypes that ours combines; None for a user's, which may do more
        self.of_scalars = of_scalars

    def must_suit(self, core: Any) -> None:
        """Raise TypeError if there is no such combination of what a data holds."""
        dtype = core.layout.dtype
        if self.suited is None or dtype in self.suited or core.layout.interface is not None:
            return
        try:
            neutral, one, out = np.zeros(1, dtype), np.ones(1, dtype), np.zeros(1, dtype)
            self.fill(neutral)
            self.combine(neutral, one, out)
            is_neutral = out.tobytes() == one.tobytes()
        except (TypeError, ValueError, OverflowError):
            is_neutral = False
        if not is_neutral:
            raise TypeError(
                f"{core.describe()} cannot be accumulated into with {self!r}: that is not defined for {dtype}; use "
                "another operator, or stf.reducer.define(neutral, combine)"
            )
        self.suited.add(dtype)

    def fill(self, array: Any) -> None:
        """Fill `array` with the neutral element."""
        array[...] = self.neutral(array.dtype)

    def fill_at(self, target: Any) -> None:
        """Fill an array of the host's, of which nothing is in use."""
        self.fill(adapters.view(target, True, "numpy"))

    def filled(self, layout: Any) -> tuple[Any, int] | None:
        """Return a new array of NumPy's that lies so and is filled, and its address; None if none lies so."""
        array = np.empty(layout.shape, layout.dtype)
        if array.strides != layout.strides:
            return None
        self.fill(array)
        return array, array.__array_interface__["data"][0]

    def pattern(self, dtype: Any) -> bytes:
        """Return the bytes of the neutral element."""
        return np.asarray(self.neutral(dtype), dtype).tobytes()

    def combiner(self, target: Any, partials: list[Any], initialised: bool) -> Callable[[], None]:
        """Return what folds `partials` into `target`, to be called when all are complete."""
        into = adapters.view(target, True, "numpy")
        parts = [adapters.view(partial, False, "numpy") for partial in partials]

        def fold() -> None:
            if not initialised:
                self.fill(into)
            for part in parts:
                self.combine(into, part, into)

        return fold

    def __repr__(self) -> str:
        return f"stf.reducer.{self.name}"


def extreme(side: str) -> Callable[[Any], Any]:
    """Return what gives the "min" or the "max" of a dtype: that of all values, infinity and truth values among them."""

    def value(dtype: Any) -> Any:
        kind, infinity = np.dtype(dtype), -np.inf if side == "min" else np.inf
        if is_narrow(kind) and not np.isinf(float(np.array(infinity).astype(kind))):  # it has none
            import ml_dtypes  # it is there, where such a dtype is

            return getattr(ml_dtypes.finfo(kind), side)
        if kind.kind == "b":
            return side == "max"
        return getattr(np.iinfo(kind), side) if kind.kind in "iu" else infinity

    return value


def all_bits(dtype: Any) -> Any:
    """All bits set."""
    kind = np.dtype(dtype)
    return True if kind.kind == "b" else np.array(-1).astype(kind) if kind.kind == "i" else np.iinfo(kind).max


def into(ufunc: Any) -> Callable[[Any, Any, Any], Any]:
    """Return what stores the result of a function of NumPy's of two arrays."""
    return lambda a, b, out: ufunc(a, b, out=out)


def stored(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any], None]:
    """Return what stores the result of any function of two arrays."""

    def combine(a: Any, b: Any, out: Any) -> None:
        out[...] = function(a, b)

    return combine


KEEP_PREVIOUS = Reducer("unwritten", lambda dtype: 0, lambda a, b, out: None)  # what nobody wrote, and may be anything


if TYPE_CHECKING:

    class _Type(Any):  # type: ignore[misc]
        """What an operator is to who reads annotations."""


class reducer:
    """The operators: ``sum``, ``product``, ``minval``, ``maxval``, ``logical_and``, …; `define` makes your own.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x, s = ctx.logical_data(np.arange(1.0, 5.0)), ctx.logical_data_empty(())
    ...     for op in stf.reducer.sum, stf.reducer.product, stf.reducer.minval, stf.reducer.maxval:
    ...         ctx.parallel_for(x.shape, x.read(), s.reduce(op))(lambda i, x: x[i])
    ...         print(op.name, ctx.wait(s))
    sum 10.0
    product 24.0
    minval 1.0
    maxval 4.0
    """

    if TYPE_CHECKING:  # so that they are types: x: stf.Accumulate[stf.reducer.sum]
        sum: TypeAlias = _Type
        product: TypeAlias = _Type
        minval: TypeAlias = _Type
        maxval: TypeAlias = _Type
        logical_and: TypeAlias = _Type
        logical_or: TypeAlias = _Type
        bitwise_and: TypeAlias = _Type
        bitwise_or: TypeAlias = _Type
        bitwise_xor: TypeAlias = _Type

    else:
        sum = Reducer("sum", lambda dtype: 0, into(np.add), lambda a, b: a + b)
        product = Reducer("product", lambda dtype: 1, into(np.multiply), lambda a, b: a * b)
        # NaN wins, as in NumPy
        minval = Reducer("minval", extreme("max"), into(np.minimum), lambda a, b: b if b < a or b != b else a)
        maxval = Reducer("maxval", extreme("min"), into(np.maximum), lambda a, b: b if b > a or b != b else a)
        logical_and = Reducer("logical_and", lambda dtype: 1, stored(np.logical_and), lambda a, b: a != 0 and b != 0)
        logical_or = Reducer("logical_or", lambda dtype: 0, stored(np.logical_or), lambda a, b: a != 0 or b != 0)
        bitwise_and = Reducer("bitwise_and", all_bits, into(np.bitwise_and), lambda a, b: a & b)
        bitwise_or = Reducer("bitwise_or", lambda dtype: 0, into(np.bitwise_or), lambda a, b: a | b)
        bitwise_xor = Reducer("bitwise_xor", lambda dtype: 0, into(np.bitwise_xor), lambda a, b: a ^ b)

    min = minval
    max = maxval
    bit_and = bitwise_and
    bit_or = bitwise_or
    bit_xor = bitwise_xor

    @staticmethod
    def define(neutral: Any, combine: Callable[[Any, Any], Any], name: str = "own") -> Reducer:
        """Make an operator.

        Parameters
        ----------
        neutral : scalar
            ``combine(neutral, x) == x``.
        combine : callable
            ``combine(a, b)`` on arrays, elementwise, commutative and associative.
        name : str
            For messages.

        Returns
        -------
        Reducer

        Raises
        ------
        TypeError
            `combine` is no function.

        Examples
        --------
        >>> gcd = stf.reducer.define(0, np.gcd, name="gcd")
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     g = ctx.logical_data_zeros((), np.int64)
        ...     for value in 12, 18, 30:
        ...         ctx.task(g.accumulate(gcd))(lambda g, value=value: np.gcd(g, value))
        ...     print(ctx.wait(g))
        6
        """
        if not callable(combine):
            raise TypeError(f"combine= is a function of two arrays, got {combine!r}")
        return Reducer(name, lambda dtype: neutral, stored(combine), combine)


for _ours in vars(reducer).values():
    if isinstance(_ours, Reducer):
        _ours.suited = set()


def as_reducer(op: Any) -> Reducer:
    """Return an operator from what users pass: ours, or a class with ``init_op`` and ``apply_op``."""
    if isinstance(op, Reducer):
        return op
    if hasattr(op, "init_op") and hasattr(op, "apply_op"):
        return reducer_of_class(op)
    raise TypeError(
        f"a reduction operator is needed, got {op!r}; use stf.reducer.sum and the like, stf.reducer.define, or a class "
        "with init_op and apply_op"
    )


@functools.lru_cache(maxsize=64)
def reducer_of_class(op: Any) -> Reducer:
    """Return the operator of a class: the same one each time, so that its tasks commute."""

    def fill(dtype: Any) -> Any:
        value = np.zeros((), dtype)
        result = op.init_op(value)
        return value[()] if result is None else result

    def combine(a: Any, b: Any, out: Any) -> None:
        result = op.apply_op(a, b)
        if result is not None:
            out[...] = result

    return Reducer(getattr(op, "__name__", type(op).__name__), fill, combine, op.apply_op)
