"""Results of bodies: where what a function returns goes, and what it has to return."""

from __future__ import annotations

from typing import Any

from stf.interop import adapters
from stf.tasks.last_values import LastValues

LAST_VALUES: object = LastValues


def written_values(task: TaskCore, values: Any) -> Any:
    """Return the arrays that a body's results go to: those opened for writing, in order."""
    if task.groups is not None:
        return None
    written = []
    position = 0
    for i, item in enumerate(task.accesses):
        access: Access = item
        if task.replica_at(i) is None:
            continue
        if access.mode != READ:
            written.append(values[position])
        position += 1
    return written


def store_results(result: Any, written: Any, fn: Any, given: Any = (), owes: bool = False) -> int:
    """Store what a body returned into the data that it writes; it may be what its parameters are bound to in the end.

    A body that `owes` a result does not use all that it writes.
    """
    if type(result) is tuple and len(result) > 1 and type(result[0]) is LAST_VALUES:
        result[0].check(result, given, fn)
        result = None
    name = getattr(fn, "__name__", "body")
    if result is None and owes and written:
        raise TypeError(
            f"task '{name}' returned None this time, and does not use all the arrays that it writes; return a value on "
            "each way through the function, or write into the arrays"
        )
    if result is None or isinstance(result, TaskCore):  # the handle of a task that the body has submitted
        return 0
    if written is None:
        raise TypeError(
            f"task '{name}' returned {type(result).__name__}, and has data made of several arrays; change them in "
            "place, and return nothing"
        )
    if not written:
        raise TypeError(
            f"task '{name}' returned {type(result).__name__} but writes nothing; annotate a parameter stf.Write"
        )
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(written):
        raise ValueError(f"task '{name}' returned {len(results)} results for {len(written)} written parameters")
    results = adapters.copies_of_aliases(results, written)
    for i, (value, target) in enumerate(zip(results, written, strict=True)):
        adapters.store(value, target, name, i)
    return 0
