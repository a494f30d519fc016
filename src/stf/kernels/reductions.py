"""Reductions in kernels: what each element contributes is combined into data."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf.kernels.body_checks import returns_of
from stf.kernels.compile.contributions import Taken
from stf.kernels.nest import Contribution
from stf.values.reducers import Reducer, as_reducer, reducer

__all__ = ["Reduction", "accumulator", "contribution_to", "reduction", "taken_by"]

WIDENED: tuple[Any, ...] = (reducer.sum, reducer.product)
RULES: dict[Any, str] = {
    **dict.fromkeys((reducer.logical_and, reducer.logical_or), "truth"),
    **dict.fromkeys((*WIDENED, reducer.bitwise_and, reducer.bitwise_or, reducer.bitwise_xor), "modulo"),
    **dict.fromkeys((reducer.minval, reducer.maxval), "order"),
}


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


def contribution_to(item: Reduction) -> Contribution:
    """Return how a kernel combines contributions to a scalar; TypeError if the operator combines arrays alone."""
    data = item.access.data.core.layout.dtype
    dtype = accumulator(item.op, data)
    return Contribution(item, scalar_operator(item.op), dtype, taken_by(item.op, dtype, data))


def reduction(handle: DataHandle, op: Any, data_place: Any, accumulate: bool) -> Reduction:
    """Return the reduction into logical data; see `LogicalData.reduce`."""
    chosen = as_reducer(op)
    if handle.core.token:
        raise TypeError(f"{handle.core.describe()} has no content to reduce into")
    chosen.must_suit(handle.core)
    access = handle.rw(data_place) if accumulate else handle.write(data_place)
    return Reduction(access, chosen, bool(accumulate))


def accumulator(op: Reducer, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that is combined in: of sums and products the widest of the kind, else the data's own."""
    if op not in WIDENED:
        return dtype
    widest = {"f": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64}
    return np.dtype(widest.get(dtype.kind, dtype))


def taken_by(op: Reducer, dtype: np.dtype[Any], data: np.dtype[Any]) -> Taken:
    """Return how an operator takes contributions to data of a dtype, which it combines in `dtype`."""
    return Taken(RULES.get(op, "own"), dtype.str, data.str)


def scalar_operator(op: Reducer) -> Callable[[Any, Any], Any]:
    """Return the operator on two numbers, to be compiled."""
    if op.of_scalars is None:
        raise TypeError(f"{op!r} combines arrays alone; give it of_scalars=, or use stf.reducer.define")
    must_combine(op)
    return op.of_scalars


def must_combine(op: Reducer) -> None:
    """Raise TypeError unless an operator of numbers can be compiled, and returns the result."""
    fn = op.of_scalars
    if not callable(fn) or isinstance(fn, np.ufunc | types.BuiltinFunctionType | type):
        raise TypeError(f"{op!r} is compiled for kernels: it takes a Python function of two numbers, got {fn!r}")
    if isinstance(fn, types.FunctionType):
        for line, what, _ in returns_of(fn.__code__):
            if what == "none":
                raise TypeError(f"{op!r} returns nothing in line {line}; it returns the combination of two numbers")
