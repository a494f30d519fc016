"""Reductions in kernels: what each element contributes is combined into data."""

from __future__ import annotations

from typing import Any, NamedTuple

from stf._engine.access import DataHandle
from stf.values.reducers import Reducer, as_reducer

__all__ = ["Reduction", "reduction"]


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
    """Return the reduction into logical data; see `LogicalData.reduce`."""
    chosen = as_reducer(op)
    if handle.core.token:
        raise TypeError(f"{handle.core.describe()} has no content to reduce into")
    chosen.must_suit(handle.core)
    access = handle.rw(data_place) if accumulate else handle.write(data_place)
    return Reduction(access, chosen, bool(accumulate))
