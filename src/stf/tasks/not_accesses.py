"""What users give where an access belongs: data, a method that would give an access, or an array."""

from __future__ import annotations

from typing import Any

from stf._engine.access import DataHandle

__all__ = ["refuse_data"]


def refuse_data(what: str, thing: Any) -> None:
    """Raise TypeError for data, their methods and arrays, of which `what` takes accesses alone."""
    owner = getattr(thing, "__self__", None)
    if is_data(owner):
        raise TypeError(
            f"{what} takes accesses, got the method {thing.__name__} of {described(owner)}; call it: "
            f".{thing.__name__}()"
        )
    if is_data(thing):
        raise TypeError(
            f"{what} takes accesses, got {described(thing)}; say how it is used: .read(), .write() or .rw()"
        )
    if hasattr(thing, "accumulates"):
        raise TypeError(
            f"{what} takes accesses, got {described(thing.access.data)}.reduce(...), which is for parallel_for: in a "
            "task, add with .accumulate(op), which several may; one that writes the whole result takes .write()"
        )
    if hasattr(thing, "__dlpack__") and getattr(thing, "ndim", 0) > 0:
        raise TypeError(
            f"{what} takes accesses, got an array of type {type(thing).__name__}; register it, "
            "lX = ctx.logical_data(x), and give lX.read() or such"
        )


def is_data(thing: Any) -> bool:
    """Return whether it is logical data, of one array or of several."""
    return isinstance(thing, DataHandle) or (hasattr(thing, "expand_mode") and not isinstance(thing, type))


def described(data: Any) -> str:
    """Return what messages call data."""
    return str(data.core.describe()) if isinstance(data, DataHandle) else repr(data)
