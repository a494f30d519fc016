"""Reductions in kernels: what each element contributes is combined into data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf.values.reducers import Reducer, as_reducer

__all__ = ["Reduction", "accumulator", "reduction", "scalar_operator"]


class Reduction(NamedTuple):
    """What ``lS.reduce(op)`` gives to a kernel.

    Attributes
    ----------
    access : Access
        How the data are used: written, or read and written where their content counts.
    op : Reducer
        The operator.
    accumulates : bool
        The content from before is combined, too.
    """

    access: Any
    op: Reducer
    accumulates: bool


def reduction(handle: DataHandle, op: Any, data_place: Any, accumulate: bool) -> Reduction:
    """The reduction into logical data; see `LogicalData.reduce`."""
    chosen = as_reducer(op)
    if handle.core.token:
        raise TypeError(f"{handle.core.describe()} has no content to reduce into")
    chosen.must_suit(handle.core)
    access = handle.rw(data_place) if accumulate else handle.write(data_place)
    return Reduction(access, chosen, bool(accumulate))


def accumulator(op: Reducer, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which a CPU combines: of sums and products the widest of the kind, else the data's own."""
    if op.name not in ("sum", "product"):
        return dtype
    widest = {"f": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64}
    return np.dtype(widest.get(dtype.kind, dtype))


def scalar_operator(op: Reducer) -> Callable[[Any, Any], Any]:
    """The operator on two numbers, to be compiled."""
    found = OPERATORS[op.name] if op.suited is not None else op.of_scalars
    if found is None:
        raise TypeError(f"{op!r} cannot be compiled; make it by stf.reducer.define, or as a class with apply_op")
    return found


def add(a, b):  # type: ignore[no-untyped-def]
    return a + b


def multiply(a, b):  # type: ignore[no-untyped-def]
    return a * b


def minimum(a, b):  # type: ignore[no-untyped-def]
    return b if b < a or b != b else a  # NaN wins, as in NumPy


def maximum(a, b):  # type: ignore[no-untyped-def]
    return b if b > a or b != b else a


def logical_and(a, b):  # type: ignore[no-untyped-def]
    return a != 0 and b != 0


def logical_or(a, b):  # type: ignore[no-untyped-def]
    return a != 0 or b != 0


def bitwise_and(a, b):  # type: ignore[no-untyped-def]
    return a & b


def bitwise_or(a, b):  # type: ignore[no-untyped-def]
    return a | b


def bitwise_xor(a, b):  # type: ignore[no-untyped-def]
    return a ^ b


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": add,
    "product": multiply,
    "minval": minimum,
    "maxval": maximum,
    "logical_and": logical_and,
    "logical_or": logical_or,
    "bitwise_and": bitwise_and,
    "bitwise_or": bitwise_or,
    "bitwise_xor": bitwise_xor,
}

UFUNCS: dict[str, Any] = {  # of those that give the type that they get
    "sum": np.add,
    "product": np.multiply,
    "minval": np.minimum,
    "maxval": np.maximum,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
