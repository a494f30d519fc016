"""Reductions in kernels: what each element contributes is combined into data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf.values.reducers import Reducer, as_reducer, reducer

__all__ = ["Reduction", "accumulator", "reduction", "scalar_operator"]

WIDENED: tuple[Any, ...] = (reducer.sum, reducer.product)


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
    if op not in WIDENED:
        return dtype
    widest = {"f": np.float64, "c": np.complex128, "i": np.int64, "u": np.uint64}
    return np.dtype(widest.get(dtype.kind, dtype))


def scalar_operator(op: Reducer) -> Callable[[Any, Any], Any]:
    """The operator on two numbers, to be compiled."""
    if op.of_scalars is None:
        raise TypeError(f"{op!r} combines arrays alone; give it of_scalars=, or use stf.reducer.define")
    return op.of_scalars
