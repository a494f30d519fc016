"""How kernels combine what each element contributes: the operator, its type, and how a contribution is taken."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from stf.kernels.body_checks import returns_of
from stf.kernels.compile.contributions import TakenContribution
from stf.kernels.nest import Contribution
from stf.kernels.reductions import Reduction
from stf.values.reducers import Reducer, reducer

__all__ = ["accumulator", "contribution_to", "taken_by"]

WIDENED: tuple[Any, ...] = (reducer.sum, reducer.product)
RULES: dict[Any, str] = {
    **dict.fromkeys((reducer.logical_and, reducer.logical_or), "truth"),
    **dict.fromkeys((*WIDENED, reducer.bitwise_and, reducer.bitwise_or, reducer.bitwise_xor), "modulo"),
    **dict.fromkeys((reducer.minval, reducer.maxval), "order"),
}


def contribution_to(item: Reduction) -> Contribution:
    """Return how a kernel combines contributions to a scalar; TypeError if the operator combines arrays alone."""
    data = item.access.data.core.layout.dtype
    dtype = accumulator(item.op, data)
    return Contribution(item, scalar_operator(item.op), dtype, taken_by(item.op, dtype, data))


def accumulator(op: Reducer, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that is combined in: of sums and products the widest of the kind, else the data's own."""
    if op not in WIDENED:
        return dtype
    widest = {"f": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64}
    return np.dtype(widest.get(dtype.kind, dtype))


def taken_by(op: Reducer, dtype: np.dtype[Any], data: np.dtype[Any]) -> TakenContribution:
    """Return how an operator takes contributions to data of a dtype, which it combines in `dtype`."""
    return TakenContribution(RULES.get(op, "own"), dtype.str, data.str)


def scalar_operator(op: Reducer) -> Callable[[Any, Any], Any]:
    """Return the operator on two numbers, to be compiled; TypeError if it cannot be, or returns nothing."""
    fn = op.of_scalars
    if fn is None:
        raise TypeError(f"{op!r} combines arrays alone; give it of_scalars=, or use stf.reducer.define")
    if not callable(fn) or isinstance(fn, np.ufunc | types.BuiltinFunctionType | type):
        raise TypeError(f"{op!r} is compiled for kernels: it takes a Python function of two numbers, got {fn!r}")
    if isinstance(fn, types.FunctionType):
        for line, what, _ in returns_of(fn.__code__):
            if what == "none":
                raise TypeError(f"{op!r} returns nothing in line {line}; it returns the combination of two numbers")
    return fn
