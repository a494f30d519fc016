"""Coming after events that others complete: ``after=`` of the calls that make tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stf._engine.access import Access


class Outside:
    """The base of events that others complete; tasks after it read its token."""

    __slots__ = ()
    _token: Any


def accesses_after(after: Any) -> tuple[Access, ...]:
    """Return the accesses of a task that comes after events, or raise TypeError for what is none."""
    events = (after,) if isinstance(after, Outside) else after
    if not isinstance(events, Iterable) or isinstance(events, str):
        raise TypeError(f"after takes events of ctx.event(), got {type(after).__name__}; put them in a list")
    tokens: dict[int, Any] = {}
    for event in events:
        if not isinstance(event, Outside):
            raise TypeError(
                f"after takes events of ctx.event(), got {type(event).__name__}; tasks come after those that wrote the "
                "data which they use"
            )
        tokens[id(event)] = event._token
    return tuple(token.read() for token in tokens.values())
