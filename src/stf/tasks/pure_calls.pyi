"""Calls of pure functions; compiled."""

from typing import Any

from stf.tasks.repeats import KnownCall

class PureCall(KnownCall):
    """The rest of a call of a pure function."""

    fn: Any

def pure_call(
    function: Any, task: Any, fn: Any, values: list[Any], shapes: dict[int, Any] | None
) -> PureCall | None: ...
